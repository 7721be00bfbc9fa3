//! Mistakes that a client can make in a body: each is a 400 that names it, and nothing happens.

use serde_json::{Value, json};

use super::{
    client::{Client, with},
    server::dev,
};

fn claim(more: Value) -> String {
    with(json!({"scope": "INDEX_BUILD", "key": {"index_hash": "x"}}), more)
}

#[track_caller]
fn refused(client: &mut Client, path: &str, body: impl AsRef<[u8]>, word: &str) {
    let problem = client.post(path, body).problem(400, "malformed-request");
    assert!(problem["detail"].as_str().unwrap().contains(word), "{word}: {problem}");
}

#[test]
fn a_member_that_is_missing_or_of_the_wrong_kind_is_named() {
    let server = dev();
    let acme = &mut server.acme();
    let path = "/v1/fences/claim";
    refused(acme, path, json!({"key": {}}).to_string(), "scope");
    refused(acme, path, json!({"scope": "INDEX_BUILD"}).to_string(), "key");
    for (member, wrong) in [
        ("scope", vec![json!(1), json!(""), json!(null), json!(["INDEX_BUILD"]), json!("x".repeat(2_000))]),
        ("key", vec![json!("x"), json!([]), json!(null), json!(1)]),
        (
            "index_hash",
            vec![
                json!({"index_hash": null}),
                json!({"index_hash": [1]}),
                json!({"index_hash": {}}),
                json!({"index_hash": 1.5}),
                json!({"index_hash": "x".repeat(4_097)}),
            ],
        ),
        (
            "lease_ms",
            vec![
                json!("1"),
                json!(0),
                json!(-1),
                json!(1.5),
                json!(86_400_001),
                json!(1e300),
                json!(true),
                json!(null),
            ],
        ),
        ("wait_ms", vec![json!("1"), json!(-1), json!(0.5), json!(null)]),
        ("version", vec![json!(true), json!({}), json!(1.5), json!("x".repeat(1_025))]),
        ("source", vec![json!("x"), json!(1), json!(null)]),
        ("type", vec![json!({"id": "x"}), json!({"type": 1, "id": "x"}), json!({"type": "", "id": "x"})]),
        ("id", vec![json!({"type": "x"}), json!({"type": "x", "id": 7})]),
        ("tenant", vec![json!(1), json!(""), json!(null)]),
        ("seq", vec![json!("1"), json!(-1), json!(0)]),
    ] {
        let place = match member {
            "type" | "id" => "source",
            "index_hash" => "key",
            other => other,
        };
        for value in wrong {
            refused(acme, path, claim(json!({place: value})), member);
        }
    }
    assert_eq!(
        server.admin().lookup("INDEX_BUILD", &json!({"index_hash": "x"}), "").ok(200),
        json!({"exists": false}),
        "nothing happened"
    );
}

#[test]
fn seal_renew_and_release_name_what_they_miss() {
    let server = dev();
    let acme = &mut server.acme();
    let whole = json!({"scope": "INDEX_BUILD", "key": {"index_hash": "x"}, "token": 1, "effect_id": "E", "receipt": 1, "lease_ms": 1});
    for (path, members) in [
        ("/v1/fences/seal", &["scope", "key", "token", "effect_id", "receipt"][..]),
        ("/v1/fences/renew", &["scope", "key", "token"]),
        ("/v1/fences/release", &["scope", "key", "token"]),
    ] {
        for member in members {
            let mut body = whole.clone();
            body.as_object_mut().unwrap().remove(*member);
            refused(acme, path, body.to_string(), member);
        }
        for token in [json!("1"), json!(-1), json!(1.5), json!(null)] {
            refused(acme, path, with(whole.clone(), json!({"token": token})), "token");
        }
    }
    for effect_id in [json!(""), json!(1), json!(null), json!("x".repeat(1_025))] {
        refused(acme, "/v1/fences/seal", with(whole.clone(), json!({"effect_id": effect_id})), "effect_id");
    }
    refused(acme, "/v1/fences/renew", with(whole, json!({"lease_ms": 0})), "lease_ms");
}

#[test]
fn a_key_holds_exactly_the_fields_of_its_scope() {
    let server = dev();
    let mut acme = server.acme();
    let whole = json!({"caseUrn": "c", "waveUrn": "w", "groupId": "g"});
    let check = |client: &mut Client, key: Value, word: &str| {
        let problem = client.claim("BOOKING", &key).problem(400, "wrong-key-fields");
        assert!(problem["detail"].as_str().unwrap().contains(word), "{word}: {problem}");
    };
    check(&mut acme, json!({}), "caseUrn");
    check(&mut acme, json!({"caseUrn": "c", "waveUrn": "w"}), "groupId");
    check(&mut acme, json!({"caseUrn": "c", "waveUrn": "w", "groupid": "g"}), "groupid");
    let mut more = whole.clone();
    more["color"] = json!("blue");
    check(&mut acme, more, "color");
    acme.claim("BOOKING", &whole).token();
    // The empty string is a value; integers and booleans are their text.
    acme.claim("BOOKING", &json!({"caseUrn": "", "waveUrn": "", "groupId": ""})).token();
    acme.claim("BOOKING", &json!({"caseUrn": 7, "waveUrn": true, "groupId": -1})).token();
    acme.claim("BOOKING", &json!({"caseUrn": "7", "waveUrn": "true", "groupId": "-1"})).problem(409, "in-flight");
}

