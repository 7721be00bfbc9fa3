//! A claim or a publication in the user's transaction holds every row that it was decided over, at each isolation level:
//! those that were there and those that were not.

use std::sync::Arc;

use fencepost::{Engine, engine::Error};
use fencepost_kernel::{
    Command, Reply, Tenant, dispatch,
    fence::{self, Target, scope::Scope},
};
use tokio_postgres::{
    Client,
    IsolationLevel::{self, ReadCommitted, RepeatableRead, Serializable},
    Transaction,
};

use super::{
    in_transaction::{Rig, claim, client, run, seal, somebody_waits, version_of},
    in_transaction_lanes::{publication, put_transport},
};

const LEVELS: [IsolationLevel; 3] = [ReadCommitted, RepeatableRead, Serializable];

async fn ask(engine: &Engine, tx: &mut Transaction<'_>, command: &Command) -> Result<Reply, Error> {
    engine.ask_in(tx, command).await
}

// A transaction whose snapshot, where it has one, is from now.
async fn begin(client: &mut Client, level: IsolationLevel) -> Transaction<'_> {
    let tx = client.build_transaction().isolation_level(level).start().await.unwrap();
    tx.query_one("SELECT count(*) FROM fencepost_fences", &[]).await.unwrap();
    tx
}

async fn commit(engine: &Engine, client: &mut Client, command: &Command) -> Reply {
    let mut tx = client.transaction().await.unwrap();
    let reply = ask(engine, &mut tx, command).await.unwrap();
    tx.commit().await.unwrap();
    reply
}

fn file(number: u64, seq: Option<u64>) -> Target {
    let fields = vec![("file".to_owned(), number.to_string())];
    Target::new(Tenant::new("acme"), Arc::new(Scope::new("FILE", ["file"])), fields, seq).unwrap()
}

// Under read committed the claim is decided over what is there; with a snapshot, PostgreSQL says that it must begin again.
#[track_caller]
fn assert_sees_or_fails(level: IsolationLevel, outcome: Result<Reply, Error>, sees: impl Fn(&Reply) -> bool) {
    match (level, &outcome) {
        (ReadCommitted, Ok(reply)) => assert!(sees(reply), "{reply:?}"),
        (ReadCommitted, _) => panic!("{outcome:?}"),
        (_, Err(Error::Unavailable(why))) => assert!(why.contains("40001"), "{why}"),
        _ => panic!("a state that was acknowledged since was passed over: {outcome:?}"),
    }
}

#[test]
fn a_version_that_was_sealed_after_the_snapshot_is_never_overtaken() {
    let rig = Rig::new();
    let (engine, _store, url) = rig.fresh();
    rig.server.sql(&url, "CREATE TABLE effects (id bigint)");
    let [mut one, mut other] = [(); 2].map(|()| client(&rig, &url));
    rig.runtime.block_on(async {
        for (number, level) in (0..).zip(LEVELS) {
            for known in [None, Some(1)] {
                // With no version head before, and with one.
                let number = number * 2 + u64::from(known.is_some());
                if let Some(version) = known {
                    run(&engine, &mut other, version_of(number, version)).await;
                }
                let mut tx = begin(&mut one, level).await;
                assert!(matches!(
                    run(&engine, &mut other, version_of(number, 5)).await,
                    Reply::Fence(fence::Reply::New(_))
                ));
                let outcome = ask(&engine, &mut tx, &claim(version_of(number, 3))).await;
                assert_sees_or_fails(level, outcome, |reply| matches!(reply, Reply::Fence(fence::Reply::Stale { .. })));
            }
        }
    });
}

#[test]
fn a_version_head_that_was_not_there_is_held_until_the_transaction_ends() {
    let rig = Rig::new();
    let (engine, _store, url) = rig.fresh();
    rig.server.sql(&url, "CREATE TABLE effects (id bigint)");
    let [mut one, mut other, watch] = [(); 3].map(|()| client(&rig, &url));
    rig.runtime.block_on(async {
        for (number, level) in (0..).zip(LEVELS) {
            let mut tx = begin(&mut one, level).await;
            let Reply::Fence(fence::Reply::New(granted)) =
                ask(&engine, &mut tx, &claim(version_of(number, 3))).await.unwrap()
            else {
                panic!("it is free")
            };
            let ended = async {
                somebody_waits(&watch).await;
                ask(&engine, &mut tx, &seal(version_of(number, 3), granted.token)).await.unwrap();
                tx.commit().await.unwrap();
            };
            let (reply, ()) = futures::future::join(run(&engine, &mut other, version_of(number, 2)), ended).await;
            assert!(matches!(reply, Reply::Fence(fence::Reply::Stale { .. })), "{reply:?}");
        }
    });
}

