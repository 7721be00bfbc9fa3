//! The schemas of requests and answers under `/wes/v1`.

use serde_json::{Map, Value, json};

use crate::http::{
    openapi::parameter::{NAME_PATTERN, WAREHOUSE_PATTERN, reasons},
    query::LIMIT_MAX,
    request::TEXT_BYTES_MAX,
    wes,
};

/// The schemas that these operations name.
pub(in crate::http::openapi) fn schemas(object: &impl Fn(&[&str], &[(&str, &Value)]) -> Value) -> Map<String, Value> {
    let text = json!({"type": "string"});
    let time = json!({"type": "string", "format": "date-time"});
    let count = json!({"type": "integer", "minimum": 0});
    let yes = json!({"type": "boolean"});
    let any = json!({"type": "object"});
    let list = |items: &Value| json!({"type": "array", "items": items});
    let word = json!({"type": "string", "minLength": 1, "maxLength": TEXT_BYTES_MAX});
    let named = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let one_schema = |names: &[&str]| json!({"oneOf": names.iter().map(|name| named(name)).collect::<Vec<_>>()});
    let one_of = |words: &[&str]| json!({"type": "string", "enum": words});
    // Configuration: an unknown member is refused.
    let only = |required: &[&str], parts: &[(&str, &Value)]| {
        let mut schema = object(required, parts);
        schema["additionalProperties"] = json!(false);
        schema
    };
    let id = json!({"type": "string", "minLength": 1, "maxLength": 128});
    let warehouse = json!({"type": "string", "pattern": WAREHOUSE_PATTERN});
    let correlation_id = json!({"type": "string", "pattern": "^[!-~]{1,128}$"});
    let number = json!({"type": "number"});
    // An event's further members are kept, and delivered as they came.
    let open = |required: &[&str], parts: &[(&str, &Value)]| {
        let mut schema = object(required, parts);
        schema["additionalProperties"] = json!(true);
        schema
    };
    let delta = open(&["sku", "qty"], &[("sku", &word), ("qty", &number)]);
    let amount = json!({"type": "number", "minimum": 0});
    let op = open(
        &["op_id", "kind"],
        &[
            ("op_id", &id),
            ("kind", &id),
            ("qty", &amount),
            ("expected_seconds", &amount),
            ("expected_cost", &amount),
            ("bom_deltas", &list(&delta)),
            ("skills", &list(&text)),
            ("resources", &list(&text)),
        ],
    );
    let routing = open(&[], &[("ops", &list(&op)), ("expected_duration_seconds", &amount)]);
    let kinds = one_of(&fencepost::dispatch::envelope::kinds());
    let document = open(&["type", "id"], &[("type", &word), ("id", &word)]);
    let meta = open(&[], &[("released_at", &time)]);
    let mut event = open(
        &["kind", "correlation_id", "planner_id", "warehouse_id"],
        &[
            ("kind", &kinds),
            ("correlation_id", &correlation_id),
            ("planner_id", &word),
            ("warehouse_id", &warehouse),
            ("document_ref", &document),
            ("routing", &routing),
            ("meta", &meta),
            ("cancels_correlation_id", &correlation_id),
        ],
    );
    event["description"] = json!(
        "document_ref is needed by all but CANCELLED, routing.ops by the five kinds that end in RELEASED, cancels_correlation_id by CANCELLED. Further members are kept and delivered."
    );
    let event_ref = json!({"$ref": "#/components/schemas/Event"});
    let one_published = [
        ("accepted", &yes),
        ("replay", &yes),
        ("lane", &text),
        ("lane_id", &text),
        ("seq", &count),
        ("original", &one_of(&["undelivered", "in_flight", "delivered", "dead", "unknown"])),
    ];
    let secret = json!({"type": "string", "minLength": 16, "maxLength": 1024, "writeOnly": true, "description": "at least 16 bytes; a shorter one only where it is live already"});
    let secrets =
        json!({"type": "array", "minItems": 1, "maxItems": 2, "items": secret, "description": "the newest first"});
    let url = json!({"type": "string", "minLength": 1, "maxLength": TEXT_BYTES_MAX, "pattern": "^https?://[^#]+$"});
    let hook = |name: &str, schema: &Value| {
        only(&["url", name], &[("url", &url), (name, schema), ("standard_webhooks", &yes)])
    };
    let kafka = only(&[], &[("topic", &json!({"type": "string", "pattern": "^[A-Za-z0-9._-]{1,249}$"}))]);
    let after_dead = one_of(&["continue", "block"]);
    let span = json!({"type": ["string", "integer"], "pattern": "^[0-9]+(ms|s|m|h|d)$", "minimum": 0, "description": "such as 7d, or seconds"});
    let drain = json!({"type": ["boolean", "integer"], "minimum": 0, "maximum": 300, "description": "waits up to 30 seconds, or as many as given, until the lane is drained"});
    let transport = |name: &str, schema: &Value| {
        let parts = [
            ("planner_id", &word),
            (
                "executor_id",
                &json!({"type": "string", "pattern": NAME_PATTERN, "description": "may be left out where one executor alone serves the planner"}),
            ),
            (name, schema),
            ("after_dead_letter", &after_dead),
            ("receiver_retention", &span),
            ("drain", &drain),
        ];
        only(&[name], &parts)
    };
    let shown_hook = object(
        &["url", "secrets", "standard_webhooks"],
        &[
            ("url", &json!({"type": "string", "description": "Scheme, host and port; the rest is masked"})),
            ("secrets", &json!({"type": "integer", "minimum": 0, "description": "How many there are"})),
            ("standard_webhooks", &yes),
        ],
    );
    let set = [
        ("warehouse_id", &text),
        ("executor_id", &text),
        ("transport", &one_of(&["webhook", "kafka", "poll"])),
        ("lane", &text),
        ("lane_id", &text),
        ("replay", &yes),
    ];
    let head = object(
        &["seq", "attempts"],
        &[
            ("seq", &count),
            ("attempts", &count),
            ("first_attempt_at", &time),
            ("next_attempt_at", &time),
            ("last_status", &count),
            ("last_answer", &text),
        ],
    );
    let lane = object(
        &["lane", "lane_id", "planner_id", "state", "tail", "settled", "backlog"],
        &[
            ("lane", &text),
            ("lane_id", &text),
            ("planner_id", &text),
            ("warehouse_id", &text),
            ("executor_id", &text),
            ("transport", &text),
            ("state", &one_of(&wes::lanes::STATES)),
            ("tail", &count),
            ("settled", &count),
            ("backlog", &count),
            ("head", &head),
            (
                "missing_key",
                &json!({"type": "string", "description": "The fingerprint of the key that its transport is sealed with, where the server does not have it; nothing is sent before it does"}),
            ),
            ("paused", &object(&["at", "by", "why"], &[("at", &time), ("by", &text), ("why", &text)])),
            ("owner", &text),
        ],
    );
    let letter = object(
        &[
            "id",
            "lane",
            "lane_id",
            "seq",
            "correlation_id",
            "kind",
            "warehouse_id",
            "reason",
            "attempts",
            "died_at",
            "state",
        ],
        &[
            ("id", &text),
            ("lane", &text),
            ("lane_id", &text),
            ("seq", &count),
            ("planner_id", &text),
            ("warehouse_id", &text),
            ("correlation_id", &text),
            ("kind", &text),
            ("reason", &one_of(&reasons())),
            ("attempts", &count),
            ("first_attempt_at", &time),
            ("published_at", &time),
            ("died_at", &time),
            ("last_status", &count),
            ("last_answer", &text),
            ("cancelled_by", &text),
            ("blocks", &yes),
            ("state", &one_of(&["waiting", "redriven", "discarded"])),
            (
                "decided",
                &object(
                    &["at", "by"],
                    &[("at", &time), ("by", &text), ("why", &text), ("lane", &text), ("seq", &count)],
                ),
            ),
            ("event", &event_ref),
            ("replay", &yes),
        ],
    );
    let why = object(&["why"], &[("why", &word)]);
    let filter = only(
        &[],
        &[("warehouse_id", &word), ("reason", &one_of(&reasons())), ("kind", &kinds), ("correlation_id", &word)],
    );
    let ids = json!({"type": "array", "maxItems": LIMIT_MAX, "items": text});
    let up_to_a_thousand = json!({"type": "integer", "minimum": 1, "maximum": 1000});
    let many = |name: &str, schema: &Value| {
        let parts = [
            (name, schema),
            ("preview", &yes),
            ("limit", &up_to_a_thousand),
            ("rate_per_second", &up_to_a_thousand),
            ("after", &json!({"type": "string", "maxLength": TEXT_BYTES_MAX})),
            ("force", &why),
        ];
        only(&[name], &parts)
    };
    let page = |items: &str| {
        let items = list(&named(items));
        object(
            &["items", "next_cursor"],
            &[
                ("items", &items),
                (
                    "next_cursor",
                    &json!({"type": "string", "description": "Where the next page begins; empty at the end"}),
                ),
            ],
        )
    };
    let schemas = json!({
        "Event": event,
        "Events": {"anyOf": [event_ref, object(&["events"], &[("events", &json!({"type": "array", "minItems": 1, "maxItems": 1000, "items": event_ref}))])]},
        "PublishedOne": object(&["correlation_id", "accepted", "replay", "lane", "lane_id", "seq"], &[&[("correlation_id", &text)], &one_published[..]].concat()),
        "Published": object(&[], &[&one_published[..], &[("results", &list(&json!({"anyOf": [named("PublishedOne"), named("RefusedPart")]})))]].concat()),
        "WebhookWithSecret": hook("secret", &secret),
        "WebhookWithSecrets": hook("secrets", &secrets),
        "KafkaTopic": kafka,
        "Polling": only(&[], &[]),
        "ByWebhook": transport("webhook", &one_schema(&["WebhookWithSecret", "WebhookWithSecrets"])),
        "ByKafka": transport("kafka", &named("KafkaTopic")),
        "ByPolling": transport("poll", &named("Polling")),
        "Transport": one_schema(&["ByWebhook", "ByKafka", "ByPolling"]),
        "TransportSet": object(&["warehouse_id", "executor_id", "transport", "lane", "replay"], &set),
        "TransportShown": object(&["warehouse_id", "executor_id", "transport", "lane"], &[&set[..5], &[("planner_id", &text), ("webhook", &shown_hook), ("kafka", &object(&["topic"], &[("topic", &text)])), ("poll", &any), ("after_dead_letter", &after_dead), ("receiver_retention", &text), ("changed_at", &time)]].concat()),
        "Lane": lane,
        "Lanes": page("Lane"),
        "LaneActed": object(&["lane", "lane_id", "settled", "paused", "blocked", "replay"], &[("lane", &text), ("lane_id", &text), ("settled", &count), ("paused", &yes), ("blocked", &yes), ("dead_letter", &text), ("replay", &yes)]),
        "Skip": object(&["seq"], &[("seq", &json!({"type": "integer", "minimum": 1, "maximum": u64::MAX}))]),
        "Why": why,
        "DeadLetter": letter,
        "DeadLetters": page("DeadLetter"),
        "Redrive": object(&[], &[("force", &why)]),
        "RedriveByFilter": many("filter", &filter),
        "RedriveByIds": many("ids", &ids),
        "RedriveMany": one_schema(&["RedriveByFilter", "RedriveByIds"]),
        "Redriven": object(&["preview", "refused", "next_cursor"], &[("preview", &yes), ("would_redrive", &count), ("redriven", &count), ("replayed", &count), ("refused", &list(&named("RefusedPart"))), ("next_cursor", &text)]),
        "Pending": object(&["events", "next_cursor"], &[("events", &list(&event_ref)), ("next_cursor", &text)]),
        "Ack": object(&["cursor"], &[("cursor", &text)]),
        "Acked": object(&["acked"], &[("acked", &text)]),
    });
    match schemas {
        Value::Object(schemas) => schemas,
        _ => Map::new(),
    }
}
