//! The schemas of the OpenAPI document that are about fences, and all the others with them.

use serde_json::{Map, Value, json};

/// Every schema by its name.
pub(super) fn schemas(codes: &[&str]) -> Value {
    let text = json!({"type": "string"});
    let time = json!({"type": "string", "format": "date-time"});
    let count = json!({"type": "integer", "minimum": 0});
    let yes = json!({"type": "boolean"});
    let key = json!({"type": "object", "additionalProperties": {"type": ["string", "integer", "boolean"]}, "description": "Exactly the scope's fields"});
    let target = [("scope", &text), ("key", &key), ("seq", &count), ("tenant", &text)];
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
    let findings = json!({"type": "array", "items": object(&["severity", "rule", "file", "line", "col", "message"], &[("severity", &json!({"enum": ["error", "warning", "note"]})), ("rule", &text), ("file", &text), ("line", &count), ("col", &count), ("message", &text), ("fix", &json!({"type": ["string", "null"]}))])});
    let any = json!({"description": "Any JSON; kept and returned byte for byte"});
    let source = object(&["type", "id"], &[("type", &text), ("id", &text)]);
    let version = json!({"type": ["integer", "string"]});
    let claim = [
        ("body", json!({"description": "Any JSON; another body under the same key is a conflict"})),
        ("version", version),
        ("source", source),
        ("lease_ms", json!({"type": "integer", "minimum": 1})),
        (
            "wait_ms",
            json!({"type": "integer", "minimum": 0, "description": "A wait past the server's maximum is as long as that"}),
        ),
    ];
    let key_hex = json!({"type": "string", "pattern": "^[0-9a-f]{64}$"});
    let mut all = json!({
        "Target": object(&["scope", "key"], &target),
        "Claim": with(&claim, &["scope", "key"]),
        "Again": with(&claim, &["scope", "key", "seq"]),
        "Seal": with(&[("token", count.clone()), ("effect_id", text.clone()), ("receipt", any.clone())], &["scope", "key", "token", "effect_id", "receipt"]),
        "Renew": with(&[("token", count.clone()), ("lease_ms", json!({"type": "integer", "minimum": 1}))], &["scope", "key", "token"]),
        "Release": with(&[("token", count.clone())], &["scope", "key", "token"]),
        "Resolve": with(&[("outcome", json!({"enum": ["sealed", "released"]})), ("why", text.clone()), ("token", count.clone()), ("effect_id", text.clone()), ("receipt", any.clone())], &["scope", "key", "outcome", "why"]),
        "Batch": json!({"type": "object", "required": ["commands"], "properties": {"commands": {"type": "array", "maxItems": 1000, "items": {"type": "object", "required": ["op"], "properties": {"op": {"enum": ["claim", "again", "seal", "renew", "release"]}}}}}}),
        "BatchResults": json!({"type": "object", "required": ["results"], "properties": {"results": {"type": "array", "items": {"type": "object", "required": ["status", "body"], "properties": {"status": {"type": "integer"}, "body": {"type": "object"}}}}}}),
        "New": object(&["decision", "idempotency_key", "token", "attempt", "recovering", "lease_expires_at"], &[("decision", &json!({"const": "new"})), ("idempotency_key", &key_hex), ("token", &count), ("attempt", &count), ("recovering", &yes), ("lease_expires_at", &time), ("earlier", &json!({"type": "object", "description": "The attempt that lapsed, where recovering"}))]),
        "Duplicate": object(&["decision", "replay", "idempotency_key", "effect_id", "receipt"], &[("decision", &json!({"const": "duplicate"})), ("replay", &json!({"const": true})), ("idempotency_key", &key_hex), ("effect_id", &text), ("receipt", &any), ("first_seen_at", &time), ("sealed_at", &time), ("expires_at", &time)]),
        "Sealed": object(&["decision", "replay", "idempotency_key"], &[("decision", &json!({"const": "sealed"})), ("replay", &yes), ("idempotency_key", &key_hex), ("sealed_at", &time), ("expires_at", &time)]),
        "Renewed": object(&["decision", "lease_expires_at"], &[("decision", &json!({"const": "renewed"})), ("idempotency_key", &key_hex), ("lease_expires_at", &time)]),
        "Released": object(&["decision", "replay"], &[("decision", &json!({"const": "released"})), ("idempotency_key", &key_hex), ("replay", &yes)]),
        "Resolved": object(&["decision", "replay"], &[("decision", &json!({"const": "resolved"})), ("idempotency_key", &key_hex), ("replay", &yes)]),
        "Alias": object(&["name", "scope", "idempotency_key", "effect_id", "receipt"], &[("name", &text), ("scope", &text), ("replay", &yes), ("idempotency_key", &key_hex), ("effect_id", &text), ("receipt", &any), ("moved_at", &time)]),
        "Lookup": object(&["exists"], &[("exists", &yes), ("scope", &text), ("tenant", &text), ("idempotencyKey", &key_hex), ("state", &json!({"enum": ["pending", "lapsed", "in_doubt", "sealed", "released"]})), ("firstSeenAt", &time), ("sealedAt", &time), ("expiresAt", &time), ("resultUrn", &text), ("attempts", &count), ("replays", &count), ("conflicts", &count), ("history", &json!({"type": "array", "items": {"type": "object", "required": ["at", "decision"]}}))]),
        "Doubts": object(&["items", "next_cursor"], &[("items", &json!({"type": "array", "items": {"type": "object"}})), ("next_cursor", &text)]),
        "Policy": object(&["file", "sha256", "loaded_at", "scopes", "routes", "findings"], &[("file", &json!({"type": ["string", "null"]})), ("sha256", &json!({"type": ["string", "null"]})), ("loaded_at", &time), ("scopes", &names), ("routes", &json!({"type": "array", "items": object(&["match", "scope", "upstream"], &[("match", &text), ("scope", &text), ("upstream", &text)])})), ("findings", &findings)]),
        "PolicyChanges": object(&["changed", "dry_run", "sha256", "scopes", "routes", "identities", "settings", "warnings", "findings"], &[("changed", &yes), ("dry_run", &yes), ("sha256", &text), ("scopes", &named), ("routes", &named), ("identities", &named), ("settings", &names), ("warnings", &names), ("findings", &findings)]),
        "Nodes": object(&["store", "durability", "shared", "items"], &[("store", &text), ("durability", &json!({"enum": ["none", "delayed", "synced"]})), ("because", &text), ("shared", &yes), ("store_time", &time), ("keys", &object(&["first", "others", "resealed"], &[("first", &text), ("others", &count), ("resealed", &yes), ("unreadable", &count)])), ("items", &json!({"type": "array", "items": object(&["id", "started_at", "seen_at"], &[("id", &text), ("address", &text), ("release", &text), ("row_format", &count), ("started_at", &time), ("seen_at", &time), ("answering", &yes), ("holds", &count)])}))]),
        "Problem": object(&["type", "title", "status", "detail", "code", "trace_id"], &[("type", &text), ("title", &text), ("status", &json!({"type": "integer"})), ("detail", &text), ("instance", &text), ("code", &json!({"enum": codes})), ("trace_id", &text), ("diff", &json!({"type": "array", "description": "RFC 6902, from the first body to this one"})), ("sealed_version", &json!({"type": ["integer", "string"]})), ("pointer", &json!({"type": "string", "description": "RFC 6901, to what is wrong"})), ("findings", &findings), ("errors", &json!({"type": "array", "description": "Each part of a batch that is refused, by its index", "items": {"type": "object", "required": ["index", "code", "detail"]}}))]),
    });
    // A document without these would name what it does not have: the snapshot shows it.
    if let Some(all) = all.as_object_mut() {
        all.extend(super::wes::schemas(object));
    }
    all
}
