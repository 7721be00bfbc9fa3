//! A batch where another node wrote first, and a commit whose answer was lost.
//! Both were found by seeds. Called by the test runner.

use std::sync::{Arc, atomic::Ordering};

use fencepost::engine::Error;
use fencepost_kernel::{
    Command, Reply, Tenant, Version,
    fence::{
        self, ClaimFence, Release, Seal, Source, Target, Token,
        scope::{Scope, VersionRule},
    },
    key::Kind,
};

use super::pair::{Pair, claimed_by_second};

// A document in one of its versions.
fn target(version: &str) -> Target {
    let mut scope = Scope::new("MOVE", vec!["doc", "rev"]);
    scope.version = Some(VersionRule { field: "rev".to_owned(), per: vec!["doc".to_owned()] });
    let fields = vec![("doc".to_owned(), "d".to_owned()), ("rev".to_owned(), version.to_owned())];
    Target::new(Tenant::new("acme"), Arc::new(scope), fields, None).expect("a target")
}

fn claim(version: &str, lease_ms: u64) -> Command {
    Command::Fence(fence::Command::Claim(ClaimFence {
        target: target(version),
        body: None,
        version: None,
        source: None,
        lease_ms,
        trace: None,
    }))
}

fn seal(version: &str, token: Token) -> Command {
    let effect_id = format!("effect of {version}");
    Command::Fence(fence::Command::Seal(Seal { target: target(version), token, effect_id, receipt: "done".into() }))
}

