//! Items belong to the partner of the credential, and only partners send them.

use serde_json::json;

use super::{
    super::server::dev,
    sending::{ROOT, Sender, body, correlation, sku, uom},
};

#[test]
fn partner_id_of_another_in_the_body_is_forbidden_and_the_own_one_is_not() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    for other in [json!("globex"), json!("ACME"), json!(7), json!(null)] {
        let sent = json!({"partner_id": other, "items": [uom("EA")]}).to_string();
        acme.post("master/uoms", "cid-of-another", sent).problem(403, "forbidden");
        let sent = json!({"partner_id": other, "items": [uom("EA")]}).to_string();
        acme.post("master/uoms?dry_run=true", "cid-of-another", sent).problem(403, "forbidden");
    }
    let own = json!({"partner_id": "acme", "items": [uom("EA")]}).to_string();
    assert_eq!(acme.post("master/uoms", "cid-of-another", own).ok(200)["summary"]["accepted"], 1);
    Sender::globex(&server).get("master/uoms/EA").problem(404, "unknown-item");
}

#[test]
fn only_partners_send_and_operators_read_the_partner_that_they_name() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    acme.accepted("master/uoms", &[uom("EA")]);
    let waits = acme.quarantined("master/skus", sku("S-1", "CS"));
    let items = body(&[uom("KG")]);
    for token in ["dev-planner", "dev-viewer", "dev-admin"] {
        let mut other = Sender::new(&server, token);
        let mut refused = |method: &str, path: &str| {
            let answer = other.ask(method, path, &correlation("cid-x"), items.as_bytes());
            answer.problem(403, "forbidden");
        };
        refused("POST", "master/uoms");
        refused("POST", "master/uoms?tenant=acme&dry_run=true");
        refused("POST", "documents/receivers");
        refused("POST", "inventory/snapshot");
        refused("DELETE", "master/uoms/EA");
        refused("POST", "documents/receivers/R-1/cancel");
        refused("POST", &format!("quarantine/{waits}/release"));
    }
    for path in ["master/uoms/EA", "master/uoms/EA/history", "quarantine"] {
        Sender::new(&server, "dev-planner").get(path).problem(403, "forbidden");
        Sender::new(&server, "nobody").get(path).problem(401, "unauthorized");
        for token in ["dev-viewer", "dev-admin"] {
            let mut operator = Sender::new(&server, token);
            operator.get(path).problem(400, "malformed-request");
            assert_eq!(operator.get(&format!("{path}?tenant=acme")).ok(200), acme.get(path).ok(200));
        }
        acme.get(&format!("{path}?tenant=globex")).problem(403, "forbidden");
    }
    let mut viewer = Sender::new(&server, "dev-viewer");
    assert_eq!(viewer.get("capabilities").ok(200), acme.get("capabilities").ok(200));
    assert_eq!(server.client("").get(&format!("{ROOT}capabilities")).status, 401);
}

#[test]
fn executor_that_is_a_partner_too_sends_items_of_its_own() {
    let server = dev();
    let mut wes = Sender::new(&server, "dev-executor");
    wes.accepted("master/uoms", &[uom("EA")]);
    let own = json!({"partner_id": "dev-wes", "items": [uom("KG")]}).to_string();
    wes.post("master/uoms", "own", own).ok(200);
    let entry = wes.get("master/uoms/EA/history").ok(200)["items"][0].clone();
    assert_eq!(entry["by"], "dev-wes", "{entry}");
    Sender::acme(&server).get("master/uoms/EA").problem(404, "unknown-item");
    assert_eq!(Sender::new(&server, "dev-viewer").get("master/uoms/KG?tenant=dev-wes").ok(200)["status"], "ACTIVE");
}
