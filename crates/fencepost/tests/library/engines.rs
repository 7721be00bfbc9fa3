//! Engines that share a store, and stores that stop.

use std::{
    convert::Infallible,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fencepost::{
    Claimed, Done, Error, Failure, Fencepost,
    engine::{self, EngineLimits},
    kernel::{Command, RowKey, key::Kind, lane},
    store::{Store, memory::Memory},
};
use fencepost_testkit::{Faults, clock::ManualClock, settle, until};
use futures::FutureExt;
use tokio::task::JoinHandle;

use crate::world::over;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_that_share_a_store_let_in_one_claimant_per_key() {
    let store = Arc::new(Memory::default());
    let hand = ManualClock::new();
    let mut engines = Vec::new();
    for _ in 0..3 {
        engines.push(over(store.clone(), hand.clone(), EngineLimits::default()).await);
    }
    let granted: Arc<Vec<AtomicUsize>> = Arc::new((0..50).map(|_| AtomicUsize::new(0)).collect());
    let mut callers = Vec::new();
    for caller in 0..24 {
        let (once, granted) = (engines[caller % 3].clone(), granted.clone());
        callers.push(tokio::spawn(async move {
            for (key, count) in granted.iter().enumerate() {
                let claimed = once.scope("JOB").key([("id", key.to_string())]).claim().await;
                if let Ok(Claimed::New(_)) = claimed {
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }
        }));
    }
    for caller in callers {
        caller.await.unwrap();
    }
    assert!(granted.iter().all(|count| count.load(Ordering::SeqCst) == 1));
}

#[tokio::test]
async fn fail_stop_after_a_failed_sync_nothing_is_acknowledged() {
    let store = Faults::default().over_memory();
    let once = over(store.clone(), ManualClock::new(), EngineLimits::default()).await;
    let Claimed::New(claim) = once.scope("JOB").key([("id", "a")]).claim().await.unwrap() else { panic!() };
    store.broken.store(true, Ordering::SeqCst);
    assert!(matches!(claim.seal("e", "r").await, Err(Error::Engine(engine::Error::Stopped(_)))));
    // Even if the disk comes back: a sync that failed once is never trusted again.
    store.broken.store(false, Ordering::SeqCst);
    let commits = store.begun();
    assert!(matches!(claim.seal("e", "r").await, Err(Error::Engine(engine::Error::Stopped(_)))));
    assert_eq!(store.begun(), commits, "the store is not even asked");
    assert!(once.engine().ready().await.is_err());
    assert!(once.lookup("JOB", [("id", "a")]).await.unwrap().is_some(), "what was acknowledged can still be read");
}

#[tokio::test]
async fn an_outcome_is_told_until_the_store_takes_it() {
    let store = Faults::default().over_memory();
    let once = over(store.clone(), ManualClock::new(), EngineLimits::default()).await;
    let job = once.scope("JOB").key([("id", "a")]);
    let act = |away| {
        let store = store.clone();
        move |_| async move {
            store.refusals.store(away, Ordering::SeqCst);
            Ok::<_, Failure<Infallible>>(Done::new("e", "r"))
        }
    };
    let outcome = job.clone().run(act(3)).await.unwrap();
    assert!(!outcome.replayed);
    assert!(matches!(job.claim().await, Ok(Claimed::Duplicate(_))));

    // A minute passes by itself.
    let away = act(usize::MAX);
    let given_up = once.scope("JOB").key([("id", "b")]).run(|claim| {
        tokio::time::pause();
        away(claim)
    });
    let given_up = given_up.await;
    let Err(Error::Unsealed { done, .. }) = given_up else { panic!("{given_up:?}") };
    assert_eq!(done, Done::new("e", "r"), "nobody may take it for undone");
}

// Its callers run on this executor, and so does its commit loop where the store is shared.
async fn on_this_executor(store: Arc<dyn Store>, limits: EngineLimits) -> Fencepost {
    let askers = Some(tokio::runtime::Handle::current());
    fencepost::Fencepost::over(store, ManualClock::new(), crate::world::policy(), limits, Box::new(()), askers)
        .await
        .unwrap()
}

fn claiming(once: &Fencepost, number: usize) -> JoinHandle<Result<Claimed, Error>> {
    let once = once.clone();
    tokio::spawn(async move { once.scope("JOB").key([("id", format!("number {number}"))]).claim().await })
}

#[tokio::test]
async fn on_a_shared_store_a_commit_leaves_beside_another_when_it_is_as_large() {
    let store = Faults::shared().over_memory();
    let once = on_this_executor(store.clone(), EngineLimits { beside_min: 1, ..EngineLimits::default() }).await;
    let held = store.commits.lock().await;
    let mut claims = Vec::new();
    for commits in 1..=2 {
        claims.push(claiming(&once, commits));
        settle().await;
        assert_eq!(store.begun(), commits);
    }
    // A third one does not; callers that come meanwhile share it.
    claims.extend((3..=6).map(|number| claiming(&once, number)));
    settle().await;
    assert_eq!((once.engine().asking(), store.begun()), (6, 2));
    let mut held_again = pin!(store.commits.lock());
    assert!((&mut held_again).now_or_never().is_none(), "in line behind both");
    drop(held);
    let held = held_again.await;
    settle().await;
    assert_eq!(store.begun(), 3);
    // Four are under way: one more waits, and so do three.
    claims.extend((7..=9).map(|number| claiming(&once, number)));
    settle().await;
    assert_eq!((once.engine().asking(), store.begun()), (7, 3), "too small for a sync of its own");
    claims.push(claiming(&once, 10));
    settle().await;
    assert_eq!(store.begun(), 4);
    drop(held);
    for claimed in claims {
        assert!(matches!(claimed.await.unwrap(), Ok(Claimed::New(_))));
    }
    assert_eq!(store.begun(), 4);
}

#[tokio::test]
async fn a_lane_command_commits_alone_also_on_a_shared_store() {
    let store = Faults::shared().over_memory();
    let once = on_this_executor(store.clone(), EngineLimits { beside_min: 1, ..EngineLimits::default() }).await;
    let held = store.commits.lock().await;
    let claim = claiming(&once, 1);
    settle().await;
    let engine = once.engine().clone();
    let word = RowKey { kind: Kind::LaneNotice, id: [7; 32] };
    let heard = tokio::spawn(async move { engine.ask(&Command::Lane(lane::Command::DropNotices(vec![word]))).await });
    settle().await;
    assert_eq!((once.engine().asking(), store.begun()), (2, 1));
    drop(held);
    assert!(matches!(claim.await.unwrap(), Ok(Claimed::New(_))));
    heard.await.unwrap().unwrap();
    assert_eq!(store.begun(), 2);
}

// The first is read for before another engine claims and seals its number, the second after that; both wait for one commit.
#[tokio::test]
async fn no_reply_mixes_rows_of_two_moments() {
    let store = Faults::shared().over_memory();
    let once = on_this_executor(store.clone(), EngineLimits { beside_min: 1, ..EngineLimits::default() }).await;
    let other = on_this_executor(store.inner.clone(), EngineLimits::default()).await;
    let job = |once: &Fencepost, seq| {
        let once = once.clone();
        tokio::spawn(async move { once.scope("JOB").key([("id", "a")]).again(seq).claim().await })
    };
    let held = store.commits.lock().await;
    let mut first = Vec::new();
    for commits in 1..=2 {
        first.push(claiming(&once, commits));
        settle().await;
        assert_eq!(store.begun(), commits);
    }
    let early = job(&once, 1);
    settle().await;
    let Claimed::New(claim) = job(&other, 1).await.unwrap().unwrap() else { panic!("nobody has it yet") };
    claim.seal("e", "r").await.unwrap();
    let late = job(&once, 2);
    settle().await;
    assert_eq!((once.engine().asking(), store.begun()), (4, 2));
    drop(held);
    for claimed in first {
        claimed.await.unwrap().unwrap();
    }
    assert!(matches!(early.await.unwrap(), Ok(Claimed::Duplicate(_))));
    assert!(matches!(late.await.unwrap(), Ok(Claimed::New(_))));
}

#[tokio::test]
async fn housekeeping_needs_no_executor_of_its_own() {
    let hand = ManualClock::new();
    let once = over(Arc::new(Memory::default()), hand.clone(), EngineLimits::default()).await;
    let job = once.scope("JOB").key([("id", "a")]);
    let Claimed::New(claim) = job.clone().claim().await.unwrap() else { panic!() };
    claim.seal("e", "r").await.unwrap();
    assert!(matches!(job.claim().await, Ok(Claimed::Duplicate(_))), "a count to flush");
    let engine = once.engine().clone();
    let step = move || futures::executor::block_on(engine.housekeep());
    tokio::task::spawn_blocking(|| std::thread::spawn(step).join()).await.unwrap().unwrap().unwrap();
}

#[test]
fn a_fencepost_outlives_the_runtime_it_was_opened_on() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let once = runtime().block_on(over(Arc::new(Memory::default()), ManualClock::new(), EngineLimits::default()));
    let claimed = runtime().block_on(once.scope("JOB").key([("id", "a")]).claim());
    assert!(matches!(claimed, Ok(Claimed::New(_))));
}

#[tokio::test]
async fn new_keys_are_looked_for_once_and_old_ones_mostly_answered_without_the_queue() {
    let store = Faults::default().over_memory();
    let once = over(store.clone(), ManualClock::new(), EngineLimits::default()).await;
    let keys = 200;
    let key = |number: usize| once.scope("JOB").key([("id", number.to_string())]);
    for number in 0..keys {
        key(number).run(async |_| Ok::<_, fencepost::Failure<String>>(fencepost::Done::new("E", "1"))).await.unwrap();
    }
    assert_eq!(store.peeks(), 0, "the commit looks anyway");
    for number in 0..keys {
        assert!(matches!(key(number).claim().await.unwrap(), Claimed::Duplicate(_)), "{number}");
    }
    let looked = store.peeks();
    assert!(looked > keys / 2, "{looked} of {keys} were answered at once");
}

const COMMITTER: &str = "fencepost-commit";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_caller_commits_inline_and_several_share_the_commit_loop() {
    let store = Faults::default().over_memory();
    let once = on_this_executor(store.clone(), EngineLimits::default()).await;
    let claim = |number: usize| {
        let once = once.clone();
        tokio::spawn(async move { once.scope("JOB").key([("id", number.to_string())]).claim().await })
    };
    let by_loop = |threads: &[String]| threads.iter().filter(|name| *name == COMMITTER).count();
    for number in 0..20 {
        assert!(matches!(claim(number).await.unwrap().unwrap(), Claimed::New(_)));
    }
    let alone = store.take_threads();
    assert_eq!((alone.len(), by_loop(&alone)), (20, 0), "{alone:?}");

    // The first one hangs; callers that come meanwhile wait in the queue, and share one commit.
    let held = store.disk.lock().unwrap();
    let first = claim(100);
    store.until_begun(21);
    let others: Vec<_> = (101..110).map(claim).collect();
    until("all ask", || once.engine().asking() == 10);
    drop(held);
    for claimed in [first].into_iter().chain(others) {
        assert!(matches!(claimed.await.unwrap().unwrap(), Claimed::New(_)));
    }
    let together = store.take_threads();
    assert_eq!(by_loop(&together[..1]), 0, "{together:?}");
    assert!(by_loop(&together) >= 1 && together.len() < 11, "{together:?}");
}

#[test]
fn a_store_is_not_ready_while_a_commit_does_not_end() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let store = Faults::default().over_memory();
    let limits = EngineLimits { patience: Duration::from_millis(100), ..EngineLimits::default() };
    let once = runtime.block_on(over(store.clone(), ManualClock::new(), limits));
    let held = store.disk.lock().unwrap();
    let claim = once.scope("JOB").key([("id", "a")]).claim();
    assert!(runtime.block_on(claim).is_err(), "nobody knows");
    assert!(runtime.block_on(once.engine().ready()).is_err());
    drop(held);
    runtime.block_on(once.engine().ready()).unwrap();
}

