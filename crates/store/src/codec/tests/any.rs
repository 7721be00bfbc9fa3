//! Any rows: strategies that make every kind of record with every choice it has.
//! Called only by the tests of the codec.

mod item;
mod job;
mod lanes;

use bytes::Bytes;
use fencepost_kernel::{
    FenceKey, Millis, Row, RowKey, Tenant, Version,
    audit::{AuditEntry, Subject},
    dispatch,
    fence::{
        self, AgainHead, Alias, Fence, FenceEvent, HolderTrace, Receipt, Sighting, Source, State, Token, Trace,
        VersionHead, What, body::Body, scope::OnLapse,
    },
    item as items, job as jobs,
    key::Kind,
    lane,
    merge::Counter,
    row::{CommitId, Record},
};
use proptest::{collection::vec, option, prelude::*};

fn text() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9\u{e4}\u{4e16} -]{0,20}"
}

fn time() -> impl Strategy<Value = Millis> {
    prop_oneof![any::<u64>(), 1_700_000_000_000..1_800_000_000_000u64].prop_map(Millis)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![vec(any::<u8>(), 0..60), (any::<u8>(), 0..5_000usize).prop_map(|(byte, len)| vec![byte; len])]
        .prop_map(Bytes::from)
}

fn version() -> impl Strategy<Value = Version> {
    prop_oneof![
        any::<i128>().prop_map(Version::Integer),
        any::<i8>().prop_map(|n| Version::Integer(n.into())),
        text().prop_map(Version::Text)
    ]
}

pub(super) fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(Kind::ALL.to_vec())
}

pub(super) fn key(kind: impl Strategy<Value = Kind>) -> impl Strategy<Value = RowKey> {
    (kind, any::<[u8; 32]>()).prop_map(|(kind, id)| RowKey { kind, id })
}

fn receipt() -> impl Strategy<Value = Receipt> {
    (text(), bytes()).prop_map(|(effect_id, body)| Receipt { effect_id, body })
}

fn state() -> impl Strategy<Value = State> {
    let on_lapse = prop::sample::select(vec![OnLapse::Recover, OnLapse::Hold]);
    prop_oneof![
        (time(), on_lapse, option::of(time()), option::of(time()), option::of(any::<[u8; 16]>())).prop_map(
            |(lease_expires, on_lapse, forget_at, doubted_at, trace)| State::Pending {
                lease_expires,
                on_lapse,
                forget_at,
                doubted_at,
                held_by: trace.map(HolderTrace),
            }
        ),
        (receipt(), time(), time()).prop_map(|(receipt, at, expires)| State::Sealed { receipt, at, expires }),
        (time(), time()).prop_map(|(at, expires)| State::Released { at, expires }),
    ]
}

fn event() -> impl Strategy<Value = FenceEvent> {
    let what = prop_oneof![
        Just(What::Released),
        Just(What::Retried),
        Just(What::Recovered),
        Just(What::SealedLate),
        Just(What::SealRefused),
        (text(), text(), any::<bool>()).prop_map(|(by, why, sealed)| What::Resolved { by, why, sealed }),
        (text(), text(), option::of(time())).prop_map(|(by, why, sealed)| What::Forgotten { by, why, sealed }),
    ];
    (time(), any::<u64>(), what).prop_map(|(at, token, what)| FenceEvent { at, token: Token(token), what })
}

fn fence() -> impl Strategy<Value = Record> {
    let body = (any::<[u8; 32]>(), any::<u64>(), option::of(bytes())).prop_map(|(digest, size, kept)| Body {
        digest,
        size,
        kept,
    });
    let source = (text(), text()).prop_map(|(kind, id)| Source { kind, id });
    let names = (text(), text(), vec((text(), text()), 0..4), option::of(any::<u64>()));
    let times = (time(), any::<u64>(), any::<u32>(), state());
    let rest = (option::of(body), option::of(source), option::of((version(), key(kind()))), vec(event(), 0..5));
    (names, times, rest).prop_map(|(names, times, rest)| {
        let (tenant, scope, fields, seq) = names;
        let (first_seen, token, attempt, state) = times;
        let (body, source, version, events) = rest;
        let (tenant, token) = (Tenant::new(tenant), Token(token));
        Record::from(Fence {
            tenant,
            scope: scope.into(),
            fields: fields.into(),
            seq,
            first_seen,
            token,
            attempt,
            body,
            source,
            version,
            state,
            events,
        })
    })
}

