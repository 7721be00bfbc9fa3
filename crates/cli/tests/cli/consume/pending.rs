//! A message whose first copy is pending elsewhere.

use fencepost_rig::RedisServer;
use serde_json::json;

use super::{
    super::server::Serve,
    scene::{Scene, body},
};

const SCOPE: &str = "QUEUE_MESSAGE";

#[test]
fn a_copy_whose_first_is_pending_is_not_acknowledged_until_it_is_sealed() {
    let (scene, redis) = (Scene::new(2), RedisServer::synced());
    let server = Serve::sharing(&redis.url()).start();
    let key = json!({"topic": "orders", "partition": "0", "message_key": "k", "dedupe_id": "offset:0"});
    let token = server.acme().claim_with(SCOPE, &key, json!({"lease_ms": 3_600_000})).token();
    scene.fill(0, 20);
    let mut command = scene.sharing(&redis.url());
    // A waiting message takes no slot.
    command.args(["--tenant", "acme", "--concurrency", "1"]);
    let consumer = scene.start(command);
    consumer.until_said(r#""decision":"in_flight""#);
    scene.until_committed(1, 20);
    assert_eq!((scene.committed(0), scene.handler.count()), (0, 20), "its partition waits, and no other");
    server.acme().seal(SCOPE, &key, token, "by hand", json!({})).ok(200);
    scene.until_committed(0, 20);
    assert_eq!(body(&scene.handler.nth(21)), "p0-0001");
    assert_eq!(scene.handler.count(), 39);
    assert!(consumer.said().contains(r#""effect_id":"by hand""#), "{}", consumer.said());
}
