//! Which planners an executor serves: whom a planner may name, and what a poll considers.

use fencepost::policy::{
    Policy,
    identity::{Credential, Directory, Holder, Identity, Planners, Role, Sha, Warehouses},
};
use serde_json::json;

use super::world::{ADMIN, Answer, World, event};

const P1: &str = "token-of-p1";
const P2: &str = "token-of-p2";
const ONE: &str = "token-of-ex-one";
const BOTH: &str = "token-of-ex-both";
const NONE: &str = "token-of-ex-none";

fn holder(token: &str, id: &str, roles: &[Role], planners: &[&str]) -> Holder {
    let planners = Planners::Named(planners.iter().map(|id| (*id).to_owned()).collect());
    Holder {
        identity: Identity::new(id, roles.iter().copied(), Warehouses::All).serving(planners),
        tokens: vec![Credential { sha: Sha::of(token), created_ms: None, expires_ms: None }],
        certificates: Vec::new(),
    }
}

fn holders() -> Vec<Holder> {
    let mut silent = holder("", "ex-silent", &[Role::Executor], &["p1"]);
    // Known from a policy, and without a credential: events are pushed to it.
    silent.tokens.clear();
    vec![
        holder(ADMIN, "boss", &[Role::Admin], &[]),
        holder(P1, "p1", &[Role::Planner], &[]),
        holder(P2, "p2", &[Role::Planner], &[]),
        holder(ONE, "ex-one", &[Role::Executor], &["p1"]),
        holder(BOTH, "ex-both", &[Role::Executor, Role::Partner], &["p1", "p2"]),
        holder(NONE, "ex-none", &[Role::Executor], &[]),
        holder("token-of-acme", "acme", &[Role::Partner], &[]),
        silent,
    ]
}

async fn world() -> World {
    World::with(holders(), Policy::builtin()).await
}

async fn put(world: &World, token: &str, executor: &str) -> Answer {
    world.put("/warehouses/WH-1/transport", token, &json!({"executor_id": executor, "poll": {}})).await
}

async fn publish(world: &World, token: &str, planner: &str, id: &str) {
    let mut event = event(id, "WH-1");
    event["planner_id"] = json!(planner);
    world.post("/dispatch/events", token, &event).await.is(202);
}

async fn poll(world: &World, token: &str, query: &str) -> Answer {
    world.get(&format!("/dispatch/pending?{query}"), token).await
}

