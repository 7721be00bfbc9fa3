//! The keys of one world and the scopes they belong to, drawn from its seed: few, so that callers collide.
//! Turns names into targets and kernel types into the plain words of the history. Never decides anything.
//! Called by the clients and the callers.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use fencepost_kernel::{
    Command, Reply, Tenant, Version,
    fence::{
        self, ClaimFence, DoubtOutcome, Fence, Forget, Phase, PutAlias, Release, Renew, Resolve, Seal, Source, State,
        Target, Token,
        body::Body,
        scope::{BodyMismatch, OnLapse, Scope, VersionRule},
    },
};

use crate::{
    history::{Ask, ObservedAnswer, Rules, TEXTS, key_name},
    recorder::Asked,
};

/// The scopes of one world.
pub(crate) struct Town {
    /// Each scope as its policy says it, and as another says it that takes its place for a while: mostly the same.
    scopes: BTreeMap<String, [Arc<Scope>; 2]>,
    /// Which of both is in force.
    policy: AtomicUsize,
    keys_per_scope: u32,
    /// Whether every key has one row: where a store takes no more, versions and repetitions are not kept.
    pub(crate) single_rows: bool,
}

const BODIES: [&str; 3] = ["b0", "b1", "b2"];
const TENANTS: [&str; 2] = ["acme", "zeta"];

impl Town {
    pub(crate) fn draw(rng: &mut fastrand::Rng) -> Self {
        let retain_ms = [2_500, 6_000, 15_000, 60_000];
        let mut scopes = BTreeMap::new();
        let changes = rng.u8(0..4) == 0;
        for (name, fields) in [
            ("SHIP", vec!["k"]),
            ("PAY", vec!["k"]),
            ("MOVE", vec!["doc", "rev"]),
            ("SYNC", vec!["doc", "task"]),
            ("NOTE", vec!["k"]),
        ] {
            let mut scope = Scope::new(name, fields);
            scope.retain_ms = retain_ms[rng.usize(0..retain_ms.len())];
            if name == "PAY" || rng.u8(0..8) == 0 {
                scope.on_lapse = OnLapse::Hold;
            }
            if name == "SHIP" && rng.u8(0..4) == 0 {
                scope.body_mismatch = BodyMismatch::Replay;
            }
            if name == "MOVE" {
                scope.version = Some(VersionRule { field: "rev".to_owned(), per: vec!["doc".to_owned()] });
            }
            if name == "NOTE" {
                scope.again = Some("resendSeq".to_owned());
            }
            let mut other = scope.clone();
            if changes {
                other.retain_ms = retain_ms[rng.usize(0..retain_ms.len())];
                other.on_lapse = [OnLapse::Hold, OnLapse::Recover][rng.usize(0..2)];
            }
            scopes.insert(name.to_owned(), [scope, other].map(Arc::new));
        }
        let mut gone = Scope::new("GONE", ["k"]);
        gone.retain_ms = 24 * 3_600_000;
        scopes.insert(gone.name.to_string(), [gone.clone(), gone].map(Arc::new));
        let policy = AtomicUsize::new(0);
        Self { scopes, policy, keys_per_scope: rng.u32(1..=3), single_rows: rng.u8(0..8) == 0 }
    }

    /// The rules in the auditor's words.
    pub(crate) fn rules(&self) -> BTreeMap<String, Rules> {
        let rules = |scopes: &[Arc<Scope>; 2]| Rules {
            retain_ms: scopes[0].retain_ms.min(scopes[1].retain_ms),
            retains_ms: scopes.iter().map(|scope| scope.retain_ms).collect(),
            hold: scopes.iter().all(|scope| scope.on_lapse == OnLapse::Hold),
            may_hold: scopes.iter().any(|scope| scope.on_lapse == OnLapse::Hold),
            replays_other_body: scopes[0].body_mismatch == BodyMismatch::Replay,
        };
        self.scopes.iter().map(|(name, scopes)| (name.clone(), rules(scopes))).collect()
    }

    /// The other policy is in force from now on; whether that is another at all.
    pub(crate) fn change_policy(&self) -> bool {
        self.policy.fetch_xor(1, Ordering::Relaxed);
        self.scopes.values().any(|[one, other]| (one.on_lapse, one.retain_ms) != (other.on_lapse, other.retain_ms))
    }

