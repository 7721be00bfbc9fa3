//! Bytes to commands about fences. Refuses with the name of the mistake.
//! The other half of the pair is `reply`. Never asks the engine anything.

use std::sync::Arc;

use bytes::Bytes;
use fencepost::policy::{NoScope, is_own};
use fencepost_kernel::{
    Command, Scope, Version,
    fence::{
        self, DoubtOutcome, Forget, Release, Renew, Resolve, Seal, Source, Target, Token, WrongFields, body::Body,
    },
    json::{JsonNode, Value},
};

use super::call::Call;
use crate::problem::{Code, Problem};

/// Whether a claim is of the effect itself or of a deliberate repetition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repetition {
    /// `seq` says; without it, the effect itself.
    Optional,
    /// `seq` must be there.
    Required,
}

/// Bytes of an effect id, a version or a reason.
pub(super) const TEXT_BYTES_MAX: usize = 1_024;
/// The value of a key field may have so many bytes: a key is a name, not a document.
pub(super) const VALUE_BYTES_MAX: usize = 4_096;

fn malformed(detail: impl Into<String>) -> Problem {
    Problem::new(Code::Malformed, detail)
}

/// The document must be an object.
pub(super) fn object<'n, 'a>(node: &'n JsonNode<'a>) -> Result<&'n JsonNode<'a>, Problem> {
    object_as("the body", node)
}

/// This part of the document must be an object.
pub(super) fn object_as<'n, 'a>(what: &str, node: &'n JsonNode<'a>) -> Result<&'n JsonNode<'a>, Problem> {
    match node.value {
        Value::Object(_) => Ok(node),
        _ => Err(malformed(format!("{what} must be a JSON object"))),
    }
}

pub(super) fn member<'n, 'a>(node: &'n JsonNode<'a>, name: &str) -> Result<&'n JsonNode<'a>, Problem> {
    node.get(name).ok_or_else(|| malformed(format!("`{name}` is missing")))
}

