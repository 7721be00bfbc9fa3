//! Reads key fields, source, order and user out of a request, each from the place that the rule names.
//! Never makes a value up: refuses a request whose field is missing, or may be read differently by the upstream.
//! Called by the gateway.

use std::borrow::Cow;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use fencepost::{
    idempotency_key,
    policy::{
        callers::Principal,
        routes::{FieldOrigin, Scheme},
    },
    verify::standard_twin,
};
use fencepost_kernel::{
    FenceKey,
    json::{self, JsonNode, Value},
};
use http::request::Parts;
use sha2::{Digest, Sha256};

use super::{Entry, spelling};
use crate::{
    http::{
        call::{Plus, decode},
        request::VALUE_BYTES_MAX,
    },
    problem::{Code, Problem},
};

/// The parts of a request that a key can come from.
pub(super) struct Places<'r> {
    pub(super) parts: &'r Parts,
    /// The named parts of the path with their values, not decoded.
    pub(super) bound: &'r [(&'r str, &'r str)],
    /// The body's bytes.
    pub(super) body: &'r [u8],
    /// The body, where it is JSON.
    pub(super) document: Option<&'r JsonNode<'r>>,
    /// How the request was signed, where it is a webhook.
    pub(super) scheme: Option<Scheme>,
}

impl Places<'_> {
    /// Every key field with its value.
    pub(super) fn fields(&self, entry: &Entry) -> Result<Vec<(String, String)>, Problem> {
        let fields = entry.route.key.iter().map(|(name, origin, _)| Ok((name.clone(), self.value(name, origin)?)));
        fields.collect()
    }

    pub(super) fn value(&self, field: &str, origin: &FieldOrigin) -> Result<String, Problem> {
        let value = match origin {
            FieldOrigin::Header(name) => match (self.header(name)?, self.twin(name)) {
                (None, Some(twin)) => self.header(twin)?,
                (found, _) => found,
            },
            FieldOrigin::Path(name) => match self.bound.iter().find(|(bound, _)| bound == name) {
                Some((_, raw)) => Some(self.path_value(field, raw)?),
                None => None,
            },
            FieldOrigin::Query(name) => self.query(name)?,
            FieldOrigin::Body(pointer) => match self.member(field, pointer)? {
                Some(node) => Some(scalar(node).ok_or_else(|| {
                    let detail = format!("`{field}` at {pointer} must be a string, an integer or a boolean");
                    Problem::new(Code::Malformed, detail)
                })?),
                None => None,
            },
            FieldOrigin::Const(text) => Some(text.clone()),
            FieldOrigin::Request(part) if part == "method" => Some(self.parts.method.as_str().to_owned()),
            FieldOrigin::Request(part) if part == "digest" => {
                Some(FenceKey(Sha256::digest(self.body).into()).to_string())
            }
            FieldOrigin::Request(_) => Some(self.path(field)?),
        };
        let value = value.ok_or_else(|| missing(field, origin))?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Problem::new(Code::Malformed, format!("`{field}` has more than {VALUE_BYTES_MAX} bytes")));
        }
        Ok(value)
    }

    fn path_value(&self, field: &str, raw: &str) -> Result<String, Problem> {
        match spelling::path_value(raw) {
            // To many servers a trailing slash makes no difference.
            None => decode(raw.trim_end_matches('/'), Plus::Plus),
            Some(odd) => {
                let detail = format!("`{field}` comes from the path, and {odd} in it is not read alike by all servers");
                Err(Problem::new(Code::Malformed, detail))
            }
        }
    }

    fn path(&self, field: &str) -> Result<String, Problem> {
        for (_, raw) in self.bound {
            self.path_value(field, raw)?;
        }
        let mut path = spelling::one_spelling(self.parts.uri.path());
        if self.bound.last().is_some_and(|(_, raw)| raw.ends_with('/')) {
            path.truncate(path.trim_end_matches('/').len());
        }
        Ok(path)
    }

    fn member(&self, field: &str, pointer: &str) -> Result<Option<&JsonNode<'_>>, Problem> {
        let Some(document) = self.document else { return Ok(None) };
        match spelling::other_case(document, pointer) {
            None => Ok(at(document, pointer)),
            Some(other) => {
                let detail =
                    format!("`{field}` is at {pointer}, and the body's `{other}` differs from that in case alone");
                Err(Problem::new(Code::Malformed, detail))
            }
        }
    }

    /// The user of the tenant who sends the request, from the header that the rule names.
    pub(super) fn principal(&self, principal: &Principal) -> Result<String, Problem> {
        let name = principal.header();
        let value = self.header(name)?.filter(|value| !value.is_empty()).ok_or_else(|| {
            Problem::new(Code::MissingHeader, format!("the header {name} is required: it says whose answer it is"))
        })?;
        let Principal::Token { claim, .. } = principal else { return Ok(value) };
        let bad = |why: &str| Problem::new(Code::Malformed, format!("the token in {name} {why}"));
        let token = match value.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => value.as_str(),
        };
        let payload = token.split('.').nth(1).and_then(|part| BASE64_URL_SAFE_NO_PAD.decode(part).ok());
        let payload = payload.ok_or_else(|| bad("is no JSON Web Token"))?;
        let claims = json::parse(&payload).map_err(|_| bad("is no JSON Web Token"))?;
        if let Some(other) = spelling::other_case(&claims, claim) {
            return Err(bad(&format!("has a claim `{other}`, which differs from {claim} in case alone")));
        }
        let user = at(&claims, claim).and_then(scalar).filter(|user| !user.is_empty());
        user.ok_or_else(|| bad(&format!("has no text at {claim}")))
    }

    // A verified header of Standard Webhooks is the same under either of its names.
    fn twin(&self, name: &str) -> Option<&'static str> {
        self.scheme.filter(|scheme| *scheme == Scheme::StandardWebhooks).and_then(|_| standard_twin(name))
    }

    fn header(&self, name: &str) -> Result<Option<String>, Problem> {
        if name.eq_ignore_ascii_case(idempotency_key::NAME) {
            return self.idempotency_key();
        }
        let mut values = self.parts.headers.get_all(name).iter();
        let bad = |why: &str| Problem::new(Code::Malformed, format!("the header {name} {why}"));
        if let Some(other) = self.parts.headers.keys().find(|other| spelling::same_header(name, other.as_str())) {
            return Err(bad(&format!("comes with {other}, which some servers take for the same")));
        }
        match (values.next(), values.next()) {
            (Some(value), None) => match value.to_str() {
                Ok(value) => Ok(Some(value.to_owned())),
                Err(_) => Err(bad("is not visible ASCII")),
            },
            (None, _) => Ok(None),
            _ => Err(bad("appears twice")),
        }
    }

    /// The `Idempotency-Key`, quoted or bare.
    pub(super) fn idempotency_key(&self) -> Result<Option<String>, Problem> {
        idempotency_key::parse(&self.parts.headers).map_err(|bad| Problem::new(Code::Malformed, bad.to_string()))
    }

    fn query(&self, name: &str) -> Result<Option<String>, Problem> {
        let bad = |why: String| Problem::new(Code::Malformed, why);
        let mut found = None;
        for pair in self.parts.uri.query().unwrap_or_default().split('&') {
            // Some servers begin a new pair at a semicolon, too.
            for piece in pair.split(';') {
                let (key, value) = piece.split_once('=').unwrap_or((piece, ""));
                let key = decode(key, Plus::Space)?;
                if spelling::same_parameter(name, &key) {
                    return Err(bad(format!("the query has `{key}`, which some servers take for `{name}`")));
                }
                if key != name {
                    continue;
                }
                if pair.len() != piece.len() {
                    return Err(bad(format!("`{name}` is next to a semicolon in the query; write it as %3B")));
                }
                if found.replace(decode(value, Plus::Space)?).is_some() {
                    return Err(bad(format!("`{name}` appears twice in the query")));
                }
            }
        }
        Ok(found)
    }
}

