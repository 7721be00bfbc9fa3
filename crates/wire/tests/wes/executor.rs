//! The executor's front, with a handler that does not end.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use axum::body::Body;
use fencepost::{
    Done, Failure, Fencepost,
    clock::{Clock, SystemClock},
    engine::EngineLimits,
    executor::{Event, Receiver},
    policy::Policy,
    signature::{Secret, fgai, standard},
    store::memory::Memory,
};
use fencepost_front::{Budget, Standing};
use fencepost_testkit::clock::ManualClock;
use fencepost_wire::{
    http::executor::{EventHandler, Front, router},
    log::{Level, Log},
};
use http::Request;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tower_service::Service;

use super::world::event;

#[tokio::test]
async fn a_signature_is_as_old_as_the_world_says() {
    let clock = ManualClock::at(1_780_000_000_000);
    let once = Fencepost::over(
        Arc::default() as Arc<Memory>,
        clock.clone(),
        Policy::builtin(),
        EngineLimits::default(),
        Box::new(()),
        None,
    );
    let once = once.await.unwrap();
    let secret = || Secret::new(b"hush").unwrap();
    let receiver = Receiver::new(once.clone(), vec![secret()]);
    clock.suspend(3_600_000);
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
async fn svix_names_of_headers_are_taken_where_those_of_standard_webhooks_are() {
    let (store, clock) = (Arc::new(Memory::default()), Arc::new(SystemClock::default()));
    let at_s = clock.wall_ms() / 1_000;
    let once = Fencepost::over(store, clock, Policy::builtin(), EngineLimits::default(), Box::new(()), None);
    let secret = || Secret::new(b"hush").unwrap();
    let receiver = Receiver::new(once.await.unwrap(), vec![secret()]);
    let body = event("cid-1", "WH-1").to_string();
    let signature = standard(&[secret()], "m-1", at_s, body.as_bytes());
    let signed = |names: &[&str], id: &str| {
        let mut headers = http::HeaderMap::new();
        for name in names {
            let mut insert = |part: &str, value: &str| {
                let name = http::HeaderName::try_from(format!("{name}-{part}")).unwrap();
                headers.insert(name, value.parse().unwrap());
            };
            insert("id", if *name == "svix" { id } else { "m-1" });
            insert("timestamp", &at_s.to_string());
            insert("signature", &signature);
        }
        headers
    };
    for (names, id, status, decision) in [
        (&["svix"][..], "m-1", 200, "new"),
        (&["webhook", "svix"], "m-1", 200, "duplicate"),
        // The handler's own log may show either.
        (&["webhook", "svix"], "m-2", 401, "refused"),
        (&["svix"], "m-2", 401, "refused"),
    ] {
        let done = |event: Event, _| async { Ok::<_, Failure<Infallible>>(Done::new(event.correlation_id, "{}")) };
        let received = receiver.receive(&signed(names, id), body.clone().into(), done).await;
        assert_eq!((received.status.as_u16(), received.decision), (status, decision), "{names:?} {id}");
    }
}

#[tokio::test]
async fn handler_is_told_where_an_earlier_attempt_may_have_had_its_effect() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/work", listener.local_addr().unwrap());
    let handler = tokio::spawn(async move {
        let mut heads = Vec::new();
        // Refused, then unknown, then done.
        for status in [503, 500, 200] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                assert!(stream.read_buf(&mut head).await.unwrap() > 0);
            }
            heads.push(String::from_utf8_lossy(&head).into_owned());
            let answer = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}");
            stream.write_all(answer.as_bytes()).await.unwrap();
            // The rest of the request, or a reset would take the answer with it.
            while stream.read_buf(&mut head).await.is_ok_and(|bytes| bytes > 0) {}
        }
        heads
    });
    let clock = ManualClock::at(1_780_000_000_000);
    let store = Arc::new(Memory::default());
    let once = Fencepost::over(store, clock.clone(), Policy::builtin(), EngineLimits::default(), Box::new(()), None);
    let secret = || Secret::new(b"hush").unwrap();
    let receiver = Receiver::new(once.await.unwrap(), vec![secret()]);
    let handed = EventHandler::new(&url, Duration::from_secs(20)).unwrap();
    let front = Front::new(receiver, handed, Log::new(Level::Error, io::sink()), || 0, Budget::new(1 << 20));
    let body = event("cid-1", "WH-1").to_string();
    for status in [503, 503, 200] {
        let request = Request::post("/webhooks/dispatch").header("x-fgai-signature", fgai(&secret(), body.as_bytes()));
        let answer = router(front.clone()).call(request.body(Body::from(body.clone())).unwrap()).await.unwrap();
        assert_eq!(answer.status(), status);
        clock.pass(3_600_000);
    }
    let told = |head: &String| {
        let says = |line: &str| head.to_lowercase().contains(line);
        (says("fencepost-attempt: 1\r"), says("fencepost-attempt: 2\r"), says("fencepost-recovering: true\r"))
    };
    let told: Vec<_> = handler.await.unwrap().iter().map(told).collect();
    assert_eq!(told, [(true, false, false), (false, true, false), (false, false, true)]);
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
    let once = Fencepost::over(store, clock, Policy::builtin(), EngineLimits::default(), Box::new(()), None);
    let secret = || Secret::new(b"hush").unwrap();
    let receiver = Receiver::new(once.await.unwrap(), vec![secret()]);
    let handler = EventHandler::new(&url, Duration::from_millis(500)).unwrap();
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
    let once = Fencepost::over(store, clock, Policy::builtin(), EngineLimits::default(), Box::new(()), None);
    let receiver = Receiver::new(once.await.unwrap(), vec![Secret::new(b"hush").unwrap()]);
    let handler = EventHandler::new("http://127.0.0.1:9/work", Duration::from_millis(500)).unwrap();
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
