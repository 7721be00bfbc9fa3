//! Any rows about items. Called only by the strategies beside it.

use std::sync::Arc;

use bytes::Bytes;
use fencepost_kernel::{
    Millis, Tenant,
    item::{
        Accepted, Arrival, Item, ItemId, ItemVersion, Missing, Quarantined, Record as OfItem, Replaced, Retired,
        Retirement, Sent, StayEnd, StayOutcome, Waiting,
    },
    row::Record,
};
use proptest::{collection::vec, option, prelude::*};

use super::{bytes, text, time};

fn name() -> impl Strategy<Value = (Tenant, Arc<str>, String)> {
    (text(), text(), text())
        .prop_map(|(tenant, collection, source_id)| (Tenant::new(tenant), collection.into(), source_id))
}

fn version() -> impl Strategy<Value = ItemVersion> {
    let day = "20[0-9]{2}-0[1-9]-[12][0-9]";
    let moment = "20[0-9]{2}-0[1-9]-[12][0-9]T0[0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]0[0-9]:30)";
    prop_oneof![
        any::<i128>().prop_map(ItemVersion::Integer),
        any::<i8>().prop_map(|number| ItemVersion::Integer(number.into())),
        prop_oneof![day, moment].prop_map(|text| ItemVersion::time(&text).unwrap()),
        "v?[0-9]{1,4}(\\.[0-9]{1,30}){0,4}(-[a-z0-9]{1,3}(\\.[0-9]{1,2})?)?(\\+[a-z]{1,3})?"
            .prop_map(|text| ItemVersion::dotted(&text).unwrap()),
        text().prop_map(ItemVersion::Text),
    ]
}

pub(super) fn content() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        bytes(),
        vec(any::<u8>(), 1_000..1_100).prop_map(Bytes::from),
        (0..200usize).prop_map(|lines| "{\"line\":1,\"unit\":\"EA\"}".repeat(lines).into()),
    ]
}

fn sent() -> impl Strategy<Value = Sent> {
    (time(), text(), text()).prop_map(|(at, by, correlation_id)| Sent {
        at,
        by: by.into(),
        correlation_id: correlation_id.into(),
    })
}

// Boxed: one strategy within another is a value on the stack, and a test's thread has little of it.
fn accepted() -> BoxedStrategy<Accepted> {
    let cause = prop::sample::select(vec![Retirement::Deleted, Retirement::Cancelled, Retirement::Unlisted]);
    let retired = (cause, sent()).prop_map(|(cause, from)| Retired { cause, from });
    (option::of(version()), content(), sent(), option::of(retired))
        .prop_map(|(version, content, from, retired)| Accepted { version, content, from, retired })
        .boxed()
}

fn item() -> BoxedStrategy<OfItem> {
    let rest = (any::<u64>(), option::of(any::<u64>()), any::<bool>());
    (name(), option::of(accepted()), option::of(version()), rest)
        .prop_map(|((tenant, collection, source_id), current, floor, (seq, quarantine, wanted))| {
            OfItem::Item(Item { tenant, collection, source_id, current, floor, seq, quarantine, wanted }.into())
        })
        .boxed()
}

fn replaced() -> BoxedStrategy<OfItem> {
    (name(), accepted(), time())
        .prop_map(|((tenant, collection, source_id), accepted, replaced_at)| {
            OfItem::Replaced(Replaced { tenant, collection, source_id, accepted, replaced_at }.into())
        })
        .boxed()
}

pub(super) fn missing() -> impl Strategy<Value = Missing> {
    (text(), text(), text()).prop_map(|(collection, source_id, reason)| Missing {
        collection: collection.into(),
        source_id,
        reason: reason.into(),
    })
}

fn quarantined() -> BoxedStrategy<OfItem> {
    let how = prop::sample::select(vec![StayOutcome::Accepted, StayOutcome::Released, StayOutcome::Withdrawn]);
    let resolved = (how, sent(), time()).prop_map(|(how, from, expires)| StayEnd { how, from, expires });
    let number = prop_oneof![any::<u64>(), time().prop_map(|Millis(number)| number)];
    let rest = (time(), vec(missing(), 0..4), option::of(resolved));
    (name(), number, option::of(version()), content(), sent(), rest)
        .prop_map(
            |((tenant, collection, source_id), number, version, content, from, (opened, unresolved, resolved))| {
                let quarantined = Quarantined {
                    tenant,
                    collection,
                    source_id,
                    number,
                    version,
                    content,
                    from,
                    opened,
                    unresolved,
                    resolved,
                };
                OfItem::Quarantined(quarantined.into())
            },
        )
        .boxed()
}

pub(super) fn record() -> BoxedStrategy<Record> {
    let id = || any::<[u8; ItemId::LEN]>().prop_map(ItemId);
    let of_item = prop_oneof![
        3 => item(),
        2 => replaced(),
        3 => quarantined(),
        1 => (text(), id(), id()).prop_map(|(tenant, missing, item)| {
            OfItem::Waiting(Waiting { tenant: Tenant::new(tenant), missing, item }.into())
        }),
        1 => (name(), time()).prop_map(|((tenant, collection, source_id), at)| {
            OfItem::Arrival(Arrival { tenant, collection, source_id, at }.into())
        }),
    ];
    of_item.prop_map(Record::from).boxed()
}
