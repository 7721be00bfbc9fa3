//! A receipt is the exact bytes that were sealed: never parsed and written again. Aliases read the same bytes.

use serde_json::{Value, json};

use super::{
    client::Client,
    server::{Serve, dev},
};

/// JSON values that most writers would write differently.
const ODD: [&str; 14] = [
    r#"{"a":1.0,"b":1e5,"c":-0,"d":0.10}"#,
    "{ \"spaced\" :\t[ 1 ,2\n,\r\n3 ] }",
    "123456789012345678901234567890123456789012345678901234567890",
    "1.00000000000000000000000000000000000000000000000001",
    r#""\u00fc \/ \u2028 \ud83d\ude00""#,
    "\"ü 漢字 😀 \u{2028}\"",
    r#"{"z":1,"a":2,"__proto__":3,"":4}"#,
    r#""},{\"status\":200,\"receipt\":null""#,
    "null",
    "false",
    "\"\"",
    "[]",
    "{}",
    "-1E-400",
];

fn claim_body(index: usize) -> String {
    json!({"scope": "INDEX_BUILD", "key": {"index_hash": format!("odd-{index}")}}).to_string()
}

fn seal(client: &mut Client, index: usize, receipt: &str) {
    let token = client.post("/v1/fences/claim", claim_body(index)).token();
    let body = format!(
        "{{\"scope\":\"INDEX_BUILD\",\"key\":{{\"index_hash\":\"odd-{index}\"}},\"receipt\": {receipt} ,\"token\":{token},\"effect_id\":\"E\"}}"
    );
    client.post("/v1/fences/seal", body).ok(200);
}

#[track_caller]
fn assert_exact(text: &str, receipt: &str) {
    assert!(text.contains(&format!(",\"receipt\":{receipt},\"")), "{receipt} came back as {text}");
}

#[test]
fn every_receipt_comes_back_byte_for_byte_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Serve::dev(dir.path()).start();
    let mut acme = server.acme();
    for (index, receipt) in ODD.iter().enumerate() {
        seal(&mut acme, index, receipt);
    }
    let check = |client: &mut Client| {
        for (index, receipt) in ODD.iter().enumerate() {
            let answer = client.post("/v1/fences/claim", claim_body(index));
            assert_eq!(answer.status, 200);
            assert_exact(&answer.text(), receipt);
        }
    };
    check(&mut acme);
    server.kill();
    let server = Serve::dev(dir.path()).start();
    check(&mut server.acme());
}

#[test]
fn an_alias_stands_for_a_sealed_effect_only_and_reads_its_exact_receipt() {
    let server = dev();
    let mut acme = server.acme();
    let target = |hash: &str| json!({"scope": "INDEX_BUILD", "key": {"index_hash": hash}}).to_string();
    acme.get("/v1/aliases/current").problem(404, "unknown-alias");
    acme.put("/v1/aliases/current", target("odd-0")).problem(409, "not-sealed");
    let token = acme.post("/v1/fences/claim", target("pending")).token();
    acme.put("/v1/aliases/current", target("pending")).problem(409, "not-sealed");
    acme.release("INDEX_BUILD", &json!({"index_hash": "pending"}), token).ok(200);
    acme.put("/v1/aliases/current", target("pending")).problem(409, "not-sealed");

    seal(&mut acme, 0, ODD[0]);
    seal(&mut acme, 1, ODD[1]);
    let put = acme.put("/v1/aliases/current", target("odd-0"));
    assert_eq!(put.status, 200);
    assert_eq!(acme.put("/v1/aliases/current", target("odd-0")).header("idempotency-replayed"), Some("true"));
    assert_exact(&acme.get("/v1/aliases/current").text(), ODD[0]);
    // It moves at once, and only forward to something that is sealed.
    assert_eq!(acme.put("/v1/aliases/current", target("odd-1")).status, 200);
    assert_exact(&acme.get("/v1/aliases/current").text(), ODD[1]);
    acme.put("/v1/aliases/current", target("pending")).problem(409, "not-sealed");
    assert_exact(&acme.get("/v1/aliases/current").text(), ODD[1]);
    // A name is its tenant's own; an admin says whose it means.
    server.globex().get("/v1/aliases/current").problem(404, "unknown-alias");
    server.admin().get("/v1/aliases/current").problem(400, "malformed-request");
    assert_exact(&server.admin().get("/v1/aliases/current?tenant=acme").text(), ODD[1]);
    // Odd names are names too.
    assert_eq!(acme.put("/v1/aliases/a%20b%2Fc%C3%BC", target("odd-0")).status, 200);
    assert_eq!(acme.get("/v1/aliases/a%20b%2Fc%C3%BC").ok(200)["name"], "a b/cü");
    acme.put(&format!("/v1/aliases/{}", "n".repeat(256)), target("odd-0")).problem(400, "malformed-request");
}

