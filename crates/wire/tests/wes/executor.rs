//! The executor's front, with a handler that does not end.

use std::{io, sync::Arc, time::Duration};

use axum::body::Body;
use fencepost::{
    Fencepost,
    clock::SystemClock,
    engine::Limits,
    executor::Receiver,
    policy::Policy,
    signature::{Secret, fgai},
    store::memory::Memory,
};
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
    let front = Front::new(receiver, handler, Log::new(Level::Error, io::sink()), || 0);
    let body = event("cid-1", "WH-1").to_string();
    let request = Request::post("/webhooks/dispatch").header("x-fgai-signature", fgai(&secret(), body.as_bytes()));
    let answer = router(front).call(request.body(Body::from(body)).unwrap());
    // It said that it has done it: that it never said more does not undo it.
    let answer = tokio::time::timeout(Duration::from_secs(20), answer).await.expect("it waits for ever").unwrap();
    assert_eq!(answer.status(), 200);
}