fn missing(field: &str, origin: &FieldOrigin) -> Problem {
    let place = match origin {
        FieldOrigin::Header(name) if name.eq_ignore_ascii_case(idempotency_key::NAME) => {
            return Problem::new(Code::MissingIdempotencyKey, "send an Idempotency-Key, the same with every retry");
        }
        FieldOrigin::Header(name) => format!("the header {name}"),
        FieldOrigin::Query(name) => format!("the query's {name}"),
        FieldOrigin::Body(pointer) => format!("the body's {pointer}"),
        FieldOrigin::Path(name) => format!("the path's {name}"),
        FieldOrigin::Const(_) | FieldOrigin::Request(_) => "the request".to_owned(),
    };
    Problem::new(Code::WrongKey, format!("`{field}` comes from {place}, which is not there"))
}

/// The value that an RFC 6901 pointer leads to.
pub(super) fn at<'n, 'a>(document: &'n JsonNode<'a>, pointer: &str) -> Option<&'n JsonNode<'a>> {
    steps(pointer).try_fold(document, |node, step| next(node, &step))
}

/// The steps of a pointer, unescaped: names of members and numbers of items.
pub(super) fn steps(pointer: &str) -> impl Iterator<Item = Cow<'_, str>> {
    pointer.split('/').skip(1).map(|step| {
        if step.contains('~') { Cow::Owned(step.replace("~1", "/").replace("~0", "~")) } else { step.into() }
    })
}

/// One step of a pointer.
pub(super) fn next<'n, 'a>(node: &'n JsonNode<'a>, step: &str) -> Option<&'n JsonNode<'a>> {
    match &node.value {
        Value::Array(items) if step == "0" || !step.starts_with(['0', '+']) => items.get(step.parse::<usize>().ok()?),
        Value::Array(_) => None,
        _ => node.get(step),
    }
}

/// The text of a string, boolean or integer, as a key holds it: 1 and "1" are the same. None for other values.
pub(super) fn scalar(node: &JsonNode<'_>) -> Option<String> {
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
