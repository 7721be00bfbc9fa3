//! The time of a decision where another node writes between its reading and its commit.
//! All were found by seeds. Called by the test runner.

use std::sync::Arc;

use fencepost_kernel::{
    Command, Millis, Reply, Tenant,
    fence::{
        self, ClaimFence, DoubtOutcome, Release, Renew, Resolve, Seal, Target, Token,
        scope::{OnLapse, Scope},
    },
};

use fencepost_testkit::settle;

use super::pair::{Pair, claimed_by_second};

fn target(key: &str) -> Target {
    let mut scope = Scope::new("PAY", vec!["k"]);
    scope.on_lapse = OnLapse::Hold;
    let fields = vec![("k".to_owned(), key.to_owned())];
    Target::new(Tenant::new("acme"), Arc::new(scope), fields, None).expect("a target")
}

fn claim(key: &str, lease_ms: u64) -> Command {
    Command::Fence(fence::Command::Claim(ClaimFence {
        target: target(key),
        body: None,
        version: None,
        source: None,
        lease_ms,
        trace: None,
    }))
}

#[tokio::test]
async fn a_claim_renewed_at_another_node_is_never_told_of_as_a_doubt() {
    let pair = Pair::start().await;
    let token = claimed_by_second(&pair, &claim("held", 500)).await;
    let stopped = pair.way.faults.commits.lock().await;
    let busy = pair.ask_first(vec![claim("any", 100)]).await;
    // Its rows are read while the claim is pending; its commit waits behind the one before.
    let both = pair.ask_first(vec![claim("held", 100), claim("free", 100)]).await;
    let renew = Command::Fence(fence::Command::Renew(Renew { target: target("held"), token, lease_ms: 60_000 }));
    assert!(matches!(pair.second.ask(&renew).await, Ok(Reply::Fence(fence::Reply::Renewed { .. }))));
    // Past the lease as it was read.
    pair.set_clock_ms(5_000);
    drop(stopped);
    let replies = both.await.expect("the node lives").expect("replies");
    assert!(matches!(replies[0], Reply::Fence(fence::Reply::InFlight { .. })), "{:?}", replies[0]);
    assert!(matches!(replies[1], Reply::Fence(fence::Reply::New(_))), "{:?}", replies[1]);
    assert!(matches!(busy.await.expect("the node lives").expect("replies")[0], Reply::Fence(fence::Reply::New(_))));
}

#[tokio::test]
async fn a_claim_is_dated_after_the_release_that_it_stands_on() {
    let pair = Pair::start().await;
    let stopped = pair.way.faults.commits.lock().await;
    let late = pair.ask_first(vec![claim("k", 500)]).await;
    // Its rows have moved, so it reads again, and that takes long.
    let token = claimed_by_second(&pair, &claim("k", 60_000)).await;
    let slow = pair.way.faults.loads.lock().await;
    drop(stopped);
    settle().await;
    pair.set_clock_ms(9_000);
    let release = Command::Fence(fence::Command::Release(Release { target: target("k"), token }));
    assert!(matches!(pair.second.ask(&release).await, Ok(Reply::Fence(fence::Reply::Released { .. }))));
    drop(slow);
    match &late.await.expect("the node lives").expect("replies")[0] {
        Reply::Fence(fence::Reply::New(granted)) => assert_eq!(granted.lease_expires, Millis(9_500)),
        other => panic!("{other:?}"),
    }
}

// Seeds 1057936 and 1077799: the rows were read slowly, and their lease ran out between the question and the commit. Judged at
// the time of the question, the renewal was written over a later one, and ended a doubt that others had been told of.
#[tokio::test]
async fn a_renewal_is_never_dated_before_the_rows_that_it_is_written_over() {
    let pair = Pair::start().await;
    let token = claimed_by_second(&pair, &claim("k", 500)).await;
    let renew = |lease_ms| Command::Fence(fence::Command::Renew(Renew { target: target("k"), token, lease_ms }));
    let slow = pair.way.faults.loads.lock().await;
    let late = pair.ask_first(vec![renew(60_000), claim("free", 100)]).await;
    pair.set_clock_ms(1_400);
    assert!(matches!(pair.second.ask(&renew(500)).await, Ok(Reply::Fence(fence::Reply::Renewed { .. }))));
    pair.set_clock_ms(5_000);
    drop(slow);
    let replies = late.await.expect("the node lives").expect("replies");
    assert!(matches!(replies[0], Reply::Fence(fence::Reply::InDoubt { since: Millis(1_900) })), "{:?}", replies[0]);
    assert!(matches!(replies[1], Reply::Fence(fence::Reply::New(_))), "{:?}", replies[1]);
}