    /// Some key: tenant, scope and fields in one name.
    pub(crate) fn some_key(&self, rng: &mut fastrand::Rng) -> String {
        let tenant = TENANTS[usize::from(rng.u8(0..4) == 0)];
        let key = rng.u32(0..self.keys_per_scope);
        match rng.u8(0..if self.single_rows { 4 } else { 10 }) {
            0..2 => format!("{tenant}/SHIP/k{key}"),
            2..4 => format!("{tenant}/PAY/k{key}"),
            4..6 if rng.u8(0..4) == 0 => format!("{tenant}/MOVE/x/{}", ["1", "2", "a", "b"][rng.usize(0..4)]),
            4..6 => format!("{tenant}/MOVE/d{}/{}", key % 2, rng.u32(1..=4)),
            6..8 => format!("{tenant}/SYNC/d{}/{}", key % 2, rng.u32(1..=4)),
            _ => format!("{tenant}/NOTE/k{key}"),
        }
    }

    /// A command for a request.
    pub(crate) fn command(&self, asked: &Asked) -> Option<Command> {
        let target = self.target(&asked.base, asked.seq)?;
        let key = key_name(&asked.base, asked.seq);
        Some(match asked.ask.clone() {
            Ask::Claim { body, version, lease_ms, .. } => Command::Fence(fence::Command::Claim(ClaimFence {
                target,
                body: body.map(|name| content(&key, &name)),
                // In MOVE the version is a key field too: half of the callers leave it to that.
                version: version
                    .as_ref()
                    .filter(|(source, _)| source.contains("/SYNC/") || lease_ms % 2 == 0)
                    .map(|(_, version)| version_at(*version)),
                source: version.map(|(id, _)| Source { kind: "doc".to_owned(), id }),
                lease_ms,
                trace: None,
            })),
            Ask::Seal { token, effect, receipt } => Command::Fence(fence::Command::Seal(Seal {
                target,
                token: Token(token),
                effect_id: effect,
                receipt: receipt.into(),
            })),
            Ask::Renew { token, lease_ms } => {
                Command::Fence(fence::Command::Renew(Renew { target, token: Token(token), lease_ms }))
            }
            Ask::Release { token } => Command::Fence(fence::Command::Release(Release { target, token: Token(token) })),
            Ask::Resolve { token, sealed } => Command::Fence(fence::Command::Resolve(Resolve {
                target,
                token: token.map(Token),
                outcome: match sealed {
                    Some((effect_id, receipt)) => DoubtOutcome::Sealed { effect_id, receipt: receipt.into() },
                    None => DoubtOutcome::Released,
                },
                by: "operator".to_owned(),
                why: "looked at the ledger".to_owned(),
            })),
            Ask::Forget { token } => Command::Fence(fence::Command::Forget(Forget {
                target,
                token: Some(Token(token)),
                by: "operator".to_owned(),
                why: "the parcel was lost".to_owned(),
            })),
            Ask::Alias { name } => Command::Fence(fence::Command::PutAlias(PutAlias { name, target })),
            Ask::Look => return None,
        })
    }

    /// Where a name leads.
    pub(crate) fn target(&self, base: &str, seq: Option<u64>) -> Option<Target> {
        let mut parts = base.split('/');
        let tenant = Tenant::new(parts.next()?);
        let scope = self.scopes.get(parts.next()?)?[self.policy.load(Ordering::Relaxed)].clone();
        let fields = scope.key.iter().cloned().zip(parts.map(str::to_owned)).collect();
        Target::new(tenant, scope, fields, seq).ok()
    }
}

/// The name that a fence was claimed by.
pub(crate) fn name_of(fence: &Fence) -> String {
    let values: Vec<&str> = fence.fields.iter().map(|(_, value)| value.as_str()).collect();
    format!("{}/{}/{}", fence.tenant, fence.scope, values.join("/"))
}

/// The source and version that a key stands for, where its scope has versions.
pub(crate) fn version_of(base: &str) -> Option<(String, i64)> {
    let (source, version) = base.rsplit_once('/')?;
    let number = version.parse().unwrap_or_else(|_| TEXTS + i64::from(version.bytes().next().unwrap_or_default()));
    (source.contains("/MOVE/") || source.contains("/SYNC/")).then(|| (source.to_owned(), number))
}

fn version_at(number: i64) -> Version {
    match u8::try_from(number - TEXTS) {
        Ok(letter) => Version::Text(char::from(letter).to_string()),
        Err(_) => Version::Integer(number.into()),
    }
}

fn number_of(version: &Version) -> i64 {
    match version {
        Version::Integer(number) => *number as i64,
        Version::Text(text) => TEXTS + i64::from(text.bytes().next().unwrap_or_default()),
    }
}

