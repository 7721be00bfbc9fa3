//! Takes connections until told to stop, then lets what is in flight finish.
//! Never serves more connections than allowed, and never spins when the process is out of files.
//! Called by the binary.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tower_service::Service;

use super::body::Body;
use super::connection::{self, Caller, Phase};
use super::limits::Limits;
use super::peer::Peer;
use super::refusal;
use super::sniff::First;
use super::tls::{Shaken, Tls};

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every request in flight was answered.
    Whole,
    /// The grace period ended with so many connections still busy; they were cut.
    Cut(usize),
}

/// Serves until `shutdown` ends: then takes no more connections, closes the idle ones, finishes
/// what is in flight within `grace_ms_max`, and cuts the rest.
pub async fn serve<S, B>(
    listener: TcpListener,
    service: S,
    limits: Limits,
    tls: Option<Tls>,
    shutdown: impl Future<Output = ()>,
) -> Drained
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let seats = u32::try_from(limits.connections_max).unwrap_or(u32::MAX);
    let door = Door {
        seats: Arc::new(Semaphore::new(seats as usize)),
        waiting_room: Arc::new(Semaphore::new(limits.turned_away_max)),
        limits: Arc::new(limits),
        tls,
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
                door.admit(stream, addr, &service, &phases);
            }
            Err(error) if is_the_clients(&error) => {}
            Err(_) => {
                // Out of files or memory: the same connection is still first in the queue, so
                // asking again at once would only burn the processor that could free some.
                tokio::select! {
                    biased;
                    () = &mut shutdown => break,
                    () = sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
                }
            }
        }
    }
    drop(listener);
    door.drain(seats, &phase).await
}

const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A connection that died while it was queued says nothing about the next.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

struct Door {
    seats: Arc<Semaphore>,
    waiting_room: Arc<Semaphore>,
    limits: Arc<Limits>,
    tls: Option<Tls>,
}

impl Door {
    fn admit<S, B>(&self, stream: TcpStream, addr: SocketAddr, service: &S, phases: &watch::Receiver<Phase>)
    where
        S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
        B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let Ok(seat) = self.seats.clone().try_acquire_owned() else {
            return self.turn_away(stream);
        };
        // Answers are small and written whole: waiting to fill a segment only delays them.
        let _ = stream.set_nodelay(true);
        let (limits, service, mut phases) = (self.limits.clone(), service.clone(), phases.clone());
        let Some(tls) = self.tls.clone() else {
            tokio::spawn(async move {
                let caller = Caller { peer: Peer { addr, thumbprint: None }, service, limits, phases };
                connection::open(stream, caller).await;
                drop(seat);
            });
            return;
        };
        tokio::spawn(async move {
            let patience = Duration::from_millis(limits.handshake_ms_max);
            let shaken = tokio::select! {
                biased;
                shaken = timeout(patience, tls.handshake(stream)) => shaken,
                _ = phases.wait_for(|phase| *phase != Phase::Open) => return,
            };
            if let Ok(Ok(Shaken { stream, thumbprint, protocol })) = shaken {
                let caller = Caller { peer: Peer { addr, thumbprint }, service, limits, phases };
                connection::run(stream, First::nothing(protocol), caller).await;
            }
            drop(seat);
        });
    }

    /// Says why, if that costs little. Under TLS a word would cost a handshake: there it is a close.
    fn turn_away(&self, stream: TcpStream) {
        let Ok(place) = self.waiting_room.clone().try_acquire_owned() else { return };
        if self.tls.is_none() {
            tokio::spawn(say_full(stream, place, Duration::from_millis(self.limits.linger_ms_max)));
        }
    }

    async fn drain(&self, seats: u32, phase: &watch::Sender<Phase>) -> Drained {
        phase.send_replace(Phase::Closing);
        let grace = Duration::from_millis(self.limits.grace_ms_max);
        if timeout(grace, self.seats.acquire_many(seats)).await.is_ok() {
            return Drained::Whole;
        }
        let busy = seats as usize - self.seats.available_permits();
        phase.send_replace(Phase::Cut);
        // Dropping a connection is quick; a service that blocks its thread is not waited for.
        let _ = timeout(PAUSE_MAX, self.seats.acquire_many(seats)).await;
        Drained::Cut(busy)
    }
}

async fn say_full(mut stream: TcpStream, place: OwnedSemaphorePermit, patience: Duration) {
    let _ = timeout(patience, async {
        stream.write_all(&refusal::FULL.bytes()).await?;
        stream.shutdown().await?;
        // What the client sends must be read, or closing would reset the connection and lose the answer.
        let mut sink = [0; 1024];
        while stream.read(&mut sink).await? > 0 {}
        io::Result::Ok(())
    })
    .await;
    drop(place);
}
