//! Properties of the codec over rows and over bytes that no row ever was.
#![allow(clippy::unwrap_used)]

mod any;

use std::sync::Arc;

use bytes::Bytes;
use fencepost_kernel::{
    FenceKey, Millis, Row, RowKey, Tenant,
    fence::{self, AgainHead, Alias, Fence, Receipt, Sighting, State, Token, What},
    item::{self, Accepted, Item, ItemVersion, Sent},
    key::Kind,
    lane::{self, Entry},
    row::{CommitId, Record},
};
use proptest::{collection::vec, prelude::*};

use super::{
    COUNTS_OTHER_BODIES, KEEPS_FORGOTTEN, KEEPS_TRACES, MARKS_DOUBTS, PACKS_RECEIPTS, VERSION, checksum, decode,
    decode_up_to, encode, head,
};
use any::{key, kind, row};

fn stored(key: &RowKey, row: &Row, format: u8) -> Vec<u8> {
    encode(key, &row.record, row.revision, format)
}

fn format() -> impl Strategy<Value = u8> {
    1..=VERSION
}

/// The row as a format keeps it: before the third, no mark that a caller was told of a doubt; before the fourth,
/// neither other bodies of duplicates nor the holder's trace; before the fifth, what a person gave up was released.
fn kept(row: &Row, format: u8) -> Row {
    let mut row = row.clone();
    if let Record::Fence(fence::Record::Fence(fence)) = &mut row.record
        && format < KEEPS_FORGOTTEN
    {
        for event in &mut Arc::make_mut(fence).events {
            if let What::Forgotten { by, why, .. } = &event.what {
                event.what = What::Resolved { by: by.clone(), why: why.clone(), sealed: false };
            }
        }
    }
    if let Record::Fence(fence::Record::Fence(fence)) = &mut row.record
        && let State::Pending { doubted_at, held_by, .. } = &mut Arc::make_mut(fence).state
    {
        *doubted_at = doubted_at.filter(|_| format >= MARKS_DOUBTS);
        *held_by = held_by.filter(|_| format >= KEEPS_TRACES);
    }
    if let Record::Fence(fence::Record::Trace(trace)) = &mut row.record
        && format < COUNTS_OTHER_BODIES
    {
        let trace = Arc::make_mut(trace);
        trace.body_mismatches = 0;
        for (_, sighting) in trace.recent.iter_mut().filter(|(_, sighting)| *sighting == Sighting::OtherBody) {
            *sighting = Sighting::Duplicate;
        }
    }
    row
}

/// The bytes as if this content had been written on purpose.
fn summed(key: &RowKey, mut content: Vec<u8>) -> Bytes {
    let sum = checksum(key, &content);
    content.extend_from_slice(&sum);
    content.into()
}

