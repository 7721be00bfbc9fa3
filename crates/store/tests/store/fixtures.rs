//! Rows that earlier releases wrote are read for ever: their bytes are kept here, one line each.

use bytes::Bytes;
use fencepost_kernel::{
    FenceKey, Millis, Row, RowKey, Tenant, Version,
    audit::{AuditEntry, Subject},
    dispatch::{self, Transport, WarehouseTransport, Webhook},
    fence::{
        self, AgainHead, Alias, Fence, FenceEvent, HolderTrace, Receipt, Sighting, Source, State, Token, Trace,
        VersionHead, What, body::Body, scope::OnLapse,
    },
    item::{
        self, Accepted, Arrival, Item, ItemFault, ItemId, ItemVersion, Missing, Quarantined, Replaced, Retired,
        Retirement, Sent, StayEnd, StayOutcome, Waiting,
    },
    job::{self, Chunk, Job, JobFailure, JobId, JobProgress, JobState, LineResult, LineVerdict, Results},
    key::Kind,
    lane::{
        self, AfterDead, Cancelled, DeadLetter, DeadLetterReason, Entry, Fate, Lane, LaneId, LanePurpose, Owner, Pause,
        ReceiverAnswer, Tail, Trouble,
    },
    merge::Counter,
    row::{CommitId, Record},
};
use fencepost_store::codec;

const ROWS_V1: &str = include_str!("../fixtures/rows-v1.txt");
const ROWS_V2: &str = include_str!("../fixtures/rows-v2.txt");
const ROWS_V3: &str = include_str!("../fixtures/rows-v3.txt");
const ROWS_V4: &str = include_str!("../fixtures/rows-v4.txt");
const ROWS_V5: &str = include_str!("../fixtures/rows-v5.txt");
const ROWS_V6: &str = include_str!("../fixtures/rows-v6.txt");
const ROWS_V7: &str = include_str!("../fixtures/rows-v7.txt");
const COUNTERS_V4: &str = include_str!("../fixtures/counters-v4.txt");
const LANES_V2: &str = include_str!("../fixtures/lanes-v2.txt");

#[test]
fn rows_of_format_1_read_as_they_were_written() {
    check(ROWS_V1, rows_v1());
}

#[test]
fn rows_of_format_2_read_as_they_were_written() {
    check(ROWS_V2, rows_v2());
}

#[test]
fn rows_of_format_3_read_as_they_were_written() {
    check(ROWS_V3, rows_v3());
}

#[test]
fn rows_of_format_4_read_as_they_were_written() {
    check(ROWS_V4, rows_v4());
}

#[test]
fn rows_of_format_5_read_as_they_were_written() {
    check(ROWS_V5, rows_v5());
}

#[test]
fn rows_of_format_6_read_as_they_were_written() {
    check(ROWS_V6, rows_v6());
}

#[test]
fn rows_of_format_7_read_as_they_were_written() {
    check(ROWS_V7, rows_v7());
}

#[test]
fn rows_of_lanes_read_as_they_were_first_written() {
    check(LANES_V2, lanes_v2());
}

#[test]
fn counters_read_as_they_were_first_written() {
    check(COUNTERS_V4, counters_v4());
}

fn check(stored: &str, written: Vec<(RowKey, Row)>) {
    let stored: Vec<_> = stored.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(stored.len(), written.len());
    for (line, (key, row)) in stored.into_iter().zip(written) {
        let bytes = Bytes::from(unhex(line));
        assert_eq!(codec::decode(&key, &bytes), Ok(row), "{line}");
    }
}

