//! Says in plain English why an item does not fit its schema.
//! Never repeats more of an item than a short text of it: items are large, and these sentences are stored and sent.
//! Called for items that do not fit; and for a schema that does not fit the schema of schemas.

use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind as Kind};
use serde_json::Value;

/// The longest part of a value, or of a schema, that a sentence shows, in characters.
const SHOWN_CHARS_MAX: usize = 100;
/// The longest pointer, in characters: names of fields may be as long as an item.
const POINTER_CHARS_MAX: usize = 200;

/// One reason why an item does not fit its schema.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// A JSON pointer to the place in the item; empty for the item itself.
    pub pointer: String,
    /// The mistake, as the end of a sentence about it: `must be a string, not a number`.
    pub message: String,
}

impl Fault {
    pub(super) fn of(error: &ValidationError<'_>) -> Self {
        let mut pointer = error.instance_path().as_str().to_owned();
        // A missing field has no place: the fault points where it should be.
        if let Kind::Required { property: Value::String(name) } = error.kind() {
            pointer.push('/');
            pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
        }
        let message = if is_about_each_field(error) {
            "must not have any field".into()
        } else {
            sentence(error.kind(), error.instance())
        };
        Self { pointer: cut(&pointer, POINTER_CHARS_MAX), message }
    }
}

// Where an object may have no field at all, the validator reports its first field at the place of the object.
fn is_about_each_field(error: &ValidationError<'_>) -> bool {
    let ends = |path: &str, word: &str| path.rsplit('/').next() == Some(word);
    let (schema, item) = (error.schema_path().as_str(), error.instance_path().as_str());
    matches!(error.kind(), Kind::FalseSchema)
        && ["additionalProperties", "propertyNames"].iter().any(|word| ends(schema, word) && !ends(item, word))
}

/// Why a value does not fit, as the end of a sentence about it.
pub fn sentence(kind: &Kind, value: &Value) -> String {
    match kind {
        Kind::Required { .. } => "is required".into(),
        Kind::Type { kind: TypeKind::Single(wanted) } if wanted.as_str() == "null" => "must be left out or null".into(),
        Kind::Type { kind: TypeKind::Single(wanted) } => {
            format!("must be {}, not {}", article(wanted.as_str()), name(value))
        }
        Kind::Type { kind: TypeKind::Multiple(wanted) } => {
            let wanted: Vec<String> = wanted.iter().map(|wanted| article(wanted.as_str())).collect();
            format!("must be {}, not {}", wanted.join(" or "), name(value))
        }
        Kind::Enum { options } => {
            let options: Vec<String> = options.as_array().into_iter().flatten().map(|one| one.to_string()).collect();
            format!("must be one of {}, not {}", cut(&options.join(", "), SHOWN_CHARS_MAX), shown(value))
        }
        Kind::Constant { expected_value } => format!("must be {}, not {}", shown(expected_value), shown(value)),
        Kind::MinLength { limit: 1 } | Kind::MinItems { limit: 1 } | Kind::MinProperties { limit: 1 } => {
            "must not be empty".into()
        }
        Kind::MinLength { limit } => format!("must have at least {}", count(*limit, "character")),
        Kind::MaxLength { limit } => format!("must have at most {}", count(*limit, "character")),
        Kind::MinItems { limit } => format!("must have at least {}", count(*limit, "element")),
        Kind::MaxItems { limit } => format!("must have at most {}", count(*limit, "element")),
        Kind::AdditionalItems { limit } => {
            format!("must have at most {}", count(u64::try_from(*limit).unwrap_or(u64::MAX), "element"))
        }
        Kind::MinProperties { limit } => format!("must have at least {}", count(*limit, "field")),
        Kind::MaxProperties { limit } => format!("must have at most {}", count(*limit, "field")),
        Kind::Minimum { limit } => format!("must be at least {limit}, not {}", shown(value)),
        Kind::Maximum { limit } => format!("must be at most {limit}, not {}", shown(value)),
        Kind::ExclusiveMinimum { limit } => format!("must be above {limit}, not {}", shown(value)),
        Kind::ExclusiveMaximum { limit } => format!("must be below {limit}, not {}", shown(value)),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}, not {}", shown(value)),
        Kind::Pattern { pattern } => {
            format!("must have the form {}, unlike {}", cut(pattern, SHOWN_CHARS_MAX), shown(value))
        }
        Kind::Format { format } => format!("must have the format {format}, unlike {}", shown(value)),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let fields = if unexpected.len() == 1 { "field" } else { "fields" };
            format!("must not have the {fields} {}", cut(&unexpected.join(", "), SHOWN_CHARS_MAX))
        }
        Kind::UnevaluatedItems { .. } => "must not have further elements".into(),
        Kind::PropertyNames { error } => {
            format!(
                "must not have the field {}: its name {}",
                shown(error.instance()),
                sentence(error.kind(), error.instance())
            )
        }
        Kind::FalseSchema => "must be left out".into(),
        Kind::UniqueItems => "must not have equal elements".into(),
        Kind::Contains => "must have an element of the required form".into(),
        Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => "has none of the allowed forms".into(),
        Kind::OneOfMultipleValid { .. } => "has several of the allowed forms at once, and must have one of them".into(),
        Kind::Not { .. } => "has a form that is not allowed".into(),
        // The rest is about encodings, and about limits of the validator.
        _ => "does not fit the schema of its collection".into(),
    }
}

fn count(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// A type of JSON Schema with its article.
fn article(kind: &str) -> String {
    match kind {
        "null" => "null".into(),
        "integer" => "a whole number".into(),
        "array" => "a list".into(),
        "object" => "an object".into(),
        "boolean" => "true or false".into(),
        other => format!("a {other}"),
    }
}

fn name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(true) => "true",
        Value::Bool(false) => "false",
        Value::Number(number) if number.is_f64() => "a number with a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

// Lists and objects are not written out, and a text is cut before it is: either may be megabytes.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => name(value).into(),
        Value::String(text) => Value::from(cut(text, SHOWN_CHARS_MAX)).to_string(),
        other => other.to_string(),
    }
}

fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
