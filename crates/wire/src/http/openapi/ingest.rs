//! The schemas of requests and answers under `/wms-ingest/v1`.

use fencepost::ingest::items::{SOURCE_ID_BYTES_MAX, VERSION_BYTES_MAX};
use serde_json::{Map, Value, json};

/// The schemas that these operations name.
pub(in crate::http::openapi) fn schemas(object: &impl Fn(&[&str], &[(&str, &Value)]) -> Value) -> Map<String, Value> {
    let text = json!({"type": "string"});
    let time = json!({"type": "string", "format": "date-time"});
    let count = json!({"type": "integer", "minimum": 0});
    let yes = json!({"type": "boolean"});
    let any = json!({"type": "object", "description": "The item as it was sent"});
    let or_null = json!({"type": ["string", "null"]});
    let list = |items: &Value| json!({"type": "array", "items": items});
    let one_of = |words: &[&str]| json!({"type": "string", "enum": words});
    let id = json!({"type": "string", "minLength": 1, "maxLength": SOURCE_ID_BYTES_MAX});
    let version = json!({"type": ["integer", "string", "null"], "maxLength": VERSION_BYTES_MAX, "description": "A whole number, a time or a dotted version; null where the sender has none"});
    let page = |items: &Value| {
        let next = json!({"type": "string", "description": "Where the next page begins; empty at the end"});
        object(&["items", "next_cursor"], &[("items", &list(items)), ("next_cursor", &next)])
    };
    let mut item = object(&["source_id"], &[("source_id", &id), ("source_version", &version)]);
    item["additionalProperties"] = json!(true);
    item["description"] =
        json!("As its collection's schema says: see GET /wms-ingest/v1/capabilities. Further members are kept.");
    let unresolved = list(&object(
        &["entity_kind", "source_id", "reason_code"],
        &[("entity_kind", &text), ("source_id", &text), ("reason_code", &text)],
    ));
    let reasons = list(&object(&["pointer", "message"], &[("pointer", &text), ("message", &text)]));
    let verdict = |first: &[(&str, &Value)], statuses: &[&str]| {
        let status = one_of(statuses);
        let mut parts = first.to_vec();
        parts.extend([
            ("status", &status),
            ("internal_id", &text),
            ("reactivated", &yes),
            ("warning", &text),
            ("quarantine_id", &text),
            ("reason", &text),
            ("reason_code", &text),
            ("unresolved", &unresolved),
            ("reasons", &reasons),
            ("replay", &yes),
            ("dry_run", &yes),
        ]);
        object(&["source_id", "status"], &parts)
    };
    let result = verdict(&[("source_id", &or_null)], &["ACCEPTED", "REPLAY", "QUARANTINED", "REJECTED"]);
    let number = json!({"type": "integer", "minimum": 1, "description": "The item's number in the upload"});
    let sent_item = json!({"description": "The item as it was sent; a text where it is not JSON"});
    let job_result = verdict(
        &[("line", &number), ("source_id", &or_null), ("item", &sent_item)],
        &["ACCEPTED", "REPLAY", "QUARANTINED", "REJECTED"],
    );
    let released = verdict(&[("source_id", &text)], &["ACCEPTED", "REPLAY", "QUARANTINED", "REJECTED", "RESOLVED"]);
    let summary = object(
        &["accepted", "replay", "quarantined", "rejected"],
        &[("accepted", &count), ("replay", &count), ("quarantined", &count), ("rejected", &count)],
    );
    let job_status = one_of(&["QUEUED", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]);
    let job = object(
        &["job_id", "status", "mode", "collection", "progress", "summary", "by", "correlation_id", "created_at"],
        &[
            ("job_id", &text),
            ("status", &job_status),
            ("mode", &one_of(&["bulk"])),
            ("collection", &text),
            ("progress", &object(&["done", "total"], &[("done", &count), ("total", &count)])),
            ("summary", &summary),
            ("dry_run", &yes),
            ("error", &object(&["code", "detail"], &[("code", &text), ("detail", &text)])),
            ("by", &text),
            ("correlation_id", &text),
            ("created_at", &time),
            ("ended_at", &time),
        ],
    );
    let sent: [(&str, &Value); 3] = [("accepted_at", &time), ("by", &text), ("correlation_id", &text)];
    let status = one_of(&["ACTIVE", "INACTIVE", "CANCELLED"]);
    let mut item_members: Vec<(&str, &Value)> = vec![
        ("source_id", &text),
        ("source_version", &version),
        ("internal_id", &text),
        ("status", &status),
        ("retired_at", &time),
        ("item", &any),
    ];
    item_members.extend(sent);
    let mut version_members: Vec<(&str, &Value)> = vec![
        ("source_version", &version),
        ("number", &count),
        ("replaced_at", &time),
        ("retired_as", &text),
        ("retired_at", &time),
        ("retired_by", &text),
        ("retired_correlation_id", &text),
        ("item", &any),
    ];
    version_members.extend(sent);
    let state = one_of(&["OPEN", "RESOLVED"]);
    let resolution = one_of(&["ACCEPTED", "RELEASED", "WITHDRAWN"]);
    let quarantine = object(
        &["quarantine_id", "collection", "source_id", "status", "reason", "reason_code", "unresolved", "opened_at"],
        &[
            ("quarantine_id", &text),
            ("collection", &text),
            ("source_id", &text),
            ("source_version", &version),
            ("status", &state),
            ("reason", &text),
            ("reason_code", &text),
            ("unresolved", &unresolved),
            ("opened_at", &time),
            ("sent_at", &time),
            ("by", &text),
            ("correlation_id", &text),
            ("resolution", &resolution),
            ("resolved_at", &time),
            ("resolved_by", &text),
            ("resolved_correlation_id", &text),
            ("item", &any),
        ],
    );
    let reference = object(&["at", "to", "reason_code"], &[("at", &text), ("to", &text), ("reason_code", &text)]);
    let schema = json!({"description": "A JSON Schema, draft 2020-12"});
    let group = one_of(&["master", "documents", "inventory"]);
    let collection = object(
        &["name", "group", "modes", "version", "references", "schema"],
        &[
            ("name", &text),
            ("group", &group),
            ("modes", &list(&text)),
            ("version", &text),
            ("references", &list(&reference)),
            ("schema", &schema),
        ],
    );
    let limits = object(
        &["request_bytes_max", "request_items_max", "upload_bytes_max"],
        &[("request_bytes_max", &count), ("request_items_max", &count), ("upload_bytes_max", &count)],
    );
    let all = json!({
        "Items": object(&["items"], &[("items", &list(&item)), ("partner_id", &text)]),
        "ItemResults": object(&["results", "summary"], &[("results", &list(&result)), ("summary", &summary), ("dry_run", &yes)]),
        "ItemRetired": object(&["source_id", "status", "internal_id", "replay"], &[("source_id", &text), ("status", &one_of(&["INACTIVE", "CANCELLED", "WITHDRAWN"])), ("internal_id", &text), ("replay", &yes), ("dry_run", &yes)]),
        "ForgetItemVersion": object(
            &["collection", "source_id", "source_version", "why"],
            &[
                ("tenant", &text),
                ("collection", &text),
                ("source_id", &id),
                ("source_version", &json!({"type": ["integer", "string"], "description": "The version to forget: another one, sent since, stays"})),
                ("why", &json!({"type": "string", "minLength": 1})),
            ],
        ),
        "ItemVersionForgotten": object(
            &["source_id", "highest_version", "replay"],
            &[("source_id", &text), ("highest_version", &version), ("replay", &yes)],
        ),
        "ItemReleased": released,
        "Item": object(&["source_id", "source_version", "internal_id", "status", "item"], &item_members),
        "ItemHistory": page(&object(&["source_version", "number", "accepted_at", "by", "correlation_id", "item"], &version_members)),
        "Quarantines": page(&quarantine),
        "JobQueued": object(&["job_id", "status_url", "accepted_items"], &[("job_id", &text), ("status_url", &text), ("accepted_items", &count), ("dry_run", &yes)]),
        "JobResult": job_result,
        "Job": job,
        "Jobs": page(&job),
        "Capabilities": object(&["collections", "limits", "auto_release"], &[("collections", &list(&collection)), ("limits", &limits), ("auto_release", &yes), ("correlation_id_retain", &text), ("quarantine_retain", &text), ("job_retain", &text)]),
    });
    if let Value::Object(all) = all { all } else { Map::new() }
}