// The rows that the file was written from. A new format gets a file and a list of its own; these never change.
fn rows_v1() -> Vec<(RowKey, Row)> {
    let at = |offset: u64| Millis(1_767_225_600_000 + offset);
    let fence = Fence {
        tenant: Tenant::new("nexa"),
        scope: "BOOKING".into(),
        fields: vec![("booking_id".to_owned(), "B-17".to_owned()), ("leg".to_owned(), "ü".to_owned())].into(),
        seq: None,
        first_seen: at(0),
        token: Token(at(0).0),
        attempt: 1,
        body: None,
        source: None,
        version: None,
        state: State::Pending {
            lease_expires: at(30_000),
            on_lapse: OnLapse::Hold,
            forget_at: None,
            doubted_at: None,
            held_by: None,
        },
        events: Vec::new(),
    };
    let receipt = Receipt { effect_id: "E-1".to_owned(), body: Bytes::from_static(b"{\"ok\":true}\n\x00\xff") };
    let long: String = (0..60).map(|n| format!("{{\"line\":{n},\"unit\":\"EA\"}},")).collect();
    let head = RowKey { kind: Kind::VersionHead, id: [9; 32] };
    let events = vec![
        FenceEvent { at: at(1), token: Token(1), what: What::Released },
        FenceEvent { at: at(2), token: Token(2), what: What::Retried },
        FenceEvent { at: at(3), token: Token(3), what: What::Recovered },
        FenceEvent { at: at(4), token: Token(4), what: What::SealedLate },
        FenceEvent { at: at(5), token: Token(5), what: What::SealRefused },
        FenceEvent {
            at: at(6),
            token: Token(6),
            what: What::Resolved { by: "ann".to_owned(), why: "asked the bank".to_owned(), sealed: true },
        },
        FenceEvent {
            at: at(7),
            token: Token(7),
            what: What::Resolved { by: "bob".to_owned(), why: String::new(), sealed: false },
        },
    ];
    let records = vec![
        Record::from(fence.clone()),
        Record::from(Fence {
            state: State::Pending {
                lease_expires: at(1),
                on_lapse: OnLapse::Recover,
                forget_at: Some(at(9)),
                doubted_at: None,
                held_by: None,
            },
            body: Some(Body { digest: [3; 32], size: 2, kept: Some(Bytes::from_static(b"{}")) }),
            ..fence.clone()
        }),
        Record::from(Fence {
            state: State::Sealed { receipt: receipt.clone(), at: at(7), expires: at(604_800_007) },
            body: Some(Body { digest: [4; 32], size: 9_999, kept: Some(long.into()) }),
            seq: Some(3),
            source: Some(Source { kind: "order".to_owned(), id: "42".to_owned() }),
            version: Some((Version::Integer(-(1 << 70)), head)),
            ..fence.clone()
        }),
        Record::from(Fence {
            state: State::Released { at: at(8), expires: at(9) },
            body: Some(Body { digest: [5; 32], size: 1 << 40, kept: None }),
            version: Some((Version::Text("2026-01-01".to_owned()), head)),
            token: Token(u64::MAX),
            attempt: u32::MAX,
            events,
            ..fence
        }),
        Record::Fence(fence::Record::VersionHead(VersionHead { version: Version::Integer(17) })),
        Record::Fence(fence::Record::VersionHead(VersionHead { version: Version::Text("1.2.3".to_owned()) })),
        Record::Fence(fence::Record::AgainHead(AgainHead { last: 2, sealed: false, expires: None })),
        Record::Fence(fence::Record::AgainHead(AgainHead { last: 3, sealed: true, expires: Some(at(5)) })),
        Record::Fence(fence::Record::Alias(
            Alias {
                tenant: Tenant::new("nexa"),
                name: "latest".to_owned(),
                scope: "REPORT".to_owned(),
                target: FenceKey([6; 32]),
                receipt,
                at: at(10),
            }
            .into(),
        )),
        Record::Fence(fence::Record::Trace(Trace::default().into())),
        Record::Fence(fence::Record::Trace(
            Trace {
                first_seen: at(0),
                replays: 300,
                conflicts: 1,
                body_mismatches: 0,
                recent: vec![
                    (at(1), Sighting::Duplicate),
                    (at(2), Sighting::Conflict),
                    (at(3), Sighting::InFlight),
                    (at(4), Sighting::Stale),
                    (at(5), Sighting::InDoubt),
                ],
                expires: Some(at(604_800_000)),
            }
            .into(),
        )),
    ];
    addressed(records)
}

