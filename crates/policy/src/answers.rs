//! Reads the answers of a gateway rule to requests that it does not pass on: `on_stale` and `on_conflict`.
//! Never decides what is stale or a conflict: these are plain values.
//! Called by `routes` for each rule, and by the gateway where a claim is not granted.

use super::read::{Fields, Reader};
use super::settings::OnConflict;
use super::yaml::{Mark, YamlNode};

/// A provider of webhooks takes 200 as received. A client reads 409 or 422 as refused.
const STATUSES: [(&str, u16); 3] = [("200", 200), ("409", 409), ("422", 422)];

/// A rule's own answers. One that is not set is the policy's, or the default.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answers {
    /// The status for a version below the last sealed one of its source, with its place.
    pub stale: Option<(u16, Mark)>,
    /// The status for another body under a known key, with its place.
    pub conflict: Option<(u16, Mark)>,
    /// Whether the answer to a conflict carries the diff.
    pub include_diff: Option<bool>,
}

impl Answers {
    /// The status for a stale request, by default 200 on a verified webhook. A provider that is refused retries for
    /// days, but a stale event stays stale: nothing is lost by an answer that it was received.
    pub fn on_stale(&self, is_verified: bool) -> u16 {
        let default = if is_verified { 200 } else { 409 };
        self.stale.as_ref().map_or(default, |(status, _)| *status)
    }

    /// The answer to a conflict: by default a refusal, on an incoming webhook too. The upstream has not seen the
    /// delivery's content, and the provider's list of failed deliveries keeps it until the key is fixed.
    pub fn on_conflict(&self, policy: OnConflict) -> OnConflict {
        OnConflict {
            status: self.conflict.as_ref().map_or(policy.status, |(status, _)| *status),
            include_diff: self.include_diff.unwrap_or(policy.include_diff),
        }
    }
}

/// Reads the two fields of a rule.
pub fn read(reader: &mut Reader, fields: &Fields<'_>) -> Answers {
    let mut answers = Answers::default();
    if let Some(fields) = fields.get("on_stale").and_then(|node| reader.fields(node, "`on_stale`", &["status"])) {
        answers.stale = fields.get("status").and_then(|node| status(reader, node));
    }
    let conflict = fields.get("on_conflict");
    if let Some(fields) = conflict.and_then(|node| reader.fields(node, "`on_conflict`", &["status", "include_diff"])) {
        answers.conflict = fields.get("status").and_then(|node| status(reader, node));
        answers.include_diff = fields.get("include_diff").and_then(|node| reader.boolean(node, "`include_diff`"));
    }
    answers
}

fn status(reader: &mut Reader, node: &YamlNode) -> Option<(u16, Mark)> {
    Some((reader.word(node, "`status`", &STATUSES)?, node.mark.clone()))
}