// Seed 305123: a renewal hung in the store while its fence expired; the holder asked another node and was told that its
// claim was over; then the renewal went through. With a seal it is worse: refused, the holder undoes its effect.
// INVARIANT final-refusal
#[tokio::test]
async fn final_refusal_holds_for_what_was_decided_before_the_expiry_and_lands_after_it() {
    let mut recover = target("k");
    let (scope, retain_ms) = (Arc::make_mut(&mut recover.scope), 1_000);
    (scope.on_lapse, scope.retain_ms) = (OnLapse::Recover, retain_ms);
    let asks: [fn(Target, Token) -> Command; 3] = [
        |target, token| Command::Fence(fence::Command::Renew(Renew { target, token, lease_ms: 60_000 })),
        |target, token| {
            Command::Fence(fence::Command::Seal(Seal {
                target,
                token,
                effect_id: "e".to_owned(),
                receipt: "done".into(),
            }))
        },
        |target, token| Command::Fence(fence::Command::Release(Release { target, token })),
    ];
    for (late, told) in asks.iter().flat_map(|late| asks.iter().map(move |told| (late, told))) {
        let pair = Pair::start().await;
        let claim =
            ClaimFence { target: recover.clone(), body: None, version: None, source: None, lease_ms: 500, trace: None };
        let token = claimed_by_second(&pair, &Command::Fence(fence::Command::Claim(claim))).await;
        let stopped = pair.way.faults.commits.lock().await;
        let late = pair.ask_first(vec![late(recover.clone(), token)]).await;
        // One retention after the lease, as it is written.
        pair.set_clock_ms(1_500 + retain_ms);
        let refused = pair.second.ask(&told(recover.clone(), token)).await.expect("an answer");
        assert!(matches!(refused, Reply::Fence(fence::Reply::FencedOff { current: None })), "{refused:?}");
        drop(stopped);
        let replies = late.await.expect("the node lives").expect("replies");
        assert!(matches!(replies[0], Reply::Fence(fence::Reply::FencedOff { current: None })), "{:?}", replies[0]);
    }
}

// Seeds 50504731, 2292 and 2596: a renewal that was dated before the end of its lease hung in the store; meanwhile somebody was
// told of a doubt; then the renewal went through, and the doubt was none.
// INVARIANT told-doubt
#[tokio::test]
async fn told_doubt_is_final_for_a_renewal_that_lands_after_it() {
    let renew = |token, lease_ms| Command::Fence(fence::Command::Renew(Renew { target: target("k"), token, lease_ms }));
    for told_to_the_holder in [false, true] {
        let pair = Pair::start().await;
        let token = claimed_by_second(&pair, &claim("k", 500)).await;
        let stopped = pair.way.faults.commits.lock().await;
        let late = pair.ask_first(vec![renew(token, 60_000)]).await;
        // The very end of the lease, as it is written.
        pair.set_clock_ms(1_500);
        let told = if told_to_the_holder { renew(token, 60_000) } else { claim("k", 100) };
        for _ in 0..2 {
            let told = pair.second.ask(&told).await.expect("an answer");
            assert!(matches!(told, Reply::Fence(fence::Reply::InDoubt { since: Millis(1_500) })), "{told:?}");
        }
        drop(stopped);
        let replies = late.await.expect("the node lives").expect("replies");
        assert!(matches!(replies[0], Reply::Fence(fence::Reply::InDoubt { since: Millis(1_500) })), "{:?}", replies[0]);
        let told = pair.second.ask(&claim("k", 100)).await.expect("an answer");
        assert!(matches!(told, Reply::Fence(fence::Reply::InDoubt { .. })), "{told:?}");
        let seal = Command::Fence(fence::Command::Seal(Seal {
            target: target("k"),
            token,
            effect_id: "e".to_owned(),
            receipt: "done".into(),
        }));
        let sealed = pair.second.ask(&seal).await.expect("an answer");
        assert!(matches!(sealed, Reply::Fence(fence::Reply::Sealed { replay: false, .. })), "{sealed:?}");
    }
}

// The same where the first repetition was told, and where a person has resolved the doubt since.
#[tokio::test]
async fn told_doubt_of_the_effect_itself_is_final_for_who_asked_for_its_first_repetition() {
    let numbered = |seq| {
        let mut target = target("k");
        Arc::make_mut(&mut target.scope).again = Some("resendSeq".to_owned());
        Target::new(target.tenant, target.scope, target.fields.to_vec(), seq).expect("a target")
    };
    let claim = |seq| {
        Command::Fence(fence::Command::Claim(ClaimFence {
            target: numbered(seq),
            body: None,
            version: None,
            source: None,
            lease_ms: 500,
            trace: None,
        }))
    };
    let pair = Pair::start().await;
    let token = claimed_by_second(&pair, &claim(None)).await;
    let stopped = pair.way.faults.commits.lock().await;
    let renew = Command::Fence(fence::Command::Renew(Renew { target: numbered(None), token, lease_ms: 60_000 }));
    let late = pair.ask_first(vec![renew]).await;
    pair.set_clock_ms(1_500);
    let told = pair.second.ask(&claim(Some(1))).await.expect("an answer");
    assert!(matches!(told, Reply::Fence(fence::Reply::InDoubt { since: Millis(1_500) })), "{told:?}");
    let resolve = Command::Fence(fence::Command::Resolve(Resolve {
        target: numbered(None),
        token: Some(token),
        outcome: DoubtOutcome::Released,
        by: "ann".to_owned(),
        why: "asked the bank".to_owned(),
    }));
    let resolved = pair.second.ask(&resolve).await.expect("an answer");
    assert!(matches!(resolved, Reply::Fence(fence::Reply::Resolved { replay: false })), "{resolved:?}");
    drop(stopped);
    let replies = late.await.expect("the node lives").expect("replies");
    assert!(matches!(replies[0], Reply::Fence(fence::Reply::FencedOff { .. })), "{:?}", replies[0]);
}
