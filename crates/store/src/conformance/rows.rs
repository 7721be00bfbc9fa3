//! Rows and write sets for the suite: small, and told apart by one number.
//! Never the same id for two different sets within one store. Called by the laws.

use bytes::Bytes;
use fencepost_kernel::{
    Millis, RowKey, Tenant, Write,
    audit::{AuditEntry, Subject},
    dispatch::{self, Transport, WarehouseTransport},
    fence::{self, Alias, Fence, Receipt, State, Token, Trace, VersionHead, scope::OnLapse},
    item::{
        self, Accepted, Arrival, Item, ItemId, ItemVersion, Missing, Quarantined, Replaced, Sent, StayEnd, StayOutcome,
        Waiting,
    },
    job::{self, Chunk, Job, JobId, JobProgress, JobState, LineResult, LineVerdict, Results},
    key::Kind,
    lane::{
        self, AfterDead, Cancelled, DeadLetter, DeadLetterReason, Entry, Fate, Lane, LanePurpose, ReceiverAnswer, Tail,
    },
    merge::Counter,
    row::{CommitId, Record},
};

use super::LawViolation;
use crate::{Store, Verdict, WriteSet};

/// The time at which the suite begins.
pub(super) const NOW: Millis = Millis(1_767_225_600_000);
pub(super) const DAY_MS: u64 = 24 * 3_600_000;

/// How many rows a large set has: many more than a request for single effects ever writes.
pub(super) const LARGE: u64 = 3_000;

// The number stands in the leading bits: a store may spread rows by them, and some must lie apart.
const NUMBER_SHIFT: u32 = 52;

/// An address; neighbours in number are neighbours in key order. Numbers are below 4096.
pub(super) fn key(kind: Kind, number: u64) -> RowKey {
    let mut id = [0x5a; 32];
    id[..8].copy_from_slice(&(number << NUMBER_SHIFT).to_be_bytes());
    RowKey { kind, id }
}

/// The number of an address.
pub(super) fn number(key: &RowKey) -> u64 {
    let mut leading = [0; 8];
    leading.copy_from_slice(&key.id[..8]);
    u64::from_be_bytes(leading) >> NUMBER_SHIFT
}

pub(super) fn fence_key(number: u64) -> RowKey {
    key(Kind::Fence, number)
}

