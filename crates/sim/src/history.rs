//! The history of one world: every request and every reply with its store time, in plain types and as text lines.
//! Never holds a type of the kernel: the auditor reads this and nothing else.
//! Written by the recorder.

pub mod items;
pub mod lanes;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use items::ItemHistory;
use lanes::LaneHistory;

/// Versions from here on are texts.
pub const TEXTS: i64 = 100;

/// The rules of one scope, as the auditor needs them.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How long a sealed fence answers duplicates at least.
    pub retain_ms: u64,
    /// Every retention that the scope has in this world: its policy may change on the way.
    pub retains_ms: Vec<u64>,
    /// Whether a lapse is always a doubt.
    pub hold: bool,
    /// Whether a lapse is sometimes one.
    pub may_hold: bool,
    /// Whether another body under a known key is let through as a duplicate.
    pub replays_other_body: bool,
}

/// A moment: the line in the history, and the store's time.
#[derive(Clone, Copy, Debug)]
pub struct HistoryStamp {
    pub line: usize,
    /// Store time in milliseconds.
    pub at: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    Claim {
        /// The request body, by name.
        body: Option<String>,
        /// The source and its version; from `TEXTS` on it stands for a text, which no number compares with.
        version: Option<(String, i64)>,
        lease_ms: u64,
        /// How long to wait for another holder.
        wait_ms: u64,
    },
    Seal {
        token: u64,
        /// The effect's id.
        effect: String,
        receipt: String,
    },
    Renew {
        token: u64,
        lease_ms: u64,
    },
    Release {
        token: u64,
    },
    /// To end a doubt: as done with an effect and a receipt, or as not done.
    Resolve {
        /// The attempt that the doubt is about, where the operator names it.
        token: Option<u64>,
        /// The effect and the receipt, where it was done.
        sealed: Option<(String, String)>,
    },
    /// To give up what was sealed under a token.
    Forget {
        /// The token.
        token: u64,
    },
    /// A name for what was sealed.
    Alias {
        name: String,
    },
    /// A read of the key: an explanation, or a line in the list of doubts. Writes nothing.
    Look,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedAnswer {
    New {
        token: u64,
        attempt: u32,
        first_seen: u64,
        lease_expires: u64,
        recovering: Option<(u64, u64)>,
    },
    Duplicate {
        token: u64,
        effect: String,
        receipt: String,
        at: u64,
        expires: u64,
        first_seen: u64,
        body_differs: bool,
    },
    InFlight {
        lease_expires: u64,
    },
    Conflict {
        first: String,
        second: String,
    },
    Stale {
        last: i64,
    },
    Incomparable {
        last: i64,
    },
    InDoubt {
        since: u64,
    },
    Gap {
        last: u64,
        sealed: bool,
    },
    Sealed {
        replay: bool,
        at: u64,
        expires: u64,
    },
    SealConflict,
    FencedOff {
        current: Option<u64>,
    },
    Renewed {
        lease_expires: u64,
    },
    Released {
        replay: bool,
    },
    Resolved {
        replay: bool,
    },
    NotInDoubt,
    Forgotten {
        replay: bool,
        exists: bool,
    },
    Aliased {
        effect: String,
        receipt: String,
    },
    NotSealed,
    /// To a look: sealed, released or lapsed, under this token. A pending claim and a doubt are told as to a claim.
    Seen {
        phase: &'static str,
        token: u64,
    },
    /// To a look: nothing is known.
    Absent,
    Other(String),
}

/// The outcome of a request, as far as its sender can know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    Answered(ObservedAnswer),
    /// It certainly did not happen.
    NotApplied,
    /// Applied or not: the sender cannot know.
    Maybe,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Op {
    /// The run of the store it was sent in.
    pub run: usize,
    /// The node of that run it was sent to.
    pub node: usize,
    /// Requests of one batch share this.
    pub group: usize,
    /// The place within the batch.
    pub place: usize,
    /// Tenant, scope and fields.
    pub base: String,
    /// Which repetition; none for the effect itself.
    pub seq: Option<u64>,
    pub ask: Ask,
    /// When it was handed to the engine.
    pub invoked: HistoryStamp,
    /// When its sender knew what can be known.
    pub closed: Option<HistoryStamp>,
    pub outcome: RequestOutcome,
    /// The line from which on it can have no effect any more, where a failover lost its acknowledged write.
    pub lost_at: Option<usize>,
    /// How far its node's clock may have been behind; the auditor adds what was declared.
    pub skew_ms: u64,
    /// Whether its node was declared to read from an old primary meanwhile.
    pub reads_old: bool,
}

/// A node that read from a primary that was none any more, for a moment after a failover: declared, so that exactly this is
/// forgiven.
#[derive(Clone, Copy, Debug)]
pub struct OldReads {
    /// The node, and its run.
    pub node: (usize, usize),
    /// The line of the failover: its rows are as old as that.
    pub from_line: usize,
    /// From this line on it reads from the new one.
    pub to_line: usize,
}

/// While the server's clock is behind, a node that starts may be: declared, so that exactly this is forgiven.
#[derive(Clone, Copy, Debug)]
pub struct Apart {
    pub from_line: usize,
    pub to_line: usize,
    /// So far at most.
    pub ms: u64,
}

/// A failover to a server that did not have everything: declared, so that exactly this is forgiven.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Acknowledged writes up to this line are there.
    pub from_line: usize,
    /// The line of the failover: writes acknowledged between the two are gone.
    pub to_line: usize,
}

