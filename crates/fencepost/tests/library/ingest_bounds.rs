//! How much of what is stored one ingest request may load.

use std::sync::Arc;

use bytes::Bytes;
use fencepost::{
    engine::EngineLimits,
    ingest::{Ingest, IngestRules, NAMED_BYTES_MAX, items::ITEM_BYTES_MAX},
    kernel::{
        Millis, RowKey, Tenant, Write,
        item::{Accepted, Change, Item, ItemId, ItemReference, Missing, Put, Quarantined, Record, Sent},
        row::CommitId,
    },
    store::{Store, WriteSet, memory::Memory},
};
use fencepost_testkit::clock::ManualClock;

use super::world::{over, policy};

/// So many of the largest items are what a request may name, but for what else is in their rows.
const MOST: usize = NAMED_BYTES_MAX / ITEM_BYTES_MAX;

fn tenant() -> Tenant {
    Tenant::new("acme")
}

fn source_id(number: usize) -> String {
    format!("S-{number}")
}

fn id(number: usize) -> ItemId {
    ItemId::new(&tenant(), "skus", &source_id(number))
}

fn sent() -> Sent {
    Sent { at: Millis(1), by: "acme".into(), correlation_id: "c".into() }
}

fn put(number: usize, references: impl IntoIterator<Item = usize>) -> Change {
    let missing =
        |number| Missing { collection: "skus".into(), source_id: source_id(number), reason: "BUSINESS_RULE".into() };
    let references = references.into_iter().map(|to| ItemReference { item: id(to), missing: missing(to) }).collect();
    let (collection, content) = ("skus".into(), Bytes::from_static(b"{}"));
    Change::Put(Put { item: id(number), collection, source_id: source_id(number), version: None, content, references })
}

/// Items of a size; those from `waiting` on are in quarantine besides.
async fn ingest(items: usize, waiting: usize, bytes: usize) -> Ingest {
    let content = Bytes::from(vec![b'x'; bytes]);
    let mut writes = Vec::new();
    let mut write = |key, record: Record| writes.push(Write { key, expect: None, put: Some(record.into()) });
    for number in 0..items {
        let accepted = Accepted { version: None, content: content.clone(), from: sent(), retired: None };
        let quarantine = (number >= waiting).then_some(1);
        let item = Item::new(tenant(), "skus".into(), source_id(number));
        write(RowKey::item(id(number)), Record::Item(Item { current: Some(accepted), quarantine, ..item }.into()));
        if quarantine.is_some() {
            let quarantined = Quarantined {
                tenant: tenant(),
                collection: "skus".into(),
                source_id: source_id(number),
                number: 1,
                version: None,
                content: content.clone(),
                from: sent(),
                opened: Millis(1),
                unresolved: Vec::new(),
                resolved: None,
            };
            write(RowKey::quarantine(id(number)), Record::Quarantined(quarantined.into()));
        }
    }
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    store.commit(&[WriteSet::new(CommitId(1), writes)], Millis(1)).await.unwrap();
    let fencepost = over(store, ManualClock::new(), EngineLimits::default()).await;
    Ingest::new(fencepost.engine().clone(), IngestRules::of(&policy()).unwrap(), fencepost.ingest_signals())
}

#[tokio::test]
async fn request_that_names_more_of_what_is_stored_than_may_be_loaded_is_told_apart() {
    let ingest = ingest(2 * MOST + 1, usize::MAX, ITEM_BYTES_MAX).await;
    let changes = |count: usize| (0..count).map(|number| put(number, [])).collect::<Vec<_>>();
    assert!(ingest.may_load(&changes(MOST - 16)).await.unwrap());
    assert!(!ingest.may_load(&changes(MOST + 1)).await.unwrap());
    // Whether an item is changed or referred to is one.
    assert!(!ingest.may_load(&[put(0, 1..MOST), put(1, MOST..2 * MOST + 1)]).await.unwrap());
    // An item that is not there, and one that is named twice, cost nothing more.
    let absent = (2 * MOST + 1..4 * MOST).map(|number| put(number, [0, 1, 2]));
    assert!(ingest.may_load(&absent.collect::<Vec<_>>()).await.unwrap());
    // The largest item with as many references as it may have.
    assert!(ingest.may_load(&[put(0, 1..1_001)]).await.unwrap());
}

#[tokio::test]
async fn content_in_quarantine_counts_for_an_item_that_is_changed() {
    let changes: Vec<Change> = (0..MOST + 1).map(|number| put(number, [])).collect();
    for (waiting, may_load) in [(0, false), (usize::MAX, true)] {
        let ingest = ingest(MOST + 1, waiting, ITEM_BYTES_MAX / 2).await;
        assert_eq!(ingest.may_load(&changes).await.unwrap(), may_load, "{waiting}");
    }
}
