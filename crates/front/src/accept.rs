//! Accepts connections until shutdown, then lets requests in flight finish.
//! Never serves more connections than allowed, except a few for probes; never spins when the process is out of files.
//! Called by `cli`.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tower_service::Service;

use super::body::RequestBody;
use super::connection::{self, Caller, Phase};
use super::limits::Limits;
use super::peer::{Peer, Secured, Serves};
use super::seats::{Reserve, Seat, Seats};
use super::sniff::First;
use super::tls::{FinishedHandshake, Tls};

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every request in flight was answered.
    Whole,
    /// The grace period ended with this many connections still busy; they were cut.
    Cut(usize),
}

/// Serves until `shutdown` ends. Then it accepts no more connections, closes idle ones, lets requests in flight
/// finish within `grace_ms_max`, and cuts the rest. An HTTP/1 connection stays on one runtime of `threads`. HTTP/2, and
/// everything where `threads` is empty, is served on the runtime of this call.
pub async fn serve<S, B>(
    listener: TcpListener,
    service: S,
    limits: Limits,
    tls: Option<Tls>,
    threads: Vec<Handle>,
    shutdown: impl Future<Output = ()>,
) -> Drained
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let acceptor = Acceptor {
        seats: Seats::new(limits.connections_max, limits.connections_per_client_max, limits.proxies.clone()),
        reserve: Reserve::new(limits.reserve_max),
        reserve_limits: Arc::new(reserve_limits(&limits)),
        limits: Arc::new(limits),
        tls,
        http2_runtime: (!threads.is_empty()).then(Handle::current),
        threads,
    };
    let (phase, phases) = watch::channel(Phase::Open);
    let mut shutdown = pin!(shutdown);
    let mut pause = PAUSE_MIN;
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, addr)) => {
                pause = PAUSE_MIN;
                acceptor.admit(stream, addr, &service, &phases);
            }
            Err(error) if is_the_clients(&error) => {}
            Err(_) => {
                // Out of files or memory. The same connection is still first in the queue: accepting again at once
                // would only burn the processor time that is needed to free some.
                tokio::select! {
                    biased;
                    () = &mut shutdown => break,
                    () = sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
                }
            }
        }
    }
    drop(listener);
    acceptor.drain(&phase).await
}

/// Below this many connections, one thread that is awake serves them sooner than several that must be woken.
const TOGETHER: usize = 8;

const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Whether only the queued connection failed: that says nothing about the next one.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

struct Acceptor {
    seats: Seats,
    reserve: Reserve,
    limits: Arc<Limits>,
    reserve_limits: Arc<Limits>,
    tls: Option<Tls>,
    threads: Vec<Handle>,
    /// The accept loop's own runtime, for HTTP/2 connections; none where `threads` is empty.
    http2_runtime: Option<Handle>,
}

impl Acceptor {
    fn admit<S, B>(&self, stream: TcpStream, addr: SocketAddr, service: &S, phases: &watch::Receiver<Phase>)
    where
        S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
        B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        // Answers are small and written whole: waiting to fill a segment would only delay them.
        let _ = stream.set_nodelay(true);
        let seat = self.seats.take(addr.ip());
        let caller = Caller {
            peer: Peer {
                addr,
                secured: None,
                thumbprint: None,
                serves: if seat.is_some() { Serves::All } else { Serves::Probes },
            },
            service: service.clone(),
            limits: if seat.is_some() { self.limits.clone() } else { self.reserve_limits.clone() },
            phases: phases.clone(),
            http2_runtime: self.http2_runtime.clone(),
        };
        let tls = self.tls.clone();
        let Some(seat) = seat else {
            let patience = Duration::from_millis(3 * self.limits.reserve_ms_max);
            let serving = tokio::spawn(timeout(patience, attend(stream, tls, caller, None)));
            return self.reserve.seat(serving.abort_handle());
        };
        let Some(thread) = self.thread() else {
            tokio::spawn(attend(stream, tls, caller, Some(seat)));
            return;
        };
        // A socket belongs to the runtime that it was registered on, so it is registered again on its thread.
        let Ok(stream) = stream.into_std() else { return };
        thread.spawn(async move {
            if let Ok(stream) = TcpStream::from_std(stream) {
                attend(stream, tls, caller, Some(seat)).await;
            }
        });
    }

    // The first thread while it has few tasks, else the thread with the fewest. A thread with a backlog comes last.
    fn thread(&self) -> Option<&Handle> {
        let held_up = |thread: &Handle| thread.metrics().global_queue_depth() > 1;
        let taken = |thread: &Handle| thread.metrics().num_alive_tasks();
        let first = self.threads.first().filter(|first| taken(first) < TOGETHER && !held_up(first));
        first.or_else(|| self.threads.iter().min_by_key(|thread| (held_up(thread), taken(thread))))
    }

    async fn drain(&self, phase: &watch::Sender<Phase>) -> Drained {
        phase.send_replace(Phase::Closing);
        let grace = Duration::from_millis(self.limits.grace_ms_max);
        if timeout(grace, self.seats.all_free()).await.is_ok() {
            return Drained::Whole;
        }
        let busy = self.seats.len_taken();
        phase.send_replace(Phase::Cut);
        // Dropping connections is quick. A service that blocks its thread is not waited for.
        let _ = timeout(PAUSE_MAX, self.seats.all_free()).await;
        Drained::Cut(busy)
    }
}

/// The limits of a connection past the bounds: a short time for its one request.
fn reserve_limits(limits: &Limits) -> Limits {
    let ms = limits.reserve_ms_max;
    Limits { handshake_ms_max: ms, head_ms_max: ms, idle_ms_max: ms, write_wait_ms_max: ms, ..limits.clone() }
}

async fn attend<S, B>(stream: TcpStream, tls: Option<Tls>, mut caller: Caller<S>, seat: Option<Seat>)
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    match tls {
        None => connection::open(stream, caller).await,
        Some(tls) => {
            let patience = Duration::from_millis(caller.limits.handshake_ms_max);
            let shaken = tokio::select! {
                biased;
                shaken = timeout(patience, tls.handshake(stream)) => shaken,
                _ = caller.phases.wait_for(|phase| *phase != Phase::Open) => return,
            };
            if let Ok(Ok(FinishedHandshake { stream, thumbprint, protocol })) = shaken {
                caller.peer.thumbprint = thumbprint;
                caller.peer.secured = Some(Secured);
                connection::run(stream, First::nothing(protocol), caller).await;
            }
        }
    }
    drop(seat);
}
