//! Replies to a client of the gateway whose upstream answers after a person has resolved the key.

use fencepost::policy::Policy;
use http::Method;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::world::{ADMIN, World, holders};

const PARTNER: &str = "dev-partner";

#[tokio::test]
async fn answer_of_the_upstream_that_comes_after_a_person_resolved_says_who_did() {
    for (outcome, code) in [
        (json!({"outcome": "sealed", "effect_id": "by hand"}), "conflict"),
        (json!({"outcome": "released"}), "fenced-off"),
    ] {
        let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let policy = format!(
            "scopes: {{PAY: {{key: [id], lease: 30s, on_lapse: hold}}}}\n\
             routes: [{{match: POST /pay, upstream: \"http://{}\", scope: PAY, key: {{id: \"body:/id\"}}}}]\n",
            upstream.local_addr().unwrap()
        );
        let world = World::with(holders(), Policy::parse("p.yml", &policy).unwrap()).await;
        let asked = world.ask_at(Method::POST, "/pay", PARTNER, r#"{"id":"p-1"}"#);
        let meanwhile = async {
            let (mut stream, _) = upstream.accept().await.unwrap();
            assert!(stream.read(&mut [0; 1_024]).await.unwrap() > 0);
            // No renewal is due in the test's own time, and the lease is over in that of the store.
            world.clock.pass(30_000);
            let mut resolve = json!({"scope": "PAY", "key": {"id": "p-1"}, "tenant": "acme", "why": "asked the bank"});
            resolve.as_object_mut().unwrap().extend(outcome.as_object().unwrap().clone());
            world.ask_at(Method::POST, "/admin/idempotency/resolve", ADMIN, resolve.to_string()).await.is(200);
            stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\npaid").await.unwrap();
            stream
        };
        let (answer, _stream) = tokio::join!(asked, meanwhile);
        let refused = answer.refused(409, code).json;
        assert_eq!(refused["resolved_by"], "dev-admin", "{refused}");
        assert!(refused["resolved_at"].is_string() && refused["explain"].is_string(), "{refused}");
        assert!(
            refused["detail"].as_str().unwrap().contains("asked the bank; the upstream's answer came later"),
            "{refused}"
        );
    }
}