#[tokio::test]
async fn a_seal_beside_one_that_fell_still_raises_the_version() {
    let pair = Pair::start().await;
    let fourth = claimed_by_second(&pair, &claim("4", 100)).await;
    let third = claimed_by_second(&pair, &claim("3", 60_000)).await;
    let stopped = pair.way.faults.commits.lock().await;
    // Beside the seal of 4, that of 3 has no version to raise.
    let seals = pair.ask_first(vec![seal("4", fourth), seal("3", third)]).await;
    pair.set_clock_ms(5_000);
    claimed_by_second(&pair, &claim("4", 100)).await;
    drop(stopped);
    let replies = seals.await.expect("the node lives").expect("replies");
    assert!(matches!(replies[0], Reply::Fence(fence::Reply::FencedOff { .. })), "{:?}", replies[0]);
    assert!(matches!(replies[1], Reply::Fence(fence::Reply::Sealed { replay: false, .. })), "{:?}", replies[1]);
    match pair.second.ask(&claim("2", 100)).await.expect("an answer") {
        Reply::Fence(fence::Reply::Stale { sealed_version }) => assert_eq!(sealed_version, Version::Integer(3)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_release_that_went_through_unheard_is_not_told_of_as_refused() {
    let pair = Pair::start().await;
    let token = claimed_by_second(&pair, &claim("1", 60_000)).await;
    pair.way.faults.lose_next_answer();
    let unnoticed = pair.way.faults.answers.lock().await;
    let release =
        pair.ask_first(vec![Command::Fence(fence::Command::Release(Release { target: target("1"), token }))]).await;
    // It is free, and somebody else takes it before the first node asks once more.
    claimed_by_second(&pair, &claim("1", 60_000)).await;
    drop(unnoticed);
    let outcome = release.await.expect("the node lives");
    assert!(matches!(outcome, Err(Error::Unknown(_))), "{outcome:?}");
}

// Seed 62644 of its time: another caller's write fell in the same commit, and a refusal that had been decided before it was decided
// again, after the claim that its asker had put behind it.
#[tokio::test]
async fn refusal_stands_where_a_write_behind_it_in_the_commit_fell() {
    let pair = Pair::start().await;
    let first = claimed_by_second(&pair, &claim("1", 100)).await;
    pair.set_clock_ms(5_000);
    let second = claimed_by_second(&pair, &claim("1", 100)).await;
    pair.set_clock_ms(9_000);
    let stopped = pair.way.faults.commits.lock().await;
    let busy = pair.ask_first(vec![claim("9", 100)]).await;
    let both =
        vec![Command::Fence(fence::Command::Release(Release { target: target("1"), token: first })), claim("1", 100)];
    let both = pair.ask_first(both).await;
    let held = pair.ask_first(vec![seal("1", second)]).await;
    pair.way.holds_last.store(true, Ordering::Relaxed);
    drop(stopped);
    let replies = both.await.expect("the node lives").expect("replies");
    assert!(
        matches!(replies[0], Reply::Fence(fence::Reply::FencedOff { current: Some(token) }) if token == second),
        "{:?}",
        replies[0]
    );
    assert!(matches!(replies[1], Reply::Fence(fence::Reply::New(_))), "{:?}", replies[1]);
    assert!(matches!(held.await.expect("the node lives"), Err(Error::Unavailable(_))));
    assert!(matches!(busy.await.expect("the node lives").expect("replies")[0], Reply::Fence(fence::Reply::New(_))));
}

// Seeds 50568464 and 70061928: a seal below the last sealed version left that one alone, and a failover lost it between the two.
// The seal was acknowledged, and nothing remembered its version.
#[tokio::test]
async fn seal_below_a_version_head_that_a_failover_loses_is_decided_again_and_makes_one() {
    let pair = Pair::start().await;
    let second = claimed_by_second(&pair, &claim("2", 60_000)).await;
    let third = claimed_by_second(&pair, &claim("3", 60_000)).await;
    let sealed = pair.second.ask(&seal("3", third)).await.expect("an answer");
    assert!(matches!(sealed, Reply::Fence(fence::Reply::Sealed { replay: false, .. })), "{sealed:?}");
    let stopped = pair.way.faults.commits.lock().await;
    // Decided over the head of 3: it writes none.
    let late = pair.ask_first(vec![seal("2", second)]).await;
    pair.lose(Kind::VersionHead).await;
    drop(stopped);
    let replies = late.await.expect("the node lives").expect("replies");
    assert!(matches!(replies[0], Reply::Fence(fence::Reply::Sealed { replay: false, .. })), "{:?}", replies[0]);
    match pair.second.ask(&claim("1", 100)).await.expect("an answer") {
        Reply::Fence(fence::Reply::Stale { sealed_version }) => assert_eq!(sealed_version, Version::Integer(2)),
        other => panic!("{other:?}"),
    }
}

// A task of a document whose version only the claim carries.
fn task(number: &str) -> Target {
    let fields = vec![("doc".to_owned(), "d".to_owned()), ("task".to_owned(), number.to_owned())];
    let scope = Scope::new("SYNC", vec!["doc", "task"]);
    Target::new(Tenant::new("acme"), Arc::new(scope), fields, None).expect("a target")
}

fn claim_task(number: &str, version: Option<i128>) -> Command {
    let source = version.map(|_| Source { kind: "doc".to_owned(), id: "d".to_owned() });
    let version = version.map(Version::Integer);
    Command::Fence(fence::Command::Claim(ClaimFence {
        target: task(number),
        body: None,
        version,
        source,
        lease_ms: 100,
        trace: None,
    }))
}

// Seed 300291184 of its time: a refusal rested on another caller's seal, which fell, while the claim behind it on the same key was
// granted in that commit. Decided again, the refusal came after the grant.
#[tokio::test]
async fn refusal_that_rests_on_a_fallen_write_is_unknown_once_the_claim_behind_it_is_granted() {
    let pair = Pair::start().await;
    let fourth = claimed_by_second(&pair, &claim_task("4", Some(4))).await;
    let stopped = pair.way.faults.commits.lock().await;
    let busy = pair.ask_first(vec![claim("9", 100)]).await;
    let seal = Seal { target: task("4"), token: fourth, effect_id: "four".to_owned(), receipt: "done".into() };
    let seal = pair.ask_first(vec![Command::Fence(fence::Command::Seal(seal))]).await;
    let both = pair.ask_first(vec![claim_task("2", Some(2)), claim_task("2", None)]).await;
    pair.set_clock_ms(5_000);
    claimed_by_second(&pair, &claim_task("4", Some(4))).await;
    drop(stopped);
    let outcome = both.await.expect("the node lives");
    assert!(matches!(outcome, Err(Error::Unknown(_))), "{outcome:?}");
    let sealed = seal.await.expect("the node lives").expect("a reply");
    assert!(matches!(sealed[0], Reply::Fence(fence::Reply::FencedOff { .. })), "{:?}", sealed[0]);
    assert!(matches!(busy.await.expect("the node lives").expect("replies")[0], Reply::Fence(fence::Reply::New(_))));
}
