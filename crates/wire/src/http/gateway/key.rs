//! Where a request says what it is about: key fields, source and order, each from its place.
//! Never makes a value up: a field that is not there refuses the request. Called by the gateway.

use std::borrow::Cow;

use fencepost::{idempotency_key, policy::routes::Origin};
use fencepost_kernel::json::{Node, Value};
use http::request::Parts;

use super::Entry;
use crate::{
    http::{
        call::{Plus, decode},
        request::VALUE_BYTES_MAX,
    },
    problem::{Code, Problem},
};

/// A request, as far as a key can come from it.
pub(super) struct Places<'r> {
    pub(super) parts: &'r Parts,
    /// What the names of the path stand for, as written.
    pub(super) bound: &'r [(&'r str, &'r str)],
    /// The body, where it is JSON.
    pub(super) document: Option<&'r Node<'r>>,
}

impl Places<'_> {
    /// Every key field with its value.
    pub(super) fn fields(&self, entry: &Entry) -> Result<Vec<(String, String)>, Problem> {
        let fields = entry.route.key.iter().map(|(name, origin, _)| Ok((name.clone(), self.value(name, origin)?)));
        fields.collect()
    }

    /// The value of one field.
    pub(super) fn value(&self, field: &str, origin: &Origin) -> Result<String, Problem> {
        let value = match origin {
            Origin::Header(name) => self.header(name)?,
            Origin::Path(name) => {
                let raw = self.bound.iter().find(|(bound, _)| bound == name).map(|(_, value)| *value);
                raw.map(|raw| decode(raw, Plus::Plus)).transpose()?
            }
            Origin::Query(name) => self.query(name)?,
            Origin::Body(pointer) => match self.document.and_then(|document| at(document, pointer)) {
                Some(node) => Some(scalar(node).ok_or_else(|| {
                    let detail = format!("`{field}` at {pointer} must be a string, an integer or a boolean");
                    Problem::new(Code::Malformed, detail)
                })?),
                None => None,
            },
            Origin::Const(text) => Some(text.clone()),
            Origin::Request(part) if part == "method" => Some(self.parts.method.as_str().to_owned()),
            Origin::Request(_) => Some(self.parts.uri.path().to_owned()),
        };
        let value = value.ok_or_else(|| missing(field, origin))?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Problem::new(Code::Malformed, format!("`{field}` has more than {VALUE_BYTES_MAX} bytes")));
        }
        Ok(value)
    }

    fn header(&self, name: &str) -> Result<Option<String>, Problem> {
        if name.eq_ignore_ascii_case(idempotency_key::NAME) {
            return self.idempotency_key();
        }
        let mut values = self.parts.headers.get_all(name).iter();
        let bad = |why: &str| Problem::new(Code::Malformed, format!("the header {name} {why}"));
        match (values.next(), values.next()) {
            (Some(value), None) => match value.to_str() {
                Ok(value) => Ok(Some(value.to_owned())),
                Err(_) => Err(bad("is not visible ASCII")),
            },
            (None, _) => Ok(None),
            _ => Err(bad("stands twice")),
        }
    }

    /// The `Idempotency-Key`, quoted or bare.
    pub(super) fn idempotency_key(&self) -> Result<Option<String>, Problem> {
        idempotency_key::parse(&self.parts.headers).map_err(|bad| Problem::new(Code::Malformed, bad.to_string()))
    }

    fn query(&self, name: &str) -> Result<Option<String>, Problem> {
        let mut found = None;
        for pair in self.parts.uri.query().unwrap_or_default().split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if decode(key, Plus::Space)? != name {
                continue;
            }
            if found.replace(decode(value, Plus::Space)?).is_some() {
                return Err(Problem::new(Code::Malformed, format!("`{name}` stands twice in the query")));
            }
        }
        Ok(found)
    }
}

fn missing(field: &str, origin: &Origin) -> Problem {
    let place = match origin {
        Origin::Header(name) if name.eq_ignore_ascii_case(idempotency_key::NAME) => {
            return Problem::new(Code::MissingIdempotencyKey, "send an Idempotency-Key, the same with every retry");
        }
        Origin::Header(name) => format!("the header {name}"),
        Origin::Query(name) => format!("the query's {name}"),
        Origin::Body(pointer) => format!("the body's {pointer}"),
        Origin::Path(name) => format!("the path's {name}"),
        Origin::Const(_) | Origin::Request(_) => "the request".to_owned(),
    };
    Problem::new(Code::WrongKey, format!("`{field}` comes from {place}, which is not there"))
}

/// RFC 6901.
pub(super) fn at<'n, 'a>(document: &'n Node<'a>, pointer: &str) -> Option<&'n Node<'a>> {
    pointer.split('/').skip(1).try_fold(document, |node, step| {
        let step =
            if step.contains('~') { Cow::Owned(step.replace("~1", "/").replace("~0", "~")) } else { step.into() };
        match &node.value {
            Value::Array(items) if *step == *"0" || !step.starts_with(['0', '+']) => {
                items.get(step.parse::<usize>().ok()?)
            }
            Value::Array(_) => None,
            _ => node.get(&step),
        }
    })
}

/// The text of a value that can be part of a key; 1 and "1" are one.
pub(super) fn scalar(node: &Node<'_>) -> Option<String> {
    match &node.value {
        Value::String(text) => Some(text.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number => node.as_integer().map(|number| number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fencepost_kernel::json;

    use super::*;

    #[test]
    fn a_pointer_reaches_members_and_items_and_nothing_else() {
        let document = json::parse(br#"{"a/b":{"~":[10,[20]]},"":"empty","01":"text"}"#).unwrap();
        for (pointer, found) in [
            ("/a~1b/~0/0", Some("10")),
            ("/a~1b/~0/1/0", Some("20")),
            ("/", Some("empty")),
            ("/01", Some("text")),
            ("/a~1b/~0/00", None),
            ("/a~1b/~0/+0", None),
            ("/a~1b/~0/2", None),
            ("/a~1b/~0/-", None),
            ("/none", None),
            ("/01/x", None),
        ] {
            assert_eq!(at(&document, pointer).and_then(scalar).as_deref(), found, "{pointer}");
        }
    }
}
