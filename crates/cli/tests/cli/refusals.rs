//! Every refusal is a problem document with a stable code, and says nothing internal.

use serde_json::{Value, json};

use super::{
    client::{Answer, Client},
    server::dev,
};

const CLAIM: &str = r#"{"scope":"INDEX_BUILD","key":{"index_hash":"x"}}"#;
const JSON: &str = "content-type: application/json\r\n";
const ACME: &str = "authorization: Bearer dev-partner\r\n";

fn send(client: &mut Client, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    client.send(method, path, headers, body.as_bytes()).unwrap()
}

#[test]
fn a_problem_document_has_all_its_members() {
    let server = dev();
    let mut acme = server.acme();
    let traced = format!("{ACME}{JSON}traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n");
    let problem = send(&mut acme, "POST", "/v1/fences/claim", &traced, r#"{"scope":"NO_SUCH","key":{}}"#)
        .problem(404, "unknown-scope");
    assert!(problem["type"].as_str().unwrap().ends_with("/unknown-scope"), "{problem}");
    assert!(
        !problem["title"].as_str().unwrap().is_empty() && problem["detail"].as_str().unwrap().contains("NO_SUCH"),
        "{problem}"
    );
    assert_eq!(problem["instance"], "/v1/fences/claim");
    assert_eq!(problem["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    // Without a usable traceparent every answer has a trace of its own.
    let fresh = |headers: &str| {
        let problem =
            send(&mut server.acme(), "POST", "/v1/fences/claim", headers, "{}").problem(400, "malformed-request");
        let id = problem["trace_id"].as_str().unwrap().to_owned();
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        id
    };
    let bad = format!("{ACME}{JSON}traceparent: 00-00000000000000000000000000000000-00f067aa0ba902b7-01\r\n");
    assert_ne!(fresh(&bad), fresh(&format!("{ACME}{JSON}")));
}

#[test]
fn without_a_valid_credential_nothing_is_answered() {
    let server = dev();
    let mut client = server.client("");
    let wrong = [
        "",
        "authorization: Bearer \r\n",
        "authorization: Bearer wrong\r\n",
        "authorization: Basic ZGV2LXBhcnRuZXI=\r\n",
        "authorization: dev-partner\r\n",
        "authorization: Bearer DEV-PARTNER\r\n",
        "authorization: Bearer dev-partner x\r\n",
        "authorization: Bearer \u{fc}\r\n",
    ];
    // Two readers of it could take two of them.
    let two = format!("authorization: Bearer dev-partner\r\nauthorization: Bearer dev-admin\r\n{JSON}");
    send(&mut client, "POST", "/v1/fences/claim", &two, CLAIM).problem(400, "malformed-request");
    let mut client = server.client("");
    for headers in wrong {
        let answer = send(&mut client, "POST", "/v1/fences/claim", &format!("{headers}{JSON}"), CLAIM);
        answer.problem(401, "unauthorized");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{headers:?}");
    }
    for path in
        ["/admin/idempotency/lookup?scope=INDEX_BUILD&index_hash=x", "/admin/idempotency/in-doubt", "/v1/aliases/x"]
    {
        send(&mut client, "GET", path, "", "").problem(401, "unauthorized");
    }
    // The credential is looked at before the body.
    send(&mut client, "POST", "/v1/fences/claim", "", "not json").problem(401, "unauthorized");
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(send(&mut client, "GET", path, "", "").status, 200, "{path} needs none");
    }
    assert_eq!(server.admin().lookup("INDEX_BUILD", &json!({"index_hash": "x"}), "").ok(200), json!({"exists": false}));
}

#[test]
fn unknown_paths_and_methods_are_told_apart() {
    let server = dev();
    let mut acme = server.acme();
    for path in [
        "/",
        "/v1",
        "/v1/fences",
        "/v1/fences/claim/",
        "/v1/fences/Claim",
        "/v2/fences/claim",
        "/admin",
        "/v1/aliases/",
    ] {
        acme.get(path).problem(404, "not-found");
    }
    for (method, path) in [
        ("GET", "/v1/fences/claim"),
        ("PUT", "/v1/fences/seal"),
        ("DELETE", "/v1/aliases/x"),
        ("POST", "/healthz"),
        ("PATCH", "/v1/fences/batch"),
        ("POST", "/admin/idempotency/lookup"),
        ("GET", "/admin/idempotency/resolve"),
    ] {
        let answer = send(&mut acme, method, path, ACME, "");
        answer.problem(405, "method-not-allowed");
        assert!(answer.header("allow").is_some(), "RFC 9110: a 405 names what is allowed; {method} {path}");
    }
}

#[test]
fn refusals_say_what_was_wrong_and_what_to_do() {
    let server = dev();
    let body = r#"{"scope":"INDEX_BUILD","key":{"index_hash":"x",}}"#;
    let broken = server.acme().post("/v1/fences/claim", body).problem(400, "malformed-request");
    assert!(broken["detail"].as_str().unwrap().contains("trailing comma before }"), "{broken}");
    let method = server.acme().get("/v1/fences/claim").problem(405, "method-not-allowed");
    assert_eq!(method["detail"], "GET is not allowed; use POST");
    let event = json!({"kind": "SHIPPER_RELEASED", "correlation_id": "c", "planner_id": "other", "warehouse_id": "W"});
    let planner = server.client("dev-planner").post("/wes/v1/dispatch/events", event.to_string());
    let detail = planner.problem(403, "forbidden")["detail"].clone();
    assert_eq!(detail, "`/planner_id` must be fgai-wms, this credential's planner");
}

#[test]
fn only_json_is_read_as_json() {
    let server = dev();
    let mut acme = server.acme();
    for kind in [
        "text/plain",
        "application/xml",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin1",
        "json",
    ] {
        let headers = format!("{ACME}content-type: {kind}\r\n");
        send(&mut acme, "POST", "/v1/fences/claim", &headers, CLAIM).problem(415, "not-json");
    }
    for (index, kind) in
        ["application/json", "Application/JSON; charset=UTF-8", "application/vnd.acme+json"].iter().enumerate()
    {
        let headers = format!("{ACME}content-type: {kind}\r\n");
        let body = format!(r#"{{"scope":"INDEX_BUILD","key":{{"index_hash":"{index}"}}}}"#);
        send(&mut acme, "POST", "/v1/fences/claim", &headers, &body).token();
    }
}

#[test]
fn four_mebibytes_are_read_and_one_byte_more_is_refused() {
    let server = dev();
    let body = |bytes: usize| {
        let frame = r#"{"scope":"INDEX_BUILD","key":{"index_hash":"x"},"body":""}"#;
        frame.replace("\"\"", &format!("\"{}\"", "x".repeat(bytes - frame.len())))
    };
    server.acme().post("/v1/fences/claim", body((4 << 20) + 1)).problem(413, "too-large");
    // The same without a length announced.
    let chunked = format!("{:x}\r\n{}\r\n0\r\n\r\n", (4 << 20) + 1, body((4 << 20) + 1));
    let answer = raw(&server, &format!("{ACME}{JSON}transfer-encoding: chunked\r\n"), &chunked);
    answer.problem(413, "too-large");
    server.acme().post("/v1/fences/claim", body(4 << 20)).token();
}

fn raw(server: &super::server::Dev, headers: &str, body: &str) -> Answer {
    raw_to(server, "/v1/fences/claim", headers, body)
}

fn raw_to(server: &super::server::Dev, path: &str, headers: &str, body: &str) -> Answer {
    use std::io::{BufReader, Write};
    let mut stream = std::net::TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(super::server::PATIENCE)).unwrap();
    write!(stream, "POST {path} HTTP/1.1\r\nhost: a\r\n{headers}\r\n{body}").unwrap();
    Answer::read(&mut BufReader::new(stream)).unwrap()
}

#[test]
fn a_caller_without_the_role_is_refused_by_the_head_before_its_body_arrives() {
    let server = dev();
    for path in ["/wes/v1/dispatch/events", "/wes/v1/dispatch/dlq/x/redrive", "/admin/idempotency/resolve"] {
        let headers = format!("{ACME}{JSON}content-length: 1000\r\n");
        raw_to(&server, path, &headers, "").problem(403, "forbidden");
        // A refused body that arrives whole does not end its connection.
        let mut acme = server.acme();
        send(&mut acme, "POST", path, &format!("{ACME}{JSON}"), &"x".repeat(20_000)).problem(403, "forbidden");
        send(&mut acme, "POST", path, &format!("{ACME}content-encoding: gzip\r\n"), "x").problem(403, "forbidden");
        acme.get("/v1/scopes").ok(200);
    }
}

#[test]
fn a_body_that_names_another_identity_is_forbidden() {
    let server = dev();
    for (token, named) in [("dev-partner", "globex"), ("dev-planner", "acme"), ("dev-executor", "acme")] {
        let key = json!({"index_hash": "x"});
        server.client(token).claim_with("INDEX_BUILD", &key, json!({"tenant": named})).problem(403, "forbidden");
    }
    server.acme().claim_with("INDEX_BUILD", &json!({"index_hash": "x"}), json!({"tenant": "acme"})).token();
    for name in ["partner_id", "planner_id", "executor_id"] {
        let other = json!({name: "globex"});
        server.acme().claim_with("INDEX_BUILD", &json!({"index_hash": "y"}), other).problem(403, "forbidden");
    }
}

#[test]
fn every_code_that_the_contract_names_has_a_status() {
    let server = dev();
    let document = server.client("").get("/openapi.json").ok(200);
    assert_eq!(document["openapi"], "3.1.0");
    let codes = document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"].as_array().unwrap();
    for code in
        ["conflict", "in-flight", "in-doubt", "stale", "fenced-off", "sequence-gap", "not-sealed", "store-unavailable"]
    {
        assert!(codes.contains(&Value::from(code)), "{code}");
    }
}

#[test]
fn compressed_body_on_our_own_paths_is_415_and_touches_nothing() {
    let server = dev();
    let mut acme = server.acme();
    for coding in ["gzip", "br", "identity, gzip", "x"] {
        let headers = format!("{ACME}{JSON}content-encoding: {coding}\r\n");
        send(&mut acme, "POST", "/v1/fences/claim", &headers, CLAIM).problem(415, "coded-body");
    }
    let headers = format!("{ACME}{JSON}content-encoding: identity\r\n");
    send(&mut acme, "POST", "/v1/fences/claim", &headers, CLAIM).ok(201);
}

#[test]
fn scopes_that_fencepost_seals_itself_are_not_claimed_by_hand() {
    let server = dev();
    for scope in ["WES_DISPATCH", "WMS_INGEST", "SIGNED_DELIVERY", "ANSWER_DIGEST"] {
        let by_hand = |more: serde_json::Value| {
            let mut body = json!({"scope": scope, "key": {}});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        let mut commands = Vec::new();
        for (op, more) in [
            ("claim", json!({})),
            ("again", json!({"seq": 1})),
            ("seal", json!({"token": 1, "effect_id": "E", "receipt": 1})),
            ("renew", json!({"token": 1})),
            ("release", json!({"token": 1})),
        ] {
            let body = by_hand(more.clone());
            server.acme().post(&format!("/v1/fences/{op}"), body.to_string()).problem(403, "forbidden");
            commands.push(by_hand(super::client::with(more, json!({"op": op})).parse().unwrap()));
        }
        let batch = server.acme().batch(&commands).ok(200);
        assert!(batch["results"].as_array().unwrap().iter().all(|result| result["status"] == 403), "{batch}");
        server.acme().put("/v1/aliases/mine", by_hand(json!({})).to_string()).problem(403, "forbidden");
        let resolve = by_hand(json!({"tenant": "acme", "outcome": "released", "why": "by hand"}));
        server.admin().post("/admin/idempotency/resolve", resolve.to_string()).problem(403, "forbidden");
    }
}
