//! Reads the `collections` section, and keeps the places that the lints point at.
//! Never judges collections against each other: that is for `check`.
//! Called by `Policy::load`.

use std::sync::Arc;

use serde_json::Value;

use super::{Collection, Group, Reason, Reference, VersionOrder, schema};
use crate::read::Reader;
use crate::yaml::{Mark, YamlNode};

const KEYS: [&str; 4] = ["group", "version", "references", "schema"];

/// Steps of the path beside the groups: a collection of such a name would be taken for one of them.
const RESERVED: [&str; 5] = ["jobs", "quarantine", "capabilities", "transport", "notifications"];

/// The longest name of a collection, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// A collection as read. A part that could not be read is `None`, and has an error.
pub struct ParsedCollection<'a> {
    pub name: &'a str,
    pub references: Vec<ParsedReference<'a>>,
    /// The schema as it was written, where it could be compiled.
    pub schema: Option<&'a YamlNode>,
    group: Option<Group>,
    order: VersionOrder,
    compiled: Option<(Value, jsonschema::Validator)>,
}

/// A reference and where it was written.
pub struct ParsedReference<'a> {
    pub reference: Reference,
    /// The place of `to`.
    pub to_mark: &'a Mark,
}

impl ParsedCollection<'_> {
    /// The collection as it is served, where it could be read.
    pub fn collection(self) -> Option<Collection> {
        let (schema, validator) = self.compiled?;
        let references = self.references.into_iter().map(|read| read.reference).collect();
        Some(Collection {
            name: self.name.into(),
            group: self.group?,
            order: self.order,
            references,
            schema,
            validator,
        })
    }
}

/// Every collection of the merged tree.
pub fn read<'a>(reader: &mut Reader, node: &'a YamlNode) -> Vec<ParsedCollection<'a>> {
    let entries = reader.entries(node, "`collections`").unwrap_or_default();
    entries.iter().map(|entry| collection(reader, &entry.key, &entry.mark, &entry.value)).collect()
}

fn collection<'a>(reader: &mut Reader, name: &'a str, mark: &Mark, node: &'a YamlNode) -> ParsedCollection<'a> {
    if !name_fits(name) {
        let message = format!("`{name}` cannot name a collection: the name is a step of its path");
        let fix = format!("begin with a letter, and use up to {NAME_BYTES_MAX} of a-z, 0-9 and `-`");
        reader.error(mark, "collection-name", message, fix);
    } else if RESERVED.contains(&name) {
        let message = format!("`{name}` cannot name a collection: the path has another meaning for it");
        reader.error(mark, "collection-name", message, format!("use another name than {}", RESERVED.join(", ")));
    }
    let mut parsed = ParsedCollection {
        name,
        references: Vec::new(),
        schema: None,
        group: None,
        order: VersionOrder::Any,
        compiled: None,
    };
    let Some(fields) = reader.fields(node, format!("collection {name}"), &KEYS) else { return parsed };
    for (field, fix) in [
        ("group", "add `group: master`, `documents` or `inventory`"),
        ("schema", "add a JSON Schema of one item: `schema: { type: object, required: [source_id] }`"),
    ] {
        if fields.get(field).is_none() {
            reader.error(mark, "incomplete", format!("collection {name} has no `{field}`"), fix);
        }
    }
    parsed.group = fields.get("group").and_then(|node| reader.word(node, "`group`", &Group::WORDS));
    if let Some(node) = fields.get("version") {
        parsed.order = reader.word(node, "`version`", &VersionOrder::WORDS).unwrap_or(VersionOrder::Any);
    }
    if let Some(node) = fields.get("references") {
        parsed.references = references(reader, node);
    }
    if let Some(node) = fields.get("schema") {
        parsed.compiled = schema::read(reader, node);
        parsed.schema = parsed.compiled.is_some().then_some(node);
    }
    parsed
}

fn name_fits(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn references<'a>(reader: &mut Reader, node: &'a YamlNode) -> Vec<ParsedReference<'a>> {
    let mut read: Vec<ParsedReference<'a>> = Vec::new();
    for item in reader.items(node, "`references`").unwrap_or_default() {
        let Some(parsed) = reference(reader, item) else { continue };
        let same = |other: &ParsedReference<'_>| {
            (&other.reference.at, &other.reference.to) == (&parsed.reference.at, &parsed.reference.to)
        };
        if read.iter().any(same) {
            let message = format!("{} refers to {} twice", parsed.reference.at, parsed.reference.to);
            reader.error(&item.mark, "duplicate", message, "keep one");
        } else {
            read.push(parsed);
        }
    }
    read
}

fn reference<'a>(reader: &mut Reader, node: &'a YamlNode) -> Option<ParsedReference<'a>> {
    let fields = reader.fields(node, "a reference", &["at", "to", "reason"])?;
    let missing: Vec<&str> = ["at", "to", "reason"].into_iter().filter(|name| fields.get(name).is_none()).collect();
    if !missing.is_empty() {
        let message = format!("this reference names no {}", missing.join(" and no "));
        let fix = "write `{ at: /base_uom, to: uoms, reason: MISSING_DEPENDENCY }`";
        reader.error(&node.mark, "incomplete", message, fix);
    }
    let at = fields.get("at").and_then(|node| Some((node, reader.text(node, "`at`")?)));
    let to = fields.get("to").and_then(|node| Some((node, reader.text(node, "`to`")?)));
    let reason = fields.get("reason").and_then(|node| reader.word(node, "`reason`", &Reason::WORDS));
    // A pointer is judged also where another field is wrong: one run shows every mistake.
    let built = at.and_then(|(node, at)| {
        let to: Arc<str> = to.as_ref().map_or("", |(_, to)| to).into();
        let built = Reference::new(&at, &to, reason.unwrap_or(Reason::BusinessRule));
        if built.is_none() {
            let message = format!("`{at}` does not point into an item");
            let fix = "write a slash before each step, and `*` for each element of a list: /components/*/sku";
            reader.error(&node.mark, "reference-pointer", message, fix);
        }
        built
    });
    reason?;
    Some(ParsedReference { reference: built?, to_mark: &to?.0.mark })
}