#[test]
fn a_disk_that_does_not_answer_holds_up_neither_sockets_nor_patience() {
    use std::io::{Read, Write};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let store = Faults::default().over_memory();
    let limits = EngineLimits { patience: Duration::from_millis(200), ..EngineLimits::default() };
    let once = runtime.block_on(on_this_executor(store.clone(), limits));
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    // A server that sends back each byte; for a capital it first claims the key of that name.
    let claiming = once.clone();
    runtime.spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let once = claiming.clone();
            tokio::spawn(async move {
                while let Ok(byte) = socket.read_u8().await {
                    let mut said = byte;
                    if byte.is_ascii_uppercase() {
                        said = match once.scope("JOB").key([("id", byte.to_string())]).claim().await {
                            Ok(Claimed::New(_)) => b'+',
                            Err(Error::Engine(engine::Error::Unknown(_))) => b'?',
                            Err(Error::InFlight { .. }) => b'-',
                            _ => b'!',
                        };
                    }
                    socket.write_u8(said).await.unwrap();
                }
            });
        }
    });
    let connect = || {
        let socket = std::net::TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        socket
    };
    let hear = |socket: &mut std::net::TcpStream| {
        let mut byte = [0];
        socket.read_exact(&mut byte).expect("somebody watches the sockets");
        byte[0] as char
    };
    let (mut stuck, mut other) = (connect(), connect());
    for (key, said) in [(b'A', '+'), (b'A', '-'), (b'a', 'a')] {
        stuck.write_all(&[key]).unwrap();
        assert_eq!(hear(&mut stuck), said);
    }
    let commits = store.begun();
    let held = store.disk.lock().unwrap();
    stuck.write_all(b"B").unwrap();
    store.until_begun(commits + 1);
    for round in 0..200u8 {
        other.write_all(&[b'a' + round % 26]).unwrap();
        assert_eq!(hear(&mut other) as u8, b'a' + round % 26);
    }
    other.write_all(b"C").unwrap();
    assert_eq!((hear(&mut other), hear(&mut stuck)), ('?', '?'));
    drop(held);
    // The unknown writes have happened, and are answered as such from now on.
    for key in [b'B', b'C'] {
        other.write_all(&[key]).unwrap();
        assert_eq!(hear(&mut other), '-');
    }
}
