//! A scope: the rules for one kind of effect. Scopes are data; the policy file makes them.

use std::sync::Arc;

/// What happens to a claim whose lease ran out without a seal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnLapse {
    /// The next claimant may run, told that an earlier attempt may have had its effect.
    #[default]
    Recover,
    /// Nobody runs until a person has resolved the doubt.
    Hold,
}

/// What happens when a known key comes with another body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BodyMismatch {
    /// Refused as a conflict, with a diff.
    #[default]
    Refuse,
    /// Treated as a duplicate; the difference is counted and warned about.
    Replay,
}

/// How hard an acknowledgement must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// On stable storage before the reply; a store that does not offer it is refused.
    Synced,
    /// As hard as the store's own settings make it.
    #[default]
    Store,
}

/// How versions of one source are ordered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionRule {
    /// The key field that holds the version, where the claim does not say it.
    pub field: String,
    /// What names the thing that is versioned: key fields, and `source` for the source that the claim names.
    pub per: Vec<String>,
}

/// The entry of [`VersionRule::per`] that stands for the claim's own source.
pub const PER_SOURCE: &str = "source";

/// The rules for one kind of effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    /// Its name, such as `BOOKING`.
    pub name: Arc<str>,
    /// The names of its key fields.
    pub key: Vec<String>,
    /// How long a sealed fence answers duplicates.
    pub retain_ms: u64,
    /// The lease a claim gets when it asks for none.
    pub lease_ms: u64,
    /// The longest lease a claim may ask for.
    pub lease_ms_max: u64,
    /// What a lapse leads to.
    pub on_lapse: OnLapse,
    /// The name of the sequence of deliberate repetitions, if there is one.
    pub again: Option<String>,
    /// The order of versions, if there is one.
    pub version: Option<VersionRule>,
    /// JSON pointers whose values are never stored or shown.
    pub mask: Vec<String>,
    /// What another body under a known key leads to.
    pub body_mismatch: BodyMismatch,
    /// What a store must offer to carry this scope.
    pub durability: Durability,
    /// How long its senders retry, where declared.
    pub horizon_ms: Option<u64>,
    /// What its effects come from, for the logs.
    pub source: Option<String>,
}

/// Seven days: what a scope retains unless it says otherwise.
pub const RETAIN_MS_DEFAULT: u64 = 7 * 24 * 3_600_000;
/// Half a minute: the lease of a claim that names none.
pub const LEASE_MS_DEFAULT: u64 = 30_000;
/// A day: the longest lease unless the scope says otherwise.
pub const LEASE_MS_MAX_DEFAULT: u64 = 24 * 3_600_000;

impl Scope {
    /// Whether versions are ordered per source that the claim names. A key field of that name is just a field.
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
            durability: Durability::default(),
            horizon_ms: None,
            source: None,
        }
    }
}
