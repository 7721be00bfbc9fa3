//! The verdict on an item by its version: above the accepted one, equal, below, absent, and of another form.

use serde_json::{Value, json};

use super::{
    super::server::{Server, dev, dev_with},
    sending::{Sender, at, sku, statuses, uom},
};

/// Sends one item once for each version; null is one that has none.
#[track_caller]
fn in_turn(server: &Server, id: &str, turns: &[(Value, &str)]) {
    let mut acme = Sender::acme(server);
    for (turn, (version, verdict)) in turns.iter().enumerate() {
        // Content of its own each time, so that what stands tells which one was taken.
        let mut item = at(uom(id), version.clone());
        item["name"] = json!(format!("{turn}"));
        let result = acme.one("master/uoms", item);
        assert_eq!(result["status"], *verdict, "{id}, turn {turn}, {version}: {result}");
        if *verdict == "REJECTED" {
            assert_eq!(result["reasons"][0]["pointer"], "/source_version", "{result}");
        }
    }
    let accepted: Vec<String> =
        (0..turns.len()).filter(|turn| turns[*turn].1 == "ACCEPTED").map(|turn| turn.to_string()).collect();
    let entries = acme.all(&format!("master/uoms/{id}/history"), 100);
    let kept: Vec<&str> = entries.iter().rev().map(|entry| entry["item"]["name"].as_str().unwrap()).collect();
    assert_eq!(kept, accepted, "{id}: each accepted version once, in its turn");
    let stands = acme.get(&format!("master/uoms/{id}")).ok(200);
    assert_eq!(stands["item"]["name"], **accepted.last().unwrap());
}

const A: &str = "ACCEPTED";
const R: &str = "REPLAY";
const X: &str = "REJECTED";

#[test]
fn item_is_accepted_at_a_higher_version_and_known_at_the_same_or_a_lower_one() {
    let server = dev();
    in_turn(
        &server,
        "counter",
        &[(json!(3), A), (json!(3), R), (json!(2), R), (json!(-7), R), (json!(4), A), (json!(5), A), (json!(3), R)],
    );
    in_turn(&server, "negative", &[(json!(-2), A), (json!(-3), R), (json!(0), A)]);
}

#[test]
fn integers_past_what_a_float_holds_keep_their_order_and_every_digit() {
    let server = dev();
    let past = 1_u64 << 53;
    in_turn(
        &server,
        "past",
        &[(json!(past), A), (json!(past + 1), A), (json!(past), R), (json!(past + 1), R), (json!(u64::MAX), A)],
    );
    assert_eq!(Sender::acme(&server).get("master/uoms/past").ok(200)["source_version"], json!(u64::MAX));
    // Past 64 bits, which the reader of this test's JSON cannot hold: the bytes are compared.
    let mut acme = Sender::acme(&server);
    acme.client = server.acme().unjudging();
    for (version, verdict) in [
        ("170141183460469231731687303715884105726", A),
        ("170141183460469231731687303715884105727", A),
        ("170141183460469231731687303715884105726", R),
        ("170141183460469231731687303715884105728", X),
        ("1.5", X),
    ] {
        let items = format!(r#"{{"items":[{{"source_id":"huge","name":"h","source_version":{version}}}]}}"#);
        let told = acme.post("master/uoms", &super::sending::fresh_id(), items);
        assert_eq!(told.ok(200)["results"][0]["status"], verdict, "{version}");
    }
    let told = acme.get("master/uoms/huge").text();
    assert!(told.contains("\"source_version\":170141183460469231731687303715884105727,"), "{told}");
}

#[test]
fn times_are_ordered_by_the_moment_that_they_name() {
    let server = dev();
    in_turn(
        &server,
        "time",
        &[
            (json!("2026-05-24T03:14:01Z"), A),
            (json!("2026-05-24T05:14:01+02:00"), R),
            (json!("2026-05-23T23:14:00-04:00"), R),
            (json!("2026-05-24T05:14:01.5+02:00"), A),
            (json!("2026-05-24T04:14:01Z"), A),
            (json!("2026-05-24T05:00:00+02:00"), R),
            (json!("2026-05-24"), R),
            (json!("2026-05-25"), A),
            (json!("2026-05-25T00:00:00Z"), R),
        ],
    );
}

#[test]
fn dotted_versions_are_ordered_part_by_part() {
    let server = dev();
    in_turn(
        &server,
        "dotted",
        &[
            (json!("1.9.0"), A),
            (json!("1.10.0-rc.2"), A),
            (json!("1.10.0-rc.10"), A),
            (json!("1.10.0"), A),
            (json!("1.9.9"), R),
            (json!("1.10"), R),
            (json!("1.10.0+build.7"), R),
            (json!("v1.10.1"), A),
        ],
    );
    in_turn(&server, "text", &[(json!("draft b"), A), (json!("draft a"), R), (json!("draft c"), A)]);
}

#[test]
fn item_without_a_version_overwrites_and_keeps_the_highest_accepted_one_as_its_floor() {
    let server = dev();
    let none = Value::Null;
    in_turn(
        &server,
        "floor",
        &[
            (json!(3), A),
            (none.clone(), A),
            (json!(2), R),
            (json!(3), R),
            (none.clone(), A),
            (json!(3), R),
            (json!("1.9.0"), X),
            (json!(4), A),
        ],
    );
    in_turn(&server, "never", &[(none.clone(), A), (none.clone(), A), (json!(1), A), (none, A)]);
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[uom("plain"), uom("plain")]);
    let stands = acme.get("master/uoms/plain").ok(200);
    assert_eq!((&stands["source_version"], stands["item"].get("source_version")), (&Value::Null, None));
}

