//! Another policy under a running Fencepost: for every clone, from the next claim on, or not at all.

use fencepost::{Claimed, Error, policy::Policy};

use super::world::world;

fn policy(text: &str) -> Policy {
    Policy::parse("p.yml", text).unwrap()
}

#[tokio::test]
async fn another_policy_counts_for_every_clone_and_what_began_ends_under_its_own() {
    let (once, _) = world().await;
    let (clone, before) = (once.tenant("acme"), once.policy());
    let Claimed::New(claim) = clone.scope("JOB").key([("id", "1")]).claim().await.unwrap() else { panic!("new") };
    once.set_policy(policy("scopes: {OTHER: {key: [id]}}")).unwrap();
    assert!(matches!(clone.scope("JOB").key([("id", "2")]).claim().await, Err(Error::UnknownScope(_))));
    assert!(clone.scope("OTHER").key([("id", "1")]).claim().await.is_ok());
    assert!(before.scope("JOB").is_ok(), "who holds a policy keeps it");
    claim.seal("E-1", "1").await.unwrap();
}

#[tokio::test]
async fn a_policy_that_the_store_cannot_carry_changes_nothing() {
    let (once, _) = world().await;
    // A store in memory syncs nothing.
    let why = once.set_policy(policy("scopes: {OTHER: {key: [id], durability: synced}}")).unwrap_err();
    assert!(why.contains("OTHER"), "{why}");
    assert!(once.policy().scope("JOB").is_ok() && once.policy().scope("OTHER").is_err());
}
