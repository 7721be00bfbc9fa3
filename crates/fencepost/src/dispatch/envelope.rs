//! Checks an envelope by the rules of its kind: one set of rules for HTTP, the library and a user's transaction. A
//! refusal has the JSON pointer of the fault.
//! Never changes an envelope, and ignores members that it does not know: the executor gets the bytes as they came.

use std::{collections::BTreeSet, fmt};

use fencepost_kernel::{
    json::{JsonNode, Value},
    time::is_rfc3339,
};

use super::ENVELOPE_BYTES_MAX;

/// The longest id, in characters.
const ID_CHARS_MAX: usize = 128;
/// The longest of the other texts that are checked, in characters.
const TEXT_CHARS_MAX: usize = 1_024;

/// Whether an event of a kind must carry the recipe of its work, which is its `routing`.
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

/// The names of all kinds of events.
pub fn kinds() -> Vec<&'static str> {
    KINDS.map(|(kind, _)| kind).to_vec()
}

/// Whether this is one of [`kinds`].
pub fn is_kind(kind: &str) -> bool {
    KINDS.iter().any(|(known, _)| *known == kind)
}

/// Which kind of rule an envelope breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// A member is missing, or has a wrong type, length or value.
    Shape,
    /// It has more bytes than an envelope may have.
    Size,
    /// It names a planner other than the one that publishes it.
    Planner,
    /// Its shape is right, but its content makes no sense.
    Sense,
}

/// Why an envelope is not published.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnvelopeRefusal {
    /// Which kind of rule it breaks.
    pub rule: Rule,
    /// The JSON pointer of the fault; empty for the whole envelope.
    pub pointer: String,
    /// The fault in words, which follow the pointer in a sentence.
    pub detail: String,
}

impl fmt::Display for EnvelopeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.as_str() {
            "" => write!(f, "the event {}", self.detail),
            pointer => write!(f, "`{pointer}` {}", self.detail),
        }
    }
}

impl std::error::Error for EnvelopeRefusal {}

/// The members of an envelope that its delivery depends on.
pub struct Envelope<'n> {
    /// One of [`kinds`].
    pub kind: &'n str,
    /// The publisher's id of the event.
    pub correlation_id: &'n str,
    /// The warehouse that it goes to.
    pub warehouse: &'n str,
    /// Type and id of the document.
    pub document: Option<(&'n str, &'n str)>,
    /// The id of the event that this one cancels.
    pub cancels: Option<&'n str>,
}

/// Checks an envelope of this planner; `bytes` is its size as it is delivered.
pub fn read<'n>(planner: &str, node: &'n JsonNode<'_>, bytes: usize) -> Result<Envelope<'n>, EnvelopeRefusal> {
    if !matches!(node.value, Value::Object(_)) {
        return Err(wrong(Rule::Shape, "", "must be a JSON object"));
    }
    if bytes > ENVELOPE_BYTES_MAX {
        return Err(wrong(Rule::Size, "", &format!("may have up to {ENVELOPE_BYTES_MAX} bytes")));
    }
    let kind = text(node, "", "kind", ID_CHARS_MAX)?;
    let Some((_, recipe)) = KINDS.iter().find(|(known, _)| *known == kind) else {
        let known = KINDS.map(|(kind, _)| kind).join(", ");
        return Err(wrong(Rule::Shape, "/kind", &format!("must be one of {known}")));
    };
    let correlation_id = id(node, "correlation_id")?;
    let warehouse = warehouse(text(node, "", "warehouse_id", ID_CHARS_MAX)?, "/warehouse_id")?;
    let named = known(node, "planner_id").ok_or_else(|| missing("/planner_id"))?;
    if named.as_str() != Some(planner) {
        return Err(wrong(Rule::Planner, "/planner_id", &format!("must be {planner}, this credential's planner")));
    }
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
        return Err(wrong(Rule::Sense, "/cancels_correlation_id", "names the event itself"));
    }
    Ok(Envelope { kind, correlation_id, warehouse, document, cancels })
}

/// Checks the name of a warehouse; `at` is its JSON pointer.
pub fn warehouse<'n>(name: &'n str, at: &str) -> Result<&'n str, EnvelopeRefusal> {
    // Its lane would have the same name as a polled one.
    if name.starts_with("poll:") {
        return Err(wrong(Rule::Shape, at, "must not begin with `poll:`"));
    }
    readable(name, at)
}

/// Checks a name that people read; `at` is its JSON pointer.
pub fn readable<'n>(name: &'n str, at: &str) -> Result<&'n str, EnvelopeRefusal> {
    let fits = (1..=ID_CHARS_MAX).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    let detail = format!("must have 1 to {ID_CHARS_MAX} characters, none of them a control character");
    if fits { Ok(name) } else { Err(wrong(Rule::Shape, at, &detail)) }
}

fn document<'n>(node: &'n JsonNode<'_>, kind: &str) -> Result<Option<(&'n str, &'n str)>, EnvelopeRefusal> {
    match known(node, "document_ref") {
        // The event that it cancels names the document.
        None if kind == CANCELLED => Ok(None),
        None => Err(missing("/document_ref")),
        Some(document) => {
            object(document, "/document_ref")?;
            let part = |name| text(document, "/document_ref", name, TEXT_CHARS_MAX);
            Ok(Some((part("type")?, part("id")?)))
        }
    }
}

