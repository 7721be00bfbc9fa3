//! A front on a free port, and a client that sends exactly the bytes it is told to.
//! Never retries and never waits without a bound.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use fencepost_front::{Drained, Limits, PeerAddr, PeerThumbprint, Tls, serve};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// Far beyond anything a test waits for: reaching it is a failure, never a wait.
const NEVER: Duration = Duration::from_secs(20);

pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(NEVER, future).await.unwrap_or_else(|_| panic!("never happened: {what}"))
}

/// The requests that the service saw, and the handles by which a test holds it.
#[derive(Default)]
pub struct Seen {
    calls: AtomicUsize,
    whole: AtomicUsize,
    /// `/held` has begun.
    pub held: Notify,
    /// Lets one `/held` go on.
    pub release: Notify,
    /// The body of `/endless` was dropped.
    pub dropped: Notify,
}

impl Seen {
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Requests whose body was read to its end.
    pub fn whole(&self) -> usize {
        self.whole.load(Ordering::SeqCst)
    }
}

pub struct Front {
    pub addr: SocketAddr,
    pub seen: Arc<Seen>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Drained>,
}

impl Front {
    pub async fn start(limits: Limits) -> Front {
        Front::start_tls(limits, None).await
    }

    pub async fn start_tls(limits: Limits, tls: Option<Tls>) -> Front {
        Front::start_on(limits, tls, Vec::new()).await
    }

    pub async fn start_on(limits: Limits, tls: Option<Tls>, threads: Vec<Handle>) -> Front {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let app = Router::new()
            .route("/held", get(held))
            .route("/endless", get(endless))
            .route("/paused", get(paused))
            .route("/trailers", get(trailers))
            .route("/careless", any(careless))
            .route("/address", any(address))
            .route("/nothing", any(|| async { (StatusCode::NO_CONTENT, "never sent") }))
            .route("/unchanged", any(|| async { (StatusCode::NOT_MODIFIED, "never sent") }))
            .route("/missing", any(|_: Bytes| async { (StatusCode::NOT_FOUND, "not here") }))
            .route("/thread", any(|| async { std::thread::current().name().unwrap_or_default().to_owned() }))
            .route("/large", get(|| async { vec![b'x'; LARGE] }))
            .fallback(any(echo))
            .with_state(seen.clone());
        let limits = Limits { is_plain: super::IS_PLAIN, refuse: fencepost_wire::problem::refuse, ..limits };
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(serve(listener, app, limits, tls, threads, async {
            let _ = stopped.await;
        }));
        Front { addr, seen, stop: Some(stop), running }
    }

    pub async fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream }
    }

    /// Sends and reads until the server closes.
    pub async fn exchange(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut client = self.connect().await;
        client.send(bytes).await;
        client.rest().await
    }

    pub fn begin_shutdown(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub async fn drained(self) -> Drained {
        soon("serve ends", self.running).await.unwrap()
    }
}

/// More than the sockets' buffers can hold.
pub const LARGE: usize = 16 * 1024 * 1024;

async fn echo(State(seen): State<Arc<Seen>>, request: Request) -> Response {
    seen.calls.fetch_add(1, Ordering::SeqCst);
    let (parts, body) = request.into_parts();
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return (StatusCode::IM_A_TEAPOT, "the service saw a broken body").into_response();
    };
    seen.whole.fetch_add(1, Ordering::SeqCst);
    let peer = parts.extensions.get::<PeerThumbprint>().map_or("nobody", |peer| &peer.0);
    format!("{} {} {} {peer}", parts.method, parts.uri, String::from_utf8_lossy(&bytes)).into_response()
}

/// Takes whatever part of the body it can get for enough.
async fn careless(request: Request) -> &'static str {
    let _ = axum::body::to_bytes(request.into_body(), usize::MAX).await;
    "fine"
}

/// Whether the service is told where its client is: not of what came the short way.
async fn address(request: Request) -> &'static str {
    if request.extensions().get::<PeerAddr>().is_some() { "told" } else { "untold" }
}

async fn held(State(seen): State<Arc<Seen>>) -> &'static str {
    seen.calls.fetch_add(1, Ordering::SeqCst);
    seen.held.notify_one();
    seen.release.notified().await;
    "held and released"
}

async fn endless(State(seen): State<Arc<Seen>>) -> Body {
    Body::new(Endless(seen))
}

/// One word, a pause until the test says so, another word.
async fn paused(State(seen): State<Arc<Seen>>) -> Body {
    let later = seen.clone();
    Body::new(Paused(1, Box::pin(async move { later.release.notified().await })))
}

/// A word, and a sum behind it.
async fn trailers() -> Response {
    let sum = HeaderMap::from_iter([(HeaderName::from_static("x-sum"), HeaderValue::from_static("42"))]);
    let frames = [Frame::data(Bytes::from_static(b"body")), Frame::trailers(sum)].map(Ok::<_, Infallible>);
    ([("trailer", "x-sum")], Body::new(StreamBody::new(futures::stream::iter(frames)))).into_response()
}

struct Endless(Arc<Seen>);

impl Drop for Endless {
    fn drop(&mut self) {
        self.0.dropped.notify_one();
    }
}

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 65_536])))))
    }
}

struct Paused(u8, Pin<Box<dyn Future<Output = ()> + Send>>);

impl http_body::Body for Paused {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let word = match self.0 {
            1 => "before ",
            2 => {
                std::task::ready!(self.1.as_mut().poll(cx));
                "after"
            }
            _ => return Poll::Ready(None),
        };
        self.0 += 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(word.as_bytes())))))
    }
}

pub struct Client {
    pub stream: TcpStream,
}

impl Client {
    /// A server that has refused may stop reading; only its answer counts.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = soon("sending", self.stream.write_all(bytes.as_ref())).await;
    }

    /// Everything until the server closes.
    pub async fn rest(&mut self) -> String {
        let mut all = Vec::new();
        // A reset instead of a close ends the connection as well.
        let _ = soon("the server closes", self.stream.read_to_end(&mut all)).await;
        String::from_utf8_lossy(&all).into_owned()
    }

    /// One answer with a Content-Length.
    pub async fn answer(&mut self) -> String {
        let mut text = String::new();
        loop {
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let len = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if body.len() >= len.expect("a sized answer").parse().unwrap() {
                    return text;
                }
            }
            let byte = soon("an answer", self.stream.read_u8()).await.unwrap();
            text.push(byte as char);
        }
    }
}

/// The status of an answer; 0 for a connection closed without one.
pub fn status(answer: &str) -> u16 {
    answer.strip_prefix("HTTP/1.1 ").map_or(0, |rest| rest[..3].parse().unwrap())
}

/// Asserts a whole problem with this status and code, after which nothing follows.
pub fn assert_problem(answer: &str, expected: u16, code: &str) {
    assert_eq!(status(answer), expected, "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/problem+json"), "{answer}");
    assert!(head.contains("connection: close"), "{answer}");
    let problem: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
    assert_eq!(problem["status"], expected, "{answer}");
    assert_eq!(problem["code"], code, "{answer}");
    for member in ["type", "title", "detail"] {
        assert!(problem[member].is_string(), "{member} in {answer}");
    }
    assert_eq!(problem["trace_id"].as_str().unwrap().len(), 32, "{answer}");
}

pub const GET: &str = "GET /ok HTTP/1.1\r\nHost: a\r\n\r\n";