/// A record of any kind that never expires, and shows `value` when read.
pub(super) fn record(kind: Kind, value: u64) -> Record {
    match kind {
        Kind::Fence => fence(
            value,
            State::Pending {
                lease_expires: NOW,
                on_lapse: OnLapse::Recover,
                forget_at: None,
                doubted_at: None,
                held_by: None,
            },
        ),
        Kind::VersionHead => Record::Fence(fence::Record::VersionHead(VersionHead {
            version: fencepost_kernel::Version::Integer(value.into()),
        })),
        Kind::AgainHead => Record::Fence(fence::Record::AgainHead(fencepost_kernel::fence::AgainHead {
            last: value,
            sealed: false,
            expires: None,
        })),
        Kind::Alias => Record::Fence(fence::Record::Alias(
            Alias {
                tenant: Tenant::new("acme"),
                name: value.to_string(),
                scope: "BOOKING".to_owned(),
                target: fencepost_kernel::FenceKey([7; 32]),
                receipt: receipt(value),
                at: NOW,
            }
            .into(),
        )),
        Kind::Trace => Record::Fence(fence::Record::Trace(Trace { replays: value, ..Trace::default() }.into())),
        Kind::Tail => Record::Lane(lane::Record::Tail(Tail { last: value })),
        Kind::Entry => Record::Lane(lane::Record::Entry(entry(value).into())),
        Kind::Cancelled => {
            Record::Lane(lane::Record::Cancelled(Cancelled { by: value.to_string(), expires: Millis(u64::MAX) }))
        }
        Kind::LaneNotice => Record::Lane(lane::Record::LaneNotice),
        Kind::Counter => Record::Counter(Counter { value: value.into(), due: None }),
        Kind::Audit => Record::from(AuditEntry {
            at: NOW,
            by: "ann".to_owned(),
            op: "forget".to_owned(),
            outcome: "forgotten".to_owned(),
            subject: Subject {
                tenant: Some(Tenant::new("acme")),
                on: value.to_string(),
                why: Some("asked".to_owned()),
            },
            trace: None,
            expires: Millis(u64::MAX),
        }),
        Kind::Lane => {
            let place = LanePurpose::warehouse(&value.to_string());
            Record::Lane(lane::Record::Lane(Lane::new(Tenant::new("acme"), place).into()))
        }
        Kind::Transport => Record::Dispatch(dispatch::Record::Transport(
            WarehouseTransport {
                planner: Tenant::new("acme"),
                warehouse: value.to_string(),
                executor: "dock".to_owned(),
                transport: Transport::Poll,
                after_dead: AfterDead::Continue,
                receiver_retain_ms: 7 * DAY_MS,
                at: NOW,
            }
            .into(),
        )),
        Kind::DeadLetter => Record::Lane(lane::Record::DeadLetter(letter(value, Fate::Waiting).into())),
        Kind::Item => {
            let item = Item::new(Tenant::new("acme"), "articles".into(), value.to_string());
            item::Record::Item(Item { current: Some(accepted(value)), seq: 1, ..item }.into()).into()
        }
        Kind::ItemVersion => item::Record::Replaced(
            Replaced {
                tenant: Tenant::new("acme"),
                collection: "articles".into(),
                source_id: value.to_string(),
                accepted: accepted(value),
                replaced_at: NOW,
            }
            .into(),
        )
        .into(),
        Kind::Quarantine => {
            let resolved = StayEnd { how: StayOutcome::Released, from: sent(), expires: Millis(u64::MAX) };
            quarantined(value, NOW, Some(resolved))
        }
        Kind::Waiting => {
            let (tenant, missing) = (Tenant::new("acme"), ItemId([0x11; ItemId::LEN]));
            let item = ItemId::new(&tenant, "articles", &value.to_string());
            item::Record::Waiting(Waiting { tenant, missing, item }.into()).into()
        }
        // Every arrival is due at some time.
        Kind::Arrival => arrival(value, NOW.plus(DAY_MS)),
        Kind::Job => job(value, None),
        Kind::JobChunk => job::Record::Chunk(
            Chunk {
                job: JobId([7; JobId::LEN]),
                first_line: value,
                lines: 1,
                content: format!("{{\"id\":\"{value}\"}}").into(),
                expires: Millis(u64::MAX),
            }
            .into(),
        )
        .into(),
        Kind::JobResults => job::Record::Results(
            Results {
                tenant: Tenant::new("acme"),
                collection: "articles".into(),
                first_line: value,
                lines: vec![LineResult {
                    source_id: Some(value.to_string()),
                    verdict: LineVerdict::Rejected(Vec::new()),
                    item: Some(Bytes::from_static(b"{}")),
                }],
                expires: Millis(u64::MAX),
            }
            .into(),
        )
        .into(),
    }
}

fn sent() -> Sent {
    Sent { at: NOW, by: "acme-erp".into(), correlation_id: "C-1".into() }
}

fn accepted(value: u64) -> Accepted {
    let version = Some(ItemVersion::Integer(value.into()));
    Accepted { version, content: format!("{{\"id\":\"{value}\"}}").into(), from: sent(), retired: None }
}

fn quarantined(value: u64, opened: Millis, resolved: Option<StayEnd>) -> Record {
    let quarantined = Quarantined {
        tenant: Tenant::new("acme"),
        collection: "articles".into(),
        source_id: value.to_string(),
        number: NOW.0,
        version: None,
        content: format!("{{\"id\":\"{value}\"}}").into(),
        from: sent(),
        opened,
        unresolved: vec![Missing { collection: "units".into(), source_id: "EA".to_owned(), reason: "UNKNOWN".into() }],
        resolved,
    };
    item::Record::Quarantined(quarantined.into()).into()
}

fn job(value: u64, due: Option<Millis>) -> Record {
    let job = Job {
        id: JobId([7; JobId::LEN]),
        tenant: Tenant::new("acme"),
        by: "acme-erp".into(),
        correlation_id: "C-1".into(),
        collection: "articles".into(),
        dry_run: false,
        state: JobState::Running,
        chunks: 2,
        first_chunk: 1,
        lines: value,
        bytes: 300,
        progress: JobProgress { accepted: 1, ..JobProgress::default() },
        created: NOW,
        ended: None,
        due,
        expires: None,
    };
    job::Record::Job(job.into()).into()
}

fn arrival(value: u64, at: Millis) -> Record {
    let (tenant, source_id) = (Tenant::new("acme"), value.to_string());
    item::Record::Arrival(Arrival { tenant, collection: "articles".into(), source_id, at }.into()).into()
}

/// An event that shows `value`.
pub(super) fn entry(value: u64) -> Entry {
    Entry {
        correlation_id: value.to_string(),
        kind: "SHIPPER_RELEASED".to_owned(),
        subject: "W1".to_owned(),
        body: format!("body {value}").into(),
        published: NOW,
        redrive_of: None,
    }
}

