//! Bytes to events: what an envelope must hold, kind by kind. Refuses with the JSON pointer of what is wrong.
//! Never changes an envelope, and lets pass whatever it does not know: the executor gets the bytes as they came.

use std::collections::BTreeSet;

use fencepost::{dispatch::ENVELOPE_BYTES_MAX, policy::identity::Identity};
use fencepost_kernel::json::{Node, Value};

use super::allowed;
use crate::{
    http::reply::quoted,
    problem::{Code, Problem},
    time::is_rfc3339,
};

/// The longest id, in characters.
const ID_CHARS_MAX: usize = 128;
/// The longest of the other texts that are looked at.
const TEXT_CHARS_MAX: usize = 1_024;

/// Whether an event of a kind carries the recipe of its work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Recipe {
    Required,
    Optional,
}

const CANCELLED: &str = "CANCELLED";

const KINDS: [(&str, Recipe); 8] = [
    ("SHIPPER_RELEASED", Recipe::Required),
    ("RECEIVER_EXPECTED", Recipe::Optional),
    ("WORKORDER_RELEASED", Recipe::Required),
    ("TRANSFER_OUT_RELEASED", Recipe::Required),
    ("TRANSFER_IN_EXPECTED", Recipe::Optional),
    ("VASORDER_RELEASED", Recipe::Required),
    ("REFURBISH_ORDER_RELEASED", Recipe::Required),
    (CANCELLED, Recipe::Optional),
];

/// Every kind there is.
pub(in crate::http) fn kinds() -> Vec<&'static str> {
    KINDS.map(|(kind, _)| kind).to_vec()
}

/// Whether there is such a kind.
pub(super) fn is_kind(kind: &str) -> bool {
    KINDS.iter().any(|(known, _)| *known == kind)
}

/// What of an envelope the way out depends on.
pub(super) struct Envelope<'n> {
    pub(super) kind: &'n str,
    pub(super) correlation_id: &'n str,
    pub(super) warehouse: &'n str,
    /// Type and id of the document.
    pub(super) document: Option<(&'n str, &'n str)>,
    /// The id of the event that this one cancels.
    pub(super) cancels: Option<&'n str>,
}

/// Reads an envelope of this caller's that is delivered as so many bytes.
pub(super) fn read<'n>(caller: &Identity, node: &'n Node<'_>, bytes: usize) -> Result<Envelope<'n>, Problem> {
    if !matches!(node.value, Value::Object(_)) {
        return Err(wrong(Code::Malformed, "", "must be a JSON object"));
    }
    if bytes > ENVELOPE_BYTES_MAX {
        return Err(wrong(Code::TooLarge, "", &format!("may have up to {ENVELOPE_BYTES_MAX} bytes")));
    }
    let kind = text(node, "", "kind", ID_CHARS_MAX)?;
    let Some((_, recipe)) = KINDS.iter().find(|(known, _)| *known == kind) else {
        let known = KINDS.map(|(kind, _)| kind).join(", ");
        return Err(wrong(Code::Malformed, "/kind", &format!("must be one of {known}")));
    };
    let correlation_id = id(node, "correlation_id")?;
    let warehouse = warehouse(text(node, "", "warehouse_id", ID_CHARS_MAX)?, "/warehouse_id")?;
    let planner = known(node, "planner_id").ok_or_else(|| missing("/planner_id"))?;
    if planner.as_str() != Some(caller.id.as_str()) {
        let must = format!("must be {}, this credential's planner", caller.id);
        return Err(wrong(Code::Forbidden, "/planner_id", &must));
    }
    allowed(&caller.warehouses, warehouse)?;
    let cancels = if kind == CANCELLED { Some(id(node, "cancels_correlation_id")?) } else { None };
    let document = document(node, kind)?;
    meta(node)?;
    let routing = known(node, "routing");
    if routing.is_none() && *recipe == Recipe::Required {
        return Err(missing("/routing"));
    }
    if let Some(routing) = routing {
        self::routing(routing, *recipe)?;
    }
    if cancels == Some(correlation_id) {
        return Err(wrong(Code::Invalid, "/cancels_correlation_id", "names the event itself"));
    }
    Ok(Envelope { kind, correlation_id, warehouse, document, cancels })
}

/// The name of a warehouse.
pub(super) fn warehouse<'n>(name: &'n str, at: &str) -> Result<&'n str, Problem> {
    // Its lane would have the name of one that is polled.
    if name.starts_with("poll:") {
        return Err(wrong(Code::Malformed, at, "must not begin with `poll:`"));
    }
    readable(name, at)
}

/// A name that a person reads.
pub(super) fn readable<'n>(name: &'n str, at: &str) -> Result<&'n str, Problem> {
    let fits = (1..=ID_CHARS_MAX).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    let detail = format!("must have 1 to {ID_CHARS_MAX} characters, none of them a control character");
    if fits { Ok(name) } else { Err(wrong(Code::Malformed, at, &detail)) }
}

fn document<'n>(node: &'n Node<'_>, kind: &str) -> Result<Option<(&'n str, &'n str)>, Problem> {
    match known(node, "document_ref") {
        // What it cancels says which document is meant.
        None if kind == CANCELLED => Ok(None),
        None => Err(missing("/document_ref")),
        Some(document) => {
            object(document, "/document_ref")?;
            let part = |name| text(document, "/document_ref", name, TEXT_CHARS_MAX);
            Ok(Some((part("type")?, part("id")?)))
        }
    }
}