fn meta(node: &JsonNode<'_>) -> Result<(), EnvelopeRefusal> {
    let Some(meta) = known(node, "meta") else { return Ok(()) };
    object(meta, "/meta")?;
    match known(meta, "released_at") {
        Some(at) if !at.as_str().is_some_and(is_rfc3339) => {
            Err(wrong(Rule::Shape, "/meta/released_at", "must be a time as in RFC 3339"))
        }
        _ => Ok(()),
    }
}

fn routing(routing: &JsonNode<'_>, recipe: Recipe) -> Result<(), EnvelopeRefusal> {
    object(routing, "/routing")?;
    amount(routing, "/routing", "expected_duration_seconds")?;
    let Some(ops) = list(routing, "/routing", "ops")? else {
        return if recipe == Recipe::Required { Err(missing("/routing/ops")) } else { Ok(()) };
    };
    if ops.is_empty() && recipe == Recipe::Required {
        return Err(wrong(Rule::Sense, "/routing/ops", "is empty: there is nothing to release"));
    }
    let mut seen = BTreeSet::new();
    for (index, op) in ops.iter().enumerate() {
        let at = format!("/routing/ops/{index}");
        let op_id = operation(op, &at)?;
        if !seen.insert(op_id) {
            return Err(wrong(Rule::Sense, &format!("{at}/op_id"), &format!("repeats {op_id:?}")));
        }
    }
    Ok(())
}

// Checks one step of the recipe, and returns its id.
fn operation<'n>(op: &'n JsonNode<'_>, at: &str) -> Result<&'n str, EnvelopeRefusal> {
    object(op, at)?;
    let op_id = text(op, at, "op_id", ID_CHARS_MAX)?;
    text(op, at, "kind", ID_CHARS_MAX)?;
    for name in ["expected_seconds", "expected_cost", "qty"] {
        amount(op, at, name)?;
    }
    for name in ["skills", "resources"] {
        for (index, item) in list(op, at, name)?.unwrap_or_default().iter().enumerate() {
            if item.as_str().is_none() {
                return Err(wrong(Rule::Shape, &format!("{at}/{name}/{index}"), "must be a string"));
            }
        }
    }
    for (index, delta) in list(op, at, "bom_deltas")?.unwrap_or_default().iter().enumerate() {
        let at = format!("{at}/bom_deltas/{index}");
        object(delta, &at)?;
        text(delta, &at, "sku", TEXT_CHARS_MAX)?;
        // It may be negative: a delta takes away as well as it adds.
        if number(delta, &at, "qty")?.is_none() {
            return Err(missing(&format!("{at}/qty")));
        }
    }
    Ok(op_id)
}

// A member with a value: null counts as absent.
fn known<'n, 'a>(node: &'n JsonNode<'a>, name: &str) -> Option<&'n JsonNode<'a>> {
    node.get(name).filter(|node| node.value != Value::Null)
}

fn object(node: &JsonNode<'_>, at: &str) -> Result<(), EnvelopeRefusal> {
    if matches!(node.value, Value::Object(_)) { Ok(()) } else { Err(wrong(Rule::Shape, at, "must be an object")) }
}

fn text<'n>(node: &'n JsonNode<'_>, at: &str, name: &str, chars_max: usize) -> Result<&'n str, EnvelopeRefusal> {
    let at = || format!("{at}/{name}");
    let member = known(node, name).ok_or_else(|| missing(&at()))?;
    let text = member.as_str().ok_or_else(|| wrong(Rule::Shape, &at(), "must be a string"))?;
    if text.is_empty() || text.chars().count() > chars_max {
        return Err(wrong(Rule::Shape, &at(), &format!("must have 1 to {chars_max} characters")));
    }
    Ok(text)
}

// An opaque id, compared exactly.
fn id<'n>(node: &'n JsonNode<'_>, name: &str) -> Result<&'n str, EnvelopeRefusal> {
    let id = text(node, "", name, ID_CHARS_MAX)?;
    if id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(id);
    }
    Err(wrong(Rule::Shape, &format!("/{name}"), "must have visible ASCII characters only"))
}

fn list<'n, 'a>(node: &'n JsonNode<'a>, at: &str, name: &str) -> Result<Option<&'n [JsonNode<'a>]>, EnvelopeRefusal> {
    match known(node, name).map(|list| &list.value) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(_) => Err(wrong(Rule::Shape, &format!("{at}/{name}"), "must be an array")),
    }
}

fn number<'n>(node: &'n JsonNode<'_>, at: &str, name: &str) -> Result<Option<&'n str>, EnvelopeRefusal> {
    match known(node, name) {
        None => Ok(None),
        Some(number) if number.value == Value::Number => Ok(Some(number.raw)),
        Some(_) => Err(wrong(Rule::Shape, &format!("{at}/{name}"), "must be a number")),
    }
}

// A number that counts or measures something: never negative.
fn amount(node: &JsonNode<'_>, at: &str, name: &str) -> Result<(), EnvelopeRefusal> {
    match number(node, at, name)? {
        Some(raw) if raw.starts_with('-') && raw.bytes().any(|byte| matches!(byte, b'1'..=b'9')) => {
            Err(wrong(Rule::Sense, &format!("{at}/{name}"), "must not be negative"))
        }
        _ => Ok(()),
    }
}

fn missing(at: &str) -> EnvelopeRefusal {
    wrong(Rule::Shape, at, "is missing")
}

fn wrong(rule: Rule, pointer: &str, detail: &str) -> EnvelopeRefusal {
    EnvelopeRefusal { rule, pointer: pointer.to_owned(), detail: detail.to_owned() }
}
