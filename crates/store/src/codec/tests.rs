//! Properties of the codec over rows and over bytes that no row ever was.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use fencepost_kernel::{
    FenceKey, Millis, Row, RowKey, Tenant, Version,
    body::Body,
    command::CommitId,
    fence::{
        AgainHead, Alias, Event, Fence, Receipt, Record, Sighting, Source, State, Token, Trace, VersionHead, What,
    },
    key::Kind,
    scope::OnLapse,
};
use proptest::{collection::vec, option, prelude::*};

use super::{VERSION, checksum, decode, encode, head};

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

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![Kind::Fence, Kind::VersionHead, Kind::AgainHead, Kind::Alias, Kind::Trace])
}

fn key(kind: impl Strategy<Value = Kind>) -> impl Strategy<Value = RowKey> {
    (kind, any::<[u8; 32]>()).prop_map(|(kind, id)| RowKey { kind, id })
}

fn receipt() -> impl Strategy<Value = Receipt> {
    (text(), bytes()).prop_map(|(effect_id, body)| Receipt { effect_id, body })
}

fn state() -> impl Strategy<Value = State> {
    let on_lapse = prop::sample::select(vec![OnLapse::Recover, OnLapse::Hold]);
    prop_oneof![
        (time(), on_lapse, option::of(time())).prop_map(|(lease_expires, on_lapse, forget_at)| State::Pending {
            lease_expires,
            on_lapse,
            forget_at
        }),
        (receipt(), time(), time()).prop_map(|(receipt, at, expires)| State::Sealed { receipt, at, expires }),
        (time(), time()).prop_map(|(at, expires)| State::Released { at, expires }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let what = prop_oneof![
        Just(What::Released),
        Just(What::Retried),
        Just(What::Recovered),
        Just(What::SealedLate),
        Just(What::SealRefused),
        (text(), text(), any::<bool>()).prop_map(|(by, why, sealed)| What::Resolved { by, why, sealed }),
    ];
    (time(), any::<u64>(), what).prop_map(|(at, token, what)| Event { at, token: Token(token), what })
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
            scope,
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
    ]);
    (time(), any::<u64>(), any::<u64>(), vec((time(), sighting), 0..16), option::of(time())).prop_map(
        |(first_seen, replays, conflicts, recent, expires)| {
            Record::Trace(Trace { first_seen, replays, conflicts, recent, expires })
        },
    )
}

fn alias() -> impl Strategy<Value = Record> {
    (text(), text(), text(), any::<[u8; 32]>(), receipt(), time()).prop_map(
        |(tenant, name, scope, target, receipt, at)| {
            let (tenant, target) = (Tenant::new(tenant), FenceKey(target));
            Record::Alias(Alias { tenant, name, scope, target, receipt, at })
        },
    )
}

fn row() -> impl Strategy<Value = (RowKey, Row)> {
    let record = prop_oneof![
        4 => fence(),
        1 => version().prop_map(|version| Record::VersionHead(VersionHead { version })),
        1 => (any::<u64>(), any::<bool>(), option::of(time()))
            .prop_map(|(last, sealed, expires)| Record::AgainHead(AgainHead { last, sealed, expires })),
        1 => alias(),
        1 => trace(),
    ];
    (record, any::<[u8; 32]>(), any::<u64>()).prop_map(|(record, id, revision)| {
        let kind = match &record {
            Record::Fence(_) => Kind::Fence,
            Record::VersionHead(_) => Kind::VersionHead,
            Record::AgainHead(_) => Kind::AgainHead,
            Record::Alias(_) => Kind::Alias,
            Record::Trace(_) => Kind::Trace,
        };
        (RowKey { kind, id }, Row { record, revision: CommitId(revision) })
    })
}

fn stored(key: &RowKey, row: &Row) -> Vec<u8> {
    encode(key, &row.record, row.revision)
}

/// What the bytes would be if this content had been written on purpose.
fn summed(key: &RowKey, mut content: Vec<u8>) -> Bytes {
    let sum = checksum(key, &content);
    content.extend_from_slice(&sum);
    content.into()
}