// Format 2 differs from format 1 in its receipts: short, packed, and long but not worth packing.
fn rows_v2() -> Vec<(RowKey, Row)> {
    let at = |offset: u64| Millis(1_767_225_600_000 + offset);
    let lines: String = (0..60).map(|n| format!("{{\"line\":{n},\"unit\":\"EA\"}},")).collect();
    // A full-period generator: nothing in it repeats within 300 bytes.
    let noise: Vec<u8> = (0..300u32)
        .scan(7u32, |seed, _| {
            *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some((*seed >> 24) as u8)
        })
        .collect();
    let bodies = [Bytes::from_static(b"{}"), lines.into(), noise.into()];
    let receipts = bodies.map(|body| Receipt { effect_id: "E-1".to_owned(), body });
    let fence = |receipt: &Receipt| {
        Record::from(Fence {
            tenant: Tenant::new("nexa"),
            scope: "BOOKING".into(),
            fields: vec![("booking_id".to_owned(), "B-17".to_owned())].into(),
            seq: None,
            first_seen: at(0),
            token: Token(at(0).0),
            attempt: 1,
            body: None,
            source: None,
            version: None,
            state: State::Sealed { receipt: receipt.clone(), at: at(7), expires: at(604_800_007) },
            events: Vec::new(),
        })
    };
    let alias = |receipt: &Receipt| {
        let (tenant, name, scope) = (Tenant::new("nexa"), "latest".to_owned(), "REPORT".to_owned());
        Record::Fence(fence::Record::Alias(
            Alias { tenant, name, scope, target: FenceKey([6; 32]), receipt: receipt.clone(), at: at(10) }.into(),
        ))
    };
    addressed(receipts.iter().map(fence).chain(receipts.iter().map(alias)).collect())
}

// Format 3 differs from format 2 in that a pending fence may say when somebody was first told of its doubt.
fn rows_v3() -> Vec<(RowKey, Row)> {
    let at = |offset: u64| Millis(1_767_225_600_000 + offset);
    let fence = |state: State| {
        Record::from(Fence {
            tenant: Tenant::new("nexa"),
            scope: "CHARGE".into(),
            fields: vec![("charge_id".to_owned(), "C-17".to_owned())].into(),
            seq: None,
            first_seen: at(0),
            token: Token(at(0).0),
            attempt: 1,
            body: Some(Body { digest: [3; 32], size: 2, kept: Some(Bytes::from_static(b"{}")) }),
            source: None,
            version: None,
            state,
            events: vec![FenceEvent { at: at(4), token: Token(4), what: What::SealRefused }],
        })
    };
    let hold = |doubted_at| {
        fence(State::Pending {
            lease_expires: at(30_000),
            on_lapse: OnLapse::Hold,
            forget_at: None,
            doubted_at,
            held_by: None,
        })
    };
    let recover = State::Pending {
        lease_expires: at(30_000),
        on_lapse: OnLapse::Recover,
        forget_at: Some(at(604_830_000)),
        doubted_at: None,
        held_by: None,
    };
    let receipt = Receipt { effect_id: "E-1".to_owned(), body: Bytes::from_static(b"{}") };
    let sealed = State::Sealed { receipt, at: at(7), expires: at(604_800_007) };
    addressed(vec![hold(None), hold(Some(at(30_000))), hold(Some(at(90_000_000))), fence(recover), fence(sealed)])
}

