//! Any rows of lanes. Called only by the strategies beside it.

use fencepost_kernel::{
    Tenant,
    dispatch::{self, Transport, WarehouseTransport, Webhook},
    lane::{
        self, AfterDead, Cancelled, DeadLetter, DeadLetterReason, Entry, Fate, Lane, LaneId, LanePurpose, Owner, Pause,
        ReceiverAnswer, Tail, Trouble,
    },
    row::Record,
};
use proptest::{collection::vec, option, prelude::*};

use super::{bytes, text, time};

fn tenant() -> impl Strategy<Value = Tenant> {
    text().prop_map(Tenant::new)
}

fn place() -> impl Strategy<Value = LanePurpose> {
    prop_oneof![text().prop_map(LanePurpose::Warehouse), text().prop_map(LanePurpose::Executor)]
}

fn answer() -> impl Strategy<Value = ReceiverAnswer> {
    (option::of(any::<u16>()), text()).prop_map(|(status, note)| ReceiverAnswer { status, note })
}

fn transport() -> impl Strategy<Value = Record> {
    let transport =
        prop_oneof![
            (text(), vec(bytes(), 0..3), any::<bool>())
                .prop_map(|(url, secrets, standard)| Transport::Webhook(Webhook { url, secrets, standard })),
            text().prop_map(|topic| Transport::Kafka { topic }),
            Just(Transport::Poll),
        ];
    let after_dead = prop::sample::select(vec![AfterDead::Continue, AfterDead::Block]);
    (tenant(), text(), text(), transport, after_dead, any::<u64>(), time()).prop_map(
        |(planner, warehouse, executor, transport, after_dead, receiver_retain_ms, at)| {
            let transport =
                WarehouseTransport { planner, warehouse, executor, transport, after_dead, receiver_retain_ms, at };
            Record::Dispatch(dispatch::Record::Transport(transport.into()))
        },
    )
}

fn lane() -> impl Strategy<Value = Record> {
    let owner = (text(), any::<u64>()).prop_map(|(node, epoch)| Owner { node, epoch });
    let trouble =
        (any::<u32>(), time(), time(), time(), answer()).prop_map(|(attempts, first_at, last_at, next_at, answer)| {
            Trouble { attempts, first_at, last_at, next_at, answer }
        });
    let paused = (time(), text(), text()).prop_map(|(at, by, why)| Pause { at, by, why });
    let rest = (option::of(trouble), option::of(paused), any::<bool>());
    (tenant(), place(), owner, any::<u64>(), any::<u64>(), rest).prop_map(
        |(planner, place, owner, settled, trimmed, (trouble, paused, blocked))| {
            Record::Lane(lane::Record::Lane(
                Lane { planner, purpose: place, owner, settled, trimmed, trouble, paused, blocked }.into(),
            ))
        },
    )
}

fn entry() -> impl Strategy<Value = Entry> {
    let redrive_of = option::of((any::<[u8; 24]>().prop_map(LaneId), any::<u64>()));
    (text(), text(), text(), bytes(), time(), redrive_of).prop_map(
        |(correlation_id, kind, warehouse, body, published, redrive_of)| Entry {
            correlation_id,
            kind,
            warehouse,
            body,
            published,
            redrive_of,
        },
    )
}

fn letter() -> impl Strategy<Value = Record> {
    let fate = prop_oneof![
        Just(Fate::Waiting),
        (time(), text(), option::of(text()), any::<u64>()).prop_map(|(at, by, why, seq)| Fate::Redriven {
            at,
            by,
            why,
            seq
        }),
        (time(), text(), text()).prop_map(|(at, by, why)| Fate::Discarded { at, by, why }),
    ];
    let reason = prop::sample::select(DeadLetterReason::ALL.to_vec());
    let tries = (any::<u32>(), time(), time(), answer());
    let rest = (option::of(text()), fate, any::<bool>());
    (tenant(), place(), entry(), reason, tries, rest).prop_map(
        |(planner, place, entry, reason, (attempts, first_at, at, answer), (cancelled_by, fate, blocks))| {
            let entry = entry.into();
            let letter = DeadLetter {
                planner,
                purpose: place,
                entry,
                reason,
                attempts,
                first_at,
                at,
                answer,
                cancelled_by,
                fate,
                blocks,
            };
            Record::Lane(lane::Record::DeadLetter(letter.into()))
        },
    )
}

pub(super) fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        transport(),
        lane(),
        any::<u64>().prop_map(|last| Record::Lane(lane::Record::Tail(Tail { last }))),
        entry().prop_map(|entry| Record::Lane(lane::Record::Entry(entry.into()))),
        letter(),
        (text(), time()).prop_map(|(by, expires)| Record::Lane(lane::Record::Cancelled(Cancelled { by, expires }))),
        Just(Record::Lane(lane::Record::LaneNotice)),
    ]
}
