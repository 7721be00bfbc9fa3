//! The header with the correlation id: what it may be, and that ids and items of two partners do not meet.

use super::{
    super::server::dev,
    sending::{Sender, body, correlation, sku, uom},
};

#[test]
fn correlation_id_that_is_missing_repeated_too_long_or_unreadable_is_refused() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let waits = acme.quarantined("master/skus", sku("S-1", "CS"));
    let items = body(&[uom("EA")]);
    let long = correlation(&"x".repeat(129));
    for (headers, code) in [
        ("", "missing-header"),
        ("x-correlation-id: a\r\nx-correlation-id: a\r\n", "missing-header"),
        ("x-correlation-id: a\r\nX-Correlation-Id: b\r\n", "missing-header"),
        ("x-correlation-id:\r\n", "malformed-request"),
        ("x-correlation-id: two words\r\n", "malformed-request"),
        ("x-correlation-id: Grüße\r\n", "malformed-request"),
        (&long, "malformed-request"),
    ] {
        for (method, path, body) in [
            ("POST", "master/uoms", items.as_str()),
            ("POST", "documents/receivers", &items),
            ("POST", "inventory/snapshot", &items),
            ("DELETE", "master/uoms/EA", ""),
            ("POST", "documents/receivers/R-1/cancel", ""),
            ("POST", &format!("quarantine/{waits}/release"), ""),
        ] {
            acme.ask(method, path, headers, body.as_bytes()).problem(400, code);
        }
    }
    acme.get("master/uoms/EA").problem(404, "unknown-item");
}

#[test]
fn correlation_id_of_any_visible_characters_up_to_128_is_taken_as_it_is() {
    let server = dev();
    let mut acme = Sender::acme(&server);
    let full = "~".repeat(128);
    let ids = ["cid-101", "CID-101", "0", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", &full];
    for (number, id) in ids.into_iter().enumerate() {
        let items = [uom(&format!("U-{number}"))];
        let first = acme.send("master/uoms", id, &items);
        assert_eq!((first.status, first.header("idempotency-replayed")), (200, None), "{id}");
        assert_eq!(acme.send("master/uoms", id, &items).header("idempotency-replayed"), Some("true"), "{id}");
        assert_eq!(acme.get(&format!("master/uoms/U-{number}")).ok(200)["correlation_id"], id);
    }
}

#[test]
fn two_partners_with_the_same_ids_and_items_do_not_meet() {
    let server = dev();
    let (mut acme, mut globex) = (Sender::acme(&server), Sender::globex(&server));
    let id = "same-for-both";
    let first = acme.send("master/uoms", id, &[uom("EA")]).ok(200);
    globex.get("master/uoms/EA").problem(404, "unknown-item");
    globex.get("master/uoms/EA/history").problem(404, "unknown-item");
    let waits = globex.quarantined("master/skus", sku("S-1", "EA"));
    assert!(acme.waiting().is_empty(), "the unit of the other partner is none");
    let second = globex.send("master/uoms", id, &[uom("EA")]);
    assert_eq!(second.header("idempotency-replayed"), None);
    assert_ne!(second.ok(200)["results"][0]["internal_id"], first["results"][0]["internal_id"]);
    globex.delete("master/uoms/EA", "delete").ok(200);
    assert_eq!(acme.get("master/uoms/EA").ok(200)["status"], "ACTIVE");
    acme.release(&waits, "release").problem(404, "unknown-quarantine");
    assert_eq!(globex.waiting(), ["S-1"]);
}
