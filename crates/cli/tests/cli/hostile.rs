//! Nothing a client can send is a 500, and nothing stops the server.

use serde_json::json;

use super::{ledger::seed, server::dev};

const MUTATIONS: usize = 600;

/// Requests that are right, to be made wrong.
fn seeds() -> Vec<(&'static str, &'static str, String)> {
    let booking = json!({"caseUrn": "urn:case:7", "waveUrn": "urn:wave:1", "groupId": "G-1"});
    let claim = json!({
        "scope": "BOOKING", "key": booking, "body": {"a": [1, 2.5, null, true, {"b": "ü\u{1F600}"}]}, "version": 3,
        "lease_ms": 1000, "wait_ms": 0, "source": {"type": "t", "id": "i"},
    });
    let seal = json!({"scope": "BOOKING", "key": booking, "token": 1, "effect_id": "E", "receipt": {"x": [1e5, "\\"]}});
    let batch = json!({"commands": [
        {"op": "claim", "scope": "INDEX_BUILD", "key": {"index_hash": "h"}},
        {"op": "seal", "scope": "INDEX_BUILD", "key": {"index_hash": "h"}, "token": 5, "effect_id": "E", "receipt": []},
        {"op": "again", "scope": "BOOKING", "key": booking, "seq": 1},
    ]});
    let resolve = json!({"scope": "PAYMENT_TOKENIZATION", "key": {"caseUrn": "c", "reservationUrn": "r"}, "tenant": "acme",
        "outcome": "sealed", "why": "w", "effect_id": "E", "receipt": 1});
    vec![
        ("POST", "/v1/fences/claim", claim.to_string()),
        ("POST", "/v1/fences/again", json!({"scope": "BOOKING", "key": booking, "seq": 1}).to_string()),
        ("POST", "/v1/fences/seal", seal.to_string()),
        (
            "POST",
            "/v1/fences/renew",
            json!({"scope": "BOOKING", "key": booking, "token": 1, "lease_ms": 5}).to_string(),
        ),
        ("POST", "/v1/fences/release", json!({"scope": "BOOKING", "key": booking, "token": 1}).to_string()),
        ("POST", "/v1/fences/batch", batch.to_string()),
        ("PUT", "/v1/aliases/name", json!({"scope": "BOOKING", "key": booking}).to_string()),
        ("POST", "/admin/idempotency/resolve", resolve.to_string()),
        (
            "GET",
            "/admin/idempotency/lookup?scope=BOOKING&caseUrn=a&waveUrn=b&groupId=c&rebookSeq=1&tenant=acme",
            String::new(),
        ),
        ("GET", "/admin/idempotency/in-doubt?since=18f-00", String::new()),
    ]
}

/// Bytes that parsers stumble over.
const SPLINTERS: [&[u8]; 22] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b",",
    b":",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"\xff",
    b"\0",
    b"null",
    b"-",
    b"1e999999999",
    b"99999999999999999999999999999999",
    b"-0",
    b"0.1",
    b"\"scope\":",
    b"\"key\":{}",
    b"[[[[[[[[",
    b"\"\":",
];

fn mutate(random: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
    for _ in 0..random.usize(1..5) {
        let at = random.usize(..=bytes.len());
        match random.u8(..6) {
            0 if at < bytes.len() => bytes[at] = random.u8(..),
            1 => bytes.truncate(at),
            2 if at < bytes.len() => drop(bytes.drain(at..random.usize(at..bytes.len()))),
            3 => {
                let copy = bytes[at.saturating_sub(20)..at].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => {
                let splinter = random.choice(SPLINTERS).unwrap();
                bytes.splice(at..at, splinter.iter().copied());
            }
        }
    }
}

#[test]
fn no_mutation_of_a_request_is_a_500() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let server = dev();
    let seeds = seeds();
    let mut told = std::collections::BTreeMap::<u16, usize>::new();
    for number in 0..MUTATIONS {
        let (method, path, body) = random.choice(&seeds).unwrap();
        let (mut path, mut body) = (path.as_bytes().to_vec(), body.clone().into_bytes());
        if *method == "GET" {
            mutate(&mut random, &mut path);
            // Bytes that would end the request line are the front's business, tested there.
            path.retain(|byte| byte.is_ascii_graphic());
            if !path.starts_with(b"/") {
                path.insert(0, b'/');
            }
        } else {
            mutate(&mut random, &mut body);
        }
        let token = random.choice(["dev-partner", "dev-admin", "dev-planner"]).unwrap();
        let headers = format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n");
        let path = String::from_utf8(path).unwrap();
        let answer = server.client(token).send(method, &path, &headers, &body);
        let shown = || format!("mutation {number}, seed {seed}: {method} {path} {}", String::from_utf8_lossy(&body));
        let answer = answer.unwrap_or_else(|error| panic!("{error}: {}", shown()));
        assert!(answer.status < 500, "{} {}: {}", answer.status, answer.text(), shown());
        if answer.status >= 400 {
            let problem = answer.json();
            assert_eq!(problem["status"], answer.status, "{}", shown());
            assert!(problem["code"].is_string() && problem["trace_id"].is_string(), "{problem}: {}", shown());
        }
        for result in answer.json()["results"].as_array().into_iter().flatten() {
            assert!(result["status"].as_u64().unwrap() < 500, "{result}: {}", shown());
        }
        *told.entry(answer.status).or_default() += 1;
    }
    assert_eq!(server.client("").get("/readyz").status, 200, "it still serves");
    assert!(told.contains_key(&400) && told.len() > 2, "the mutations prove nothing: {told:?}");
    eprintln!("{MUTATIONS} mutations answered: {told:?}");
}

#[test]
fn names_that_mean_something_elsewhere_mean_nothing_here() {
    let server = dev();
    let mut acme = server.acme();
    for name in [
        "../../etc/passwd",
        "'; DROP TABLE fences;--",
        "\0",
        "\u{202e}",
        "%00",
        "${jndi:x}",
        "\r\nset-cookie: a=b",
        "🦀",
    ] {
        let key = json!({"index_hash": name});
        acme.done("INDEX_BUILD", &key, name, json!(name));
        let replay = acme.claim("INDEX_BUILD", &key);
        assert_eq!((&replay.ok(200)["receipt"], &replay.ok(200)["effect_id"]), (&json!(name), &json!(name)));
        assert_eq!(replay.header("set-cookie"), None);
        assert_eq!(acme.claim(name, &key).status, 404, "{name:?} is no scope");
    }
    let long = json!({"index_hash": "x".repeat(1 << 20)});
    let answer = acme.claim("INDEX_BUILD", &long);
    assert!(answer.status < 500, "a mebibyte in a key: {}", answer.text());
}
