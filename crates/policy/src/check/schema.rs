//! Finds schemas, or parts of one, that no item can ever fit.
//! Never certain of the opposite: it reads the plain contradictions that people write, and proves nothing.
//! Called by the lint on collections.

use serde_json::Value;

use super::Lints;
use crate::collections::{subschemas, to_json};
use crate::yaml::{YamlNode, YamlValue};

const RULE: &str = "schema-never";

/// Bounds of which the first must not be above the second.
const BOUNDS: [(&str, &str); 6] = [
    ("minLength", "maxLength"),
    ("minimum", "maximum"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
    ("minContains", "maxContains"),
    ("exclusiveMinimum", "exclusiveMaximum"),
];

/// Finds what an item can never fit: at the top, and in every part of the schema.
pub fn lint(lints: &mut Lints<'_>, root: &YamlNode) {
    if let Some((place, why)) = impossible(root) {
        lints.error(&place.mark, RULE, format!("no item can fit this schema: {why}"), "say what an item may be");
    } else if let Some(kinds) = root.get("type").filter(|kinds| !words(kinds).contains(&"object")) {
        let message = "no item can fit this schema: an item is an object, which `type` leaves out".into();
        lints.error(&kinds.mark, RULE, message, "write `type: object`");
    }
    part(lints, root);
}

fn part(lints: &mut Lints<'_>, schema: &YamlNode) {
    bounds(lints, schema);
    constants(lints, schema);
    required(lints, schema);
    subschemas(schema).into_iter().for_each(|within| part(lints, within));
}

/// Why nothing at all fits a schema, and where that is said. Mistakes in any part are left to `part`.
fn impossible(schema: &YamlNode) -> Option<(&YamlNode, &'static str)> {
    if is_word(schema, "false") {
        return Some((schema, "`false` allows nothing"));
    }
    if let Some(not) = schema.get("not").filter(|not| allows_anything(not)) {
        return Some((not, "`not` excludes everything"));
    }
    let all = schema.get("allOf").into_iter().flat_map(items).find_map(impossible);
    all.or_else(|| {
        // Of alternatives each must be impossible; the first is told.
        let choices = ["anyOf", "oneOf"].into_iter().filter_map(|name| schema.get(name)).map(items);
        choices
            .into_iter()
            .find_map(|choices| choices.iter().map(impossible).collect::<Option<Vec<_>>>()?.first().copied())
    })
}

fn allows_anything(schema: &YamlNode) -> bool {
    matches!(&schema.value, YamlValue::Map(entries) if entries.is_empty()) || is_word(schema, "true")
}

fn bounds(lints: &mut Lints<'_>, schema: &YamlNode) {
    let number = |name: &str| to_json(schema.get(name)?).as_f64();
    for (least, most) in BOUNDS {
        if let (Some(low), Some(high)) = (number(least), number(most))
            && (low > high || (low == high && least == "exclusiveMinimum"))
            && let Some(place) = schema.get(least)
        {
            let message = format!("nothing fits this part: `{least}: {low}` is over `{most}: {high}`");
            lints.error(&place.mark, RULE, message, "exchange or correct them");
        }
    }
}

fn constants(lints: &mut Lints<'_>, schema: &YamlNode) {
    if let Some(values) = schema.get("enum").filter(|values| items(values).is_empty()) {
        let message = "nothing fits this part: its `enum` has no values".into();
        return lints.error(&values.mark, RULE, message, "list the values, or remove it");
    }
    let Some(kinds) = schema.get("type") else { return };
    let kinds = words(kinds);
    let values = schema.get("const").into_iter().chain(schema.get("enum").into_iter().flat_map(items));
    for node in values {
        let value = to_json(node);
        if !kinds.iter().any(|kind| is_of(&value, kind)) {
            let message = format!(
                "this value can never be: it is {}, and `type` asks for {}",
                kind_of(&value),
                kinds.join(" or ")
            );
            lints.error(&node.mark, RULE, message, "correct the value or the `type`; quotes make a text of a number");
        }
    }
}

fn required(lints: &mut Lints<'_>, schema: &YamlNode) {
    let properties = schema.get("properties");
    let closed = schema.get("additionalProperties").is_some_and(|other| is_word(other, "false"));
    // A pattern may let any name in.
    let closed = closed && schema.get("patternProperties").is_none();
    for field in schema.get("required").into_iter().flat_map(items) {
        let Some(name) = text(field) else { continue };
        match properties.and_then(|properties| properties.get(name)) {
            Some(property) => {
                if let Some((_, why)) = impossible(property) {
                    let message = format!("`{name}` is required, and nothing can be there: {why}");
                    lints.error(&field.mark, RULE, message, format!("remove `{name}` here, or say what it may be"));
                }
            }
            None if closed => {
                let message = format!("`{name}` is required, and `additionalProperties: false` excludes it");
                lints.error(&field.mark, RULE, message, format!("add `{name}` to `properties`"));
            }
            None => {}
        }
    }
}

fn items(node: &YamlNode) -> &[YamlNode] {
    match &node.value {
        YamlValue::Seq(items) => items,
        _ => &[],
    }
}

fn text(node: &YamlNode) -> Option<&str> {
    match &node.value {
        YamlValue::Scalar { text, .. } => Some(text),
        _ => None,
    }
}

/// The words of a list, or a single one.
fn words(node: &YamlNode) -> Vec<&str> {
    text(node).into_iter().chain(items(node).iter().filter_map(text)).collect()
}

fn is_word(node: &YamlNode, word: &str) -> bool {
    matches!(&node.value, YamlValue::Scalar { text, plain: true } if text == word)
}

fn is_of(value: &Value, kind: &str) -> bool {
    kind_of(value) == kind || (kind == "number" && value.is_number())
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() != 0.0) => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
