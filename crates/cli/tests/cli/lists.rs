//! Every list pages the same way: `limit`, `after` or `since`, `items`, and a `next_cursor` that is empty at the end.

use serde_json::{Value, json};

use super::{
    client::Client,
    server::{Dev, dev},
};

const LISTS: [&str; 6] = [
    "/v1/scopes",
    "/admin/nodes",
    "/admin/idempotency/in-doubt",
    "/admin/audit",
    "/wes/v1/dispatch/lanes",
    "/wes/v1/dispatch/dlq",
];

/// Three fences in doubt, three lanes, three dead letters and three acts.
fn filled() -> Dev {
    let server = dev();
    let (mut acme, mut planner) = (server.acme(), server.client("dev-planner"));
    for number in 1..=3 {
        let key = json!({"caseUrn": "urn:case:7", "reservationUrn": format!("R-{number}")});
        acme.claim_with("PAYMENT_TOKENIZATION", &key, json!({"lease_ms": 1})).ok(201);
        acme.claim_with("PAYMENT_TOKENIZATION", &key, json!({"wait_ms": 50_000})).problem(409, "in-doubt");
        let warehouse = format!("/wes/v1/warehouses/WH-{number}/transport");
        let webhook = json!({"url": "http://127.0.0.1:1/h", "secret": "sixteen bytes at least"});
        planner.put(&warehouse, json!({"executor_id": "dev-wes", "webhook": webhook}).to_string()).ok(200);
        let event = json!({
            "kind": "SHIPPER_RELEASED", "correlation_id": format!("c-{number}"), "planner_id": "fgai-wms",
            "warehouse_id": format!("WH-{number}"), "document_ref": {"type": "shipper", "id": "SH-1"},
            "routing": {"ops": [{"op_id": "10", "kind": "PICK"}]},
        });
        planner.post("/wes/v1/dispatch/events", event.to_string()).ok(202);
        planner.post(&format!("/wes/v1/dispatch/lanes/fgai-wms:WH-{number}/skip"), r#"{"seq":1}"#).ok(200);
    }
    server
}

fn page(client: &mut Client, list: &str, query: &str) -> (Vec<Value>, String) {
    let page = client.get(&format!("{list}?{query}")).ok(200);
    (page["items"].as_array().unwrap().clone(), page["next_cursor"].as_str().unwrap().to_owned())
}

#[test]
fn every_list_pages_the_same_way() {
    let server = filled();
    let mut admin = server.admin();
    for list in LISTS {
        let (all, end) = page(&mut admin, list, "");
        assert_eq!(end, "", "{list}");
        let expected = if list == "/admin/nodes" { 1 } else { 3 };
        assert!(all.len() >= expected, "{list}: {all:?}");
        for name in ["after", "since"] {
            let (mut paged, mut cursor) = (Vec::new(), String::new());
            loop {
                let (items, next) = page(&mut admin, list, &format!("limit=2&{name}={cursor}"));
                assert!(items.len() == 2 || next.is_empty(), "{list}: {items:?} before {next}");
                paged.extend(items);
                cursor = next;
                if cursor.is_empty() {
                    break;
                }
            }
            let ids = |items: &[Value]| items.iter().map(id).collect::<Vec<_>>();
            assert_eq!(ids(&paged), ids(&all), "{list} by {name}");
        }
    }
}

// Identifies an item; its other members change from one look to the next.
fn id(item: &Value) -> Value {
    let names = ["id", "lane_id", "idempotency_key", "scope", "trace_id"];
    names.iter().find_map(|name| item.get(name)).unwrap().clone()
}

#[test]
fn list_refuses_a_limit_out_of_range_and_a_cursor_that_is_not_its_own() {
    let server = dev();
    let mut admin = server.admin();
    for list in LISTS {
        for query in ["limit=0", "limit=1001", "limit=x", "limit=1&limit=2", "after=a&since=b"] {
            admin.get(&format!("{list}?{query}")).problem(400, "malformed-request");
        }
        // Empty is as good as absent.
        admin.get(&format!("{list}?limit=&after=&since=")).ok(200);
        admin.get(&format!("{list}?limit=1000")).ok(200);
    }
    for list in &LISTS[2..] {
        for cursor in ["junk", "18f-00", "%00", &"9".repeat(200)] {
            for name in ["after", "since"] {
                admin.get(&format!("{list}?{name}={cursor}")).problem(404, "unknown-cursor");
            }
        }
    }
}

#[test]
fn scopes_are_told_with_how_long_they_remember() {
    let server = dev();
    let scopes = |token: &str| page(&mut server.client(token), "/v1/scopes", "limit=1000").0;
    let find = |scopes: &[Value], name: &str| scopes.iter().find(|scope| scope["scope"] == name).cloned();
    let partner = scopes("dev-partner");
    let booking = find(&partner, "BOOKING").unwrap();
    assert_eq!(booking["key"], json!(["caseUrn", "waveUrn", "groupId"]));
    assert_eq!(
        (&booking["retain"], &booking["lease"], &booking["on_lapse"], &booking["again"]),
        (&json!("7d"), &json!("1m"), &json!("recover"), &json!("rebookSeq"))
    );
    assert_eq!(find(&partner, "PAYMENT_TOKENIZATION").unwrap()["on_lapse"], "hold");
    let webhook = find(&partner, "WEBHOOK").unwrap();
    assert_eq!((&webhook["version"]["field"], &webhook["again"]), (&json!("event_version"), &Value::Null));
    // No client may claim in the scope that Fencepost seals itself; a planner may know how long its publications are
    // remembered.
    assert_eq!(find(&partner, "WES_DISPATCH"), None);
    let publications = find(&scopes("dev-planner"), "WES_DISPATCH").unwrap();
    assert_eq!((&publications["retain"], &publications["horizon"]), (&json!("30d"), &json!("1d")));
    let mut nobody = Client::new(server.address, "nobody");
    nobody.get("/v1/scopes").problem(401, "unauthorized");
}