// Format 4 differs from format 3 in that a trace counts duplicates with another body, and a pending fence may say which trace
// its holder's request has.
fn rows_v4() -> Vec<(RowKey, Row)> {
    let at = |offset: u64| Millis(1_767_225_600_000 + offset);
    let counted = Trace {
        first_seen: at(0),
        replays: 300,
        conflicts: 1,
        body_mismatches: 299,
        recent: vec![(at(1), Sighting::Duplicate), (at(2), Sighting::OtherBody)],
        expires: Some(at(604_800_000)),
    };
    let trace =
        HolderTrace([0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36]);
    let pending = |doubted_at, held_by| {
        Record::from(Fence {
            tenant: Tenant::new("nexa"),
            scope: "CHARGE".into(),
            fields: vec![("charge_id".to_owned(), "C-17".to_owned())].into(),
            seq: Some(2),
            first_seen: at(0),
            token: Token(at(0).0),
            attempt: 1,
            body: Some(Body { digest: [3; 32], size: 2, kept: Some(Bytes::from_static(b"{}")) }),
            source: Some(Source { kind: "order".to_owned(), id: "42".to_owned() }),
            version: Some((Version::Integer(7), RowKey { kind: Kind::VersionHead, id: [9; 32] })),
            state: State::Pending {
                lease_expires: at(30_000),
                on_lapse: OnLapse::Hold,
                forget_at: None,
                doubted_at,
                held_by,
            },
            events: vec![FenceEvent { at: at(4), token: Token(4), what: What::SealRefused }],
        })
    };
    addressed(vec![
        Record::Fence(fence::Record::Trace(Trace::default().into())),
        Record::Fence(fence::Record::Trace(counted.into())),
        pending(None, None),
        pending(None, Some(trace)),
        pending(Some(at(40_000)), Some(trace)),
    ])
}

fn rows_v5() -> Vec<(RowKey, Row)> {
    let at = |offset: u64| Millis(1_767_225_600_000 + offset);
    let forgotten = |sealed| What::Forgotten { by: "ann".to_owned(), why: "the parcel was lost".to_owned(), sealed };
    let fence = Fence {
        tenant: Tenant::new("nexa"),
        scope: "BOOKING".into(),
        fields: vec![("booking_id".to_owned(), "B-17".to_owned())].into(),
        seq: None,
        first_seen: at(0),
        token: Token(at(0).0),
        attempt: 2,
        body: None,
        source: None,
        version: None,
        state: State::Released { at: at(9), expires: at(604_800_000) },
        events: vec![
            FenceEvent { at: at(7), token: Token(at(0).0), what: forgotten(Some(at(6))) },
            FenceEvent { at: at(9), token: Token(at(0).0), what: forgotten(None) },
        ],
    };
    let entry = AuditEntry {
        at: at(9),
        by: "ann".to_owned(),
        op: "forget".to_owned(),
        outcome: "forgotten".to_owned(),
        subject: Subject {
            tenant: Some(Tenant::new("nexa")),
            on: "BOOKING/896a".to_owned(),
            why: Some("sp\u{e4}ter".to_owned()),
        },
        trace: Some(HolderTrace([0x4b; 16])),
        expires: at(220_838_400_000),
    };
    let bare = AuditEntry {
        subject: Subject { on: "policy.yml".to_owned(), ..Subject::default() },
        trace: None,
        ..entry.clone()
    };
    addressed(vec![fence.into(), entry.into(), bare.into()])
}