proptest! {
    #[test]
    fn every_row_comes_back_as_it_was_in_every_format((key, row) in row(), format in format()) {
        let bytes = Bytes::from(stored(&key, &row, format));
        prop_assert_eq!(bytes[0], format);
        let decoded = decode(&key, &bytes);
        prop_assert_eq!(decoded, Ok(kept(&row, format)));
        let head = head(&key, &bytes).unwrap();
        prop_assert_eq!(head.revision, row.revision);
        prop_assert_eq!(head.expires, row.record.expires_at());
        prop_assert_eq!(head.due, row.record.due_at());
        let tail = row.record.as_tail().map(|tail| tail.last.into());
        let counter = if let Record::Counter(counter) = &row.record { Some(counter.value) } else { None };
        let figure = tail.or(counter).unwrap_or(0);
        prop_assert_eq!(head.figure, figure);
    }

    #[test]
    fn an_older_release_reads_its_own_format_and_refuses_a_newer_one((key, row) in row()) {
        let own = Bytes::from(stored(&key, &row, 1));
        prop_assert_eq!(decode_up_to(1, &key, &own), Ok(kept(&row, 1)));
        let newer = Bytes::from(stored(&key, &row, 2));
        let refused = decode_up_to(1, &key, &newer).unwrap_err();
        prop_assert!(refused.to_string().contains("newer release"), "{}", refused);
    }

    #[test]
    fn any_changed_byte_is_damage(
        (key, row) in row(),
        format in format(),
        at in any::<prop::sample::Index>(),
        change in 1..=255u8,
    ) {
        let mut bytes = stored(&key, &row, format);
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        prop_assert!(head(&key, &bytes).is_err());
        prop_assert!(decode(&key, &bytes.into()).is_err());
    }

    #[test]
    fn a_row_under_another_address_is_damage((key, row) in row(), other in key(kind())) {
        prop_assume!(key != other);
        prop_assert!(decode(&other, &stored(&key, &row, VERSION).into()).is_err());
    }

    // All rows of a planner begin alike; those of a lane differ only in their last bytes.
    #[test]
    fn a_row_under_a_neighbours_address_is_damage((key, row) in row(), at in 8..32usize, change in 1..=255u8) {
        prop_assume!(key.kind as u8 >= Kind::Transport as u8);
        let mut other = key;
        other.id[at] ^= change;
        prop_assert!(decode(&other, &stored(&key, &row, VERSION).into()).is_err());
    }

    #[test]
    fn garbage_is_refused_and_never_panics(key in key(kind()), garbage in vec(any::<u8>(), 0..300)) {
        prop_assert!(head(&key, &garbage).is_err());
        prop_assert!(decode(&key, &garbage.into()).is_err());
    }

    // Past the checksum nothing may be trusted either: a matching sum can be made on purpose.
    #[test]
    fn garbage_with_a_good_checksum_never_panics(
        key in key(kind()),
        format in format(),
        garbage in vec(any::<u8>(), 0..300),
    ) {
        let mut content = vec![format];
        content.extend_from_slice(&garbage);
        let bytes = summed(&key, content);
        let _ = head(&key, &bytes);
        let _ = decode(&key, &bytes);
    }

    #[test]
    fn a_changed_row_with_a_good_checksum_never_panics(
        (key, row) in row(),
        format in format(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        len in any::<prop::sample::Index>(),
    ) {
        let mut content = stored(&key, &row, format);
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
    let record = Record::Fence(fence::Record::AgainHead(AgainHead { last: 1, sealed: true, expires: None }));
    let mut bytes = encode(&key, &record, CommitId(1), VERSION);
    bytes[0] = VERSION + 1;
    let refused = decode(&key, &bytes.into()).unwrap_err();
    assert!(refused.to_string().contains("newer release"), "{refused}");
}

fn long_receipt() -> Receipt {
    Receipt { effect_id: "E".to_owned(), body: vec![7; 1_000].into() }
}

fn alias_of(receipt: Receipt) -> (RowKey, Record) {
    let (tenant, name, scope) = (Tenant::new("acme"), "name".to_owned(), "SCOPE".to_owned());
    let alias = Alias { tenant, name, scope, target: FenceKey([2; 32]), receipt, at: Millis(5) };
    (RowKey { kind: Kind::Alias, id: [1; 32] }, Record::Fence(fence::Record::Alias(alias.into())))
}

#[test]
fn a_receipt_that_is_not_packed_is_a_share_of_the_row_and_not_a_copy() {
    let (key, record) = alias_of(long_receipt());
    let bytes = Bytes::from(encode(&key, &record, CommitId(1), 1));
    let Record::Fence(fence::Record::Alias(alias)) = decode(&key, &bytes).unwrap().record else {
        panic!("an alias was stored")
    };
    assert!(bytes.as_ptr_range().contains(&alias.receipt.body.as_ptr()));
}

#[test]
fn the_body_of_an_entry_is_a_share_of_the_row_and_not_a_copy() {
    let key = RowKey { kind: Kind::Entry, id: [1; 32] };
    let entry = Entry {
        correlation_id: "C-1".to_owned(),
        kind: "SHIPPER_RELEASED".to_owned(),
        subject: "W-1".to_owned(),
        body: vec![7; 1_000].into(),
        published: Millis(5),
        redrive_of: None,
    };
    let bytes = Bytes::from(encode(&key, &Record::Lane(lane::Record::Entry(entry.into())), CommitId(1), VERSION));
    let Record::Lane(lane::Record::Entry(entry)) = decode(&key, &bytes).unwrap().record else {
        panic!("an entry was stored")
    };
    assert!(bytes.as_ptr_range().contains(&entry.body.as_ptr()));
}

#[test]
fn a_long_receipt_is_packed_from_format_2_on_wherever_it_is() {
    let (at, expires) = (Millis(1_767_225_600_007), Millis(1_767_830_400_007));
    let sealed = sealed_fence(State::Sealed { receipt: long_receipt(), at, expires });
    for (key, record) in [alias_of(long_receipt()), (RowKey { kind: Kind::Fence, id: [1; 32] }, sealed)] {
        let [old, new] = [1, 2].map(|format| encode(&key, &record, CommitId(1), format));
        assert!(old.len() > 1_000 && new.len() < 150, "{} and {} bytes", old.len(), new.len());
    }
}

// The flags of a fence follow format and revision; the packed receipt is their bit 12, so in the second byte.
#[test]
fn a_row_of_format_1_that_says_its_receipt_is_packed_is_damage() {
    let key = RowKey { kind: Kind::Fence, id: [1; 32] };
    let at = Millis(1_767_225_600_007);
    let record = sealed_fence(State::Sealed { receipt: long_receipt(), at, expires: at });
    let mut content = encode(&key, &record, CommitId(1), PACKS_RECEIPTS);
    content.truncate(content.len() - 4);
    assert!(decode(&key, &summed(&key, content.clone())).is_ok());
    content[0] = PACKS_RECEIPTS - 1;
    let bytes = summed(&key, content);
    for refused in [decode(&key, &bytes).unwrap_err(), head(&key, &bytes).unwrap_err()] {
        assert!(refused.to_string().contains("flags"), "{refused}");
    }
}

#[test]
#[should_panic(expected = "row format 8")]
fn a_format_that_nobody_reads_is_never_written() {
    let (key, record) = alias_of(long_receipt());
    encode(&key, &record, CommitId(1), VERSION + 1);
}

const TEXTS: [&str; 5] = ["acme", "BOOKING", "booking_id", "B-0000000001", "E-0000000001"];

fn sealed_fence(state: State) -> Record {
    Record::from(Fence {
        tenant: Tenant::new(TEXTS[0]),
        scope: TEXTS[1].into(),
        fields: vec![(TEXTS[2].to_owned(), TEXTS[3].to_owned())].into(),
        seq: None,
        first_seen: Millis(1_767_225_600_000),
        token: Token(1_767_225_600_000),
        attempt: 1,
        body: None,
        source: None,
        version: None,
        state,
        events: Vec::new(),
    })
}

#[test]
fn a_sealed_fence_with_a_receipt_of_40_bytes_takes_at_most_36_bytes_more_than_its_texts() {
    let record = sealed_fence(State::Sealed {
        receipt: Receipt { effect_id: TEXTS[4].to_owned(), body: vec![7; 40].into() },
        at: Millis(1_767_225_600_007),
        expires: Millis(1_767_830_400_007),
    });
    let len = encode(&RowKey { kind: Kind::Fence, id: [0; 32] }, &record, CommitId(u64::MAX), VERSION).len();
    let texts: usize = TEXTS.iter().map(|text| text.len()).sum();
    assert!(len <= texts + 40 + 36, "{len} bytes, of which {texts} are texts and 40 the receipt");
}

const ITEM_TEXTS: [&str; 5] = ["acme", "articles", "A-0000000001", "acme-erp", "C-0000000001"];

fn item_with(version: ItemVersion, content: Bytes) -> (RowKey, Record) {
    let [tenant, collection, source_id, by, correlation_id] = ITEM_TEXTS;
    let from = Sent { at: Millis(1_767_225_600_007), by: by.into(), correlation_id: correlation_id.into() };
    let current = Accepted { version: Some(version), content, from, retired: None };
    let item = Item::new(Tenant::new(tenant), collection.into(), source_id.to_owned());
    let key = RowKey::item(item.id());
    (key, item::Record::Item(Item { current: Some(current), seq: 1, ..item }.into()).into())
}

fn content_of(key: &RowKey, bytes: &Bytes) -> Bytes {
    decode(key, bytes).unwrap().record.as_item().unwrap().current.clone().unwrap().content
}

#[test]
fn an_item_takes_at_most_32_bytes_more_than_its_texts_and_content() {
    let (key, record) = item_with(ItemVersion::Integer(7), vec![7; 300].into());
    let len = encode(&key, &record, CommitId(u64::MAX), VERSION).len();
    let texts: usize = ITEM_TEXTS.iter().map(|text| text.len()).sum();
    assert!(len <= texts + 300 + 32, "{len} bytes, of which {texts} are texts and 300 content");
}

#[test]
fn content_of_an_item_below_1024_bytes_is_a_share_of_the_row_and_longer_content_is_packed_where_that_pays() {
    // A full-period generator: nothing in it repeats within 1,024 bytes.
    let noise = (0..1_024u32).scan(7u32, |seed, _| {
        *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((*seed >> 24) as u8)
    });
    let noise = Bytes::from_iter(noise);
    for (content, packed) in [(vec![7; 1_023].into(), false), (vec![7; 1_024].into(), true), (noise, false)] {
        let (key, record) = item_with(ItemVersion::Text("b".to_owned()), content.clone());
        let bytes = Bytes::from(encode(&key, &record, CommitId(1), VERSION));
        assert_eq!((bytes.len() < 200, content_of(&key, &bytes)), (packed, content));
        assert_eq!(bytes.as_ptr_range().contains(&content_of(&key, &bytes).as_ptr()), !packed);
    }
}

#[test]
fn a_version_that_is_not_of_the_form_that_it_claims_is_damage() {
    for (version, text, form) in [
        (ItemVersion::time("2026-05-24").unwrap(), "2026-05-24", "time"),
        (ItemVersion::dotted("1.10.0-rc").unwrap(), "1.10.0-rc", "dotted"),
    ] {
        let (key, record) = item_with(version, Bytes::from_static(b"{}"));
        let mut content = encode(&key, &record, CommitId(1), VERSION);
        content.truncate(content.len() - 4);
        assert!(decode(&key, &summed(&key, content.clone())).is_ok());
        let at = content.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
        content[at + 1] = b'?';
        let refused = decode(&key, &summed(&key, content)).unwrap_err();
        assert!(refused.to_string().contains(form), "{refused}");
    }
}