/// A dead letter of that event.
pub(super) fn letter(value: u64, fate: Fate) -> DeadLetter {
    DeadLetter {
        tenant: Tenant::new("acme"),
        purpose: LanePurpose::warehouse("W1"),
        entry: entry(value).into(),
        reason: DeadLetterReason::Horizon,
        attempts: 9,
        first_at: NOW,
        at: NOW,
        answer: ReceiverAnswer::new(Some(503), "busy"),
        cancelled_by: None,
        fate,
        blocks: false,
    }
}

/// A fence in a given state.
pub(super) fn fence(value: u64, state: State) -> Record {
    Record::from(Fence {
        tenant: Tenant::new("acme"),
        scope: "BOOKING".into(),
        fields: vec![("id".to_owned(), value.to_string())].into(),
        seq: None,
        first_seen: NOW,
        token: Token(value),
        attempt: 1,
        body: None,
        source: None,
        version: None,
        state,
        events: Vec::new(),
    })
}

pub(super) fn sealed(value: u64, expires: Millis) -> Record {
    fence(value, State::Sealed { receipt: receipt(value), at: NOW, expires })
}

/// A fence that somebody should look at.
pub(super) fn doubtful(value: u64, due: Millis) -> Record {
    fence(
        value,
        State::Pending {
            lease_expires: due,
            on_lapse: OnLapse::Hold,
            forget_at: None,
            doubted_at: None,
            held_by: None,
        },
    )
}

/// A record that somebody should look at then; none of a kind whose rows are never due.
pub(super) fn due(kind: Kind, value: u64, due: Millis) -> Option<Record> {
    match kind {
        Kind::Fence => Some(doubtful(value, due)),
        Kind::Counter => Some(Record::Counter(Counter { value: value.into(), due: Some(due) })),
        Kind::Quarantine => Some(quarantined(value, due, None)),
        Kind::Arrival => Some(arrival(value, due)),
        Kind::Job => Some(job(value, Some(due))),
        Kind::VersionHead
        | Kind::AgainHead
        | Kind::Alias
        | Kind::Trace
        | Kind::Transport
        | Kind::Lane
        | Kind::Tail
        | Kind::Entry
        | Kind::DeadLetter
        | Kind::Cancelled
        | Kind::LaneNotice
        | Kind::Audit
        | Kind::Item
        | Kind::ItemVersion
        | Kind::Waiting
        | Kind::JobChunk
        | Kind::JobResults => None,
    }
}

fn receipt(value: u64) -> Receipt {
    Receipt { effect_id: format!("E{value}"), body: format!("receipt {value}").into() }
}

pub(super) fn put(key: RowKey, expect: Option<u64>, record: Record) -> Write {
    Write { key, expect: expect.map(CommitId), put: Some(record) }
}

pub(super) fn remove(key: RowKey, expect: Option<u64>) -> Write {
    Write { key, expect: expect.map(CommitId), put: None }
}

pub(super) fn set(id: u64, writes: impl Into<Vec<Write>>) -> WriteSet {
    WriteSet::new(CommitId(id), writes.into())
}

/// A set of `LARGE` items and a fence, each read at `expect`.
pub(super) fn large(id: u64, expect: Option<u64>) -> WriteSet {
    let items = (0..LARGE).map(|number| key(Kind::Item, number));
    let writes = items.chain([fence_key(1)]).map(|key| put(key, expect, record(key.kind, id)));
    set(id, writes.collect::<Vec<_>>())
}

/// Commits one set; row by row where the store takes no more at once.
pub(super) async fn commit(store: &dyn Store, set: WriteSet) -> Result<Verdict, LawViolation> {
    if store.promises().many_rows || set.writes.len() < 2 {
        return commit_whole(store, set).await;
    }
    for write in set.writes {
        if commit_whole(store, WriteSet::new(set.id, vec![write])).await? == Verdict::Moved {
            return Ok(Verdict::Moved);
        }
    }
    Ok(Verdict::Applied)
}

async fn commit_whole(store: &dyn Store, set: WriteSet) -> Result<Verdict, LawViolation> {
    let verdicts = store.commit(&[set], NOW).await?;
    match verdicts.as_slice() {
        [verdict] => Ok(verdict.clone()),
        _ => Err(LawViolation(format!("one set was committed and {} verdicts came back", verdicts.len()))),
    }
}

/// Revision and record under a key.
pub(super) async fn read(store: &dyn Store, key: RowKey) -> Result<Option<(u64, Record)>, LawViolation> {
    let mut rows = store.load(&[key]).await?;
    match (rows.pop(), rows.pop()) {
        (Some(row), None) => Ok(row.map(|row| (row.revision.0, row.record.clone()))),
        _ => Err(LawViolation("one key was loaded and not one row came back".to_owned())),
    }
}
