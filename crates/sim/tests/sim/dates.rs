//! What time a decision is made at where another node writes between its reading and its commit.
//! Both were found by seeds. Called by the test runner.

use std::sync::Arc;

use fencepost_kernel::{
    Command, Millis, Reply, Tenant,
    command::{Claim, Release, Renew},
    key::Target,
    scope::{OnLapse, Scope},
};

use super::pair::{Pair, claimed_by_second, settle};

fn target(key: &str) -> Target {
    let mut scope = Scope::new("PAY", vec!["k"]);
    scope.on_lapse = OnLapse::Hold;
    let fields = vec![("k".to_owned(), key.to_owned())];
    Target::new(Tenant::new("acme"), Arc::new(scope), fields, None).expect("a target")
}

fn claim(key: &str, lease_ms: u64) -> Command {
    Command::Claim(Claim { target: target(key), body: None, version: None, source: None, lease_ms })
}

#[tokio::test]
async fn a_claim_renewed_at_another_node_is_never_told_of_as_a_doubt() {
    let pair = Pair::start().await;
    let token = claimed_by_second(&pair, &claim("held", 500)).await;
    let stopped = pair.way.commits.lock().await;
    let busy = pair.ask_first(vec![claim("any", 100)]).await;
    // Its rows are read while the claim is pending; its commit waits behind the one before.
    let both = pair.ask_first(vec![claim("held", 100), claim("free", 100)]).await;
    let renew = Command::Renew(Renew { target: target("held"), token, lease_ms: 60_000 });
    assert!(matches!(pair.second.ask(&renew).await, Ok(Reply::Renewed { .. })));
    // Past the lease as it was read.
    pair.set_clock_ms(5_000);
    drop(stopped);
    let replies = both.await.expect("the node lives").expect("replies");
    assert!(matches!(replies[0], Reply::InFlight { .. }), "{:?}", replies[0]);
    assert!(matches!(replies[1], Reply::New(_)), "{:?}", replies[1]);
    assert!(matches!(busy.await.expect("the node lives").expect("replies")[0], Reply::New(_)));
}

#[tokio::test]
async fn a_claim_is_dated_after_the_release_that_it_stands_on() {
    let pair = Pair::start().await;
    let stopped = pair.way.commits.lock().await;
    let late = pair.ask_first(vec![claim("k", 500)]).await;
    // What it read has moved, so it reads again, and that takes long.
    let token = claimed_by_second(&pair, &claim("k", 60_000)).await;
    let slow = pair.way.loads.lock().await;
    drop(stopped);
    settle().await;
    pair.set_clock_ms(9_000);
    let release = Command::Release(Release { target: target("k"), token });
    assert!(matches!(pair.second.ask(&release).await, Ok(Reply::Released { .. })));
    drop(slow);
    match &late.await.expect("the node lives").expect("replies")[0] {
        Reply::New(granted) => assert_eq!(granted.lease_expires, Millis(9_500)),
        other => panic!("{other:?}"),
    }
}
