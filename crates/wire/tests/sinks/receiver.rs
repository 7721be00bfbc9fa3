//! A receiver on loopback that keeps what it heard and answers as it is told, and events to send to it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fencepost::dispatch::{Delivery, Sink, Vault};
use fencepost_kernel::lane::AttemptFailure;
use fencepost_kernel::{Millis, Tenant};
use fencepost_kernel::{
    dispatch::{Transport, WarehouseTransport},
    lane::{AfterDead, Entry},
};
use fencepost_testkit::clock::ManualClock;
use fencepost_wire::sinks::webhook::{Egress, WebhookSettings, WebhookSink};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::server::bytes_on_the_wire::soon;

pub const NOW_S: u64 = 1_700_000_000;
pub const BODY: &str = "{ \"correlation_id\":\"cid-101\",\"qty\":1.0, \"note\":\"Grüße\" }\n";
pub const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// One request, read by code that shares nothing with the sender.
pub struct Heard {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Heard {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let first = all.next();
        assert_eq!(all.next(), None, "{name} is there twice");
        first
    }
}

/// The receiver's step after the bytes of an answer.
#[derive(Clone, Copy, PartialEq)]
pub enum Then {
    /// The next request.
    Listen,
    /// Nothing, for ever.
    Silence,
    /// More and more bytes, until nobody takes them.
    More,
    /// The connection is closed.
    Close,
}

#[derive(Default)]
struct Seen {
    heard: Mutex<Vec<Heard>>,
    connections: AtomicUsize,
    /// Connections that are over.
    ended: watch::Sender<usize>,
}

pub struct Receiver {
    pub port: u16,
    seen: Arc<Seen>,
}

impl Receiver {
    pub async fn start(answer: impl Into<Vec<u8>>, then: Then) -> Self {
        Self::start_with(answer.into(), then, None).await
    }

    pub async fn start_with(answer: Vec<u8>, then: Then, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen: Arc<Seen> = Arc::default();
        let (keep, answer) = (seen.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                keep.connections.fetch_add(1, Ordering::SeqCst);
                let (keep, answer, tls) = (keep.clone(), answer.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &keep, &answer, then).await;
                            }
                        }
                        None => serve(stream, &keep, &answer, then).await,
                    }
                    keep.ended.send_modify(|ended| *ended += 1);
                });
            }
        });
        Self { port, seen }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hooks?tenant=a%20b", self.port)
    }

    pub fn heard(&self) -> Vec<Heard> {
        std::mem::take(&mut self.seen.heard.lock().unwrap())
    }

    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// Waits until the sender has let go of this many connections.
    pub async fn ended(&self, count: usize) {
        let mut ended = self.seen.ended.subscribe();
        soon("connections end", ended.wait_for(|ended| *ended >= count)).await.unwrap();
    }
}

async fn serve<IO: AsyncRead + AsyncWrite + Unpin>(mut io: IO, seen: &Seen, answer: &[u8], then: Then) {
    while let Some(heard) = hear(&mut io).await {
        seen.heard.lock().unwrap().push(heard);
        if io.write_all(answer).await.is_err() {
            return;
        }
        io.flush().await.ok();
        match then {
            Then::Listen => {}
            Then::Close => return,
            Then::Silence => while matches!(io.read(&mut [0; 1024]).await, Ok(1..)) {},
            Then::More => while io.write_all(&[b'x'; 1024]).await.is_ok() {},
        }
    }
}

async fn hear<IO: AsyncRead + Unpin>(io: &mut IO) -> Option<Heard> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            break end;
        }
        if io.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap().to_owned();
    let pair = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned())).unwrap();
    let mut heard = Heard { line, headers: lines.map(pair).collect(), body: bytes[end + 4..].to_vec() };
    let length: usize = heard.header("content-length").unwrap().parse().unwrap();
    while heard.body.len() < length {
        io.read_buf(&mut heard.body).await.ok()?;
    }
    Some(heard)
}

pub fn vault() -> Vault {
    Vault::fixed([3; 32])
}

/// A sink that may reach loopback.
pub fn sink(settings: &WebhookSettings) -> WebhookSink {
    sink_over(Egress::new(&[], true).unwrap(), settings)
}

pub fn sink_over(egress: Egress, settings: &WebhookSettings) -> WebhookSink {
    WebhookSink::new(egress, Arc::new(vault()), ManualClock::at(NOW_S * 1_000 + 999), settings).unwrap()
}

/// An event for a url, signed with one secret.
pub fn event(url: &str) -> Delivery {
    event_with(url, &["s3cret"])
}

pub fn event_with(url: &str, secrets: &[&str]) -> Delivery {
    let planner = Tenant::new("fgai-wms");
    let webhook = vault().seal_webhook(&planner, "WH-1", url, secrets, None).unwrap();
    let route = WarehouseTransport {
        planner,
        warehouse: "WH-1".into(),
        executor: "dev-wes".into(),
        transport: Transport::Webhook(webhook),
        after_dead: AfterDead::Continue,
        receiver_retain_ms: 1,
        at: Millis(1),
    };
    let entry = Entry {
        correlation_id: "cid-101".into(),
        kind: "SHIPPER_RELEASED".into(),
        warehouse: "WH-1".into(),
        body: Bytes::from_static(BODY.as_bytes()),
        published: Millis(1),
        redrive_of: None,
    };
    Delivery {
        lane: "fgai-wms:WH-1".into(),
        seq: 41,
        prev_seq: 39,
        attempt: 2,
        transport: route.into(),
        entry: entry.into(),
    }
}

/// One attempt at a url.
pub async fn attempt(sink: &WebhookSink, url: &str) -> Result<(), AttemptFailure> {
    sink.deliver(event(url)).await
}

/// The status, the note and the wish of an attempt that may go better later.
pub fn later(outcome: Result<(), AttemptFailure>) -> (Option<u16>, String, Option<u64>) {
    match outcome {
        Err(AttemptFailure::Later { answer, wish_ms }) => (answer.status, answer.note, wish_ms),
        other => panic!("{other:?}"),
    }
}
