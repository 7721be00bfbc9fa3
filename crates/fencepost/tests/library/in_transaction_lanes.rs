//! Events that are published in a user's own PostgreSQL transaction: positions without gaps, and which writers wait.

use std::sync::Arc;

use fencepost::{Engine, engine::Error};
use fencepost_kernel::{
    Command, Millis, Reply, RowKey, Tenant, Write,
    dispatch::{self, Publish, PutTransport, Transport, WarehouseTransport, Webhook},
    fence::{self, ClaimFence, Target, scope::Scope},
    key::Kind,
    lane::{self, AfterDead, Append, Entry, LanePurpose, Members},
    law::Also,
    merge::Merge,
    row::Record,
};
use fencepost_store::{Error as StoreError, Store, Verdict, WriteSet};
use futures::executor::block_on;
use tokio_postgres::Transaction;

use super::in_transaction::{NOW, Rig, client, key, put, sealed, set};

fn entry(number: u64) -> Entry {
    Entry {
        correlation_id: format!("C-{number}"),
        kind: "SHIPPER_RELEASED".to_owned(),
        warehouse: "W1".to_owned(),
        body: format!("secret body {number}").into(),
        published: Millis(NOW),
        redrive_of: None,
    }
}

fn planner() -> Tenant {
    Tenant::new("acme")
}

pub fn put_transport() -> Command {
    let secrets = vec!["hidden".into()];
    let route = WarehouseTransport {
        planner: planner(),
        warehouse: "W1".to_owned(),
        executor: "dock".to_owned(),
        transport: Transport::Webhook(Webhook { url: "https://dock.example".to_owned(), secrets, standard: false }),
        after_dead: AfterDead::Continue,
        receiver_retain_ms: 1,
        at: Millis(0),
    };
    Command::Dispatch(dispatch::Command::PutTransport(
        PutTransport { transport: route, seen_to: None, over: None }.into(),
    ))
}

pub fn publication(number: u64) -> Command {
    let scope = Arc::new(Scope::new("PUBLISH", ["correlation_id"]));
    let fields = vec![("correlation_id".to_owned(), format!("C-{number}"))];
    let target = Target::new(planner(), scope, fields, None).unwrap();
    let claim = ClaimFence { target, body: None, version: None, source: None, lease_ms: 30_000, trace: None };
    let members = Members { me: "user".to_owned(), alive: vec!["node-1".to_owned()] };
    let (entry, members) = (entry(number).into(), members.into());
    Command::Dispatch(dispatch::Command::Publish(Publish { claim, entry, cancels: None, members, served: None }.into()))
}

async fn ask(engine: &Engine, tx: &mut Transaction<'_>, command: &Command) -> Result<Reply, Error> {
    engine.ask_in(tx, command).await
}

