//! Reads items as their collection says: their source id, their version, what they refer to, and what is wrong with them.
//! Never asks whether something that an item refers to is there: the decision does. The only rules on what an item must be;
//! called for requests and for items that come out of quarantine.

use std::sync::Arc;

use bytes::Bytes;
use fencepost_kernel::{
    Tenant,
    item::{COLLECTION_LEN, Change, ItemFault, ItemId, ItemReference, ItemVersion, Missing, Put},
    json::{self, JsonNode},
};
use fencepost_policy::collections::{Collection, VersionOrder};
use serde_json::{Map, Number, Value};

/// The longest source id, in bytes.
pub const SOURCE_ID_BYTES_MAX: usize = 256;
/// The longest version, in bytes.
pub const VERSION_BYTES_MAX: usize = 128;
/// The largest item, in bytes, as it is sent.
pub const ITEM_BYTES_MAX: usize = 256 << 10;
/// The most faults of one item in an answer.
const FAULTS_MAX: usize = 10;
/// How many other items one may refer to.
const REFERENCES_MAX: usize = 1_000;

/// The changes that a list of items asks for, in its order. An item that is not what its collection asks for is one that
/// changes nothing. `whole` is the document that the nodes were read from: items share its bytes.
pub fn read_items(collection: &Collection, tenant: &Tenant, items: &[JsonNode<'_>], whole: &Bytes) -> Vec<Change> {
    let mut ids = ItemIds { tenant, prefixes: Vec::new() };
    items
        .iter()
        .map(|item| match read_item(collection, &mut ids, item, whole.slice_ref(item.raw.as_bytes())) {
            Ok(put) => Change::Put(put),
            Err(faults) => {
                let source_id = item.get("source_id").and_then(JsonNode::as_str).map(|id| shortened(id).to_owned());
                Change::Refuse { source_id, faults }
            }
        })
        .collect()
}

/// The same for an item that was kept as it was sent.
pub(super) fn read_kept(collection: &Collection, tenant: &Tenant, content: &Bytes) -> Result<Put, Vec<ItemFault>> {
    let node = json::parse(content).map_err(|bad| vec![fault("", bad.to_string())])?;
    read_item(collection, &mut ItemIds { tenant, prefixes: Vec::new() }, &node, content.clone())
}

fn read_item(
    collection: &Collection,
    ids: &mut ItemIds<'_>,
    item: &JsonNode<'_>,
    content: Bytes,
) -> Result<Put, Vec<ItemFault>> {
    let source_id = source_id(item).map_err(|message| vec![fault("/source_id", message)])?;
    if content.len() > ITEM_BYTES_MAX {
        return Err(vec![fault("", format!("has {} bytes; {ITEM_BYTES_MAX} are allowed", content.len()))]);
    }
    let version = version(collection.order, item).map_err(|message| vec![fault("/source_version", message)])?;
    let value = to_value(item);
    let faults = collection.faults(&value, FAULTS_MAX);
    if !faults.is_empty() {
        return Err(faults
            .into_iter()
            .map(|fault| ItemFault { pointer: fault.pointer, message: fault.message })
            .collect());
    }
    let found = collection.references_of(&value);
    if found.len() > REFERENCES_MAX {
        let message = format!("refers to {} other items; {REFERENCES_MAX} are allowed", found.len());
        return Err(vec![fault("", message)]);
    }
    let mut references: Vec<ItemReference> = Vec::with_capacity(found.len());
    for (position, (reference, id)) in found.into_iter().enumerate() {
        let wrong = |message: String| Err(vec![fault(&collection.pointer_to_reference(&value, position), message)]);
        if id.is_empty() || id.len() > SOURCE_ID_BYTES_MAX {
            return wrong(format!("a source id has 1 to {SOURCE_ID_BYTES_MAX} bytes, not {}", id.len()));
        }
        // It would wait for itself for ever.
        if reference.to == collection.name && id == source_id {
            return wrong("refers to the item itself; leave it out, or send null".to_owned());
        }
        references.push(ItemReference {
            item: ids.of(&reference.to, id),
            missing: Missing {
                collection: reference.to.clone(),
                source_id: id.to_owned(),
                reason: reference.reason.name().into(),
            },
        });
    }
    Ok(Put {
        item: ids.of(&collection.name, source_id),
        collection: collection.name.clone(),
        source_id: source_id.to_owned(),
        version,
        content,
        references,
    })
}

/// Ids of a tenant's items. The prefix of a collection is a digest, and is made once a request.
struct ItemIds<'t> {
    tenant: &'t Tenant,
    prefixes: Vec<(Arc<str>, [u8; COLLECTION_LEN])>,
}

impl ItemIds<'_> {
    fn of(&mut self, collection: &Arc<str>, source_id: &str) -> ItemId {
        let known = self.prefixes.iter().find(|(name, _)| name == collection).map(|(_, prefix)| *prefix);
        let prefix = known.unwrap_or_else(|| {
            let prefix = ItemId::collection_prefix(self.tenant, collection);
            self.prefixes.push((collection.clone(), prefix));
            prefix
        });
        ItemId::under(prefix, self.tenant, collection, source_id)
    }
}

fn source_id<'n>(item: &'n JsonNode<'_>) -> Result<&'n str, String> {
    let node = item.get("source_id").ok_or("is required")?;
    let id = node.as_str().ok_or("must be a string")?;
    if id.is_empty() || id.len() > SOURCE_ID_BYTES_MAX {
        return Err(format!("must have 1 to {SOURCE_ID_BYTES_MAX} bytes, not {}", id.len()));
    }
    // A path carries neither control characters nor dot segments, so such an item could not be asked for.
    if id.chars().any(char::is_control) {
        return Err("must not have control characters".to_owned());
    }
    if id.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err("must not have a part that is `.` or `..`".to_owned());
    }
    Ok(id)
}

