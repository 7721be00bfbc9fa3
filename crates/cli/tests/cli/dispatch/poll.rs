//! Executors that come for their events: pages, cursors, acknowledgements, and several pollers at once.

use std::{
    collections::BTreeSet,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{
    super::{
        client::{Answer, Client},
        server::{Dev, Serve, Server, dev, fencepost, text, until},
    },
    nodes::Town,
    planner::{Planner, event},
    routes::{credential, executor},
};

struct Executor(Client);

impl Executor {
    fn of(server: &Server) -> Self {
        Self(server.client("dev-executor"))
    }

    fn ask(&mut self, query: &str) -> Answer {
        self.0.get(&format!("/wes/v1/dispatch/pending?{query}"))
    }

    /// The ids of a page, and its cursor.
    #[track_caller]
    fn page(&mut self, query: &str) -> (Vec<String>, String) {
        let page = self.ask(query).ok(200);
        let id = |event: &Value| event["correlation_id"].as_str().unwrap().to_owned();
        (page["events"].as_array().unwrap().iter().map(id).collect(), page["next_cursor"].as_str().unwrap().to_owned())
    }

    fn ack(&mut self, cursor: &str) -> Answer {
        self.0.post("/wes/v1/dispatch/ack", json!({"cursor": cursor}).to_string())
    }
}

fn ids(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|n| format!("e-{n:03}")).collect()
}

// A server with so many events for the executor, of two warehouses.
fn holding(count: u32) -> (Dev, Planner, Executor) {
    let server = dev();
    let (mut planner, executor) = (Planner::of(&server), Executor::of(&server));
    planner.polled("WH-1");
    planner.polled("WH-2");
    let events: Vec<Value> =
        (0..count).map(|n| event(&format!("e-{n:03}"), if n % 2 == 0 { "WH-1" } else { "WH-2" })).collect();
    if !events.is_empty() {
        planner.batch(&events).ok(202);
    }
    (server, planner, executor)
}

#[test]
fn only_an_acknowledgement_moves_the_position() {
    let (_server, _planner, mut executor) = holding(10);
    let (first, cursor) = executor.page("limit=4");
    assert_eq!(first, ids(0..4));
    assert_eq!(executor.page("limit=4"), (first, cursor.clone()), "no ack: the same page");
    assert_eq!(executor.page("limit=4&since="), executor.page("limit=4"), "an empty cursor is none");
    // Reading on is possible before anything is acknowledged.
    let (second, further) = executor.page(&format!("limit=4&since={cursor}"));
    assert_eq!(second, ids(4..8));
    assert_eq!(executor.ack(&cursor).ok(200)["acked"], json!(cursor));
    assert_eq!(executor.page("limit=4").0, ids(4..8));
    assert_eq!(executor.ack(&further).ok(200)["acked"], json!(further));
    // A cursor from before the position means the position.
    assert_eq!(executor.page(&format!("since={cursor}")).0, ids(8..10));
    let (_, last) = executor.page("");
    executor.ack(&last).ok(200);
    assert_eq!(executor.page(""), (vec![], String::new()), "an empty page has an empty cursor");
}

#[test]
fn an_acknowledgement_that_says_nothing_new_is_no_error_and_one_of_nobody_is() {
    let (server, mut planner, mut executor) = holding(6);
    let (_, early) = executor.page("limit=2");
    let (_, late) = executor.page("limit=4");
    executor.ack(&late).ok(200);
    let again = executor.ack(&late);
    assert_eq!(again.ok(200)["acked"], json!(late));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(executor.ack(&early).ok(200)["acked"], json!(late), "an earlier one moves nothing back");
    assert_eq!(executor.ack("").ok(200)["acked"], "");
    assert_eq!(executor.page("").0, ids(4..6));

    let mut damaged = late.clone();
    let last = if damaged.ends_with('0') { "1" } else { "0" };
    damaged.replace_range(damaged.len() - 1.., last);
    for wrong in [damaged.as_str(), "rubbish", &late[1..], &format!("{late}00"), &late.to_uppercase()] {
        executor.ack(wrong).problem(404, "unknown-cursor");
        executor.ask(&format!("since={wrong}")).problem(404, "unknown-cursor");
    }
    executor.0.post("/wes/v1/dispatch/ack", "{}").problem(400, "malformed-request");
    let anothers = json!({"cursor": late, "executor_id": "another"}).to_string();
    executor.0.post("/wes/v1/dispatch/ack", anothers).problem(403, "forbidden");
    // The planner serves no cursors to itself, and nobody acknowledges for another.
    planner.0.post("/wes/v1/dispatch/ack", json!({"cursor": late}).to_string()).problem(403, "forbidden");
    planner.0.get("/wes/v1/dispatch/pending").problem(403, "forbidden");
    server.acme().get("/wes/v1/dispatch/pending").problem(403, "forbidden");
    server.client("nobody").get("/wes/v1/dispatch/pending").problem(401, "unauthorized");
}

