//! Many at once: one runs, the others hear that it does, or wait for its answer.

use std::thread;

use super::{
    World,
    caller::{ask, post, read},
    in_flight, replayed,
    upstream::{Say, said},
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn held() -> Say {
    Say::Hold(Box::new(said(201, "content-type: text/plain\r\n", "the one")))
}

#[test]
fn a_duplicate_during_the_effect_is_told_when_to_ask_again_also_past_the_lease() {
    let world = World::charges();
    world.upstream.say(held());
    let charge = post("/charges").key("k").json("{}");
    let traced = charge.clone().header(&format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01"));
    let mut first = traced.begin(world.address());
    world.upstream.until(1);
    let refused = world.send(&charge);
    let problem = refused.problem(409, "in-flight");
    assert_eq!((refused.header("retry-after"), &problem["retry_after"]), (Some("1"), &1.into()));
    assert_eq!(problem["held_by_trace"], TRACE);
    assert!(problem["first_seen_at"].as_str() < problem["lease_expires_at"].as_str(), "{problem}");
    assert!(problem["explain"].as_str().unwrap().starts_with("/console/keys/"), "{problem}");
    // The lease of 500 ms is renewed while the upstream works: three of them go by.
    let lease = |problem: &serde_json::Value| problem["lease_expires_at"].as_str().unwrap().to_owned();
    let begun = lease(&problem);
    let mut renewals = std::collections::BTreeSet::from([begun]);
    super::until("the lease is renewed again and again", || {
        renewals.insert(lease(&world.send(&charge).problem(409, "in-flight")));
        (renewals.len() > 8).then_some(())
    });
    world.upstream.release();
    assert_eq!(read(&mut first).unwrap().status, 201);
    assert!(replayed(&world.send(&charge)));
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn a_client_that_prefers_to_wait_gets_the_first_ones_answer() {
    let world = World::charges();
    world.upstream.say(held());
    let charge = post("/charges").key("k").json("{}");
    let mut first = charge.begin(world.address());
    world.upstream.until(1);
    let mut waiting: Vec<_> = ["wait=50", "respond-async, wait=50", "WAIT = \"50\"; x=y"]
        .map(|prefer| charge.clone().header(&format!("prefer: {prefer}")).begin(world.address()))
        .into();
    world.server.until_waiting(3);
    // Nonsense is no wish.
    for prefer in ["wait=", "wait=-1", "wait=soon", "waits=5"] {
        assert!(in_flight(&world.send(&charge.clone().header(&format!("prefer: {prefer}")))), "{prefer}");
    }
    world.upstream.release();
    let whole = read(&mut first).unwrap();
    for waiter in &mut waiting {
        let answer = read(waiter).unwrap();
        assert_eq!((answer.status, &answer.body, replayed(&answer)), (201, &whole.body, true));
    }
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn a_wait_ends_in_time_where_no_outcome_comes() {
    let world = World::charges();
    world.upstream.say(held());
    let charge = post("/charges").key("k").json("{}");
    let _first = charge.begin(world.address());
    world.upstream.until(1);
    assert!(in_flight(&world.send(&charge.clone().header("prefer: wait=1"))));
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn of_fifty_at_once_one_reaches_the_upstream() {
    let world = World::charges();
    let charge = post("/charges").key("k").json("{}");
    let answers: Vec<_> = thread::scope(|scope| {
        let sends: Vec<_> = (0..50)
            .map(|number| {
                let wait = if number % 2 == 0 { "prefer: wait=50" } else { "x-wait: no" };
                let (world, charge) = (&world, charge.clone().header(wait));
                scope.spawn(move || world.send(&charge))
            })
            .collect();
        sends.into_iter().map(|send| send.join().unwrap()).collect()
    });
    let own = answers.iter().filter(|answer| answer.status == 201 && !replayed(answer)).count();
    assert_eq!((own, world.upstream.count()), (1, 1));
    for answer in &answers {
        assert!(answer.text() == "{\"charge\": 1}" || in_flight(answer), "{}", answer.text());
    }
    let given = answers.iter().filter(|answer| answer.status == 201).count();
    assert!(given >= 25, "who waits is answered: {given}");
}

#[test]
fn past_the_bound_a_write_is_refused_and_its_key_is_free_again_while_replays_are_answered() {
    let world = World::new(&format!("gateway: {{ in_flight_max: 1 }}\n{}", super::CHARGES));
    let known = post("/charges").key("known").json("{}");
    assert_eq!(world.send(&known).status, 201);
    world.upstream.say(held());
    let mut first = post("/charges").key("k").json("{}").begin(world.address());
    world.upstream.until(2);
    assert!(replayed(&world.send(&known)), "a replay needs no place");
    let other = post("/charges").key("other").json("{}");
    let refused = world.send(&other);
    refused.problem(503, "gateway-busy");
    assert!(refused.header("retry-after").is_some());
    world.upstream.release();
    assert_eq!(read(&mut first).unwrap().status, 201);
    // Its place is free once its answer has left. The refused attempts were given back, and counted.
    let served = super::until("there is a place", || Some(world.send(&other)).filter(|answer| answer.status != 503));
    assert_eq!((served.status, replayed(&served)), (201, false));
    assert!(world.upstream.last().attempt() > 1);
    assert_eq!(world.upstream.count(), 3);
}

#[test]
fn one_tenant_or_one_rule_whose_upstream_hangs_leaves_places_to_the_others() {
    let rule = |path: &str| {
        format!(
            "  - {{ match: \"POST {path}\", upstream: \"UPSTREAM\", scope: CHARGE, key: {{ id: \"header:Idempotency-Key\" }} }}\n"
        )
    };
    let world = World::new(&format!(
        "gateway: {{ in_flight_max: 9 }}\nscopes: {{ CHARGE: {{ key: [id], retain: 1h }} }}\nroutes:\n{}{}{}",
        rule("/slow"),
        rule("/slower"),
        rule("/fast")
    ));
    let write = |token: &str, path: &str, key: &str| {
        ask("POST", path).header(&format!("authorization: Bearer {token}")).key(key).json("{}")
    };
    world.upstream.script(|heard| {
        let held = heard.target.starts_with("/slow");
        if held { Say::Hold(Box::new(said(201, "", ""))) } else { said(201, "", "") }
    });
    let mut waiting = Vec::new();
    let mut hang = |path: &str, count: usize| {
        for _ in 0..count {
            let key = format!("held-{}", waiting.len());
            waiting.push(write("dev-partner", path, &key).begin(world.address()));
            world.upstream.until(world.upstream.count().max(waiting.len()));
            super::until("it is under way", || {
                let heard = world.upstream.heard();
                (heard.iter().filter(|heard| heard.target.starts_with("/slow")).count() == waiting.len()).then_some(())
            });
        }
    };
    let busy = |token: &str, path: &str, whose: &str| {
        let problem = world.send(&write(token, path, "refused")).problem(503, "gateway-busy");
        assert!(problem["detail"].as_str().unwrap().contains(whose), "{problem}");
    };
    hang("/slow", 5);
    busy("dev-partner", "/slow", "this rule");
    busy("dev-partner-2", "/slow", "this rule");
    // Its clients still reach their other rules.
    assert_eq!(world.send(&write("dev-partner", "/fast", "1")).status, 201);
    hang("/slower", 1);
    busy("dev-partner", "/fast", "this client");
    assert_eq!(world.send(&write("dev-partner-2", "/fast", "2")).status, 201);
    world.upstream.release();
    for stream in &mut waiting {
        assert_eq!(read(stream).unwrap().status, 201);
    }
}

#[test]
fn readers_without_a_credential_leave_places_to_those_who_have_one() {
    let world = World::new(&format!("gateway: {{ in_flight_max: 10 }}\n{}", super::CHARGES));
    world.upstream.script(|heard| {
        let held = heard.header("fencepost-tenant").is_none();
        if held { Say::Hold(Box::new(said(200, "", ""))) } else { said(200, "", "") }
    });
    let mut waiting = Vec::new();
    for _ in 0..2 {
        waiting.push(ask("GET", "/charges").begin(world.address()));
        world.upstream.until(waiting.len());
    }
    world.send(&ask("GET", "/charges")).problem(503, "gateway-busy");
    let known = ask("GET", "/charges").header("authorization: Bearer dev-partner");
    assert_eq!(world.send(&known).status, 200);
    assert_eq!(world.send(&post("/charges").key("k").json("{}")).status, 200);
    world.upstream.release();
    for stream in &mut waiting {
        assert_eq!(read(stream).unwrap().status, 200);
    }
}
