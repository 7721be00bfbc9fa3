//! Requests to the dispatch routes of the API, page by page, and refusals in words for people.
//! Never repeats a request. Called by `lanes`, `dlq`, `audit` and `forget`.

use std::fmt::{self, Write as _};

use anyhow::Context;
use fencepost_kernel::json::{self, JsonNode, Value};

use crate::client::{ServerArgs, encode, not_fencepost};

/// The most items that one request may ask for.
const PAGE_MAX: usize = 1_000;

/// A server's refusal: the status, and the code and detail of its problem document.
#[derive(Debug)]
pub struct ServerRefusal {
    pub status: u16,
    pub code: String,
    pub detail: String,
}

impl ServerRefusal {
    // None where the body is not that of a Fencepost.
    fn of(status: u16, body: &[u8]) -> Option<Self> {
        let said = json::parse(body).ok()?;
        let part = |name: &str| Some(said.get(name)?.as_str()?.to_owned());
        Some(Self { status, code: part("code").unwrap_or_else(|| status.to_string()), detail: part("detail")? })
    }
}

impl fmt::Display for ServerRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)?;
        hint(&self.code).map_or(Ok(()), |hint| write!(f, "\n  {hint}"))
    }
}

impl std::error::Error for ServerRefusal {}

/// The next step for a person after a refusal with this code.
pub fn hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "letter-cancelled" => "the planner cancelled this event; discard it: fencepost dlq discard ID --why WHY",
        "past-retention" => {
            "ask the receiver whether it had the event; if it had not: fencepost dlq redrive ID --force WHY"
        }
        "already-decided" => "see the decision: fencepost dlq show ID",
        "no-transport" => "register where its events go first: PUT /wes/v1/warehouses/WAREHOUSE/transport",
        "unknown-dead-letter" => "list them: fencepost dlq list --state all",
        "unknown-lane" => "list them: fencepost lanes",
        "not-head" => "see which position is the head: fencepost lanes show LANE",
        "unauthorized" => "give a valid token with --token or FENCEPOST_TOKEN",
        "forbidden" => "use a token of the planner that owns it, or of an admin",
        "store-unsupported" => "lanes and the audit need the embedded store or PostgreSQL",
        "store-unavailable" => "try again: it is safe, nothing is done twice",
        _ => return None,
    })
}

fn granted(server: &ServerArgs, (status, body): (u16, Vec<u8>)) -> anyhow::Result<Vec<u8>> {
    match (status, ServerRefusal::of(status, &body)) {
        (200..300, _) if matches!(json::parse(&body), Ok(JsonNode { value: Value::Object(_), .. })) => Ok(body),
        (200..300, _) | (_, None) => Err(not_fencepost(&server.url, &format!("answered {status}"))),
        (_, Some(refusal)) => Err(refusal.into()),
    }
}

/// The body of a GET; a refusal is an error that holds a [`ServerRefusal`].
pub fn get(server: &ServerArgs, path: &str) -> anyhow::Result<Vec<u8>> {
    granted(server, server.get(path)?)
}

/// The body of a POST; a refusal is an error that holds a [`ServerRefusal`].
pub fn post(server: &ServerArgs, path: &str, body: &str) -> anyhow::Result<Vec<u8>> {
    granted(server, server.post(path, body)?)
}

/// A path with those of the parameters that are given.
pub fn query(path: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let mut out = path.to_owned();
    for (name, value) in parameters {
        if let Some(value) = value {
            let _ = write!(out, "{}{name}={}", if out.contains('?') { '&' } else { '?' }, encode(value));
        }
    }
    out
}

/// Up to `limit` items of a list, each as its JSON; and the cursor to continue from, empty at the end.
pub fn pages(server: &ServerArgs, path: &str, limit: usize, after: &str) -> anyhow::Result<(Vec<String>, String)> {
    let (mut found, mut after) = (Vec::new(), after.to_owned());
    loop {
        let size = (limit - found.len()).min(PAGE_MAX).to_string();
        let from = Some(after.as_str()).filter(|after| !after.is_empty());
        let body = get(server, &query(path, &[("limit", Some(&size)), ("after", from)]))?;
        let page = parse(&body)?;
        let Some(Value::Array(items)) = page.get("items").map(|items| &items.value) else {
            return Err(not_fencepost(&server.url, "answered something else"));
        };
        found.extend(items.iter().map(|item| item.raw.to_owned()));
        after = text(&page, "next_cursor").to_owned();
        if after.is_empty() || found.len() >= limit {
            return Ok((found, after));
        }
    }
}

/// Items and the next cursor, as the server would write them in one page.
pub fn page_text(items: &[String], next: &str) -> String {
    format!("{{\"items\":[{}],\"next_cursor\":\"{next}\"}}", items.join(","))
}

/// A server's answer, read as JSON.
pub fn parse(body: &[u8]) -> anyhow::Result<JsonNode<'_>> {
    json::parse(body).context("the server's answer is not JSON")
}

/// The text under a name of an object; empty where there is none.
pub fn text<'n>(node: &'n JsonNode<'_>, name: &str) -> &'n str {
    node.get(name).and_then(JsonNode::as_str).unwrap_or_default()
}

/// The number under a name of an object; 0 where there is none.
pub fn number(node: &JsonNode<'_>, name: &str) -> u64 {
    node.get(name).and_then(JsonNode::as_u64).unwrap_or_default()
}

/// Whether a member of an object is true.
pub fn is(node: &JsonNode<'_>, name: &str) -> bool {
    node.get(name).is_some_and(|node| node.value == Value::Bool(true))
}

/// A receiver's last answer: its status, where it had one, and its text.
pub fn answer(node: &JsonNode<'_>) -> String {
    let note = text(node, "last_answer");
    match node.get("last_status").and_then(JsonNode::as_u64) {
        Some(status) => format!("{status} {note}").trim_end().to_owned(),
        None => note.to_owned(),
    }
}

/// A text as a JSON string, with its quotes.
pub fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    json::write_string(&mut out, text);
    String::from_utf8_lossy(&out).into_owned()
}