/// A page of the list of doubts, from its beginning.
#[derive(Clone, Debug)]
pub struct List {
    /// The question, as a look at no key.
    pub op: Op,
    /// The full names of the fences on it.
    pub shown: BTreeSet<String>,
    /// Whether there may have been more.
    pub full: bool,
}

/// The effect that a name led to.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The question, as a look at no key.
    pub op: Op,
    pub tenant: String,
    pub name: String,
    /// The effect and the receipt; none where there is no such name.
    pub shown: Option<(String, String)>,
}

/// An entry of the audit.
#[derive(Clone, Debug)]
pub struct AuditLine {
    /// The request that it names.
    pub request: Option<usize>,
    /// The tenant of the key.
    pub tenant: Option<String>,
    /// Scope and key.
    pub on: String,
    /// The word for the decision.
    pub outcome: String,
    /// Its date.
    pub at: u64,
}

/// The audit, read whole.
#[derive(Clone, Debug)]
pub struct AuditRead {
    /// The question, as a look at no key.
    pub op: Op,
    /// Every entry.
    pub lines: Vec<AuditLine>,
}

/// Something a worker did outside, between its claim and its seal.
#[derive(Clone, Debug)]
pub struct OutsideEffect {
    /// Tenant, scope, fields and repetition.
    pub key: String,
    pub token: u64,
    pub done: HistoryStamp,
}

/// Everything that happened in one world.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// As text, one event a line; without `with_text`, lines are counted and stay empty.
    pub lines: Vec<String>,
    /// Whether a reader wants the text, which takes a tenth of a world's time.
    pub with_text: bool,
    /// Every request.
    pub ops: Vec<Op>,
    /// Every list of doubts that was shown.
    pub lists: Vec<List>,
    /// Every name that was asked for.
    pub lookups: Vec<Lookup>,
    /// The audit, as it was read.
    pub audits: Vec<AuditRead>,
    /// The ledger of the outside world.
    pub effects: Vec<OutsideEffect>,
    /// The line at which each run of the store ended.
    pub run_ends: Vec<usize>,
    /// The runs in which a batch was not always one commit: nodes shared the store, or a row had moved by then.
    pub parted_runs: BTreeSet<usize>,
    /// The rules by scope.
    pub rules: BTreeMap<String, Rules>,
    /// How often each kind of event happened.
    pub counts: BTreeMap<String, u64>,
    /// How far the clocks of two nodes may be apart at any time.
    pub skew_ms: u64,
    /// When they may be further apart.
    pub apart: Vec<Apart>,
    /// Reads from a primary that was none any more.
    pub old_reads: Vec<OldReads>,
    /// Failovers that lost what was acknowledged.
    pub losses: Vec<Loss>,
    /// The history of lanes, where this world has any.
    pub lanes: LaneHistory,
    /// The history of items, where this world has any.
    pub items: ItemHistory,
}

impl History {
    /// Everything that was asked: requests, lists and names.
    pub fn asked_mut(&mut self) -> impl Iterator<Item = &mut Op> {
        let lists = self.lists.iter_mut().map(|list| &mut list.op);
        let lookups = self.lookups.iter_mut().map(|lookup| &mut lookup.op);
        let audits = self.audits.iter_mut().map(|audit| &mut audit.op);
        self.ops.iter_mut().chain(lists).chain(lookups).chain(audits)
    }
}

impl Op {
    /// The full name of the fence.
    pub fn key(&self) -> String {
        key_name(&self.base, self.seq)
    }

    pub fn answer(&self) -> Option<&ObservedAnswer> {
        match &self.outcome {
            RequestOutcome::Answered(answer) => Some(answer),
            _ => None,
        }
    }
}

/// The full name of a fence: its base, and its repetition where it is one.
pub fn key_name(base: &str, seq: Option<u64>) -> String {
    seq.map_or_else(|| base.to_owned(), |seq| format!("{base}#{seq}"))
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim { body, version, lease_ms, wait_ms } => {
                write!(f, "claim lease={lease_ms} wait={wait_ms} body={}", body.as_deref().unwrap_or("-"))?;
                version.as_ref().map_or(Ok(()), |(source, version)| write!(f, " version={version} of {source}"))
            }
            Self::Seal { token, effect, receipt } => write!(f, "seal token={token} effect={effect} receipt={receipt}"),
            Self::Renew { token, lease_ms } => write!(f, "renew token={token} lease={lease_ms}"),
            Self::Release { token } => write!(f, "release token={token}"),
            Self::Resolve { token, sealed: Some((effect, receipt)) } => {
                write!(f, "resolve {token:?} sealed effect={effect} receipt={receipt}")
            }
            Self::Resolve { token, sealed: None } => write!(f, "resolve {token:?} released"),
            Self::Forget { token } => write!(f, "forget token={token}"),
            Self::Alias { name } => write!(f, "alias {name}"),
            Self::Look => write!(f, "look"),
        }
    }
}

impl fmt::Display for RequestOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(answer) => write!(f, "{answer:?}"),
            Self::NotApplied => write!(f, "not applied"),
            Self::Maybe => write!(f, "unknown"),
        }
    }
}