// Format 6 brought items.
fn rows_v6() -> Vec<(RowKey, Row)> {
    let at = |offset: u64| Millis(1_767_225_600_000 + offset);
    let (tenant, collection) = (Tenant::new("nexa"), || "articles".into());
    let sent = |offset, by: &str| Sent { at: at(offset), by: by.into(), correlation_id: "C-1".into() };
    let accepted = Accepted {
        version: Some(ItemVersion::Integer(7)),
        content: Bytes::from_static(b"{\"id\":\"sp\\u00e4t\",\"n\":1e999999}"),
        from: sent(0, "erp"),
        retired: None,
    };
    let lines = "{\"line\":1,\"unit\":\"EA\"},".repeat(60);
    let retired = |cause| Some(Retired { cause, from: sent(9, "bob") });
    let dotted = Accepted { version: ItemVersion::dotted("v1.10.0-rc.2"), content: lines.into(), ..accepted.clone() };
    let cancelled = Accepted { version: None, retired: retired(Retirement::Cancelled), ..accepted.clone() };
    let time = Accepted {
        version: ItemVersion::time("2026-05-24"),
        retired: retired(Retirement::Unlisted),
        ..accepted.clone()
    };
    let wide = Accepted {
        version: Some(ItemVersion::Integer(-(1 << 70))),
        retired: retired(Retirement::Deleted),
        ..accepted.clone()
    };
    let wanted = Item { wanted: true, ..Item::new(tenant.clone(), collection(), "A-1".to_owned()) };
    let item = |current| Item { current: Some(current), seq: 300, wanted: false, ..wanted.clone() };
    let without =
        Item { floor: Some(ItemVersion::Text("b-17".to_owned())), quarantine: Some(at(3).0), ..item(cancelled) };
    let replaced = Replaced {
        tenant: tenant.clone(),
        collection: collection(),
        source_id: "A-1".to_owned(),
        accepted: time,
        replaced_at: at(10),
    };
    let missing =
        Missing { collection: "units".into(), source_id: "sp\u{e4}ter".to_owned(), reason: "UNKNOWN_UNIT".into() };
    let open = Quarantined {
        tenant: tenant.clone(),
        collection: collection(),
        source_id: "A-2".to_owned(),
        number: at(4).0,
        version: ItemVersion::time("2026-05-24T10:00:00+02:00"),
        content: accepted.content.clone(),
        from: sent(5, "erp"),
        opened: at(4),
        unresolved: vec![missing.clone(), missing],
        resolved: None,
    };
    let ended = |how| Quarantined {
        version: None,
        unresolved: Vec::new(),
        resolved: Some(StayEnd { how, from: sent(11, "bob"), expires: at(604_800_011) }),
        ..open.clone()
    };
    let mut records = vec![
        item::Record::Item(wanted.clone().into()),
        item::Record::Item(item(accepted).into()),
        item::Record::Item(item(dotted).into()),
        item::Record::Item(without.into()),
        item::Record::Replaced(replaced.clone().into()),
        item::Record::Replaced(Replaced { accepted: wide, ..replaced }.into()),
        item::Record::Quarantined(open.clone().into()),
    ];
    let ends = [StayOutcome::Accepted, StayOutcome::Released, StayOutcome::Withdrawn];
    records.extend(ends.map(|how| item::Record::Quarantined(ended(how).into())));
    let (missing, waits) = (ItemId([8; ItemId::LEN]), open.id().item);
    records.push(item::Record::Waiting(Waiting { tenant: tenant.clone(), missing, item: waits }.into()));
    let arrival = Arrival { tenant, collection: collection(), source_id: "A-2".to_owned(), at: at(12) };
    records.push(item::Record::Arrival(arrival.into()));
    addressed(records.into_iter().map(Record::from).collect())
}

// Format 7 brought jobs.
fn rows_v7() -> Vec<(RowKey, Row)> {
    let at = |offset: u64| Millis(1_767_225_600_000 + offset);
    let queued = Job {
        id: JobId([0x2b; JobId::LEN]),
        tenant: Tenant::new("nexa"),
        by: "erp".into(),
        correlation_id: "C-1".into(),
        collection: "articles".into(),
        dry_run: false,
        state: JobState::Queued,
        chunks: 3,
        first_chunk: 0,
        lines: 2_500,
        bytes: 750_000,
        progress: JobProgress::default(),
        created: at(0),
        ended: None,
        due: Some(at(5)),
        expires: None,
    };
    let failure = JobFailure { code: "unknown-collection".to_owned(), message: "sp\u{e4}ter".to_owned() };
    let failed = Job {
        dry_run: true,
        state: JobState::Failed(failure),
        first_chunk: 2,
        progress: JobProgress { accepted: 900, replay: 200, quarantined: 3, rejected: 1 },
        ended: Some(at(60_000)),
        due: None,
        expires: Some(at(604_860_000)),
        ..queued.clone()
    };
    let states = [JobState::Uploading, JobState::Running, JobState::Completed, JobState::Cancelled];
    let content = "{\"id\":\"A-1\",\"unit\":\"EA\"}".repeat(60);
    let chunk = Chunk { job: queued.id, first_line: 900, lines: 60, content: content.into(), expires: at(9) };
    let short = Chunk { content: Bytes::from_static(b"{}"), lines: 1, ..chunk.clone() };
    let missing = Missing { collection: "units".into(), source_id: "EA".to_owned(), reason: "UNKNOWN_UNIT".into() };
    let fault = ItemFault { pointer: "/unit".to_owned(), message: "is required".to_owned() };
    let named = |verdict| LineResult { source_id: Some("A-1".to_owned()), verdict, item: None };
    let lines = vec![
        named(LineVerdict::Accepted { reactivated: false }),
        named(LineVerdict::Accepted { reactivated: true }),
        named(LineVerdict::Replay { differs: false }),
        named(LineVerdict::Replay { differs: true }),
        LineResult {
            item: Some(Bytes::from_static(b"{\"id\":\"A-1\"}")),
            ..named(LineVerdict::Quarantined { number: at(4).0, unresolved: vec![missing] })
        },
        LineResult {
            source_id: None,
            verdict: LineVerdict::Rejected(vec![fault]),
            item: Some(Bytes::from_static(b"no JSON")),
        },
    ];
    let (tenant, collection) = (queued.tenant.clone(), queued.collection.clone());
    let results = Results { tenant, collection, first_line: 900, lines, expires: at(604_860_000) };
    let mut records = vec![job::Record::Job(queued.clone().into()), job::Record::Job(failed.into())];
    records.extend(states.map(|state| job::Record::Job(Job { state, ..queued.clone() }.into())));
    records.extend([chunk, short].map(|chunk| job::Record::Chunk(chunk.into())));
    records.push(job::Record::Results(results.into()));
    addressed(records.into_iter().map(Record::from).collect())
}