fn meta(node: &Node<'_>) -> Result<(), Problem> {
    let Some(meta) = known(node, "meta") else { return Ok(()) };
    object(meta, "/meta")?;
    match known(meta, "released_at") {
        Some(at) if !at.as_str().is_some_and(is_rfc3339) => {
            Err(wrong(Code::Malformed, "/meta/released_at", "must be a time as in RFC 3339"))
        }
        _ => Ok(()),
    }
}

fn routing(routing: &Node<'_>, recipe: Recipe) -> Result<(), Problem> {
    object(routing, "/routing")?;
    amount(routing, "/routing", "expected_duration_seconds")?;
    let Some(ops) = list(routing, "/routing", "ops")? else {
        return if recipe == Recipe::Required { Err(missing("/routing/ops")) } else { Ok(()) };
    };
    if ops.is_empty() && recipe == Recipe::Required {
        return Err(wrong(Code::Invalid, "/routing/ops", "is empty: there is nothing to release"));
    }
    let mut seen = BTreeSet::new();
    for (index, op) in ops.iter().enumerate() {
        let at = format!("/routing/ops/{index}");
        let op_id = operation(op, &at)?;
        if !seen.insert(op_id) {
            return Err(wrong(Code::Invalid, &format!("{at}/op_id"), &format!("repeats {op_id:?}")));
        }
    }
    Ok(())
}

// One step of the recipe; its id.
fn operation<'n>(op: &'n Node<'_>, at: &str) -> Result<&'n str, Problem> {
    object(op, at)?;
    let op_id = text(op, at, "op_id", ID_CHARS_MAX)?;
    text(op, at, "kind", ID_CHARS_MAX)?;
    for name in ["expected_seconds", "expected_cost", "qty"] {
        amount(op, at, name)?;
    }
    for name in ["skills", "resources"] {
        for (index, item) in list(op, at, name)?.unwrap_or_default().iter().enumerate() {
            if item.as_str().is_none() {
                return Err(wrong(Code::Malformed, &format!("{at}/{name}/{index}"), "must be a string"));
            }
        }
    }
    for (index, delta) in list(op, at, "bom_deltas")?.unwrap_or_default().iter().enumerate() {
        let at = format!("{at}/bom_deltas/{index}");
        object(delta, &at)?;
        text(delta, &at, "sku", TEXT_CHARS_MAX)?;
        // A delta takes away as well as it adds.
        if number(delta, &at, "qty")?.is_none() {
            return Err(missing(&format!("{at}/qty")));
        }
    }
    Ok(op_id)
}

// A member that says something: null says nothing.
fn known<'n, 'a>(node: &'n Node<'a>, name: &str) -> Option<&'n Node<'a>> {
    node.get(name).filter(|node| node.value != Value::Null)
}

fn object(node: &Node<'_>, at: &str) -> Result<(), Problem> {
    if matches!(node.value, Value::Object(_)) { Ok(()) } else { Err(wrong(Code::Malformed, at, "must be an object")) }
}

fn text<'n>(node: &'n Node<'_>, at: &str, name: &str, chars_max: usize) -> Result<&'n str, Problem> {
    let at = || format!("{at}/{name}");
    let member = known(node, name).ok_or_else(|| missing(&at()))?;
    let text = member.as_str().ok_or_else(|| wrong(Code::Malformed, &at(), "must be a string"))?;
    if text.is_empty() || text.chars().count() > chars_max {
        return Err(wrong(Code::Malformed, &at(), &format!("must have 1 to {chars_max} characters")));
    }
    Ok(text)
}

// An opaque id, compared exactly.
fn id<'n>(node: &'n Node<'_>, name: &str) -> Result<&'n str, Problem> {
    let id = text(node, "", name, ID_CHARS_MAX)?;
    if id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(id);
    }
    Err(wrong(Code::Malformed, &format!("/{name}"), "must have visible ASCII characters only"))
}

fn list<'n, 'a>(node: &'n Node<'a>, at: &str, name: &str) -> Result<Option<&'n [Node<'a>]>, Problem> {
    match known(node, name).map(|list| &list.value) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(_) => Err(wrong(Code::Malformed, &format!("{at}/{name}"), "must be an array")),
    }
}

fn number<'n>(node: &'n Node<'_>, at: &str, name: &str) -> Result<Option<&'n str>, Problem> {
    match known(node, name) {
        None => Ok(None),
        Some(number) if number.value == Value::Number => Ok(Some(number.raw)),
        Some(_) => Err(wrong(Code::Malformed, &format!("{at}/{name}"), "must be a number")),
    }
}

// A number that counts or measures something.
fn amount(node: &Node<'_>, at: &str, name: &str) -> Result<(), Problem> {
    match number(node, at, name)? {
        Some(raw) if raw.starts_with('-') && raw.bytes().any(|byte| matches!(byte, b'1'..=b'9')) => {
            Err(wrong(Code::Invalid, &format!("{at}/{name}"), "must not be negative"))
        }
        _ => Ok(()),
    }
}

fn missing(at: &str) -> Problem {
    wrong(Code::Malformed, at, "is missing")
}

pub(super) fn wrong(code: Code, at: &str, detail: &str) -> Problem {
    let subject = if at.is_empty() { "the event".to_owned() } else { format!("`{at}`") };
    Problem::new(code, format!("{subject} {detail}")).with("pointer", &quoted(at))
}