#[test]
fn a_page_has_from_one_to_a_thousand_events_and_is_the_bytes_that_were_published() {
    let (_server, mut planner, mut executor) = holding(0);
    for wrong in ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit=1&limit=2", "wait=31"] {
        executor.ask(wrong).problem(400, "malformed-request");
    }
    let odd = "{ \"kind\":\"CANCELLED\",\"correlation_id\":\"x\", \"cancels_correlation_id\":\"a\",\"planner_id\":\"fgai-wms\",\"n\":1.0,\"warehouse_id\":\"WH-1\"}";
    planner.release("a", "WH-1");
    planner.publish(odd).ok(202);
    let page = executor.ask("limit=1000");
    page.ok(200);
    assert!(page.text().contains(&format!(",{odd}]")), "{}", page.text());
}

#[test]
fn a_long_poll_is_woken_by_a_publication_and_ends_in_time_without_one() {
    let (server, mut planner, mut executor) = holding(0);
    let begun = Instant::now();
    assert_eq!(executor.page("wait=1"), (vec![], String::new()));
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    // Before the lane exists, and after.
    for n in 0..3 {
        thread::scope(|scope| {
            let mut poller = Executor::of(&server);
            let polling = scope.spawn(move || (poller.page("wait=20"), Instant::now()));
            executor.page("");
            let published = Instant::now();
            let id = format!("e-{n:03}");
            planner.release(&id, "WH-1");
            let ((came, cursor), woken) = polling.join().unwrap();
            assert_eq!(came, [id]);
            let took = woken.duration_since(published);
            eprintln!("poll: woken {took:?} after the publication began");
            assert!(took < Duration::from_secs(10), "{took:?}");
            executor.ack(&cursor).ok(200);
        });
    }
}