#[test]
fn versions_of_two_forms_are_refused_and_not_guessed() {
    let server = dev();
    in_turn(
        &server,
        "mixed",
        &[
            (json!(3), A),
            (json!("3"), X),
            (json!("1.9.0"), X),
            (json!("2026-05-24T03:14:01Z"), X),
            (json!("later"), X),
            (json!(4), A),
        ],
    );
    let told = Sender::acme(&server).one("master/uoms", at(uom("mixed"), "1.9.0"));
    let message = told["reasons"][0]["message"].as_str().unwrap();
    assert!(message.contains("a dotted version") && message.contains("version 4, which is an integer"), "{message}");
    // Compared with what waits, too: it would replace that.
    let mut acme = Sender::acme(&server);
    acme.quarantined("master/skus", at(sku("S-1", "CS"), 1));
    assert_eq!(acme.one("master/skus", at(sku("S-1", "CS"), "1.0"))["status"], "REJECTED");
}

#[test]
fn version_that_is_none_is_refused() {
    let server = dev();
    let long = "9".repeat(129);
    let wrong = [json!(1.5), json!(true), json!({}), json!([1]), json!(""), json!(long)];
    let items: Vec<Value> = wrong.iter().map(|version| at(uom("EA"), version.clone())).collect();
    let results = Sender::acme(&server).fresh("master/uoms", &items);
    assert_eq!(statuses(&results), [X; 6], "{results:#?}");
    assert!(results.iter().all(|result| result["reasons"][0]["pointer"] == "/source_version"), "{results:#?}");
    Sender::acme(&server).get("master/uoms/EA").problem(404, "unknown-item");
}

#[test]
fn collection_that_declares_its_order_takes_versions_of_that_form_only() {
    let schema = "schema: { type: object }";
    let server = dev_with(&format!(
        "collections:\n  by-count: {{ group: master, version: integer, {schema} }}\n  by-time: {{ group: master, version: time, {schema} }}\n  by-number: {{ group: master, version: semver, {schema} }}\n  by-text: {{ group: master, version: text, {schema} }}\n"
    ));
    let mut acme = Sender::acme(&server);
    let versions = [json!(10), json!("2026-05-24"), json!("1.10.0"), json!("9.10.0 beta")];
    for (row, collection) in ["by-count", "by-time", "by-number", "by-text"].into_iter().enumerate() {
        let items: Vec<Value> = versions.iter().zip(0..).map(|(v, n)| at(uom(&n.to_string()), v.clone())).collect();
        let results = acme.fresh(&format!("master/{collection}"), &items);
        for (column, status) in statuses(&results).into_iter().enumerate() {
            let fits = row == column || row == 3 && column > 0;
            assert_eq!(status, if fits { A } else { X }, "{collection} {}: {}", versions[column], results[column]);
        }
    }
    // As texts "1.10.0" is below "1.9.0".
    let results = acme.fresh("master/by-text", &[at(uom("t"), "1.9.0"), at(uom("t"), "1.10.0")]);
    assert_eq!(statuses(&results), [A, R]);
}

#[test]
fn equal_version_with_other_content_is_known_with_a_warning_and_counted() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[at(uom("EA"), 1)]);
    let mut other = at(uom("EA"), 1);
    other["name"] = json!("another");
    let told = acme.one("master/uoms", other.clone());
    assert_eq!(told["status"], R);
    assert!(told["warning"].as_str().unwrap().contains("other content"), "{told}");
    assert_eq!(acme.get("master/uoms/EA").ok(200)["item"]["name"], "unit EA", "the first content stands");
    // The same content in another form is no difference, and a lower version has none to compare with.
    let same = r#"{"items":[{"name":"unit EA","source_version":1,"source_id":"EA"}]}"#;
    let told = acme.post("master/uoms", "same", same).ok(200);
    assert_eq!(told["results"][0].get("warning"), None, "{told}");
    other["source_version"] = json!(0);
    assert_eq!(acme.one("master/uoms", other).get("warning"), None);
    let metrics = server.client("").get("/metrics").text();
    assert!(metrics.contains("fencepost_items_differing_total{collection=\"uoms\"} 1\n"), "{metrics}");
}
