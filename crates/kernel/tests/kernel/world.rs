//! A store in a map: loads exactly a command's footprint, decides, and commits with every expectation checked.
//! Panics where a decision reads a row that it did not ask for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use fencepost_kernel::{
    Command, Decision, Millis, Reply, Row, RowKey, Rows, Scope, Tenant, Version, Write, decide,
    fence::{
        self, AgainHead, ClaimFence, DoubtOutcome, Fence, Granted, Phase, PutAlias, Release, Renew, Resolve, Seal,
        Source, Target, Token, VersionHead, body::Body, scope::OnLapse,
    },
    json,
    key::Kind,
    lane::{self, Tail},
    law::{Also, follow, footprint},
    row::{CommitId, Record},
};

pub const START: Millis = Millis(1_700_000_000_000);
pub const LEASE_MS: u64 = 30_000;
pub const RETAIN_MS: u64 = 3_600_000;

/// The rows and the time of one store.
#[derive(Clone)]
pub struct World {
    pub now: Millis,
    rows: BTreeMap<RowKey, Row>,
    commits: u64,
}

struct View<'w> {
    world: &'w World,
    loaded: BTreeSet<RowKey>,
    /// Whether more may still be asked for: then what is not loaded yet reads as absent.
    open: bool,
}

impl Rows for View<'_> {
    fn row(&self, key: &RowKey) -> Option<&Row> {
        let loaded = self.loaded.contains(key);
        // A history row of a number that is new, or the arrival of an item that nothing waited for: it need not be loaded, because
        // it cannot be there.
        let fresh = matches!(key.kind, Kind::ItemVersion | Kind::Arrival) && !self.world.rows.contains_key(key);
        assert!(loaded || self.open || fresh, "{key:?} was read but is not in the footprint");
        self.world.rows.get(key).filter(|_| loaded)
    }
}

impl World {
    pub fn new() -> Self {
        Self { now: START, rows: BTreeMap::new(), commits: 0 }
    }

    pub fn pass(&mut self, span_ms: u64) {
        self.now = self.now.plus(span_ms);
    }

    /// Decides a command and writes nothing.
    pub fn decide(&self, command: &Command) -> Decision {
        let mut loaded = BTreeSet::new();
        footprint(command, &mut |key| {
            loaded.insert(key);
        });
        let mut view = View { world: self, loaded, open: true };
        // Rows name further rows, a few times over.
        loop {
            let mut more = BTreeSet::new();
            follow(command, &view, &mut |key| {
                more.insert(key);
            });
            if more.is_subset(&view.loaded) {
                view.open = false;
                return decide(command, &view, self.now);
            }
            view.loaded.extend(more);
        }
    }

    /// All of the writes, or none where a row has moved since it was read.
    pub fn commit(&mut self, writes: &[Write]) -> bool {
        self.commit_also(writes, &Also::default()).is_some()
    }

    /// A row is not there, as for a node that reads an old server.
    pub fn lose(&mut self, key: RowKey) {
        self.rows.remove(&key);
    }

    /// Shows the writes of a decision, but not its drops, to the next decision of the same commit.
    pub fn overlay(&mut self, decision: &Decision) {
        assert!(self.commit(&decision.writes), "a decision over these rows cannot be moved");
    }

