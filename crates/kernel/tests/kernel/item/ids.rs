//! Ids of items and quarantines, and the ranges that their rows lie in.

use fencepost_kernel::{
    RowKey, Tenant,
    item::{ItemId, QuarantineId},
    key::Kind,
};
use proptest::prelude::*;

use super::super::world::cases;

fn id(tenant: &str, collection: &str, source_id: &str) -> ItemId {
    ItemId::new(&Tenant::new(tenant), collection, source_id)
}

#[test]
fn ids_of_a_collection_share_a_prefix_within_that_of_their_tenant() {
    let tenant = Tenant::new("acme");
    let (of_tenant, skus) = (ItemId::tenant_prefix(&tenant), ItemId::collection_prefix(&tenant, "skus"));
    assert_eq!(skus[..of_tenant.len()], of_tenant);
    assert_ne!(skus, ItemId::collection_prefix(&tenant, "uoms"));
    for source_id in ["", "1", "2"] {
        let item = id("acme", "skus", source_id);
        assert_eq!(item.0[..skus.len()], skus);
        assert_ne!(id("other", "skus", source_id).0[..of_tenant.len()], of_tenant);
        let keys = [RowKey::item(item), RowKey::item_version(item, 7), RowKey::quarantine(item), RowKey::arrival(item)];
        for key in keys {
            assert_eq!((key.item_id(), &key.id[..skus.len()]), (item, &skus[..]));
        }
        assert_eq!(item.internal(), id("acme", "skus", source_id).internal());
        assert!(item.internal().starts_with("itm_") && item.internal().len() == 36);
    }
}

// An id that changed between two releases would lose every item.
#[test]
fn id_of_an_item_never_changes() {
    let item = id("acme", "skus", "SKU-1");
    assert_eq!(format!("{item:?}"), PINNED);
    assert_eq!(item.internal(), format!("itm_{}", &PINNED[16..]));
    assert_eq!(QuarantineId { item, number: 1 }.to_string(), format!("qrn_{PINNED}0000000000000001"));
}

const PINNED: &str = "2f0bab0aa026394cfb63788e76369a08d37637a1f4ade241";

#[test]
fn rows_of_older_versions_come_after_newer_ones_and_within_their_item() {
    let item = id("acme", "skus", "1");
    let keys: Vec<RowKey> = [u64::MAX, 300, 2, 1].map(|seq| RowKey::item_version(item, seq)).into();
    assert!(keys.is_sorted());
    for key in keys {
        assert_eq!((key.kind, &key.id[..ItemId::LEN]), (Kind::ItemVersion, &item.0[..]));
    }
    assert_eq!([1, 2, 300].map(|seq| RowKey::item_version(item, seq).version_number()), [1, 2, 300]);
}

#[test]
fn rows_that_wait_for_an_item_are_one_range() {
    let (missing, one, two) = (id("acme", "uoms", "1"), id("acme", "skus", "1"), id("acme", "skus", "2"));
    let prefix = RowKey::waiting_prefix(&missing);
    for waiting in [one, two, missing] {
        assert!(RowKey::waiting(missing, waiting).id.starts_with(prefix));
        assert!(!RowKey::waiting(one, waiting).id.starts_with(prefix));
    }
    assert_ne!(RowKey::waiting(missing, one), RowKey::waiting(missing, two));
}

#[test]
fn text_that_is_not_a_quarantines_id_is_none() {
    let good = QuarantineId { item: id("acme", "skus", "1"), number: 7 }.to_string();
    assert!(QuarantineId::parse(&good).is_some());
    let bad = [
        good[1..].to_owned(),
        good[..good.len() - 1].to_owned(),
        format!("{good}0"),
        good.to_uppercase(),
        good.replace("qrn_", "itm_"),
        format!("{}g", &good[..good.len() - 1]),
        format!("{}\u{e9}", &good[..good.len() - 2]),
        String::new(),
        "qrn_".to_owned(),
    ];
    for text in bad {
        assert_eq!(QuarantineId::parse(&text), None, "{text}");
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn quarantine_id_is_read_as_it_was_written(source_id in ".{0,8}", number in any::<u64>()) {
        let id = QuarantineId { item: id("acme", "skus", &source_id), number };
        prop_assert_eq!(QuarantineId::parse(&id.to_string()), Some(id));
    }

    #[test]
    fn different_names_are_different_items(one in ("[ab]{0,2}", "[ab]{0,2}", "[ab]{0,2}"), two in ("[ab]{0,2}", "[ab]{0,2}", "[ab]{0,2}")) {
        prop_assert_eq!(id(&one.0, &one.1, &one.2) == id(&two.0, &two.1, &two.2), one == two);
    }
}