#[test]
fn a_long_poll_does_not_hold_the_end_of_the_server_up() {
    let (Dev { server, dir: _dir }, _planner, mut executor) = holding(2);
    let (_, cursor) = executor.page("");
    executor
        .0
        .begin(
            "GET",
            &format!("/wes/v1/dispatch/pending?wait=30&since={cursor}"),
            "authorization: Bearer dev-executor\r\n",
            b"",
        )
        .unwrap();
    let begun = Instant::now();
    server.until_polling(1);
    server.signal(Signal::TERM);
    assert_eq!(executor.0.finish().unwrap().ok(200)["events"], json!([]));
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[test]
fn several_pollers_of_one_executor_lose_and_skip_nothing() {
    let (server, _, _) = holding(0);
    pollers_lose_and_skip_nothing(&[&server]);
}

#[test]
fn several_pollers_at_several_nodes_lose_and_skip_nothing() {
    let town = Town::start(2);
    let mut planner = town.planner(0);
    planner.polled("WH-1");
    planner.polled("WH-2");
    // A poll at one node is woken by what is published at the other.
    thread::scope(|scope| {
        let mut poller = Executor::of(town.node(1));
        let polling = scope.spawn(move || poller.page("wait=20"));
        town.node(1).until_polling(1);
        planner.release("first", "WH-2");
        let (came, cursor) = polling.join().unwrap();
        assert_eq!(came, ["first"]);
        // A page of one node is acknowledged at the other.
        Executor::of(town.node(0)).ack(&cursor).ok(200);
        assert_eq!(Executor::of(town.node(1)).page("").0, [""; 0]);
    });
    pollers_lose_and_skip_nothing(&[town.node(0), town.node(1)]);
}

// Acknowledgements and publications of several nodes lock the same lane. On a loaded machine one of them waits longer than a
// commit does for a lock, and the answer is 503: nothing happened, ask again.
fn once_free(mut ask: impl FnMut() -> Answer) -> Answer {
    until("the lane is free", || Some(ask()).filter(|answer| answer.status != 503))
}

// Publications and polls go to the nodes in turn.
fn pollers_lose_and_skip_nothing(nodes: &[&Server]) {
    const COUNT: u32 = 400;
    let mut planners: Vec<Planner> = nodes.iter().map(|node| Planner::of(node)).collect();
    let mut executor = Executor::of(nodes[0]);
    let seen: Mutex<Vec<String>> = Mutex::default();
    thread::scope(|scope| {
        for n in 0..4 {
            let (server, seen) = (nodes[n % nodes.len()], &seen);
            scope.spawn(move || {
                let mut poller = Executor::of(server);
                loop {
                    let (page, cursor) = poller.page(&format!("limit={}&wait=1", 7 + n));
                    let over = page.iter().any(|id| id == "end");
                    // An executor first keeps an event, then acknowledges it. The end is left for the others.
                    seen.lock().unwrap().extend(page.into_iter().filter(|id| id != "end"));
                    if over {
                        return;
                    }
                    once_free(|| poller.ack(&cursor)).ok(200);
                }
            });
        }
        for n in 0..COUNT {
            let event = event(&format!("e-{n:03}"), "WH-1").to_string();
            once_free(|| planners[n as usize % nodes.len()].publish(&event)).ok(202);
        }
        planners[0].release("end", "WH-2");
    });
    let seen = seen.into_inner().unwrap();
    let once: BTreeSet<&String> = seen.iter().collect();
    assert!(once.iter().copied().eq(ids(0..COUNT).iter()), "{} of {COUNT}", once.len());
    eprintln!("poll: 4 pollers at {} nodes saw {COUNT} events {} times", nodes.len(), seen.len());
    let (rest, _) = executor.page("");
    assert!(rest.ends_with(&["end".to_owned()]), "{rest:?}");
}

#[test]
fn a_cursor_of_another_life_of_its_lane_is_unknown() {
    // Two that know the same key: as a store that was restored from a backup, and the one from before.
    let (_later, _, mut from_later) = holding(5);
    let (_restored, _, mut executor) = holding(2);
    let (_, ahead) = from_later.page("");
    executor.ack(&ahead).problem(404, "unknown-cursor");
    executor.ask(&format!("since={ahead}")).problem(404, "unknown-cursor");
    assert_eq!(executor.page("").0, ids(0..2), "nothing was lost by it");
}

#[test]
fn an_executor_of_several_planners_names_the_one_it_means_and_sees_nobody_elses_events() {
    let dir = tempfile::tempdir().unwrap();
    let [wms_a, wms_b] = ["wms-a", "wms-b"].map(|id| credential(dir.path(), id, "planner"));
    let wes_1 = executor(dir.path(), "wes-1", &["wms-a", "wms-b"]);
    let wes_2 = executor(dir.path(), "wes-2", &["wms-a"]);
    let server = Serve::plain(dir.path()).start();
    let (mut first, mut second) = (Executor(server.client(&wes_1)), Executor(server.client(&wes_2)));
    let poll = |executor: &str| json!({"executor_id": executor, "poll": {}});
    let of = |planner: &str, id: &str, warehouse: &str| {
        let mut event = event(id, warehouse);
        event["planner_id"] = json!(planner);
        event.to_string()
    };
    let mut planner_a = Planner(server.client(&wms_a));
    planner_a.put("WH-1", poll("wes-1")).ok(200);
    planner_a.put("WH-2", poll("wes-2")).ok(200);
    planner_a.publish(of("wms-a", "e-000", "WH-1")).ok(202);
    planner_a.publish(of("wms-a", "e-001", "WH-2")).ok(202);
    assert_eq!(second.page("").0, ids(1..2), "one planner: nothing need be named");
    first.ask("").problem(400, "malformed-request");
    let mut planner_b = Planner(server.client(&wms_b));
    // Not its executor: that one's polls are none of its business.
    planner_b.put("WH-1", poll("wes-2")).problem(422, "unknown-executor");
    planner_b.put("WH-1", poll("nobody")).problem(422, "unknown-executor");
    planner_b.put("WH-1", poll("wms-b")).problem(422, "unknown-executor");
    assert_eq!(second.page("").0, ids(1..2));
    planner_b.put("WH-1", poll("wes-1")).ok(200);
    planner_b.publish(of("wms-b", "e-002", "WH-1")).ok(202);
    first.ask("").problem(400, "malformed-request");
    let (of_a, cursor_a) = first.page("planner_id=wms-a");
    let (of_b, cursor_b) = first.page("planner_id=wms-b");
    assert_eq!((of_a, of_b), (ids(0..1), ids(2..3)));
    first.ask(&format!("planner_id=wms-a&since={cursor_b}")).problem(404, "unknown-cursor");
    first.ask("planner_id=nobody").problem(403, "forbidden");
    second.ask("planner_id=wms-b").problem(403, "forbidden");

    // Another executor's cursor is nobody's here.
    let (own, foreign) = second.page("planner_id=wms-a");
    assert_eq!(own, ids(1..2));
    first.ack(&foreign).problem(404, "unknown-cursor");
    second.ack(&cursor_a).problem(404, "unknown-cursor");
    first.ack(&cursor_a).ok(200);
    assert_eq!(first.page("planner_id=wms-a").0, Vec::<String>::new());
    assert_eq!(second.page("planner_id=wms-a").0, ids(1..2));
    assert_eq!(first.page("planner_id=wms-b").0, ids(2..3));
}

#[test]
fn a_planner_that_is_taken_from_an_executor_loses_nothing_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let (wms, wes) = (credential(dir.path(), "wms", "planner"), executor(dir.path(), "wes", &["wms"]));
    let server = Serve::plain(dir.path()).start();
    let serves = |planners: &[&str]| {
        let data = dir.path().to_str().unwrap();
        let output = fencepost([&["credential", "planners", "wes"], planners, &["--data", data]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&fencepost(["credential", "list", "--data", data]).stdout)
    };
    let mut planner = Planner(server.client(&wms));
    let mut poller = Executor(server.client(&wes));
    planner.put("WH-1", json!({"executor_id": "wes", "poll": {}})).ok(200);
    let publish = |planner: &mut Planner, id: &str| {
        let mut event = event(id, "WH-1");
        event["planner_id"] = json!("wms");
        planner.publish(event.to_string()).ok(202);
    };
    publish(&mut planner, "e-000");
    let (_, cursor) = poller.page("");
    assert!(serves(&["other"]).contains("wes  executor  serves other"));
    until("the list is in force", || (poller.ask("planner_id=wms").status == 403).then_some(()));
    poller.ack(&cursor).problem(403, "forbidden");
    publish(&mut planner, "e-001");
    assert!(serves(&["other", "wms"]).contains("serves other,wms"));
    until("the list is in force", || (poller.ask("planner_id=wms").status == 200).then_some(()));
    assert_eq!(poller.page("planner_id=wms").0, ids(0..2));
    poller.ack(&cursor).ok(200);
    assert_eq!(poller.page("planner_id=wms").0, ids(1..2));
}

#[test]
fn a_cursor_outlives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Serve::dev(dir.path()).start();
    let mut planner = Planner::of(&server);
    planner.polled("WH-1");
    planner.batch(&[event("e-000", "WH-1"), event("e-001", "WH-1"), event("e-002", "WH-1")]).ok(202);
    let (_, first) = Executor::of(&server).page("limit=1");
    let (_, second) = Executor::of(&server).page("limit=2");
    Executor::of(&server).ack(&first).ok(200);
    server.kill();
    let server = Serve::dev(dir.path()).start();
    let mut executor = Executor::of(&server);
    assert_eq!(executor.page("").0, ids(1..3));
    executor.ack(&second).ok(200);
    assert_eq!(executor.page("").0, ids(2..3));
}
