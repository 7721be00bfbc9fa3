//! The JSON that a client needs: members as the exact text that was received, and objects written by hand.
//! Never parses a receipt to write it again: duplicates get the same bytes. Called by `claim`, `effect` and `error`.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, value::RawValue};

use crate::Batched;

const SHOWN_CHARS_MAX: usize = 200;

/// A JSON object whose members stay unparsed text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object(BTreeMap<String, Box<RawValue>>);

impl Object {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().map(Self)
    }

    /// The exact text of a member.
    pub(crate) fn raw(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.get())
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.raw(name)?).ok()
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        serde_json::from_str(self.raw(name)?).ok()
    }

    pub(crate) fn truth(&self, name: &str) -> Option<bool> {
        serde_json::from_str(self.raw(name)?).ok()
    }
}

/// The text of exactly one JSON value: text spliced into a document must not be able to end it.
pub(crate) fn value(text: &[u8]) -> Result<String, String> {
    let value: &RawValue = serde_json::from_slice(text).map_err(|bad| bad.to_string())?;
    Ok(value.get().to_owned())
}

/// Bytes as text for a message, cut to a readable length.
pub(crate) fn shown(text: &[u8]) -> String {
    let whole = String::from_utf8_lossy(text);
    match whole.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{:?}…", &whole[..end]),
        None => format!("{whole:?}"),
    }
}

/// The answers in the reply to a batch, in order; `None` where the body is not such a reply.
pub(crate) fn results(body: &[u8]) -> Option<Vec<Batched>> {
    let answer = Object::parse(body)?;
    let list: Vec<&RawValue> = serde_json::from_str(answer.raw("results")?).ok()?;
    let one = |item: &&RawValue| {
        let item = Object::parse(item.get().as_bytes())?;
        let body = Bytes::copy_from_slice(item.raw("body")?.as_bytes());
        Some(Batched { status: u16::try_from(item.number("status")?).ok()?, body })
    };
    list.iter().map(one).collect()
}

/// Writes one JSON object, member by member.
#[derive(Clone)]
pub(crate) struct Writer(String);

impl Writer {
    pub(crate) fn new() -> Self {
        Self(String::new())
    }

    /// Adds a member whose value is JSON text.
    pub(crate) fn raw(mut self, name: &str, json: &str) -> Self {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push_str(&quoted(name));
        self.0.push(':');
        self.0.push_str(json);
        self
    }

    pub(crate) fn text(self, name: &str, value: &str) -> Self {
        self.raw(name, &quoted(value))
    }

    pub(crate) fn number(self, name: &str, value: u64) -> Self {
        self.raw(name, &value.to_string())
    }

    /// Adds a member as JSON text, where there is one.
    pub(crate) fn maybe(self, name: &str, json: Option<&str>) -> Self {
        match json {
            Some(json) => self.raw(name, json),
            None => self,
        }
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push_str(if self.0.is_empty() { "{}" } else { "}" });
        self.0
    }
}

/// A string as JSON.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_member_keeps_its_exact_text() {
        let object = Object::parse(br#"{"receipt": {"b" : 1.0, "a":"\u00e9"} ,"token":9007199254740991}"#).unwrap();
        assert_eq!(object.raw("receipt"), Some(r#"{"b" : 1.0, "a":"\u00e9"}"#));
        assert_eq!(object.number("token"), Some(9_007_199_254_740_991));
    }

    #[test]
    fn a_value_cannot_end_the_document_it_is_put_into() {
        assert_eq!(value(b" [1, 2] ").unwrap(), "[1, 2]");
        assert!(value(br#"{},"token":1"#).is_err());
        assert!(value(b"").is_err());
    }

    #[test]
    fn an_object_is_written_with_its_strings_escaped() {
        let object = Writer::new().text("a\"b", "line\nend").number("n", 3).maybe("none", None).end();
        assert_eq!(object, r#"{"a\"b":"line\nend","n":3}"#);
        assert_eq!(Writer::new().end(), "{}");
    }
}