async fn position(engine: &Engine, tx: &mut Transaction<'_>, number: u64) -> u64 {
    match ask(engine, tx, &publication(number)).await.unwrap() {
        Reply::Dispatch(dispatch::Reply::Published { publication: dispatch::PublishReceipt { seq, .. }, .. }) => seq,
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn an_event_published_in_the_users_transaction_is_there_with_it_and_leaves_no_gap_without_it() {
    let rig = Rig::new();
    let (engine, store, url) = rig.fresh();
    let mut client = client(&rig, &url);
    let lane = LanePurpose::Warehouse("W1".to_owned()).lane(&planner());
    rig.runtime.block_on(async {
        let mut tx = client.transaction().await.unwrap();
        assert!(matches!(
            ask(&engine, &mut tx, &publication(0)).await,
            Ok(Reply::Dispatch(dispatch::Reply::NoTransport))
        ));
        assert!(matches!(
            ask(&engine, &mut tx, &put_transport()).await,
            Ok(Reply::Dispatch(dispatch::Reply::TransportPut { replay: false }))
        ));
        assert_eq!([position(&engine, &mut tx, 1).await, position(&engine, &mut tx, 2).await], [1, 2]);
        tx.commit().await.unwrap();
        let mut tx = client.transaction().await.unwrap();
        assert_eq!(position(&engine, &mut tx, 3).await, 3);
        tx.rollback().await.unwrap();
        let mut tx = client.transaction().await.unwrap();
        assert_eq!(position(&engine, &mut tx, 4).await, 3);
        let again = ask(&engine, &mut tx, &publication(1)).await.unwrap();
        assert!(matches!(again, Reply::Fence(fence::Reply::Duplicate { .. })), "{again:?}");
        tx.commit().await.unwrap();
        let page = store.scan(Kind::Entry, None, 10).await.unwrap();
        let found: Vec<_> = page.iter().map(|(key, row)| (key.place(), row.record.clone())).collect();
        let bodies = found.iter().map(|(place, record)| match record {
            Record::Lane(lane::Record::Entry(entry)) => (*place, entry.correlation_id.as_str()),
            record => panic!("{record:?}"),
        });
        let bodies: Vec<_> = bodies.collect();
        assert_eq!(bodies, [((lane, 1), "C-1"), ((lane, 2), "C-2"), ((lane, 3), "C-4")]);
        // A word for the node that shall drive it, since a user's process drives nothing.
        assert!(store.load(&[RowKey::lane_notice("node-1", lane)]).await.unwrap()[0].is_some());
    });
}

// Each has position n only once n-1 is committed: they wait for one another, and none is left out.
#[test]
fn users_who_publish_to_one_new_lane_at_once_wait_for_one_another() {
    let rig = Rig::new();
    let (engine, store, url) = rig.fresh();
    let engine = &engine;
    let mut clients: Vec<_> = (0..5).map(|_| client(&rig, &url)).collect();
    let mut positions = rig.runtime.block_on(async {
        let mut tx = clients[0].transaction().await.unwrap();
        ask(engine, &mut tx, &put_transport()).await.unwrap();
        tx.commit().await.unwrap();
        let publish = clients.iter_mut().enumerate().map(|(number, client)| async move {
            let mut positions = Vec::new();
            for turn in 0..6 {
                let mut tx = client.transaction().await.unwrap();
                positions.push(position(engine, &mut tx, number as u64 * 10 + turn).await);
                tx.commit().await.unwrap();
            }
            positions
        });
        futures::future::join_all(publish).await.concat()
    });
    positions.sort_unstable();
    assert_eq!(positions, (1..=30).collect::<Vec<_>>());
    assert_eq!(block_on(store.scan(Kind::Entry, None, 100)).unwrap().len(), 30);
}

// Those who come in the middle of the first one's commit find its lane and not yet its fence.
#[test]
fn users_who_publish_one_event_at_once_publish_it_once_and_none_is_turned_away() {
    let rig = Rig::new();
    let (engine, _store, url) = rig.fresh();
    let engine = &engine;
    let mut clients: Vec<_> = (0..6).map(|_| client(&rig, &url)).collect();
    rig.runtime.block_on(async {
        let mut tx = clients[0].transaction().await.unwrap();
        ask(engine, &mut tx, &put_transport()).await.unwrap();
        tx.commit().await.unwrap();
        for number in 1..=20 {
            let publish = clients.iter_mut().map(|client| async move {
                let mut tx = client.transaction().await.unwrap();
                let reply = ask(engine, &mut tx, &publication(number)).await.unwrap();
                tx.commit().await.unwrap();
                matches!(reply, Reply::Dispatch(dispatch::Reply::Published { publication: dispatch::PublishReceipt { seq, .. }, .. }) if seq == number)
            });
            let published = futures::future::join_all(publish).await;
            assert_eq!(published.iter().filter(|new| **new).count(), 1);
        }
    });
}

#[test]
fn node_that_hears_a_notice_does_not_wait_for_a_user_who_is_about_to_repeat_it() {
    let rig = Rig::new();
    let (engine, store, url) = rig.fresh();
    let mut client = client(&rig, &url);
    let notice = RowKey::lane_notice("node-1", LanePurpose::Warehouse("W1".to_owned()).lane(&planner()));
    let hear = async |id: u64| {
        let fence = put(id, sealed(1));
        let also = Also { drops: vec![notice], ..Also::default() };
        let sets = [WriteSet { also, ..set(id, []) }, set(id + 1, [fence])];
        let verdicts = store.commit(&sets, Millis(NOW)).await.unwrap();
        (verdicts, store.load(&[notice]).await.unwrap()[0].is_some())
    };
    rig.runtime.block_on(async {
        let mut tx = client.transaction().await.unwrap();
        ask(&engine, &mut tx, &put_transport()).await.unwrap();
        position(&engine, &mut tx, 1).await;
        tx.commit().await.unwrap();
        let mut tx = client.transaction().await.unwrap();
        assert_eq!(position(&engine, &mut tx, 2).await, 2);
        assert_eq!(hear(1 << 40).await, (vec![Verdict::Applied; 2], true), "the user depends on the notice");
        tx.commit().await.unwrap();
        assert_eq!(hear(1 << 41).await, (vec![Verdict::Applied; 2], false));
    });
}

#[test]
fn a_lane_goes_on_while_a_user_publishes_to_it_and_stands_still_while_one_cancels() {
    let rig = Rig::new();
    let (engine, store, url) = rig.fresh();
    let mut client = client(&rig, &url);
    let lane = RowKey::lane(LanePurpose::Warehouse("W1".to_owned()).lane(&planner()));
    // An acknowledgement, as far as the store sees it.
    let acknowledge = async |id: u64| {
        let row = store.load(&[lane]).await.unwrap().remove(0).unwrap();
        let write = Write { key: lane, expect: Some(row.revision), put: Some(row.record.clone()) };
        store.commit(&[set(id, [write])], Millis(NOW)).await.unwrap()
    };
    rig.runtime.block_on(async {
        let mut tx = client.transaction().await.unwrap();
        ask(&engine, &mut tx, &put_transport()).await.unwrap();
        position(&engine, &mut tx, 1).await;
        tx.commit().await.unwrap();
        let mut tx = client.transaction().await.unwrap();
        assert_eq!(position(&engine, &mut tx, 2).await, 2);
        assert_eq!(acknowledge(u64::MAX).await, [Verdict::Applied]);
        assert_eq!(position(&engine, &mut tx, 3).await, 3);
        let (
            Command::Dispatch(dispatch::Command::Publish(mut cancel)),
            Command::Dispatch(dispatch::Command::Publish(original)),
        ) = (publication(4), publication(1))
        else {
            panic!("not publications")
        };
        cancel.cancels = Some(original.claim.target);
        let told = ask(&engine, &mut tx, &Command::Dispatch(dispatch::Command::Publish(cancel))).await.unwrap();
        assert!(
            matches!(
                told,
                Reply::Dispatch(dispatch::Reply::Published {
                    publication: dispatch::PublishReceipt { seq: 4, .. },
                    ..
                })
            ),
            "{told:?}"
        );
        assert_eq!(acknowledge(u64::MAX - 1).await, [Verdict::Held]);
        tx.commit().await.unwrap();
        assert_eq!(acknowledge(u64::MAX - 2).await, [Verdict::Applied]);
        assert_eq!(store.range(Kind::Entry, &lane.place().0.0, None, 10).await.unwrap().len(), 4);
    });
}

#[test]
fn people_can_read_lanes_in_sql_but_neither_bodies_nor_secrets() {
    let rig = Rig::new();
    let (engine, store, url) = rig.fresh();
    let mut client = client(&rig, &url);
    rig.runtime.block_on(async {
        let mut tx = client.transaction().await.unwrap();
        ask(&engine, &mut tx, &put_transport()).await.unwrap();
        position(&engine, &mut tx, 1).await;
        tx.commit().await.unwrap();
    });
    let ask = |sql: &str| rig.server.sql(&url, sql);
    let in_lane =
        "SELECT about ->> 'seq', about ->> 'correlation_id', about ->> 'kind' FROM fencepost_rows WHERE kind = 9";
    assert_eq!(ask(in_lane), "1|C-1|SHIPPER_RELEASED");
    let lane = "SELECT about ->> 'name', about ->> 'settled', about ->> 'paused' FROM fencepost_rows WHERE kind = 7";
    assert_eq!(ask(lane), "acme:W1|0|false");
    assert_eq!(ask("SELECT about ->> 'transport' FROM fencepost_rows WHERE kind = 6"), "webhook");
    let all = ask("SELECT string_agg(about::text, ' ') FROM fencepost_rows");
    assert!(!all.contains("secret body") && !all.contains("hidden") && !all.contains("dock.example"), "{all}");
    let damage = "UPDATE fencepost_rows SET record = set_byte(record, 9, get_byte(record, 9) # 1) WHERE kind = 8";
    ask(damage);
    let lane = LanePurpose::Warehouse("W1".to_owned()).lane(&planner());
    let append = Append { lane, entry: entry(9).into(), position_row: key(9), driven: None };
    let also = Also { merges: vec![Merge::Append(append)], ..Also::default() };
    let outcome = block_on(store.commit(&[WriteSet { also, ..set(9, [put(9, sealed(9))]) }], Millis(NOW)));
    assert!(matches!(&outcome, Err(StoreError::Broken(why)) if why.contains("checksum")), "{outcome:?}");
}
