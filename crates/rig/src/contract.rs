//! Checks answers against the committed OpenAPI document, more strictly than a client would: an object may have only
//! the members that the document lists. So a member that the document lacks fails the test that receives it.
//! Never checks requests. Called by the tests' own clients, with every answer that they read.

use std::sync::LazyLock;

use serde_json::{Map, Value};

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../docs/openapi.json"))
        .expect("a test holds the snapshot against the code")
});

/// The `type` of a problem document of Fencepost begins with this; an upstream's does not.
const OWN_PROBLEM: &str = "https://fencepost.dev/errors/";
/// The schema keywords that this checker knows. It reports any other, instead of ignoring it silently.
const KEYWORDS: [&str; 23] = [
    "$ref",
    "additionalProperties",
    "anyOf",
    "const",
    "default",
    "description",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "oneOf",
    // Not checked: except for digests, these bound requests only.
    "pattern",
    "properties",
    "required",
    "title",
    "type",
    "uniqueItems",
    "writeOnly",
];

/// An answer as a client received it, and its request.
#[derive(Clone, Copy)]
pub struct Answered<'a> {
    pub method: &'a str,
    /// The request's path, with or without a query.
    pub path: &'a str,
    pub status: u16,
    /// The answer's media type; `None` where it has none.
    pub content_type: Option<&'a str>,
    pub body: &'a [u8],
}

/// The operation that a request names; `None` where the document has no such path or method.
pub fn operation(method: &str, path: &str) -> Option<&'static str> {
    said(method, path)?["operationId"].as_str()
}

/// All operations of the document, each with the statuses below 400 that it may answer.
pub fn successes() -> Vec<(&'static str, u16)> {
    let Some(paths) = DOCUMENT["paths"].as_object() else { return Vec::new() };
    let operations = paths.values().filter_map(Value::as_object).flat_map(Map::values);
    let successes = operations.flat_map(|operation| {
        let id = operation["operationId"].as_str().unwrap_or_default();
        let statuses = operation["responses"].as_object().into_iter().flat_map(Map::keys);
        statuses.filter_map(|status| status.parse().ok()).filter(|status| *status < 400).map(move |status| (id, status))
    });
    successes.collect()
}

/// The differences between an answer and the document, as sentences.
pub fn breaches(answer: Answered<'_>) -> Vec<String> {
    let Answered { method, path, status, content_type, body } = answer;
    let kind = content_type.unwrap_or_default().split(';').next().unwrap_or_default();
    let mut found = Vec::new();
    let document = || serde_json::from_slice::<Value>(body);
    match said(method, path) {
        // A path or method that the document lacks: still, Fencepost's refusals have one form everywhere.
        None if kind == "application/problem+json" => {
            if let Ok(value) = document()
                && value["type"].as_str().is_some_and(|own| own.starts_with(OWN_PROBLEM))
            {
                judge(schema("Problem"), &value, "", &mut found);
            }
        }
        None => {}
        Some(operation) => match operation["responses"].get(status.to_string()) {
            None => found.push(format!("status {status} is not in the document")),
            Some(response) => {
                match response["content"].get(kind).map(|content| content.get("x-line").unwrap_or(&content["schema"])) {
                    None => found.push(format!("status {status} as {kind:?} is not in the document")),
                    Some(schema) if kind == "application/x-ndjson" => {
                        for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                            match serde_json::from_slice(line) {
                                Ok(value) => judge(schema, &value, "", &mut found),
                                Err(bad) => found.push(format!("a line is not JSON: {bad}")),
                            }
                        }
                    }
                    Some(schema) if kind.ends_with("json") => match document() {
                        Ok(value) => judge(schema, &value, "", &mut found),
                        Err(bad) => found.push(format!("not JSON: {bad}")),
                    },
                    Some(_) => {}
                }
            }
        },
    }
    found.into_iter().map(|what| format!("{method} {path} {status}: {what}")).collect()
}

// Prefers a literal path to one with a parameter: `/dlq/redrive` is not the id of a dead letter.
fn said(method: &str, path: &str) -> Option<&'static Value> {
    let path = path.split('?').next().unwrap_or_default();
    let paths = DOCUMENT["paths"].as_object()?;
    let fits = |template: &str| {
        let (asked, parts): (Vec<&str>, Vec<&str>) = (path.split('/').collect(), template.split('/').collect());
        asked.len() == parts.len()
            && asked.iter().zip(parts).all(|(asked, part)| part.starts_with('{') && !asked.is_empty() || *asked == part)
    };
    let entry =
        paths.get(path).or_else(|| paths.iter().find(|(template, _)| fits(template)).map(|(_, entry)| entry))?;
    entry.get(method.to_ascii_lowercase())
}

fn schema(name: &str) -> &'static Value {
    &DOCUMENT["components"]["schemas"][name]
}