// Lanes came with format 2; their rows are the same in format 1.
fn counters_v4() -> Vec<(RowKey, Row)> {
    let due = Some(Millis(1_767_225_600_000));
    let counters = [(0, None), (12_500_000_000, due), (-1, None), (i128::MAX, due), (i128::MIN, None)];
    addressed(counters.map(|(value, due)| Record::Counter(Counter { value, due })).into())
}

fn lanes_v2() -> Vec<(RowKey, Row)> {
    let at = |offset: u64| Millis(1_767_225_600_000 + offset);
    let planner = Tenant::new("nexa");
    let answer = ReceiverAnswer { status: Some(503), note: "später".to_owned() };
    let webhook = Webhook {
        url: "https://dock.example/in".to_owned(),
        secrets: vec![Bytes::from_static(b"new\x00\xff"), Bytes::from_static(b"old")],
        standard: true,
    };
    let route = |transport, after_dead| {
        let (warehouse, executor) = ("frn:wh:1".to_owned(), "dock".to_owned());
        let planner = planner.clone();
        Record::Dispatch(dispatch::Record::Transport(
            WarehouseTransport {
                planner,
                warehouse,
                executor,
                transport,
                after_dead,
                receiver_retain_ms: 604_800_000,
                at: at(1),
            }
            .into(),
        ))
    };
    let trouble = Trouble { attempts: 3, first_at: at(2), last_at: at(3), next_at: at(4), answer: answer.clone() };
    let lane = Lane::new(planner.clone(), LanePurpose::executor("dock"));
    let troubled = Lane {
        purpose: LanePurpose::warehouse("frn:wh:1"),
        owner: Owner { node: "node-1".to_owned(), epoch: 7 },
        settled: 300,
        trimmed: 299,
        trouble: Some(trouble),
        paused: Some(Pause { at: at(5), by: "ann".to_owned(), why: "stocktaking".to_owned() }),
        blocked: true,
        ..lane.clone()
    };
    let entry = Entry {
        correlation_id: "C-1".to_owned(),
        kind: "SHIPPER_RELEASED".to_owned(),
        subject: "frn:wh:1".to_owned(),
        body: Bytes::from_static(b"{\"n\":1.0}\n\x00\xff"),
        published: at(6),
        redrive_of: None,
    };
    let again = Entry { redrive_of: Some((LaneId([8; 24]), u64::MAX)), ..entry.clone() };
    let letter = DeadLetter {
        tenant: planner.clone(),
        purpose: troubled.purpose.clone(),
        entry: entry.clone().into(),
        reason: DeadLetterReason::Horizon,
        attempts: 17,
        first_at: at(7),
        at: at(8),
        answer,
        cancelled_by: None,
        fate: Fate::Waiting,
        blocks: true,
    };
    let (by, why) = ("bob".to_owned(), "they asked".to_owned());
    let decided = |reason, fate| DeadLetter { reason, fate, blocks: false, ..letter.clone() };
    let forced = Fate::Redriven { at: at(9), by: by.clone(), why: Some(why.clone()), seq: 301 };
    let redriven = Fate::Redriven { at: at(9), by: by.clone(), why: None, seq: 0 };
    let cancelled = DeadLetter {
        answer: ReceiverAnswer::default(),
        cancelled_by: Some("C-2".to_owned()),
        ..decided(DeadLetterReason::Skipped, Fate::Discarded { at: at(10), by, why })
    };
    let letters = [
        letter.clone(),
        decided(DeadLetterReason::TooLarge, forced),
        decided(DeadLetterReason::Horizon, redriven),
        cancelled,
    ];
    let mut records = vec![
        route(Transport::Webhook(webhook), AfterDead::Block),
        route(Transport::Kafka { topic: "orders".to_owned() }, AfterDead::Continue),
        route(Transport::Poll, AfterDead::Continue),
        Record::Lane(lane::Record::Lane(lane.into())),
        Record::Lane(lane::Record::Lane(troubled.into())),
        Record::Lane(lane::Record::Tail(Tail { last: 0 })),
        Record::Lane(lane::Record::Tail(Tail { last: u64::MAX })),
        Record::Lane(lane::Record::Entry(entry.into())),
        Record::Lane(lane::Record::Entry(again.into())),
    ];
    records.extend(letters.map(|letter| Record::Lane(lane::Record::DeadLetter(letter.into()))));
    records.push(Record::Lane(lane::Record::Cancelled(Cancelled { by: "C-2".to_owned(), expires: at(11) })));
    records.push(Record::Lane(lane::Record::LaneNotice));
    addressed(records)
}