#[test]
fn a_batch_of_duplicates_is_bounded_and_what_had_an_effect_is_answered_all_the_same() {
    let server = dev();
    let mut acme = server.acme();
    let claim = |hash: &str| json!({"op": "claim", "scope": "INDEX_BUILD", "key": {"index_hash": hash}});
    acme.done("INDEX_BUILD", &json!({"index_hash": "small"}), "S", json!("small"));
    let long = json!("x".repeat(3 << 20));
    acme.done("INDEX_BUILD", &json!({"index_hash": "long"}), "L", long.clone());
    let token = acme.claim("INDEX_BUILD", &json!({"index_hash": "held"})).token();
    let seal = json!({"op": "seal", "scope": "INDEX_BUILD", "key": {"index_hash": "held"}, "token": token,
        "effect_id": "H", "receipt": 1});
    let mut commands = vec![claim("long"); 990];
    commands.extend([claim("small"), claim("fresh"), seal, claim("held")]);
    let answer = acme.batch(&commands);
    assert!(answer.body.len() < 20 << 20, "{} bytes", answer.body.len());
    let results = answer.ok(200)["results"].as_array().unwrap().clone();
    let (repeated, rest) = results.split_at(990);
    let (given, kept): (Vec<_>, Vec<_>) = repeated.iter().partition(|result| result["status"] == 200);
    assert_eq!(given.len(), 5, "as many as fit 16 MiB");
    assert!(given.iter().all(|result| result["body"]["receipt"] == long));
    for result in kept {
        assert_eq!((&result["status"], &result["body"]["code"]), (&json!(413), &json!("too-large")), "{result}");
    }
    let statuses: Vec<_> = rest.iter().map(|result| result["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 201, 200, 200], "what is short still fits, and an effect is always told of");
    assert!(rest[1]["body"]["token"].is_u64() && rest[2]["body"]["decision"] == "sealed", "{rest:?}");
    // Fewer at once, and each has its receipt.
    let results = acme.batch(&[claim("long"), claim("long")]).ok(200);
    assert!(results["results"].as_array().unwrap().iter().all(|result| result["body"]["receipt"] == long));
}

#[test]
fn a_batch_of_conflicts_is_bounded_too() {
    let server = dev();
    let mut acme = server.acme();
    let long: serde_json::Map<String, Value> =
        (0..90).map(|number| (format!("{number:02}{}", "n".repeat(600)), json!(1))).collect();
    let key = json!({"index_hash": "x"});
    acme.post("/v1/fences/claim", json!({"scope": "INDEX_BUILD", "key": key, "body": long}).to_string()).ok(201);
    let other = json!({"op": "claim", "scope": "INDEX_BUILD", "key": key, "body": {}});
    let answer = acme.batch(&vec![other; 1_000]);
    assert!(answer.body.len() < 18 << 20, "{} bytes", answer.body.len());
    let results = answer.ok(200)["results"].as_array().unwrap().clone();
    assert!(results.iter().all(|result| result["status"] == 409 && result["body"]["code"] == "conflict"));
    assert!(results[0]["body"]["diff"].is_array() && results[999]["body"]["diff"].is_null());
}
