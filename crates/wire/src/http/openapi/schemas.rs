//! The schemas of the OpenAPI document that are about fences, and all the others with them.

use serde_json::{Map, Value, json};

use super::problem;
use crate::http::request::{TEXT_BYTES_MAX, VALUE_BYTES_MAX};

/// Every schema by its name.
pub(super) fn schemas(codes: &[&str]) -> Value {
    let text = json!({"type": "string"});
    // A text in a request, bounded in bytes of UTF-8.
    let word = json!({"type": "string", "minLength": 1, "maxLength": TEXT_BYTES_MAX});
    let time = json!({"type": "string", "format": "date-time"});
    let count = json!({"type": "integer", "minimum": 0});
    let token = json!({"type": "integer", "minimum": 0, "maximum": u64::MAX});
    let seq = json!({"type": "integer", "minimum": 1, "maximum": u64::MAX});
    let lease =
        json!({"type": "integer", "minimum": 1, "maximum": u64::MAX, "description": "Up to the scope's maximum"});
    let one_of = |words: &[&str]| json!({"type": "string", "enum": words});
    let yes = json!({"type": "boolean"});
    let key = json!({"type": "object", "additionalProperties": {"type": ["string", "integer", "boolean"], "maxLength": VALUE_BYTES_MAX}, "description": "Exactly the scope's fields"});
    let target = [("scope", &word), ("key", &key), ("seq", &seq), ("tenant", &word)];
    let object = |required: &[&str], parts: &[(&str, &Value)]| {
        let properties: Map<String, Value> =
            parts.iter().map(|(name, schema)| ((*name).to_owned(), (*schema).clone())).collect();
        json!({"type": "object", "required": required, "properties": properties})
    };
    let with = |more: &[(&'static str, Value)], required: &[&str]| {
        let mut schema = object(required, &target);
        for (name, value) in more {
            schema["properties"][*name] = value.clone();
        }
        schema
    };
    let names = json!({"type": "array", "items": text});
    let named =
        object(&["added", "removed", "changed"], &[("added", &names), ("removed", &names), ("changed", &names)]);
    let mut rules = named.clone();
    rules["properties"]["reordered"] = json!({"type": "boolean"});
    let findings = json!({"type": "array", "items": object(&["severity", "rule", "file", "line", "col", "message"], &[("severity", &one_of(&["error", "warning", "note"])), ("rule", &text), ("file", &text), ("line", &count), ("col", &count), ("message", &text), ("fix", &json!({"type": ["string", "null"]}))])});
    let any = json!({"description": "Any JSON; kept and returned byte for byte"});
    let source = object(&["type", "id"], &[("type", &word), ("id", &word)]);
    let version = json!({"type": ["integer", "string"], "maxLength": TEXT_BYTES_MAX});
    let claim = [
        ("body", json!({"description": "Any JSON; another body under the same key is a conflict"})),
        ("version", version),
        ("source", source.clone()),
        ("lease_ms", lease.clone()),
        (
            "wait_ms",
            json!({"type": "integer", "minimum": 0, "maximum": u64::MAX, "description": "A wait past the server's maximum is as long as that"}),
        ),
    ];
    let mut resolve = with(
        &[
            ("outcome", one_of(&["sealed", "released"])),
            ("why", word.clone()),
            ("token", token.clone()),
            ("effect_id", word.clone()),
            ("receipt", any.clone()),
        ],
        &["scope", "key", "outcome", "why"],
    );
    resolve["description"] = json!("`sealed` needs `effect_id`");
    let forget = with(&[("why", word.clone()), ("token", token.clone())], &["scope", "key", "why"]);
    let command = json!({"type": "object", "required": ["op"], "properties": {"op": one_of(&["claim", "again", "seal", "renew", "release"])}, "description": "With the members of what `op` asks for, but for `wait_ms`: a command in a batch cannot wait"});
    let page = |items: Value| {
        object(
            &["items", "next_cursor"],
            &[
                ("items", &json!({"type": "array", "items": items})),
                (
                    "next_cursor",
                    &json!({"type": "string", "description": "Where the next page begins; empty at the end"}),
                ),
            ],
        )
    };
    let scope_version =
        json!({"anyOf": [object(&["field", "per"], &[("field", &text), ("per", &names)]), {"type": "null"}]});
    let or_null = json!({"type": ["string", "null"]});
    let scope = object(
        &["scope", "key", "retain", "horizon", "lease", "on_lapse", "again", "version"],
        &[
            ("scope", &text),
            ("key", &names),
            ("retain", &text),
            ("horizon", &or_null),
            ("lease", &text),
            ("on_lapse", &one_of(&["recover", "hold"])),
            ("again", &or_null),
            ("version", &scope_version),
        ],
    );
    let mut earlier = object(
        &["token", "attempt", "lease_expired_at"],
        &[("token", &count), ("attempt", &count), ("lease_expired_at", &time)],
    );
    earlier["description"] = json!("The attempt that lapsed, where recovering");
    // The results of a batch's commands.
    let results: Vec<Value> = ["New", "Duplicate", "Sealed", "Renewed", "Released", "Problem"]
        .map(|name| json!({"$ref": format!("#/components/schemas/{name}")}))
        .into();
    let key_hex = json!({"type": "string", "pattern": "^[0-9a-f]{64}$"});
    let mut all = json!({
        "Target": object(&["scope", "key"], &target),
        "Claim": with(&claim, &["scope", "key"]),
        "Again": with(&claim, &["scope", "key", "seq"]),
        "Seal": with(&[("token", token.clone()), ("effect_id", word.clone()), ("receipt", any.clone())], &["scope", "key", "token", "effect_id", "receipt"]),
        "Renew": with(&[("token", token.clone()), ("lease_ms", lease.clone())], &["scope", "key", "token"]),
        "Release": with(&[("token", token.clone())], &["scope", "key", "token"]),
        "Resolve": resolve,
        "Forget": forget,
        "Batch": json!({"type": "object", "required": ["commands"], "properties": {"commands": {"type": "array", "maxItems": 1000, "description": "Up to `server.limits.batch_commands_max`", "items": command}}}),
        "BatchResults": json!({"type": "object", "required": ["results"], "properties": {"results": {"type": "array", "items": {"type": "object", "required": ["status", "body"], "properties": {"status": {"type": "integer"}, "body": {"anyOf": results}}}}}}),
        "New": object(&["decision", "idempotency_key", "token", "attempt", "recovering", "lease_expires_at"], &[("decision", &json!({"type": "string", "const": "new"})), ("idempotency_key", &key_hex), ("token", &count), ("attempt", &count), ("recovering", &yes), ("lease_expires_at", &time), ("earlier", &earlier)]),
        "Duplicate": object(&["decision", "replay", "idempotency_key", "effect_id", "receipt"], &[("decision", &json!({"type": "string", "const": "duplicate"})), ("replay", &json!({"type": "boolean", "const": true})), ("idempotency_key", &key_hex), ("effect_id", &text), ("receipt", &any), ("first_seen_at", &time), ("sealed_at", &time), ("expires_at", &time)]),
        "Sealed": object(&["decision", "replay", "idempotency_key"], &[("decision", &json!({"type": "string", "const": "sealed"})), ("replay", &yes), ("idempotency_key", &key_hex), ("sealed_at", &time), ("expires_at", &time)]),
        "Renewed": object(&["decision", "lease_expires_at"], &[("decision", &json!({"type": "string", "const": "renewed"})), ("idempotency_key", &key_hex), ("lease_expires_at", &time)]),
        "Released": object(&["decision", "replay"], &[("decision", &json!({"type": "string", "const": "released"})), ("idempotency_key", &key_hex), ("replay", &yes)]),
        "Resolved": object(&["decision", "replay"], &[("decision", &json!({"type": "string", "const": "resolved"})), ("idempotency_key", &key_hex), ("replay", &yes)]),
        "Forgotten": object(&["decision", "replay", "exists"], &[("decision", &json!({"type": "string", "const": "forgotten"})), ("idempotency_key", &key_hex), ("replay", &yes), ("exists", &yes)]),
        "AuditLog": page(object(&["at", "by", "what", "outcome", "on"], &[("at", &time), ("by", &text), ("what", &text), ("outcome", &text), ("on", &text), ("tenant", &text), ("why", &text), ("trace_id", &text)])),
        "Alias": object(&["name", "scope", "idempotency_key", "effect_id", "receipt"], &[("name", &text), ("scope", &text), ("replay", &yes), ("idempotency_key", &key_hex), ("effect_id", &text), ("receipt", &any), ("moved_at", &time)]),
        "Lookup": object(&["exists"], &[("exists", &yes), ("scope", &text), ("tenant", &text), ("idempotencyKey", &key_hex), ("state", &one_of(&["pending", "lapsed", "in_doubt", "sealed", "released"])), ("firstSeenAt", &time), ("sealedAt", &time), ("leaseExpiresAt", &time), ("releasedAt", &time), ("expiresAt", &time), ("resultUrn", &text), ("token", &count), ("attempts", &count), ("replays", &count), ("conflicts", &count), ("bodyMismatches", &count), ("repetitionsTotal", &json!({"type": "integer", "minimum": 0, "description": "How many deliberate repetitions were claimed; `repetitions` holds the latest 32"})), ("repetitions", &json!({"type": "array", "description": "The latest deliberate repetitions, oldest first; of the effect itself, where its scope has them", "items": object(&["seq", "state"], &[("seq", &count), ("state", &one_of(&["pending", "lapsed", "in_doubt", "sealed", "released", "expired"])), ("firstSeenAt", &time), ("sealedAt", &time), ("leaseExpiresAt", &time), ("releasedAt", &time), ("resultUrn", &text)])})), ("history", &json!({"type": "array", "items": object(&["at", "decision"], &[("at", &time), ("decision", &text), ("token", &count), ("by", &text), ("why", &text)])}))]),
        "Doubts": page(object(&["tenant", "scope", "key", "idempotency_key", "state", "token", "attempt", "first_seen_at"], &[("tenant", &text), ("scope", &text), ("key", &json!({"type": "object", "additionalProperties": {"type": "string"}})), ("idempotency_key", &key_hex), ("state", &json!({"type": "string", "const": "in_doubt"})), ("token", &count), ("attempt", &count), ("seq", &count), ("first_seen_at", &time), ("since", &time), ("source", &source)])),
        "Scopes": page(scope),
        "Health": object(&["status"], &[("status", &one_of(&["ok", "ready"])), ("dispatch", &one_of(&["key-missing"]))]),
        "Document": json!({"type": "object"}),
        "Policy": object(&["file", "sha256", "loaded_at", "scopes", "routes", "findings"], &[("file", &json!({"type": ["string", "null"]})), ("sha256", &json!({"type": ["string", "null"]})), ("loaded_at", &time), ("scopes", &names), ("routes", &json!({"type": "array", "items": object(&["match", "scope", "upstream"], &[("match", &text), ("scope", &text), ("upstream", &text)])})), ("findings", &findings)]),
        "PolicyChanges": object(&["changed", "dry_run", "sha256", "scopes", "routes", "identities", "settings", "warnings", "findings"], &[("changed", &yes), ("dry_run", &yes), ("sha256", &text), ("scopes", &named), ("routes", &rules), ("collections", &named), ("identities", &named), ("settings", &names), ("warnings", &names), ("findings", &findings)]),
        "Nodes": object(&["store", "durability", "shared", "items", "next_cursor"], &[("store", &text), ("durability", &one_of(&["none", "delayed", "synced"])), ("because", &text), ("shared", &yes), ("store_time", &time), ("keys", &object(&["first", "others", "resealed"], &[("first", &text), ("others", &count), ("resealed", &yes), ("unreadable", &count), ("missing", &json!({"type": "array", "items": text}))])), ("items", &json!({"type": "array", "items": object(&["id", "started_at", "seen_at"], &[("id", &text), ("address", &text), ("release", &text), ("row_format", &count), ("started_at", &time), ("seen_at", &time), ("answering", &yes), ("holds", &count)])})), ("next_cursor", &text)]),
        "Problem": problem::schema(&object, codes, &findings),
        "RefusedPart": problem::part(&object),
    });
    // A document without these would refer to schemas that it does not have: the snapshot shows it.
    if let Some(all) = all.as_object_mut() {
        all.extend(super::wes::schemas(&object));
        all.extend(super::ingest::schemas(&object));
    }
    all
}