fn addressed(records: Vec<Record>) -> Vec<(RowKey, Row)> {
    let addressed = |(number, record): (u64, Record)| {
        let kind = match &record {
            Record::Fence(fence::Record::Fence(_)) => Kind::Fence,
            Record::Fence(fence::Record::VersionHead(_)) => Kind::VersionHead,
            Record::Fence(fence::Record::AgainHead(_)) => Kind::AgainHead,
            Record::Fence(fence::Record::Alias(_)) => Kind::Alias,
            Record::Fence(fence::Record::Trace(_)) => Kind::Trace,
            Record::Dispatch(dispatch::Record::Transport(_)) => Kind::Transport,
            Record::Lane(lane::Record::Lane(_)) => Kind::Lane,
            Record::Lane(lane::Record::Tail(_)) => Kind::Tail,
            Record::Lane(lane::Record::Entry(_)) => Kind::Entry,
            Record::Lane(lane::Record::DeadLetter(_)) => Kind::DeadLetter,
            Record::Lane(lane::Record::Cancelled(_)) => Kind::Cancelled,
            Record::Lane(lane::Record::LaneNotice) => Kind::LaneNotice,
            Record::Counter(_) => Kind::Counter,
            Record::Audit(_) => Kind::Audit,
            Record::Item(item::Record::Item(_)) => Kind::Item,
            Record::Item(item::Record::Replaced(_)) => Kind::ItemVersion,
            Record::Item(item::Record::Quarantined(_)) => Kind::Quarantine,
            Record::Item(item::Record::Waiting(_)) => Kind::Waiting,
            Record::Item(item::Record::Arrival(_)) => Kind::Arrival,
            Record::Job(job::Record::Job(_)) => Kind::Job,
            Record::Job(job::Record::Chunk(_)) => Kind::JobChunk,
            Record::Job(job::Record::Results(_)) => Kind::JobResults,
        };
        (RowKey { kind, id: [number as u8; 32] }, Row { record, revision: CommitId(0x0102_0304_0506_0700 + number) })
    };
    (0..).zip(records).map(addressed).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2));
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}
