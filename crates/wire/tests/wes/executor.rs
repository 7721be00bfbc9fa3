//! The executor's front, with a handler that does not end.

use std::{
    convert::Infallible,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use fencepost::{
    Done, Failure, Fencepost,
    clock::{Clock, SystemClock},
    engine::Limits,
    executor::{Event, Receiver},
    policy::Policy,
    signature::{Secret, fgai, standard},
    store::memory::Memory,
};
use fencepost_front::{Budget, Standing};
use fencepost_wire::{
    http::executor::{Front, Handler, router},
    log::{Level, Log},
};
use http::Request;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tower_service::Service;

use super::world::event;

/// A machine that sleeps: the world goes on, and what counts from its start does not.
#[derive(Default)]
struct Sleeper {
    clock: SystemClock,
    slept_ms: AtomicU64,
}

impl Clock for Sleeper {
    fn wall_ms(&self) -> u64 {
        self.clock.wall_ms() + self.slept_ms.load(Ordering::SeqCst)
    }

    fn monotonic_ms(&self) -> u64 {
        self.clock.monotonic_ms()
    }
}

#[tokio::test]
async fn a_signature_is_as_old_as_the_world_says() {
    let clock = Arc::new(Sleeper::default());
    let once = Fencepost::over(
        Arc::default() as Arc<Memory>,
        clock.clone(),
        Policy::builtin(),
        Limits::default(),
        Box::new(()),
        None,
    );
    let once = once.await.unwrap();
    let secret = || Secret::new(b"hush").unwrap();
    let receiver = Receiver::new(once.clone(), vec![secret()]);
    clock.slept_ms.store(3_600_000, Ordering::SeqCst);
    for (age_ms, status) in [(0, 200), (3_600_000, 401)] {
        let body = event(&format!("cid-{age_ms}"), "WH-1").to_string();
        let at_s = (clock.wall_ms() - age_ms) / 1_000;
        let mut headers = http::HeaderMap::new();
        headers.insert("webhook-id", "m-1".parse().unwrap());
        headers.insert("webhook-timestamp", at_s.into());
        headers.insert("webhook-signature", standard(&[secret()], "m-1", at_s, body.as_bytes()).parse().unwrap());
        let done = |event: Event, _| async { Ok::<_, Failure<Infallible>>(Done::new(event.correlation_id, "{}")) };
        assert_eq!(receiver.receive(&headers, body.into(), done).await.status, status);
    }
}

#[tokio::test]
async fn a_handler_that_never_ends_its_answer_holds_nothing_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/work", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 64]).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{").await.unwrap();
        std::future::pending::<()>().await;
    });
    let (store, clock) = (Arc::new(Memory::default()), Arc::new(SystemClock::default()));
    let once = Fencepost::over(store, clock, Policy::builtin(), Limits::default(), Box::new(()), None);
    let secret = || Secret::new(b"hush").unwrap();
    let receiver = Receiver::new(once.await.unwrap(), vec![secret()]);
    let handler = Handler::new(&url, Duration::from_millis(500)).unwrap();
    let front = Front::new(receiver, handler, Log::new(Level::Error, io::sink()), || 0, Budget::new(1 << 20));
    let body = event("cid-1", "WH-1").to_string();
    let request = Request::post("/webhooks/dispatch").header("x-fgai-signature", fgai(&secret(), body.as_bytes()));
    let answer = router(front).call(request.body(Body::from(body)).unwrap());
    // It said that it has done it: that it never said more does not undo it.
    let answer = tokio::time::timeout(Duration::from_secs(20), answer).await.expect("it waits for ever").unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn delivery_is_not_read_while_bodies_of_unknown_senders_fill_their_share() {
    let (store, clock) = (Arc::new(Memory::default()), Arc::new(SystemClock::default()));
    let once = Fencepost::over(store, clock, Policy::builtin(), Limits::default(), Box::new(()), None);
    let receiver = Receiver::new(once.await.unwrap(), vec![Secret::new(b"hush").unwrap()]);
    let handler = Handler::new("http://127.0.0.1:9/work", Duration::from_millis(500)).unwrap();
    let budget = Budget::new(1 << 20);
    let front = Front::new(receiver, handler, Log::new(Level::Error, io::sink()), || 0, budget.clone());
    let ask = || {
        let request = Request::post("/webhooks/dispatch").header("x-fgai-signature", "sha256=00");
        router(front.clone()).call(request.body(Body::from(event("cid-1", "WH-1").to_string())).unwrap())
    };
    let mut others = budget.charge(Standing::Unauthenticated);
    others.try_add(1 << 17).unwrap();
    let full = ask().await.unwrap();
    assert_eq!((full.status().as_u16(), full.headers()["retry-after"].as_bytes()), (503, &b"5"[..]));
    drop(others);
    assert_eq!(ask().await.unwrap().status(), 401, "its signature is looked at");
    assert_eq!(budget.held(), 0);
}
