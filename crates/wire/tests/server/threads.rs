//! Connections on threads of their own: where they go, and what does not stay there.

use std::{collections::BTreeMap, sync::LazyLock};

use fencepost_front::{Drained, Limits};
use futures::future::join_all;
use tokio::runtime::{Builder, Runtime};

use super::{
    http2,
    plain::bytes_on_the_wire::{Client, Front, soon},
};

const ASK: &str = "POST /thread HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";

// On two runtimes of one thread each, the short way and through hyper.
async fn front(limits: Limits) -> Front {
    static TWO: LazyLock<[Runtime; 2]> = LazyLock::new(|| {
        ["first", "second"]
            .map(|name| Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_all().build().unwrap())
    });
    Front::start_on(limits, None, TWO.iter().map(|runtime| runtime.handle().clone()).collect()).await
}

async fn thread(client: &mut Client) -> String {
    client.send(ASK).await;
    client.answer().await.split("\r\n\r\n").nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn few_connections_share_a_thread_many_are_spread_and_each_stays_where_it_is() {
    let front = front(Limits::default()).await;
    let mut clients = Vec::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for number in 0..40 {
        let mut client = front.connect().await;
        let name = thread(&mut client).await;
        if number < 8 {
            assert_eq!(name, "first");
        }
        *counts.entry(name.clone()).or_default() += 1;
        clients.push((client, name));
    }
    assert_eq!(counts, BTreeMap::from([("first".to_owned(), 20), ("second".to_owned(), 20)]));
    for (client, name) in &mut clients {
        // The short way, then hyper.
        assert_eq!(thread(client).await, *name);
        client.send("GET /thread HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").await;
        assert!(client.answer().await.ends_with(name.as_str()));
    }
}

#[tokio::test]
async fn the_requests_of_one_http2_connection_are_not_all_one_threads_work() {
    let front = front(Limits::default()).await;
    let mut speaker = http2::Speaker::over(front.connect().await.stream).await;
    let (_, name) = speaker.get("/thread").await;
    assert!(!["first", "second"].contains(&name.as_str()), "{name}");
}

#[tokio::test]
async fn the_end_waits_for_every_thread_and_cuts_what_takes_too_long() {
    for (grace_ms_max, release) in [(60_000, true), (20, false)] {
        let mut front = front(Limits { grace_ms_max, ..Limits::default() }).await;
        let mut clients = Vec::new();
        for _ in 0..20 {
            clients.push(front.connect().await);
        }
        for client in &mut clients {
            client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n").await;
            soon("held", front.seen.held.notified()).await;
        }
        front.begin_shutdown();
        // In whatever order the threads come to it.
        let let_go = async {
            loop {
                if release {
                    front.seen.release.notify_one();
                }
                tokio::task::yield_now().await;
            }
        };
        let ends = join_all(clients.iter_mut().map(Client::rest));
        tokio::select! {
            ends = ends => assert!(ends.iter().all(|end| end.ends_with("held and released") == release), "{ends:?}"),
            () = let_go => {}
        }
        assert_eq!(front.drained().await, if release { Drained::Whole } else { Drained::Cut(20) });
    }
}