    /// The same with what stands or falls with the writes; the position that an append got, 0 where there was none.
    pub fn commit_also(&mut self, writes: &[Write], also: &Also) -> Option<u64> {
        let revision = |key: &RowKey| self.rows.get(key).map(|row| row.revision);
        self.commits += 1;
        // A row that is gone already needs no comparing before its removal.
        let compared = writes.iter().filter(|write| write.put.is_some() || revision(&write.key).is_some());
        let written = compared.map(|write| (write.key, write.expect));
        if written.chain(also.held.iter().copied()).any(|(key, expect)| revision(&key) != expect) {
            return None;
        }
        let both = also.drops.iter().find(|key| writes.iter().any(|write| write.key == **key));
        assert_eq!(both, None, "a row is written and dropped at once");
        for write in writes {
            match write.put.clone() {
                Some(record) => self.put(write.key, record),
                None => drop(self.rows.remove(&write.key)),
            }
        }
        also.drops.iter().for_each(|key| drop(self.rows.remove(key)));
        let Some(append) = also.appends().next() else { return Some(0) };
        let seq = 1 + match self.record(RowKey::tail(append.lane)) {
            Some(Record::Lane(lane::Record::Tail(tail))) => tail.last,
            _ => 0,
        };
        self.put(RowKey::tail(append.lane), Record::Lane(lane::Record::Tail(Tail { last: seq })));
        self.put(RowKey::entry(append.lane, seq), Record::Lane(lane::Record::Entry(append.entry.clone())));
        let waiting = writes.iter().find(|write| write.key == append.position_row).and_then(|write| write.put.as_ref());
        self.put(append.position_row, waiting.expect("somebody is told the position").with_position(seq));
        Some(seq)
    }

    pub fn put(&mut self, key: RowKey, record: Record) {
        self.rows.insert(key, Row { record, revision: CommitId(self.commits) });
    }

    /// Decides and commits.
    pub fn run(&mut self, command: &Command) -> Reply {
        let decision = self.decide(command);
        let seq = self.commit_also(&decision.writes, &decision.also);
        let seq = seq.expect("a decision over the present rows cannot be moved");
        if decision.also.appends().next().is_some() { decision.reply.with_position(seq) } else { decision.reply }
    }

    /// The word for the decision, after its commit.
    pub fn say(&mut self, command: &Command) -> &'static str {
        self.run(command).decision()
    }

    /// Claims and must be let in.
    pub fn granted(&mut self, command: &Command) -> Granted {
        match self.run(command) {
            Reply::Fence(fence::Reply::New(granted)) => granted,
            other => panic!("expected a new claim, got {other:?}"),
        }
    }

    /// Claims and seals, under a receipt of the given text.
    pub fn done(&mut self, command: &Command, receipt: &str) -> Token {
        let token = self.granted(command).token;
        assert_eq!(self.say(&seal(command.target().unwrap(), token, receipt)), "sealed");
        token
    }

    /// Drops every row whose time is over, as a store may.
    pub fn sweep(&mut self) {
        for key in self.rows.keys().copied().collect::<Vec<_>>() {
            self.run(&Command::Sweep(key));
        }
    }

    /// Every row, in the order of the keys.
    pub fn rows(&self) -> impl Iterator<Item = (&RowKey, &Record)> {
        self.rows.iter().map(|(key, row)| (key, &row.record))
    }

    /// The write that made a row.
    pub fn revision(&self, key: RowKey) -> Option<CommitId> {
        self.rows.get(&key).map(|row| row.revision)
    }

    pub fn record(&self, key: RowKey) -> Option<&Record> {
        self.rows.get(&key).map(|row| &row.record)
    }

    pub fn fence(&self, target: &Target) -> Option<&Fence> {
        match self.record(RowKey::fence(target.key))? {
            Record::Fence(fence::Record::Fence(fence)) => Some(fence),
            other => panic!("a fence's row holds {other:?}"),
        }
    }

    pub fn again_head(&self, target: &Target) -> Option<&AgainHead> {
        match self.record(target.again_head())? {
            Record::Fence(fence::Record::AgainHead(head)) => Some(head),
            other => panic!("an again head's row holds {other:?}"),
        }
    }

    pub fn version_heads(&self) -> Vec<&VersionHead> {
        let heads = self.rows.values().filter_map(|row| match &row.record {
            Record::Fence(fence::Record::VersionHead(head)) => Some(head),
            _ => None,
        });
        heads.collect()
    }

    /// Where a fence stands, in one word.
    pub fn phase(&self, target: &Target) -> &'static str {
        self.fence(target).map_or("absent", |fence| fence.phase(self.now).name())
    }

    /// The receipt of a sealed fence, as duplicates get it.
    pub fn receipt(&self, target: &Target) -> Option<String> {
        let reply = self.decide(&claim(target)).reply;
        let Reply::Fence(fence::Reply::Duplicate { fence, .. }) = reply else { return None };
        assert_eq!(fence.phase(self.now), Phase::Sealed);
        match &fence.state {
            fencepost_kernel::fence::State::Sealed { receipt, .. } => {
                Some(String::from_utf8(receipt.body.to_vec()).unwrap())
            }
            other => panic!("a duplicate of {other:?}"),
        }
    }
}

