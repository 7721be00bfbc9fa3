//! The malformed requests that the front is held against, here with a route behind it: nothing reaches the upstream.

use super::{World, caller::post, replayed};

#[path = "../../../../wire/tests/server/corpus/mod.rs"]
#[allow(dead_code)]
pub mod corpus;

#[test]
fn no_malformed_request_reaches_the_upstream_or_is_a_5xx() {
    let world = World::new(
        r#"
scopes:
  CASE: { key: [id], retain: 1h }
routes:
  - { match: "* /cases", upstream: "UPSTREAM", scope: CASE, key: { id: "body:/externalEventId" } }
"#,
    );
    let upstream = &world.upstream;
    let run = corpus::run(world.address(), "/cases", corpus::Against::Gateway, || upstream.connections());
    eprintln!("{run} cases");
    assert!(run >= 300, "{run}");
    // It still serves.
    let asked = post("/cases").json(r#"{"externalEventId":"e"}"#);
    world.send(&asked).ok(201);
    assert!(replayed(&world.send(&asked)));
    assert_eq!(upstream.count(), 1);
}
