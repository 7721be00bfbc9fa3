//! Reads a JSON Schema, draft 2020-12, that was written as YAML, and compiles it.
//! Never fetches anything: a schema refers to itself alone.
//! Called by the reader of collections; lints walk a schema through `subschemas`.

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Number, Value};

use super::faults;
use crate::read::{Reader, nearest};
use crate::yaml::{YamlNode, YamlValue};

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// The value of a keyword.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Value,
    Schema,
    /// A list of schemas.
    Schemas,
    /// A mapping of schemas, whose names the user chooses.
    NamedSchemas,
}

use Holds::{NamedSchemas, Schema, Schemas, Value as Plain};

/// The keywords of draft 2020-12. Those that make a schema a target for others are left out: here it has no others.
const KEYWORDS: [(&str, Holds); 54] = [
    ("$comment", Plain),
    ("$defs", NamedSchemas),
    ("$id", Plain),
    ("$ref", Plain),
    ("$schema", Plain),
    ("additionalProperties", Schema),
    ("allOf", Schemas),
    ("anyOf", Schemas),
    ("const", Plain),
    ("contains", Schema),
    ("contentEncoding", Plain),
    ("contentMediaType", Plain),
    ("contentSchema", Schema),
    ("default", Plain),
    ("definitions", NamedSchemas),
    ("dependentRequired", Plain),
    ("dependentSchemas", NamedSchemas),
    ("deprecated", Plain),
    ("description", Plain),
    ("else", Schema),
    ("enum", Plain),
    ("examples", Plain),
    ("exclusiveMaximum", Plain),
    ("exclusiveMinimum", Plain),
    ("format", Plain),
    ("if", Schema),
    ("items", Schema),
    ("maxContains", Plain),
    ("maxItems", Plain),
    ("maxLength", Plain),
    ("maxProperties", Plain),
    ("maximum", Plain),
    ("minContains", Plain),
    ("minItems", Plain),
    ("minLength", Plain),
    ("minProperties", Plain),
    ("minimum", Plain),
    ("multipleOf", Plain),
    ("not", Schema),
    ("oneOf", Schemas),
    ("pattern", Plain),
    ("patternProperties", NamedSchemas),
    ("prefixItems", Schemas),
    ("properties", NamedSchemas),
    ("propertyNames", Schema),
    ("readOnly", Plain),
    ("required", Plain),
    ("then", Schema),
    ("title", Plain),
    ("type", Plain),
    ("unevaluatedItems", Schema),
    ("unevaluatedProperties", Schema),
    ("uniqueItems", Plain),
    ("writeOnly", Plain),
];

/// The schemas that stand directly within a schema.
pub fn subschemas(schema: &YamlNode) -> Vec<&YamlNode> {
    let YamlValue::Map(entries) = &schema.value else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries {
        let holds = KEYWORDS.iter().find(|(name, _)| *name == entry.key).map(|(_, holds)| *holds);
        match (holds, &entry.value.value) {
            (Some(Schema), _) => found.push(&entry.value),
            (Some(Schemas), YamlValue::Seq(items)) => found.extend(items),
            (Some(NamedSchemas), YamlValue::Map(named)) => found.extend(named.iter().map(|entry| &entry.value)),
            _ => {}
        }
    }
    found
}

/// The schema as JSON and compiled. `None` means that at least one error was recorded.
pub fn read(reader: &mut Reader, node: &YamlNode) -> Option<(Value, Validator)> {
    let before = reader.findings.len();
    shape(reader, node, node);
    if reader.findings.len() > before {
        return None;
    }
    let schema = to_json(node);
    let options = jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(true).offline();
    // Partners choose the texts that patterns are matched with: this engine takes linear time for any of them.
    let compiled = options.with_pattern_options(PatternOptions::regex()).build(&schema);
    let validator = compiled.map_err(|error| {
        let place = pointed(node, error.instance_path().as_str()).unwrap_or(node);
        let at = error.instance_path().as_str().trim_start_matches('/').replace('/', ".");
        let at = if at.is_empty() { "the schema".to_owned() } else { format!("`{at}`") };
        let message = format!("not a JSON Schema: {at} {}", faults::sentence(error.kind(), error.instance()));
        reader.error(&place.mark, "schema-broken", message, "write it as JSON Schema draft 2020-12 has it");
    });
    Some((schema, validator.ok()?))
}