/// A scope with one key field and short times.
pub fn scope(on_lapse: OnLapse) -> Scope {
    Scope { retain_ms: RETAIN_MS, lease_ms: LEASE_MS, on_lapse, ..Scope::new("BOOKING", ["id"]) }
}

pub fn target_in(scope: Scope, id: &str) -> Target {
    target_of(scope, &[("id", id)], None)
}

pub fn target_of(scope: Scope, fields: &[(&str, &str)], seq: Option<u64>) -> Target {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Target::new(Tenant::new("acme"), Arc::new(scope), fields, seq).unwrap()
}

/// The fence most tests are about.
pub fn target() -> Target {
    target_in(scope(OnLapse::Recover), "1")
}

pub fn body(text: &str) -> Option<Body> {
    Some(Body::json(&json::parse(text.as_bytes()).unwrap(), &[]))
}

pub fn claim(target: &Target) -> Command {
    claim_with(target, |_| {})
}

/// A plain claim with something added.
pub fn claim_with(target: &Target, add: impl FnOnce(&mut ClaimFence)) -> Command {
    let mut claim = ClaimFence {
        target: target.clone(),
        body: None,
        version: None,
        source: None,
        lease_ms: target.scope.lease_ms,
        trace: None,
    };
    add(&mut claim);
    Command::Fence(fence::Command::Claim(claim))
}

pub fn claim_body(target: &Target, text: &str) -> Command {
    claim_with(target, |claim| claim.body = body(text))
}

pub fn claim_version(target: &Target, version: i128, source: Option<&str>) -> Command {
    claim_with(target, |claim| {
        claim.version = Some(Version::Integer(version));
        claim.source = source.map(|id| Source { kind: "order".into(), id: id.into() });
    })
}

pub fn seal(target: &Target, token: Token, receipt: &str) -> Command {
    let receipt = Bytes::copy_from_slice(receipt.as_bytes());
    Command::Fence(fence::Command::Seal(Seal { target: target.clone(), token, effect_id: "effect".into(), receipt }))
}

pub fn renew(target: &Target, token: Token) -> Command {
    Command::Fence(fence::Command::Renew(Renew { target: target.clone(), token, lease_ms: LEASE_MS }))
}

pub fn release(target: &Target, token: Token) -> Command {
    Command::Fence(fence::Command::Release(Release { target: target.clone(), token }))
}

pub fn resolve(target: &Target, outcome: DoubtOutcome) -> Command {
    Command::Fence(fence::Command::Resolve(Resolve {
        target: target.clone(),
        token: None,
        outcome,
        by: "ada".into(),
        why: "asked the bank".into(),
    }))
}

pub fn resolve_sealed(target: &Target, receipt: &str) -> Command {
    let receipt = Bytes::copy_from_slice(receipt.as_bytes());
    resolve(target, DoubtOutcome::Sealed { effect_id: "effect".into(), receipt })
}

pub fn alias(target: &Target, name: &str) -> Command {
    Command::Fence(fence::Command::PutAlias(PutAlias { name: name.into(), target: target.clone() }))
}

/// So many cases, and no file of failures beside the sources: a failing case that matters becomes a named test.
pub fn cases(count: u32) -> proptest::test_runner::Config {
    proptest::test_runner::Config { cases: count, failure_persistence: None, ..Default::default() }
}