fn judge(wanted: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let Some(rules) = wanted.as_object() else { return };
    if let Some(name) = wanted["$ref"].as_str() {
        return judge(schema(name.rsplit('/').next().unwrap_or_default()), value, at, found);
    }
    let mut say = |what: String| found.push(format!("{}: {what}", if at.is_empty() { "/" } else { at }));
    for keyword in rules.keys().filter(|keyword| !KEYWORDS.contains(&keyword.as_str())) {
        say(format!("the checker does not know the keyword {keyword}"));
    }
    if let Some(types) = rules.get("type")
        && !names(types).any(|name| is_of(value, name))
    {
        return say(format!("{value} is not of type {types}"));
    }
    if rules.get("const").is_some_and(|only| only != value)
        || rules.get("enum").and_then(Value::as_array).is_some_and(|known| !known.contains(value))
    {
        say(format!("{value} is not among the values of the document"));
    }
    let bound = |name: &str| rules.get(name).and_then(Value::as_f64);
    let outside = |size: f64, least: &str, most: &str| {
        bound(least).is_some_and(|least| size < least) || bound(most).is_some_and(|most| size > most)
    };
    match value {
        Value::Number(number) if outside(number.as_f64().unwrap_or_default(), "minimum", "maximum") => {
            say(format!("{number} is out of its bounds"));
        }
        Value::String(text) if outside(text.chars().count() as f64, "minLength", "maxLength") => {
            say(format!("{text:?} is too short or too long"));
        }
        Value::String(text) if rules.get("format").is_some_and(|format| format == "date-time") && !is_time(text) => {
            say(format!("{text:?} is not a time"));
        }
        Value::Array(items) => {
            if outside(items.len() as f64, "minItems", "maxItems") {
                say(format!("{} items are too few or too many", items.len()));
            }
            for (index, item) in items.iter().enumerate() {
                judge(&wanted["items"], item, &format!("{at}/{index}"), found);
            }
        }
        Value::Object(members) => self::members(wanted, members, at, found),
        _ => {}
    }
    for choice in ["anyOf", "oneOf"] {
        let Some(choices) = rules.get(choice).and_then(Value::as_array) else { continue };
        let tried = choices.iter().map(|one| {
            let mut found = Vec::new();
            judge(one, value, at, &mut found);
            found
        });
        let tried: Vec<_> = tried.collect();
        if !tried.iter().any(Vec::is_empty) {
            // Reports the choice with the fewest differences: most likely the one that was meant.
            found.extend(tried.into_iter().min_by_key(Vec::len).unwrap_or_default());
        }
    }
}

fn members(wanted: &Value, members: &Map<String, Value>, at: &str, found: &mut Vec<String>) {
    let listed = wanted["properties"].as_object();
    for name in wanted["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !members.contains_key(name) {
            found.push(format!("{at}/{name}: required by the document, and missing"));
        }
    }
    for (name, value) in members {
        let place = format!("{at}/{name}");
        match (listed.and_then(|listed| listed.get(name)), wanted.get("additionalProperties")) {
            (Some(schema), _) => judge(schema, value, &place, found),
            (None, Some(Value::Bool(true))) => {}
            (None, Some(schema @ Value::Object(_))) => judge(schema, value, &place, found),
            (None, None) if listed.is_none() => {}
            (None, _) => found.push(format!("{place}: not in the document")),
        }
    }
}

fn names(types: &Value) -> impl Iterator<Item = &str> {
    types.as_str().into_iter().chain(types.as_array().into_iter().flatten().filter_map(Value::as_str))
}

fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        _ => false,
    }
}

// RFC 3339 in UTC, as the server always writes it.
fn is_time(text: &str) -> bool {
    let shape: String = text.chars().map(|one| if one.is_ascii_digit() { '0' } else { one }).collect();
    ["0000-00-00T00:00:00.000Z", "0000-00-00T00:00:00Z"].contains(&shape.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &str, path: &str, status: u16, body: &str) -> Vec<String> {
        let content_type = Some(if status < 400 { "application/json" } else { "application/problem+json" });
        let answer = Answered { method, path, status, content_type, body: body.as_bytes() };
        breaches(answer).iter().map(|said| said.split_once(": ").map_or("", |(_, what)| what).to_owned()).collect()
    }

    #[test]
    fn member_that_the_document_lacks_is_found_at_any_depth() {
        let scope = |more: &str| {
            format!(
                r#"{{"items":[{{"scope":"A","key":["id"],"retain":"7d","horizon":null,"lease":"30s","on_lapse":"recover","again":null,"version":{{"field":"v","per":[]{more}}}}}],"next_cursor":""}}"#
            )
        };
        assert_eq!(found("GET", "/v1/scopes?limit=1", 200, &scope("")), [""; 0]);
        assert_eq!(found("GET", "/v1/scopes", 200, &scope(r#","x":1"#)), ["/items/0/version/x: not in the document"]);
        assert_eq!(found("GET", "/healthz", 200, r#"{"status":"ok","x":1}"#), ["/x: not in the document"]);
    }

    #[test]
    fn wrong_value_missing_member_and_unknown_status_are_found() {
        assert_eq!(found("GET", "/healthz", 200, r#"{"status":"fine"}"#).len(), 1);
        assert_eq!(found("GET", "/healthz", 200, "{}"), ["/status: required by the document, and missing"]);
        assert_eq!(found("GET", "/healthz", 202, "{}"), ["status 202 is not in the document"]);
        assert_eq!(found("GET", "/healthz", 200, "{"), ["not JSON: EOF while parsing an object at line 1 column 1"]);
    }

    #[test]
    fn refusal_on_a_path_of_the_gateway_is_judged_and_one_of_an_upstream_is_not() {
        let problem = |of: &str| {
            format!(
                r#"{{"type":"{of}conflict","title":"t","status":409,"detail":"d","code":"conflict","trace_id":"t","x":1}}"#
            )
        };
        assert_eq!(found("POST", "/charges", 409, &problem(OWN_PROBLEM)), ["/x: not in the document"]);
        assert_eq!(found("POST", "/charges", 409, &problem("https://bank.example/")), [""; 0]);
    }

    #[test]
    fn literal_path_goes_before_one_with_a_parameter() {
        assert_eq!(operation("POST", "/wes/v1/dispatch/dlq/redrive"), Some("redriveDeadLetters"));
        assert_eq!(operation("GET", "/wes/v1/dispatch/dlq/7?tenant=a"), Some("getDeadLetter"));
        assert_eq!((operation("GET", "/v1/aliases/"), operation("PATCH", "/v1/scopes")), (None, None));
    }
}