fn ids(answer: &Answer) -> Vec<&str> {
    let events = answer.json["events"].as_array().unwrap();
    events.iter().map(|event| event["correlation_id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn naming_an_executor_that_does_not_serve_the_planner_is_422_whoever_it_is() {
    let world = world().await;
    let webhook = json!({"url": "http://127.0.0.1:9/hook", "secret": "sixteen bytes or more"});
    for (token, executor) in [
        (P2, "ex-one"),
        (P1, "ex-none"),
        (P1, "nobody"),
        (P1, "acme"),
        (P1, "boss"),
        (P1, "p1"),
        (P2, "ex-silent"),
        (P1, "EX-ONE"),
    ] {
        let refused = put(&world, token, executor).await.refused(422, "unknown-executor");
        let detail = refused.json["detail"].as_str().unwrap();
        assert!(detail.contains(&format!("no executor {executor:?} serves planner")), "{detail}");
        let pushed = json!({"executor_id": executor, "webhook": webhook});
        world.put("/warehouses/WH-1/transport", token, &pushed).await.refused(422, "unknown-executor");
        world.get("/warehouses/WH-1/transport", token).await.refused(404, "unknown-warehouse");
    }
    for (token, executor) in [(P1, "ex-one"), (P1, "ex-both"), (P2, "ex-both"), (P1, "ex-silent")] {
        put(&world, token, executor).await.is(200);
    }
    // The only one that serves this planner need not be named; one of several must be.
    let unnamed = json!({"poll": {}});
    let answer = world.put("/warehouses/WH-2/transport", P2, &unnamed).await.is(200);
    assert_eq!(answer.json["executor_id"], "ex-both");
    world.put("/warehouses/WH-2/transport", P1, &unnamed).await.refused(400, "malformed-request");
}

#[tokio::test]
async fn a_planner_cannot_change_what_another_planners_executor_polls() {
    let world = world().await;
    put(&world, P1, "ex-one").await.is(200);
    publish(&world, P1, "p1", "first").await;
    assert_eq!(ids(&poll(&world, ONE, "").await.is(200)), ["first"]);
    put(&world, P2, "ex-one").await.refused(422, "unknown-executor");
    assert_eq!(ids(&poll(&world, ONE, "").await.is(200)), ["first"]);
    // One that serves both must say which it means, before the second planner has a lane as well as after.
    put(&world, P1, "ex-both").await.refused(409, "lane-not-drained");
    let said = poll(&world, BOTH, "").await.refused(400, "malformed-request");
    assert!(said.json["detail"].as_str().unwrap().ends_with("p1, p2"), "{}", said.json);
    put(&world, P2, "ex-both").await.is(200);
    publish(&world, P2, "p2", "second").await;
    poll(&world, BOTH, "").await.refused(400, "malformed-request");
    assert_eq!(ids(&poll(&world, BOTH, "planner_id=p2").await.is(200)), ["second"]);
    assert!(ids(&poll(&world, BOTH, "planner_id=p1").await.is(200)).is_empty());
}

#[tokio::test]
async fn a_planner_that_is_not_served_is_403_whether_it_exists_or_not() {
    let world = world().await;
    for (token, query) in [
        (ONE, "planner_id=p2"),
        (ONE, "planner_id=nobody"),
        (NONE, ""),
        (NONE, "planner_id=p1"),
        (ADMIN, ""),
        (ADMIN, "planner_id=p1"),
        (P1, "planner_id=p1"),
        ("token-of-acme", "planner_id=p1"),
    ] {
        poll(&world, token, query).await.refused(403, "forbidden");
    }
}

#[tokio::test]
async fn a_planner_that_an_executor_no_longer_serves_is_refused_and_nothing_is_lost() {
    // A planner is taken from the list, and comes back: the policy's identities are exchanged on one server.
    let policy = |planners: &str| {
        let sha = Sha::of(ONE).hex();
        let planner = Sha::of(P1).hex();
        let text = format!(
            "identities:\n  - {{id: ex-one, roles: [executor], warehouses: all, planners: [{planners}], credentials: \
             [{sha}]}}\n  - {{id: p1, roles: [planner], warehouses: all, credentials: [{planner}]}}\n"
        );
        Policy::load(Some(("test.yml", &text)), []).unwrap()
    };
    let directory = Directory::load(&policy("p1"), None).unwrap();
    let (world, app) = World::over(directory, Policy::builtin()).await;
    put(&world, P1, "ex-one").await.is(200);
    publish(&world, P1, "p1", "a").await;
    let page = poll(&world, ONE, "").await.is(200);
    let cursor = page.json["next_cursor"].as_str().unwrap();

    let serves = |planners: &str| app.directory.adopt(app.directory.prepare(&policy(planners)).unwrap().unwrap());
    serves("");
    poll(&world, ONE, "").await.refused(403, "forbidden");
    poll(&world, ONE, "planner_id=p1").await.refused(403, "forbidden");
    poll(&world, ONE, &format!("since={cursor}")).await.refused(403, "forbidden");
    world.post("/dispatch/ack", ONE, &json!({"cursor": cursor})).await.refused(403, "forbidden");
    put(&world, P1, "ex-one").await.refused(422, "unknown-executor");
    publish(&world, P1, "p1", "b").await;

    serves("p1");
    assert_eq!(ids(&poll(&world, ONE, "").await.is(200)), ["a", "b"]);
    world.post("/dispatch/ack", ONE, &json!({"cursor": cursor})).await.is(200);
    assert_eq!(ids(&poll(&world, ONE, "").await.is(200)), ["b"]);
}

#[tokio::test]
async fn under_dev_every_executor_comes_into_being() {
    let (world, _) = World::over(Directory::dev(), Policy::builtin()).await;
    for executor in ["anybody", "acme", "dev-wes"] {
        put(&world, "dev-planner", executor).await.is(200);
    }
}