// A version that is null is one that the sender does not have.
fn version(order: VersionOrder, item: &JsonNode<'_>) -> Result<Option<ItemVersion>, String> {
    let Some(node) = item.get("source_version").filter(|node| node.value != json::Value::Null) else { return Ok(None) };
    let version = match &node.value {
        json::Value::Number => {
            let number = node.as_integer().ok_or("must be a string, or a whole number below 2^127")?;
            match order {
                VersionOrder::Any | VersionOrder::Integer => ItemVersion::Integer(number),
                VersionOrder::Time => return Err("must be a time, such as \"2026-05-24T03:14:01Z\"".to_owned()),
                VersionOrder::Semver => return Err("must be a version such as \"1.10.0\"".to_owned()),
                VersionOrder::Text => return Err("must be a string".to_owned()),
            }
        }
        json::Value::String(text) => {
            if text.is_empty() || text.len() > VERSION_BYTES_MAX {
                return Err(format!("must have 1 to {VERSION_BYTES_MAX} bytes, not {}", text.len()));
            }
            match order {
                VersionOrder::Any if looks_like_date(text) => ItemVersion::time(text).ok_or(NO_DATE)?,
                VersionOrder::Any => ItemVersion::any(text),
                VersionOrder::Integer => return Err("must be a whole number".to_owned()),
                VersionOrder::Time => {
                    ItemVersion::time(text).ok_or("must be a time, such as \"2026-05-24T03:14:01Z\"")?
                }
                // A date has the shape of a release of that year: its order would be a guess.
                VersionOrder::Semver => Some(text)
                    .filter(|text| !looks_like_date(text))
                    .and_then(|text| ItemVersion::dotted(text))
                    .ok_or("must be a version such as \"1.10.0\"")?,
                VersionOrder::Text => ItemVersion::Text(text.to_string()),
            }
        }
        _ => return Err("must be a whole number or a string".to_owned()),
    };
    Ok(Some(version))
}

const NO_DATE: &str = "looks like a date and is none; write it as \"2026-05-24\" or \"2026-05-24T03:14:01Z\"";

// Such a text has the shape of a dotted version, too, and would be ordered wrongly as one: 2026-10-1 before 2026-9-1.
fn looks_like_date(text: &str) -> bool {
    let digits = |part: &str, most: usize| (1..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    let mut parts = text.splitn(3, '-');
    let (Some(year), Some(month), Some(day)) = (parts.next(), parts.next(), parts.next()) else { return false };
    let day_len = day.bytes().take_while(u8::is_ascii_digit).count();
    year.len() == 4 && digits(year, 4) && digits(month, 2) && (1..=2).contains(&day_len)
}

// The schema's validator reads no other tree.
fn to_value(node: &JsonNode<'_>) -> Value {
    match &node.value {
        json::Value::Null => Value::Null,
        json::Value::Bool(truth) => Value::Bool(*truth),
        json::Value::Number => number(node.raw),
        json::Value::String(text) => Value::String(text.to_string()),
        json::Value::Array(items) => Value::Array(items.iter().map(to_value).collect()),
        json::Value::Object(members) => {
            Value::Object(members.iter().map(|(name, node)| (name.to_string(), to_value(node))).collect::<Map<_, _>>())
        }
    }
}

// A number past what the validator can hold is the largest of its sign.
fn number(text: &str) -> Value {
    if let Ok(number) = text.parse::<i64>() {
        return Value::Number(number.into());
    }
    if let Ok(number) = text.parse::<u64>() {
        return Value::Number(number.into());
    }
    let number = text.parse::<f64>().unwrap_or_default().clamp(f64::MIN, f64::MAX);
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

fn fault(pointer: &str, message: impl Into<String>) -> ItemFault {
    ItemFault { pointer: pointer.to_owned(), message: message.into() }
}

fn shortened(id: &str) -> &str {
    let mut end = id.len().min(SOURCE_ID_BYTES_MAX);
    while !id.is_char_boundary(end) {
        end -= 1;
    }
    &id[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_looks_like_a_date_is_a_version_only_where_it_is_one() {
        let read = |order, text: &str| {
            let item = format!(r#"{{"source_version":"{text}"}}"#);
            version(order, &json::parse(item.as_bytes()).expect("JSON"))
        };
        for text in ["2026-9-1", "2026-10-1", "2026-02-30", "2026-5-4T00:00:00Z"] {
            assert_eq!(read(VersionOrder::Any, text), Err(NO_DATE.to_owned()), "{text}");
        }
        for text in ["2026-09-01", "2026-05-24T03:14:01Z"] {
            assert_eq!(read(VersionOrder::Any, text), Ok(ItemVersion::time(text)), "{text}");
        }
        for text in ["2026.9.1", "1.0.0-2026-9-1", "2026-9"] {
            assert_eq!(read(VersionOrder::Any, text), Ok(ItemVersion::dotted(text)), "{text}");
        }
    }

    #[test]
    fn source_id_that_no_path_could_carry_is_refused() {
        for id in [r"..", r".", r"a/../b", r"a\u0000b", r"a\nb"] {
            let item = format!(r#"{{"source_id":"{id}"}}"#);
            assert!(source_id(&json::parse(item.as_bytes()).expect("JSON")).is_err(), "{id}");
        }
        for id in ["a..b", "x/history", "a b", "\u{e4}"] {
            let item = format!(r#"{{"source_id":"{id}"}}"#);
            assert_eq!(source_id(&json::parse(item.as_bytes()).expect("JSON")), Ok(id));
        }
    }
}