/// An explanation, in the words of the history.
pub(crate) fn shown(fence: &Fence, phase: Phase) -> ObservedAnswer {
    match (phase, &fence.state) {
        (Phase::Pending, State::Pending { lease_expires, .. }) => {
            ObservedAnswer::InFlight { lease_expires: lease_expires.0 }
        }
        (Phase::InDoubt, State::Pending { lease_expires, .. }) => ObservedAnswer::InDoubt { since: lease_expires.0 },
        _ => ObservedAnswer::Seen { phase: phase.name(), token: fence.token.0 },
    }
}

/// A reply in the words of the history.
pub(crate) fn answer(asked: &Asked, reply: &Reply) -> ObservedAnswer {
    let key = key_name(&asked.base, asked.seq);
    match reply {
        Reply::Fence(fence::Reply::New(granted)) => ObservedAnswer::New {
            token: granted.token.0,
            attempt: granted.attempt,
            first_seen: granted.first_seen.0,
            lease_expires: granted.lease_expires.0,
            recovering: granted.recovering.as_ref().map(|earlier| (earlier.token.0, earlier.lease_expired.0)),
        },
        Reply::Fence(fence::Reply::Duplicate { fence, body_differs }) => match &fence.state {
            State::Sealed { receipt, at, expires } => ObservedAnswer::Duplicate {
                token: fence.token.0,
                effect: receipt.effect_id.clone(),
                receipt: String::from_utf8_lossy(&receipt.body).into_owned(),
                at: at.0,
                expires: expires.0,
                first_seen: fence.first_seen.0,
                body_differs: *body_differs,
            },
            state => ObservedAnswer::Other(format!("a duplicate of {state:?}")),
        },
        Reply::Fence(fence::Reply::InFlight { lease_expires, .. }) => {
            ObservedAnswer::InFlight { lease_expires: lease_expires.0 }
        }
        Reply::Fence(fence::Reply::Conflict(mismatch)) => ObservedAnswer::Conflict {
            first: body_name(&key, &mismatch.first),
            second: body_name(&key, &mismatch.second),
        },
        Reply::Fence(fence::Reply::Stale { sealed_version }) => {
            ObservedAnswer::Stale { last: number_of(sealed_version) }
        }
        Reply::Fence(fence::Reply::Incomparable { sealed_version }) => {
            ObservedAnswer::Incomparable { last: number_of(sealed_version) }
        }
        Reply::Fence(fence::Reply::Aliased { alias, .. }) => ObservedAnswer::Aliased {
            effect: alias.receipt.effect_id.clone(),
            receipt: String::from_utf8_lossy(&alias.receipt.body).into_owned(),
        },
        Reply::Fence(fence::Reply::NotSealed) => ObservedAnswer::NotSealed,
        Reply::Fence(fence::Reply::InDoubt { since }) => ObservedAnswer::InDoubt { since: since.0 },
        Reply::Fence(fence::Reply::SequenceGap { last, sealed }) => {
            ObservedAnswer::Gap { last: *last, sealed: *sealed }
        }
        Reply::Fence(fence::Reply::Sealed { replay, at, expires, .. }) => {
            ObservedAnswer::Sealed { replay: *replay, at: at.0, expires: expires.0 }
        }
        Reply::Fence(fence::Reply::SealConflict { .. }) => ObservedAnswer::SealConflict,
        Reply::Fence(fence::Reply::FencedOff { current }) => {
            ObservedAnswer::FencedOff { current: current.map(|token| token.0) }
        }
        Reply::Fence(fence::Reply::Renewed { lease_expires }) => {
            ObservedAnswer::Renewed { lease_expires: lease_expires.0 }
        }
        Reply::Fence(fence::Reply::Released { replay }) => ObservedAnswer::Released { replay: *replay },
        Reply::Fence(fence::Reply::Resolved { replay }) => ObservedAnswer::Resolved { replay: *replay },
        Reply::Fence(fence::Reply::NotInDoubt) => ObservedAnswer::NotInDoubt,
        Reply::Fence(fence::Reply::Forgotten { replay, exists }) => {
            ObservedAnswer::Forgotten { replay: *replay, exists: *exists }
        }
        other => ObservedAnswer::Other(other.decision().to_owned()),
    }
}

fn content(key: &str, name: &str) -> Body {
    Body::opaque(format!("{key} {name}").as_bytes())
}

fn body_name(key: &str, body: &Body) -> String {
    BODIES.into_iter().find(|name| content(key, name) == *body).unwrap_or("foreign").to_owned()
}