proptest! {
    #[test]
    fn every_row_comes_back_as_it_was((key, row) in row()) {
        let bytes = Bytes::from(stored(&key, &row));
        let decoded = decode(&key, &bytes);
        prop_assert_eq!(decoded.as_ref(), Ok(&row));
        let head = head(&key, &bytes).unwrap();
        prop_assert_eq!(head.revision, row.revision);
        prop_assert_eq!(head.expires, row.record.expires_at());
        prop_assert_eq!(head.due, row.record.due_at());
    }

    #[test]
    fn any_changed_byte_is_damage((key, row) in row(), at in any::<prop::sample::Index>(), change in 1..=255u8) {
        let mut bytes = stored(&key, &row);
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        prop_assert!(head(&key, &bytes).is_err());
        prop_assert!(decode(&key, &bytes.into()).is_err());
    }

    #[test]
    fn a_row_under_another_address_is_damage((key, row) in row(), other in key(kind())) {
        prop_assume!(key != other);
        prop_assert!(decode(&other, &stored(&key, &row).into()).is_err());
    }

    #[test]
    fn garbage_is_refused_and_never_panics(key in key(kind()), garbage in vec(any::<u8>(), 0..300)) {
        prop_assert!(head(&key, &garbage).is_err());
        prop_assert!(decode(&key, &garbage.into()).is_err());
    }

    // Past the checksum nothing may be trusted either: it only says that somebody wrote these bytes.
    #[test]
    fn garbage_with_a_good_checksum_never_panics(key in key(kind()), garbage in vec(any::<u8>(), 0..300)) {
        let mut content = vec![VERSION];
        content.extend_from_slice(&garbage);
        let bytes = summed(&key, content);
        let _ = head(&key, &bytes);
        let _ = decode(&key, &bytes);
    }

    #[test]
    fn a_changed_row_with_a_good_checksum_never_panics(
        (key, row) in row(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        len in any::<prop::sample::Index>(),
    ) {
        let mut content = stored(&key, &row);
        content.truncate(content.len() - 4);
        for (at, byte) in changes {
            let at = at.index(content.len());
            content[at] = byte;
        }
        let cut = content[..len.index(content.len() + 1)].to_vec();
        for content in [content, cut] {
            let bytes = summed(&key, content);
            let _ = head(&key, &bytes);
            let _ = decode(&key, &bytes);
        }
    }
}

#[test]
fn a_newer_row_is_told_from_a_damaged_one() {
    let key = RowKey { kind: Kind::AgainHead, id: [1; 32] };
    let mut bytes = encode(&key, &Record::AgainHead(AgainHead { last: 1, sealed: true, expires: None }), CommitId(1));
    bytes[0] = VERSION + 1;
    let refused = decode(&key, &bytes.into()).unwrap_err();
    assert!(refused.to_string().contains("newer release"), "{refused}");
}

#[test]
fn a_receipt_is_a_share_of_the_row_and_not_a_copy() {
    let key = RowKey { kind: Kind::Alias, id: [1; 32] };
    let receipt = Receipt { effect_id: "E".to_owned(), body: vec![7; 1_000].into() };
    let record = Record::Alias(Alias {
        tenant: Tenant::new("acme"),
        name: "name".to_owned(),
        scope: "SCOPE".to_owned(),
        target: FenceKey([2; 32]),
        receipt,
        at: Millis(5),
    });
    let bytes = Bytes::from(encode(&key, &record, CommitId(1)));
    let Record::Alias(alias) = decode(&key, &bytes).unwrap().record else { panic!("an alias was stored") };
    assert!(bytes.as_ptr_range().contains(&alias.receipt.body.as_ptr()));
}

#[test]
fn a_sealed_fence_with_a_receipt_of_40_bytes_takes_at_most_36_bytes_more_than_its_texts() {
    let texts = ["acme", "BOOKING", "booking_id", "B-0000000001", "E-0000000001"];
    let record = Record::from(Fence {
        tenant: Tenant::new(texts[0]),
        scope: texts[1].to_owned(),
        fields: vec![(texts[2].to_owned(), texts[3].to_owned())].into(),
        seq: None,
        first_seen: Millis(1_767_225_600_000),
        token: Token(1_767_225_600_000),
        attempt: 1,
        body: None,
        source: None,
        version: None,
        state: State::Sealed {
            receipt: Receipt { effect_id: texts[4].to_owned(), body: vec![7; 40].into() },
            at: Millis(1_767_225_600_007),
            expires: Millis(1_767_830_400_007),
        },
        events: Vec::new(),
    });
    let len = encode(&RowKey { kind: Kind::Fence, id: [0; 32] }, &record, CommitId(u64::MAX)).len();
    let texts: usize = texts.iter().map(|text| text.len()).sum();
    assert!(len <= texts + 40 + 36, "{len} bytes, of which {texts} are texts and 40 the receipt");
}
