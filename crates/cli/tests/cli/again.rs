//! Deliberate repetitions: a double-clicked resend sends once, and none is skipped.

use serde_json::{Value, json};

use super::{
    client::Client,
    server::{dev, fencepost, text},
};

const SCOPE: &str = "NOTIFICATION";

fn key() -> Value {
    json!({"groupId": "G-42", "type": "VOUCHER", "channel": "EMAIL", "reservationUrn": "R-1"})
}

fn again(client: &mut Client, seq: u64) -> super::client::Answer {
    client.post("/v1/fences/again", json!({"scope": SCOPE, "key": key(), "seq": seq}).to_string())
}

fn seal(client: &mut Client, seq: u64, token: u64) {
    let body = json!({"scope": SCOPE, "key": key(), "seq": seq, "token": token, "effect_id": format!("MSG-{seq}"), "receipt": seq});
    client.post("/v1/fences/seal", body.to_string()).ok(200);
}

#[test]
fn each_number_runs_once_and_none_is_skipped() {
    let server = dev();
    let mut acme = server.acme();
    acme.done(SCOPE, &key(), "MSG-0", json!(0));
    again(&mut acme, 2).problem(409, "sequence-gap");
    let first = again(&mut acme, 1).token();
    again(&mut acme, 1).problem(409, "in-flight");
    let gap = again(&mut acme, 2).problem(409, "sequence-gap");
    assert_eq!((&gap["last"], &gap["last_sealed"]), (&json!(1), &json!(false)), "the next one needs this one sealed");
    seal(&mut acme, 1, first);
    assert_eq!(again(&mut acme, 1).ok(200)["effect_id"], "MSG-1");
    let second = again(&mut acme, 2).token();
    seal(&mut acme, 2, second);
    assert_eq!(again(&mut acme, 1).ok(200)["effect_id"], "MSG-1", "an earlier one stays a duplicate");
    again(&mut acme, 4).problem(409, "sequence-gap");
    assert_eq!(acme.claim(SCOPE, &key()).ok(200)["effect_id"], "MSG-0", "the effect itself is another fence");
    let told = acme.lookup(SCOPE, &key(), "&resendSeq=2").ok(200);
    assert_eq!(told["resultUrn"], "MSG-2");
    let base = acme.lookup(SCOPE, &key(), "").ok(200);
    assert_eq!(base["resultUrn"], "MSG-0");
    let third = again(&mut acme, 3).token();
    let base = acme.lookup(SCOPE, &key(), "").ok(200);
    let told: Vec<_> = base["repetitions"].as_array().unwrap().iter().collect();
    let seen = |at: usize| (told[at]["seq"].as_u64(), told[at]["state"].as_str().unwrap(), &told[at]["resultUrn"]);
    assert_eq!(told.len(), 3, "{base}");
    assert_eq!(seen(0), (Some(1), "sealed", &json!("MSG-1")));
    assert_eq!(seen(2), (Some(3), "pending", &Value::Null));
    assert!(told[0]["sealedAt"].is_string() && told[2]["leaseExpiresAt"].is_string(), "{base}");
    assert!(acme.lookup(SCOPE, &key(), "&resendSeq=2").ok(200).get("repetitions").is_none());
    seal(&mut acme, 3, third);
    let fields = ["groupId=G-42", "type=VOUCHER", "channel=EMAIL", "reservationUrn=R-1"];
    let output = fencepost([&["why", SCOPE], &fields[..], &["--url", &server.url()]].concat());
    let said = text(&output.stdout);
    assert!(said.contains("  repetition 1  sealed at ") && said.contains(" as MSG-3\n"), "{said}");
}

#[test]
fn lookup_and_why_say_that_there_are_more_repetitions_than_they_show() {
    let server = dev();
    let mut acme = server.acme();
    acme.done(SCOPE, &key(), "MSG-0", json!(0));
    for seq in 1..=34 {
        let token = again(&mut acme, seq).token();
        seal(&mut acme, seq, token);
    }
    let told = acme.lookup(SCOPE, &key(), "").ok(200);
    let shown = told["repetitions"].as_array().unwrap();
    assert_eq!((&told["repetitionsTotal"], shown.len(), &shown[0]["seq"]), (&json!(34), 32, &json!(3)), "{told}");
    let fields = ["groupId=G-42", "type=VOUCHER", "channel=EMAIL", "reservationUrn=R-1"];
    let said = text(&fencepost([&["why", SCOPE], &fields[..], &["--url", &server.url()]].concat()).stdout);
    assert!(said.contains("  2 earlier of 34 repetitions are not shown"), "{said}");
}

#[test]
fn a_released_repetition_can_be_tried_again() {
    let server = dev();
    let mut acme = server.acme();
    acme.done(SCOPE, &key(), "MSG-0", json!(0));
    let token = again(&mut acme, 1).token();
    let body = json!({"scope": SCOPE, "key": key(), "seq": 1, "token": token});
    acme.post("/v1/fences/release", body.to_string()).ok(200);
    let token = again(&mut acme, 1).token();
    seal(&mut acme, 1, token);
}

#[test]
fn a_repetition_needs_a_number_and_a_scope_that_has_them() {
    let server = dev();
    let mut acme = server.acme();
    let post = |client: &mut Client, body: Value| client.post("/v1/fences/again", body.to_string());
    post(&mut acme, json!({"scope": SCOPE, "key": key()})).problem(400, "malformed-request");
    for seq in [json!(0), json!(-1), json!(1.5), json!("1"), json!(null), json!(18446744073709551615u64)] {
        let answer = post(&mut acme, json!({"scope": SCOPE, "key": key(), "seq": seq}));
        assert!(matches!(answer.status, 400 | 409), "{seq}: {}", answer.text());
    }
    post(&mut acme, json!({"scope": "INDEX_BUILD", "key": {"index_hash": "x"}, "seq": 1}))
        .problem(400, "malformed-request");
}