#[test]
fn lease_bounds_are_one_millisecond_and_the_scopes_maximum() {
    let server = dev();
    let mut acme = server.acme();
    for (name, lease_ms) in [("least", 1u64), ("most", 86_400_000)] {
        acme.claim_with("INDEX_BUILD", &json!({"index_hash": name}), json!({"lease_ms": lease_ms})).token();
    }
}

#[test]
fn unknown_members_are_ignored() {
    let server = dev();
    let mut acme = server.acme();
    acme.post("/v1/fences/claim", claim(json!({"colour": {"deep": [1, 2]}, "": null, "Scope": 1}))).token();
}

#[test]
fn json_that_readers_could_disagree_about_is_refused() {
    let server = dev();
    let acme = &mut server.acme();
    let path = "/v1/fences/claim";
    let bad: [(&str, &[u8]); 16] = [
        ("nothing", b""),
        ("white space", b" \n"),
        ("half a document", br#"{"scope":"#),
        ("two documents", br#"{"scope":"INDEX_BUILD"}{}"#),
        ("a trailing comma", br#"{"scope":"INDEX_BUILD","key":{"index_hash":"x",}}"#),
        ("a comment", br#"{"scope":"INDEX_BUILD"/**/,"key":{"index_hash":"x"}}"#),
        ("single quotes", br#"{'scope':'INDEX_BUILD'}"#),
        ("NaN", br#"{"scope":"INDEX_BUILD","key":{"index_hash":"x"},"body":NaN}"#),
        ("a leading zero", br#"{"scope":"INDEX_BUILD","key":{"index_hash":"x"},"body":01}"#),
        ("a name twice", br#"{"scope":"INDEX_BUILD","scope":"INDEX_BUILD","key":{"index_hash":"x"}}"#),
        ("a name twice in the key", br#"{"scope":"INDEX_BUILD","key":{"index_hash":"x","index_hash":"y"}}"#),
        (
            "a name twice, once escaped",
            br#"{"scope":"INDEX_BUILD","key":{"index_hash":"x"},"body":{"a":1,"\u0061":2}}"#,
        ),
        ("invalid UTF-8", b"{\"scope\":\"INDEX_BUILD\",\"key\":{\"index_hash\":\"\xff\xfe\"}}"),
        ("an overlong form", b"{\"scope\":\"INDEX_BUILD\",\"key\":{\"index_hash\":\"\xc0\xaf\"}}"),
        ("half a surrogate pair", br#"{"scope":"INDEX_BUILD","key":{"index_hash":"\ud800"}}"#),
        ("a bare control character", b"{\"scope\":\"INDEX_BUILD\",\"key\":{\"index_hash\":\"\x01\"}}"),
    ];
    for (what, body) in bad {
        let answer = acme.post(path, body);
        assert_eq!(
            (answer.status, answer.json()["code"].as_str()),
            (400, Some("malformed-request")),
            "{what}: {}",
            answer.text()
        );
    }
    for body in ["[]", "1", "\"x\"", "null"] {
        refused(acme, path, body, "object");
    }
}

#[test]
fn sixty_four_levels_are_read_and_sixty_five_are_refused() {
    let server = dev();
    let acme = &mut server.acme();
    // The document itself is the first level.
    let deep = |hash: &str, levels: usize| {
        let body = "[".repeat(levels - 1) + &"]".repeat(levels - 1);
        format!(r#"{{"scope":"INDEX_BUILD","key":{{"index_hash":"{hash}"}},"body":{body}}}"#)
    };
    acme.post("/v1/fences/claim", deep("64", 64)).token();
    acme.post("/v1/fences/claim", deep("65", 65)).problem(400, "malformed-request");
    acme.post("/v1/fences/claim", deep("deep", 100_000)).problem(400, "malformed-request");
}

#[test]
fn a_batch_is_an_array_of_up_to_a_thousand_commands() {
    let server = dev();
    let acme = &mut server.acme();
    for body in [json!({}), json!({"commands": {}}), json!({"commands": null}), json!([])] {
        acme.post("/v1/fences/batch", body.to_string()).problem(400, "malformed-request");
    }
    let commands: Vec<Value> = (0..1_001)
        .map(|n| json!({"op": "claim", "scope": "INDEX_BUILD", "key": {"index_hash": n.to_string()}}))
        .collect();
    refused(acme, "/v1/fences/batch", json!({"commands": commands}).to_string(), "1000");
    assert_eq!(
        acme.lookup("INDEX_BUILD", &json!({"index_hash": "0"}), "").ok(200),
        json!({"exists": false}),
        "refused whole"
    );
    let results = acme.batch(&commands[..1_000]).ok(200);
    let results = results["results"].as_array().unwrap();
    assert!(results.len() == 1_000 && results.iter().all(|result| result["status"] == 201));
}
