//! Keys: fields that must give one key, fields that never may, and the message for a wrong set of fields.

use std::{collections::BTreeSet, sync::Arc};

use fencepost_kernel::{
    FenceKey, RowKey, Scope, Tenant,
    fence::{Target, WrongFields},
    json::{self, Value},
    key::Kind,
};
use proptest::prelude::*;

use super::world::cases;

fn derive(tenant: &str, scope: &str, fields: &[(&str, &str)], seq: Option<u64>) -> FenceKey {
    build(tenant, scope, fields.iter().map(|(name, _)| *name), fields, seq).unwrap().key
}

fn build<'n>(
    tenant: &str,
    scope: &str,
    names: impl Iterator<Item = &'n str>,
    fields: &[(&str, &str)],
    seq: Option<u64>,
) -> Result<Target, WrongFields> {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Target::new(Tenant::new(tenant), Arc::new(Scope::new(scope, names)), fields, seq)
}

#[test]
fn no_value_spills_into_its_neighbour() {
    let keys = [
        derive("t", "S", &[("x", "a"), ("y", "bc")], None),
        derive("t", "S", &[("x", "ab"), ("y", "c")], None),
        derive("t", "S", &[("x", "abc"), ("y", "")], None),
        derive("t", "S", &[("x", ""), ("y", "abc")], None),
        derive("t", "S", &[("xa", ""), ("y", "bc")], None),
        derive("t", "Sx", &[("", "a"), ("y", "bc")], None),
        derive("tS", "", &[("x", "a"), ("y", "bc")], None),
        derive("t", "S", &[("x", "a"), ("y", "b"), ("z", "c")], None),
    ];
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
}

#[test]
fn tenant_is_always_inside() {
    let fields = [("id", "1")];
    assert_ne!(derive("acme", "S", &fields, None), derive("globex", "S", &fields, None));
    assert_ne!(derive("", "S", &fields, None), derive("acme", "S", &fields, None));
    let (acme, globex) = (Tenant::new("acme"), Tenant::new("globex"));
    assert_ne!(RowKey::alias(&acme, "latest"), RowKey::alias(&globex, "latest"));
    assert_ne!(RowKey::version_head(&acme, "S", &["A"]), RowKey::version_head(&globex, "S", &["A"]));
    assert_ne!(RowKey::alias(&Tenant::new("ac"), "me"), RowKey::alias(&acme, ""));
}

#[test]
fn neither_order_of_attributes_nor_order_in_the_policy_matters() {
    let one = build("t", "S", ["a", "b", "c"].into_iter(), &[("a", "1"), ("b", "2"), ("c", "3")], None).unwrap();
    let two = build("t", "S", ["c", "a", "b"].into_iter(), &[("b", "2"), ("c", "3"), ("a", "1")], None).unwrap();
    assert_eq!(one.key, two.key);
    assert_eq!(one.fields, two.fields);
    assert_ne!(one.key, derive("t", "S", &[("a", "2"), ("b", "1"), ("c", "3")], None));
}

#[test]
fn repetition_collides_with_no_field() {
    let base = derive("t", "S", &[("id", "1")], None);
    let seqs: BTreeSet<_> = (0..100).map(|seq| derive("t", "S", &[("id", "1")], Some(seq))).collect();
    assert_eq!(seqs.len(), 100);
    assert!(!seqs.contains(&base));
    // The bytes that are hashed after the fields, imitated inside the last one.
    let mut suffix = String::from("1again");
    suffix.extend(std::iter::repeat_n('\0', 7));
    suffix.push('\u{1}');
    for value in [suffix.as_str(), "1again", "1/1", "1#1", "1:1"] {
        assert!(!seqs.contains(&derive("t", "S", &[("id", value)], None)), "{value:?} imitates a repetition");
    }
    assert!(!seqs.contains(&derive("t", "S", &[("id", "1"), ("seq", "1")], None)));
}

#[test]
fn repetition_knows_the_effect_it_repeats() {
    let target = build("t", "S", ["id"].into_iter(), &[("id", "1")], Some(3)).unwrap();
    assert_eq!(target.base(), derive("t", "S", &[("id", "1")], None));
    assert_eq!(target.again_head().kind, Kind::AgainHead);
    assert_eq!(target.again_head().id, target.base().0);
}

#[test]
fn missing_and_unexpected_fields_are_named() {
    let names = || ["a", "b", "c"].into_iter();
    let wrong = build("t", "S", names(), &[("a", "1"), ("d", "4"), ("e", "5")], None).unwrap_err();
    assert_eq!(wrong.missing, ["b", "c"]);
    assert_eq!(wrong.unexpected, ["d", "e"]);
    assert_eq!(wrong.to_string(), "missing: b, c; unexpected: d, e");
    assert_eq!(build("t", "S", names(), &[], None).unwrap_err().to_string(), "missing: a, b, c");
    assert_eq!(build("t", "S", [].into_iter(), &[("a", "1")], None).unwrap_err().to_string(), "unexpected: a");
}