pub(super) fn text<'n>(node: &'n JsonNode<'_>, name: &str) -> Result<&'n str, Problem> {
    let text = member(node, name)?.as_str().ok_or_else(|| malformed(format!("`{name}` must be a string")))?;
    if text.is_empty() || text.len() > TEXT_BYTES_MAX {
        return Err(malformed(format!("`{name}` must have 1 to {TEXT_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// The rules behind a scope's name.
pub(super) fn scope<'c>(call: &'c Call, name: &str) -> Result<&'c Arc<Scope>, Problem> {
    call.policy.scope(name).map_err(|none| match none {
        NoScope::Unknown => {
            let near =
                call.policy.nearest_scope(name).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            Problem::new(Code::UnknownScope, format!("there is no scope {name:?}{near}"))
        }
        NoScope::Unfit(why) => Problem::new(Code::StoreUnsupported, format!("{name} {why}")),
    })
}

pub(super) fn optional_text<'n>(node: &'n JsonNode<'_>, name: &str) -> Result<Option<&'n str>, Problem> {
    node.get(name).map(|_| text(node, name)).transpose()
}

fn optional_u64(node: &JsonNode<'_>, name: &str) -> Result<Option<u64>, Problem> {
    let wrong = || malformed(format!("`{name}` must be a whole number that is not negative"));
    node.get(name).map(|value| value.as_u64().ok_or_else(wrong)).transpose()
}

/// The fence that a request names: tenant, scope, key and, for a repetition, its number.
pub(super) fn target(call: &Call, node: &JsonNode<'_>, repetition: Repetition) -> Result<Target, Problem> {
    let asked = call.query_tenant()?;
    let tenant = call.tenant(optional_text(node, "tenant")?.or(asked.as_deref()))?;
    for name in ["partner_id", "planner_id", "executor_id"] {
        if node.get(name).is_some_and(|id| id.as_str() != Some(tenant.as_str())) {
            let whose = name.trim_end_matches("_id");
            let detail = format!("`{name}` must be {}, this credential's {whose}", tenant.as_str());
            return Err(Problem::new(Code::Forbidden, detail));
        }
    }
    let name = text(node, "scope")?;
    if is_own(name) {
        let detail =
            format!("{name} is sealed by Fencepost itself; claim, seal, resolve and forget under a scope of your own");
        return Err(Problem::new(Code::Forbidden, detail));
    }
    let scope = scope(call, name)?;
    let key = member(node, "key")?;
    let Value::Object(members) = &key.value else { return Err(malformed("`key` must be an object")) };
    let mut fields = Vec::with_capacity(members.len());
    for (name, value) in members {
        let text = match &value.value {
            Value::String(text) => text.to_string(),
            Value::Bool(truth) => truth.to_string(),
            Value::Number => match value.as_integer() {
                Some(number) => number.to_string(),
                None => return Err(malformed(format!("key field `{name}` must be a string, an integer or a boolean"))),
            },
            _ => return Err(malformed(format!("key field `{name}` must be a string, an integer or a boolean"))),
        };
        if text.len() > VALUE_BYTES_MAX {
            return Err(malformed(format!("key field `{name}` has more than {VALUE_BYTES_MAX} bytes")));
        }
        fields.push((name.to_string(), text));
    }
    let seq = optional_u64(node, "seq")?;
    if seq == Some(0) {
        return Err(malformed("`seq` counts from 1"));
    }
    if seq.is_none() && repetition == Repetition::Required {
        return Err(malformed("`seq` is missing"));
    }
    if seq.is_some() && scope.again.is_none() {
        return Err(malformed(format!("scope {name} has no sequence of repetitions")));
    }
    Target::new(tenant, scope.clone(), fields, seq).map_err(|wrong| wrong_key(scope, &wrong))
}

/// A key object that is not the scope's.
pub(super) fn wrong_key(scope: &Scope, wrong: &WrongFields) -> Problem {
    Problem::new(Code::WrongKey, format!("scope {} takes exactly {}; {wrong}", scope.name, scope.key.join(", ")))
}

/// A claim, and how long it would wait for another caller's.
pub(super) fn claim(call: &Call, node: &JsonNode<'_>, repetition: Repetition) -> Result<(Command, u64), Problem> {
    let target = target(call, object(node)?, repetition)?;
    let lease_ms = lease(node, &target)?;
    let wait_ms = optional_u64(node, "wait_ms")?.unwrap_or(0);
    let version = match node.get("version").map(|version| (version.as_integer(), version.as_str())) {
        None => None,
        Some((Some(number), _)) => Some(Version::Integer(number)),
        Some((_, Some(text))) if text.len() <= TEXT_BYTES_MAX => Some(Version::Text(text.to_owned())),
        Some(_) => {
            return Err(malformed(format!("`version` must be an integer or a string of up to {TEXT_BYTES_MAX} bytes")));
        }
    };
    if version.is_some() && !call.app.fencepost.engine().promises().many_rows {
        return Err(Problem::new(
            Code::StoreUnsupported,
            "this store commits rows one by one and cannot order versions",
        ));
    }
    let source = match node.get("source") {
        None => None,
        Some(source) => Some(Source {
            kind: text(object_as("`source`", source)?, "type")?.to_owned(),
            id: text(source, "id")?.to_owned(),
        }),
    };
    let body = node.get("body").map(|body| Body::json(body, &target.scope.mask));
    Ok((
        Command::Fence(fence::Command::Claim(fence::ClaimFence {
            target,
            body,
            version,
            source,
            lease_ms,
            trace: Some(call.trace.held()),
        })),
        wait_ms,
    ))
}

fn lease(node: &JsonNode<'_>, target: &Target) -> Result<u64, Problem> {
    let lease_ms = optional_u64(node, "lease_ms")?.unwrap_or(target.scope.lease_ms);
    if !(1..=target.scope.lease_ms_max).contains(&lease_ms) {
        let most = target.scope.lease_ms_max;
        return Err(malformed(format!("`lease_ms` must be from 1 to {most}")).with("lease_ms_max", &most.to_string()));
    }
    Ok(lease_ms)
}

fn token(node: &JsonNode<'_>) -> Result<Token, Problem> {
    member(node, "token")?
        .as_u64()
        .map(Token)
        .ok_or_else(|| malformed("`token` must be the integer that the claim gave"))
}

// The exact bytes of the value, never parsed and written again. A copy: a receipt is kept, and as a slice it would keep
// the whole buffer that its request came in.
fn exact(node: &JsonNode<'_>) -> Bytes {
    Bytes::copy_from_slice(node.raw.as_bytes())
}

pub(super) fn seal(call: &Call, node: &JsonNode<'_>) -> Result<Command, Problem> {
    let target = target(call, object(node)?, Repetition::Optional)?;
    let token = token(node)?;
    let effect_id = text(node, "effect_id")?.to_owned();
    let receipt = exact(member(node, "receipt")?);
    Ok(Command::Fence(fence::Command::Seal(Seal { target, token, effect_id, receipt })))
}

pub(super) fn renew(call: &Call, node: &JsonNode<'_>) -> Result<Command, Problem> {
    let target = target(call, object(node)?, Repetition::Optional)?;
    let lease_ms = lease(node, &target)?;
    Ok(Command::Fence(fence::Command::Renew(Renew { token: token(node)?, target, lease_ms })))
}

pub(super) fn release(call: &Call, node: &JsonNode<'_>) -> Result<Command, Problem> {
    let target = target(call, object(node)?, Repetition::Optional)?;
    Ok(Command::Fence(fence::Command::Release(Release { token: token(node)?, target })))
}

pub(super) fn resolve(call: &Call, node: &JsonNode<'_>) -> Result<Command, Problem> {
    let target = target(call, object(node)?, Repetition::Optional)?;
    let outcome = match text(node, "outcome")? {
        "released" => DoubtOutcome::Released,
        "sealed" => DoubtOutcome::Sealed {
            effect_id: text(node, "effect_id")?.to_owned(),
            receipt: node.get("receipt").map_or_else(|| "null".into(), exact),
        },
        other => return Err(malformed(format!("`outcome` must be \"sealed\" or \"released\", not {other:?}"))),
    };
    let why = text(node, "why")?.to_owned();
    let token = node.get("token").map(|_| token(node)).transpose()?;
    Ok(Command::Fence(fence::Command::Resolve(Resolve { target, token, outcome, by: call.caller.id.clone(), why })))
}

pub(super) fn forget(call: &Call, node: &JsonNode<'_>) -> Result<Command, Problem> {
    let target = target(call, object(node)?, Repetition::Optional)?;
    let why = text(node, "why")?.to_owned();
    let token = node.get("token").map(|_| token(node)).transpose()?;
    Ok(Command::Fence(fence::Command::Forget(Forget { target, token, by: call.caller.id.clone(), why })))
}

/// One command of a batch.
pub(super) fn command(call: &Call, node: &JsonNode<'_>) -> Result<Command, Problem> {
    match text(object_as("a command", node)?, "op")? {
        op @ ("claim" | "again") => {
            let repetition = if op == "again" { Repetition::Required } else { Repetition::Optional };
            match claim(call, node, repetition)? {
                (command, 0) => Ok(command),
                _ => Err(malformed("a command in a batch cannot wait: leave `wait_ms` out")),
            }
        }
        "seal" => seal(call, node),
        "renew" => renew(call, node),
        "release" => release(call, node),
        other => Err(malformed(format!("`op` must be claim, again, seal, renew or release, not {other:?}"))),
    }
}
