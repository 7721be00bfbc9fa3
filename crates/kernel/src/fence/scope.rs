//! A scope: the rules for one kind of effect. Scopes are data: the policy makes them, `fence` reads them.

use std::sync::Arc;

/// The rule for a claim whose lease expired without a seal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnLapse {
    /// The next claimant gets the claim, and learns that an earlier attempt may have had its effect.
    #[default]
    Recover,
    /// No claimant gets the claim until a person has resolved the doubt.
    Hold,
}

/// The rule for a claim of a known key with another body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BodyMismatch {
    /// The claim is refused as a conflict, with a diff.
    #[default]
    Refuse,
    /// The claim is a duplicate; the difference is counted and logged as a warning.
    Replay,
}

/// How durable a commit must be before it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RequiredDurability {
    /// On stable storage. A store that cannot promise this is refused.
    Synced,
    /// As durable as the store's own settings make it.
    #[default]
    Store,
}

/// How the versions of one source are ordered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionRule {
    /// The key field that holds the version, where the claim does not state it.
    pub field: String,
    /// The key fields that name the versioned source; the entry `source` stands for the source that the claim states.
    pub per: Vec<String>,
}

/// The entry of [`VersionRule::per`] that stands for the source that the claim states.
pub const PER_SOURCE: &str = "source";

/// The rules for one kind of effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    /// The name, such as `BOOKING`.
    pub name: Arc<str>,
    /// The names of the key fields.
    pub key: Vec<String>,
    /// How long a sealed fence answers duplicates, in milliseconds.
    pub retain_ms: u64,
    /// The lease of a claim that requests none.
    pub lease_ms: u64,
    /// The longest lease that a claim may request.
    pub lease_ms_max: u64,
    /// The rule for a claim whose lease expired.
    pub on_lapse: OnLapse,
    /// The name of the sequence number of deliberate repetitions; `None` where they are not allowed.
    pub again: Option<String>,
    /// The order of versions; `None` where versions do not count.
    pub version: Option<VersionRule>,
    /// JSON pointers whose values are never stored or shown.
    pub mask: Vec<String>,
    /// The rule for a claim with another body.
    pub body_mismatch: BodyMismatch,
    /// How durable the scope's commits must be.
    pub durability: RequiredDurability,
    /// How long senders retry, in milliseconds, where the policy says so.
    pub horizon_ms: Option<u64>,
    /// The kind of source that its effects come from, for logs.
    pub source: Option<String>,
}

/// Seven days: the default of `retain_ms`.
pub const RETAIN_MS_DEFAULT: u64 = 7 * 24 * 3_600_000;
/// Half a minute: the default of `lease_ms`.
pub const LEASE_MS_DEFAULT: u64 = 30_000;
/// A day: the default of `lease_ms_max`.
pub const LEASE_MS_MAX_DEFAULT: u64 = 24 * 3_600_000;

impl Scope {
    /// Whether versions are ordered for each source that claims state. A key field of that name is an ordinary field.
    pub(crate) fn versions_per_source(&self) -> bool {
        let names = |list: &[String]| list.iter().any(|name| name == PER_SOURCE);
        self.version.as_ref().is_some_and(|rule| names(&rule.per)) && !names(&self.key)
    }

    /// A scope with every rule at its default.
    pub fn new(name: impl Into<Arc<str>>, key: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            name: name.into(),
            key: key.into_iter().map(Into::into).collect(),
            retain_ms: RETAIN_MS_DEFAULT,
            lease_ms: LEASE_MS_DEFAULT,
            lease_ms_max: LEASE_MS_MAX_DEFAULT,
            on_lapse: OnLapse::default(),
            again: None,
            version: None,
            mask: Vec::new(),
            body_mismatch: BodyMismatch::default(),
            durability: RequiredDurability::default(),
            horizon_ms: None,
            source: None,
        }
    }
}