#[test]
fn a_first_repetition_never_passes_a_claim_of_its_base() {
    let rig = Rig::new();
    let (engine, _store, url) = rig.fresh();
    rig.server.sql(&url, "CREATE TABLE effects (id bigint)");
    let [mut one, mut other, watch] = [(); 3].map(|()| client(&rig, &url));
    rig.runtime.block_on(async {
        for (number, level) in (0..).zip(LEVELS) {
            let mut tx = begin(&mut one, level).await;
            assert!(matches!(
                commit(&engine, &mut other, &claim(file(number, None))).await,
                Reply::Fence(fence::Reply::New(_))
            ));
            let outcome = ask(&engine, &mut tx, &claim(file(number, Some(1)))).await;
            assert_sees_or_fails(level, outcome, |reply| matches!(reply, Reply::Fence(fence::Reply::InFlight { .. })));
            tx.rollback().await.unwrap();

            // The other way round: the base that was not there is held.
            let number = number + 100;
            let mut tx = begin(&mut one, level).await;
            assert!(matches!(
                ask(&engine, &mut tx, &claim(file(number, Some(1)))).await,
                Ok(Reply::Fence(fence::Reply::New(_)))
            ));
            let ended = async {
                somebody_waits(&watch).await;
                tx.commit().await.unwrap();
            };
            let (reply, ()) = futures::future::join(run(&engine, &mut other, file(number, None)), ended).await;
            assert!(matches!(reply, Reply::Fence(fence::Reply::New(_))), "{reply:?}");

            // And one that was there.
            let number = number + 100;
            run(&engine, &mut other, file(number, None)).await;
            let mut tx = begin(&mut one, level).await;
            assert!(matches!(
                ask(&engine, &mut tx, &claim(file(number, Some(1)))).await,
                Ok(Reply::Fence(fence::Reply::New(_)))
            ));
            let base = file(number, None).key.0.to_vec();
            let free =
                "SELECT count(*) FROM (SELECT 1 FROM fencepost_fences WHERE key = $1 FOR UPDATE SKIP LOCKED) free";
            assert_eq!(other.query_one(free, &[&base]).await.unwrap().get::<_, i64>(0), 0, "the base is not held");
            tx.commit().await.unwrap();
        }
    });
}

#[test]
fn a_publication_never_passes_one_that_made_its_lane_or_its_fence() {
    let rig = Rig::new();
    for level in LEVELS {
        let (engine, _store, url) = rig.fresh();
        let [mut one, mut other] = [(); 2].map(|()| client(&rig, &url));
        rig.runtime.block_on(async {
            commit(&engine, &mut other, &put_transport()).await;
            let mut tx = begin(&mut one, level).await;
            let published = commit(&engine, &mut other, &publication(1)).await;
            assert!(
                matches!(
                    published,
                    Reply::Dispatch(dispatch::Reply::Published {
                        publication: dispatch::PublishReceipt { seq: 1, .. },
                        ..
                    })
                ),
                "{published:?}"
            );
            let outcome = ask(&engine, &mut tx, &publication(2)).await;
            assert_sees_or_fails(level, outcome, |reply| {
                matches!(
                    reply,
                    Reply::Dispatch(dispatch::Reply::Published {
                        publication: dispatch::PublishReceipt { seq: 2, .. },
                        ..
                    })
                )
            });
            tx.rollback().await.unwrap();
            let mut tx = begin(&mut one, level).await;
            commit(&engine, &mut other, &publication(3)).await;
            let outcome = ask(&engine, &mut tx, &publication(3)).await;
            assert_sees_or_fails(level, outcome, |reply| matches!(reply, Reply::Fence(fence::Reply::Duplicate { .. })));
        });
        let positions =
            "SELECT string_agg(about ->> 'seq', ' ' ORDER BY about ->> 'seq') FROM fencepost_rows WHERE kind = 9";
        assert_eq!(rig.server.sql(&url, positions), "1 2", "what was rolled back leaves no gap");
    }
}