fn trace() -> impl Strategy<Value = Record> {
    let sighting = prop::sample::select(vec![
        Sighting::Duplicate,
        Sighting::Conflict,
        Sighting::InFlight,
        Sighting::Stale,
        Sighting::InDoubt,
        Sighting::OtherBody,
    ]);
    (time(), any::<[u64; 3]>(), vec((time(), sighting), 0..16), option::of(time())).prop_map(
        |(first_seen, [replays, conflicts, body_mismatches], recent, expires)| {
            Record::Fence(fence::Record::Trace(
                Trace { first_seen, replays, conflicts, body_mismatches, recent, expires }.into(),
            ))
        },
    )
}

fn alias() -> impl Strategy<Value = Record> {
    (text(), text(), text(), any::<[u8; 32]>(), receipt(), time()).prop_map(
        |(tenant, name, scope, target, receipt, at)| {
            let (tenant, target) = (Tenant::new(tenant), FenceKey(target));
            Record::Fence(fence::Record::Alias(Alias { tenant, name, scope, target, receipt, at }.into()))
        },
    )
}

fn audit_entry() -> impl Strategy<Value = Record> {
    let subject = (option::of(text()), text(), option::of(text())).prop_map(|(tenant, on, why)| Subject {
        tenant: tenant.map(Tenant::new),
        on,
        why,
    });
    let said = (text(), text(), text());
    (time(), said, subject, option::of(any::<[u8; 16]>()), time()).prop_map(
        |(at, (by, op, outcome), subject, trace, expires)| {
            Record::from(AuditEntry { at, by, op, outcome, subject, trace: trace.map(HolderTrace), expires })
        },
    )
}

pub(super) fn row() -> impl Strategy<Value = (RowKey, Row)> {
    let record = prop_oneof![
        4 => fence(),
        1 => version().prop_map(|version| Record::Fence(fence::Record::VersionHead(VersionHead { version }))),
        1 => (any::<u64>(), any::<bool>(), option::of(time()))
            .prop_map(|(last, sealed, expires)| Record::Fence(fence::Record::AgainHead(AgainHead { last, sealed, expires }))),
        1 => alias(),
        1 => trace(),
        7 => lanes::record(),
        5 => item::record(),
        4 => job::record(),
        1 => audit_entry(),
        1 => (prop_oneof![any::<i128>(), -9..9i128], option::of(time()))
            .prop_map(|(value, due)| Record::Counter(Counter { value, due })),
    ];
    (record, any::<[u8; 32]>(), any::<u64>()).prop_map(|(record, id, revision)| {
        (RowKey { kind: kind_of(&record), id }, Row { record, revision: CommitId(revision) })
    })
}

fn kind_of(record: &Record) -> Kind {
    match record {
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
        Record::Item(items::Record::Item(_)) => Kind::Item,
        Record::Item(items::Record::Replaced(_)) => Kind::ItemVersion,
        Record::Item(items::Record::Quarantined(_)) => Kind::Quarantine,
        Record::Item(items::Record::Waiting(_)) => Kind::Waiting,
        Record::Item(items::Record::Arrival(_)) => Kind::Arrival,
        Record::Job(jobs::Record::Job(_)) => Kind::Job,
        Record::Job(jobs::Record::Chunk(_)) => Kind::JobChunk,
        Record::Job(jobs::Record::Results(_)) => Kind::JobResults,
    }
}