#[test]
fn field_given_twice_is_unexpected_even_with_equal_values() {
    for second in ["1", "2"] {
        let wrong = build("t", "S", ["a"].into_iter(), &[("a", "1"), ("a", second)], None).unwrap_err();
        assert_eq!((wrong.missing.len(), wrong.unexpected), (0, vec!["a".to_owned()]));
    }
}

#[test]
fn absent_field_is_never_an_empty_one() {
    assert!(build("t", "S", ["a", "b"].into_iter(), &[("a", "1")], None).is_err());
    assert!(build("t", "S", ["a", "b"].into_iter(), &[("a", "1"), ("b", "")], None).is_ok());
}

#[test]
fn integer_and_its_digits_as_text_are_one_key() {
    let text = |json: &str| {
        let node = json::parse(json.as_bytes()).unwrap();
        match &node.value {
            Value::String(text) => text.to_string(),
            _ => node.as_integer().unwrap().to_string(),
        }
    };
    let key = |json: &str| derive("t", "S", &[("id", &text(json))], None);
    assert_eq!(key("1"), key("\"1\""));
    assert_eq!(key("-0"), key("0"));
    assert_ne!(key("1"), key("\"01\""));
    assert_ne!(key("9007199254740992"), key("9007199254740993"));
}

// Computed by hand with another SHA-256. Stored keys outlive releases: whatever changes this value forgets every fence there is.
#[test]
fn derived_key_never_changes() {
    let fields = [("caseUrn", "c"), ("groupId", "g"), ("waveUrn", "w")];
    let again = derive("acme", "BOOKING", &fields, Some(1));
    assert_eq!(again.to_string(), "7b8232d3947678d9d7a4509ee8a5fbe9f5edb8069611a9d42ffe4a7d35a9f9ba");
    let key = derive("acme", "BOOKING", &fields, None);
    assert_eq!(key.to_string(), "9a6ce9a02646dd3cc637b9af0ed3400a7fad6ec38e53406bcfffc51092f0ccd5");
}

#[test]
fn kinds_keep_their_stored_numbers() {
    use Kind::*;
    let first = [Fence, VersionHead, AgainHead, Alias, Trace, Transport, Lane];
    let then = [Tail, Entry, DeadLetter, Cancelled, LaneNotice, Counter, Audit];
    let kinds =
        [&first[..], &then, &[Item, ItemVersion, Quarantine, Waiting, Arrival], &[Job, JobChunk, JobResults]].concat();
    assert_eq!(Kind::ALL[..], kinds);
    for (number, kind) in kinds.iter().enumerate() {
        assert_eq!(*kind as usize, number + 1);
        assert_eq!(Kind::from_u8(*kind as u8), Some(*kind));
    }
    assert_eq!((Kind::from_u8(0), Kind::from_u8(23)), (None, None));
}

// INVARIANT every-kind-has-a-row
#[test]
fn every_kind_has_a_row_in_the_table_of_kinds() {
    for kind in Kind::ALL {
        assert_eq!(kind.spec().kind, kind);
    }
}

// A backup counts rows by place: a kind that moved would be counted as another in files that exist.
#[test]
fn kinds_keep_their_places_in_a_backup() {
    use Kind::*;
    let first = [Fence, VersionHead, AgainHead, Alias, Trace, Transport];
    let then = [Lane, Entry, Tail, DeadLetter, Cancelled, Audit];
    let places =
        [&first[..], &then, &[Quarantine, Waiting, Item, ItemVersion, Arrival], &[JobChunk, Job, JobResults]].concat();
    assert_eq!(fencepost_kernel::row::BACKUP[..], places);
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn different_fields_are_different_keys(
        one in proptest::collection::btree_map("[ab]{0,2}", "[ab\0]{0,3}", 0..4),
        two in proptest::collection::btree_map("[ab]{0,2}", "[ab\0]{0,3}", 0..4),
        tenants in ("[ab]{0,2}", "[ab]{0,2}"),
        seqs in (proptest::option::of(0..3u64), proptest::option::of(0..3u64)),
    ) {
        let pairs = |map: &std::collections::BTreeMap<String, String>, tenant: &str, seq| {
            let fields: Vec<_> = map.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            derive(tenant, "S", &fields, seq)
        };
        let same = (&one, &tenants.0, seqs.0) == (&two, &tenants.1, seqs.1);
        prop_assert_eq!(pairs(&one, &tenants.0, seqs.0) == pairs(&two, &tenants.1, seqs.1), same);
    }
}
