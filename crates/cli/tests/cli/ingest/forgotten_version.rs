//! A version that was sent too high by mistake: an operator lets a lower one be accepted after it.

use serde_json::{Value, json};

use super::{
    super::{
        client::{Answer, Client},
        server::dev,
    },
    sending::{Sender, at, fresh_id, sku, uom},
};

fn forget(operator: &mut Client, more: Value) -> Answer {
    let mut body = json!({
        "tenant": "acme", "collection": "uoms", "source_id": "EA", "source_version": 20_260_524, "why": "a date as a number",
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    operator.post("/admin/items/forget-version", body.to_string())
}

#[test]
fn operator_lets_a_lower_version_be_accepted_and_the_audit_and_the_history_say_so() {
    let server = dev();
    let (mut acme, mut admin) = (Sender::acme(&server), server.admin());
    acme.accepted("master/uoms", &[at(uom("EA"), 7), at(uom("EA"), 20_260_524)]);
    acme.accepted("master/skus", &[sku("S", "EA")]);
    assert_eq!(acme.one("master/uoms", at(uom("EA"), 8))["status"], "REPLAY");
    let done = forget(&mut admin, json!({})).ok(200);
    assert_eq!(done, json!({"source_id": "EA", "highest_version": null, "replay": false}));
    // The item is there all the while: what refers to it is accepted.
    let read = acme.get("master/uoms/EA").ok(200);
    assert_eq!(
        (&read["source_version"], &read["status"], &read["by"]),
        (&Value::Null, &json!("ACTIVE"), &json!("dev-admin"))
    );
    acme.accepted("master/skus", &[sku("T", "EA")]);
    assert_eq!(forget(&mut admin, json!({})).ok(200)["replay"], true);
    acme.accepted("master/uoms", &[at(uom("EA"), 8)]);
    // A late repeat leaves the version that came since.
    let late = forget(&mut admin, json!({})).ok(200);
    assert_eq!((&late["replay"], &late["highest_version"]), (&json!(true), &json!(8)));
    assert_eq!(acme.one("master/uoms", at(uom("EA"), 8))["status"], "REPLAY");
    let versions: Vec<Value> =
        acme.all("master/uoms/EA/history", 10).iter().map(|entry| entry["source_version"].clone()).collect();
    assert_eq!(versions, [json!(8), Value::Null, json!(20_260_524), json!(7)]);
    let audit = server.client("dev-viewer").get("/admin/audit").ok(200)["items"].as_array().unwrap().clone();
    assert_eq!(audit.len(), 1, "{audit:?}");
    let entry = &audit[0];
    assert_eq!(
        [&entry["what"], &entry["by"], &entry["on"], &entry["tenant"], &entry["why"]],
        ["forgetItemVersion", "dev-admin", "uoms/EA version 20260524", "acme", "a date as a number"]
    );
}

#[test]
fn version_is_forgotten_only_by_an_operator_who_names_an_item_a_version_and_a_reason() {
    let server = dev();
    let (mut acme, mut admin) = (Sender::acme(&server), server.admin());
    acme.accepted("master/uoms", &[at(uom("EA"), 20_260_524)]);
    for token in ["dev-partner", "dev-viewer", "dev-planner"] {
        forget(&mut server.client(token), json!({})).problem(403, "forbidden");
    }
    for (more, status, code) in [
        (json!({"why": ""}), 400, "malformed-request"),
        (json!({"why": null}), 400, "malformed-request"),
        (json!({"source_version": null}), 400, "malformed-request"),
        (json!({"tenant": ""}), 400, "malformed-request"),
        (json!({"collection": "units"}), 404, "unknown-collection"),
        (json!({"source_id": "KG"}), 404, "unknown-item"),
        (json!({"tenant": "globex"}), 404, "unknown-item"),
    ] {
        forget(&mut admin, more).problem(status, code);
    }
    let other = forget(&mut admin, json!({"source_version": 8})).ok(200);
    assert_eq!(other, json!({"source_id": "EA", "highest_version": 20_260_524, "replay": true}));
    acme.delete("master/uoms/EA", &fresh_id()).ok(200);
    assert_eq!(acme.one("master/uoms", at(uom("EA"), 8))["status"], "REPLAY");
}