/// Mistakes that a validator would pass over, or report without their place.
fn shape(reader: &mut Reader, node: &YamlNode, root: &YamlNode) {
    let entries = match &node.value {
        YamlValue::Map(entries) => entries,
        YamlValue::Scalar { text, plain: true } if text == "true" || text == "false" => return,
        YamlValue::Null => {
            let fix = "write `{}` for anything, or `{ type: string }`";
            return reader.error(&node.mark, "schema-broken", "a schema stands here, and it is empty", fix);
        }
        _ => {
            let fix = "write keywords, as in `{ type: string }`";
            return reader.error(&node.mark, "schema-broken", "a schema is a mapping, or true or false", fix);
        }
    };
    for entry in entries {
        let known = KEYWORDS.iter().any(|(name, _)| *name == entry.key);
        if !known && !entry.key.starts_with("x-") {
            let names = KEYWORDS.map(|(name, _)| name);
            let fix = match nearest(&entry.key, &names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "use a keyword of JSON Schema, or begin a note of your own with `x-`".into(),
            };
            let message = format!("unknown keyword `{}`: a validator would pass over it", entry.key);
            reader.error(&entry.mark, "unknown-key", message, fix);
        }
        match entry.key.as_str() {
            "$ref" => refers(reader, &entry.value, root),
            "$schema" => dialect(reader, &entry.value),
            "$id" if !std::ptr::eq(node, root) => {
                let message = "`$id` within a schema makes another document of this part";
                reader.error(&entry.mark, "schema-external", message, "remove it, and refer to this part as #/…");
            }
            "type" => types(reader, &entry.value),
            _ => {}
        }
    }
    subschemas(node).into_iter().for_each(|within| shape(reader, within, root));
}

fn refers(reader: &mut Reader, node: &YamlNode, root: &YamlNode) {
    let Some(target) = reader.text(node, "`$ref`") else { return };
    match target.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/')) {
        None => {
            let message = format!("`{target}` is outside of this schema, and nothing is fetched");
            let fix = "copy it under `$defs`, and write `$ref: \"#/$defs/name\"`";
            reader.error(&node.mark, "schema-external", message, fix);
        }
        Some(pointer) if pointed(root, pointer).is_none() => {
            let message = format!("there is no `{target}` in this schema");
            reader.error(&node.mark, "schema-broken", message, "correct the pointer, or write the schema there");
        }
        Some(_) => {}
    }
}

fn dialect(reader: &mut Reader, node: &YamlNode) {
    let Some(named) = reader.text(node, "`$schema`") else { return };
    if named.trim_end_matches('#') != DIALECT {
        let message = format!("schemas are read as draft 2020-12, not as `{named}`");
        reader.error(&node.mark, "schema-broken", message, format!("write {DIALECT}, or remove it"));
    }
}

fn types(reader: &mut Reader, node: &YamlNode) {
    let items = match &node.value {
        YamlValue::Seq(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    for item in items {
        match &item.value {
            YamlValue::Null => {
                let message = "a type is a word, and null without quotes is no text in YAML";
                reader.error(&item.mark, "schema-broken", message, "write \"null\" with its quotes");
            }
            YamlValue::Scalar { text, .. } if TYPES.contains(&text.as_str()) => {}
            YamlValue::Scalar { text, .. } => {
                reader.value_unknown(&item.mark, &format!("`type` cannot be `{text}`"), text, &TYPES);
            }
            _ => reader.error(&item.mark, "schema-broken", "a type is a word", "write one of them, or a list of words"),
        }
    }
}

/// The part of a tree that a JSON pointer leads to.
fn pointed<'n>(node: &'n YamlNode, pointer: &str) -> Option<&'n YamlNode> {
    pointer.split('/').skip(1).try_fold(node, |node, step| match &node.value {
        YamlValue::Seq(items) => items.get(step.parse::<usize>().ok()?),
        _ => node.get(&step.replace("~1", "/").replace("~0", "~")),
    })
}

/// The tree as JSON. Words without quotes are numbers, `true` and `false` where JSON would read them so, and otherwise
/// texts.
pub fn to_json(node: &YamlNode) -> Value {
    match &node.value {
        YamlValue::Null => Value::Null,
        YamlValue::Scalar { text, plain: true } => match text.as_str() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            text => text.parse::<Number>().map_or_else(|_| text.into(), Value::Number),
        },
        YamlValue::Scalar { text, plain: false } => Value::String(text.clone()),
        YamlValue::Seq(items) => items.iter().map(to_json).collect(),
        YamlValue::Map(entries) => {
            Value::Object(entries.iter().map(|entry| (entry.key.clone(), to_json(&entry.value))).collect::<Map<_, _>>())
        }
    }
}
