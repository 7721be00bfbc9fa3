//! Reads items as their collection says: their source id, their version, what they refer to, and what is wrong with them.
//! Never asks whether something that an item refers to is there: the decision does. The only rules on what an item must be;
//! called for requests and for items that come out of quarantine.

use std::sync::Arc;

use bytes::Bytes;
use fencepost_kernel::{
    Tenant,
    item::{COLLECTION_LEN, Change, ItemFault, ItemId, ItemVersion, Missing, Put, Reference},
    json::{self, JsonNode},
};
use fencepost_policy::collections::{Collection, VersionOrder};
use serde_json::{Map, Number, Value};

/// The longest source id, in bytes.
pub const SOURCE_ID_BYTES_MAX: usize = 256;
/// The longest version, in bytes.
pub const VERSION_BYTES_MAX: usize = 128;
/// How many faults of one item are told.
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
    let version = version(collection.order, item).map_err(|message| vec![fault("/source_version", message)])?;
    let value = to_value(item);
    let faults = collection.faults(&value, FAULTS_MAX);
    if !faults.is_empty() {
        return Err(faults
            .into_iter()
            .map(|told| ItemFault { pointer: told.pointer, message: told.message })
            .collect());
    }
    let named = collection.references_of(&value);
    if named.len() > REFERENCES_MAX {
        let message = format!("refers to {} other items; {REFERENCES_MAX} are allowed", named.len());
        return Err(vec![fault("", message)]);
    }
    let mut references: Vec<Reference> = Vec::with_capacity(named.len());
    for (reference, id) in named {
        if id.is_empty() || id.len() > SOURCE_ID_BYTES_MAX {
            return Err(vec![fault(&reference.at, format!("a source id has 1 to {SOURCE_ID_BYTES_MAX} bytes"))]);
        }
        references.push(Reference {
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
    Ok(id)
}

// A version that is null is one that the sender does not have.
fn version(order: VersionOrder, item: &JsonNode<'_>) -> Result<Option<ItemVersion>, String> {
    let Some(node) = item.get("source_version").filter(|node| node.value != json::Value::Null) else { return Ok(None) };
    let version = match &node.value {
        json::Value::Number => {
            let number = node.as_integer().ok_or("must be a whole number or a string")?;
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
                VersionOrder::Any => ItemVersion::any(text),
                VersionOrder::Integer => return Err("must be a whole number".to_owned()),
                VersionOrder::Time => {
                    ItemVersion::time(text).ok_or("must be a time, such as \"2026-05-24T03:14:01Z\"")?
                }
                // A date has the shape of a release of that year: its order would be a guess.
                VersionOrder::Semver => Some(text)
                    .filter(|text| ItemVersion::time(text).is_none())
                    .and_then(|text| ItemVersion::dotted(text))
                    .ok_or("must be a version such as \"1.10.0\"")?,
                VersionOrder::Text => ItemVersion::Text(text.to_string()),
            }
        }
        _ => return Err("must be a whole number or a string".to_owned()),
    };
    Ok(Some(version))
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
