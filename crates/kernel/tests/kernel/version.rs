//! The order of versions: stale ones, comparable ones, and the head that outlives a fence.

use fencepost_kernel::{
    Reply, Scope, Version,
    fence::{
        self, Source, Target,
        scope::{OnLapse, VersionRule},
    },
};

use super::world::{
    LEASE_MS, RETAIN_MS, World, claim, claim_version, claim_with, release, scope, seal, target_in, target_of,
};

fn key(id: &str) -> Target {
    target_in(scope(OnLapse::Recover), id)
}

/// A scope whose version is a key field; `per` names the source.
fn document(doc: &str, part: &str, revision: &str, per: &[&str]) -> Target {
    let rule = VersionRule { field: "revision".into(), per: per.iter().map(|name| (*name).to_owned()).collect() };
    let base = Scope::new("DOCUMENT", ["doc", "part", "revision"]);
    let scope = Scope { version: Some(rule), retain_ms: RETAIN_MS, lease_ms: LEASE_MS, ..base };
    target_of(scope, &[("doc", doc), ("part", part), ("revision", revision)], None)
}

#[track_caller]
fn stale(reply: Reply, expected: i128) {
    match reply {
        Reply::Fence(fence::Reply::Stale { sealed_version }) => assert_eq!(sealed_version, Version::Integer(expected)),
        other => panic!("expected stale, got {other:?}"),
    }
}

// INVARIANT version-order
#[test]
fn version_order_holds_across_keys_of_one_source() {
    let mut world = World::new();
    world.done(&claim_version(&key("e3"), 3, Some("A")), "3");
    stale(world.run(&claim_version(&key("e2"), 2, Some("A"))), 3);
    assert_eq!(world.say(&claim_version(&key("e2"), 2, Some("B"))), "new");
    assert_eq!(world.say(&claim_version(&key("e4"), 4, Some("A"))), "new");
}

#[test]
fn version_counts_only_once_it_is_sealed() {
    let mut world = World::new();
    let three = world.granted(&claim_version(&key("e3"), 3, Some("A"))).token;
    let two = world.granted(&claim_version(&key("e2"), 2, Some("A"))).token;
    world.run(&seal(&key("e3"), three, "3"));
    // Version 2 was in order when it began, and its seal does not turn the head back.
    assert_eq!(world.say(&seal(&key("e2"), two, "2")), "sealed");
    assert_eq!(world.version_heads().iter().map(|head| &head.version).collect::<Vec<_>>(), [&Version::Integer(3)]);
    assert_eq!(world.say(&claim_version(&key("e2"), 2, Some("A"))), "duplicate");
}

#[test]
fn seal_below_the_head_stands_only_while_the_head_does() {
    let mut world = World::new();
    let three = world.granted(&claim_version(&key("e3"), 3, Some("A"))).token;
    let two = world.granted(&claim_version(&key("e2"), 2, Some("A"))).token;
    let held = |world: &World, id: &str, token| world.decide(&seal(&key(id), token, id)).also.held.len();
    assert_eq!(held(&world, "e2", two), 0, "it writes the head itself");
    world.run(&seal(&key("e3"), three, "3"));
    // A store that loses the head in a failover must not take this seal for one whose version is kept.
    assert_eq!(held(&world, "e2", two), 1);
}

#[test]
fn version_order_holds_for_a_second_attempt() {
    for lapse in [true, false] {
        for say_it_again in [true, false] {
            let mut world = World::new();
            let two = world.granted(&claim_version(&key("e2"), 2, Some("A"))).token;
            world.done(&claim_version(&key("e3"), 3, Some("A")), "3");
            if lapse {
                world.pass(LEASE_MS)
            } else {
                drop(world.run(&release(&key("e2"), two)))
            }
            // A retry that does not repeat its version is still an attempt at that version.
            let retry = if say_it_again { claim_version(&key("e2"), 2, Some("A")) } else { claim(&key("e2")) };
            stale(world.run(&retry), 3);
        }
    }
}

#[test]
fn sealed_version_outlives_every_fence() {
    let mut world = World::new();
    world.done(&claim_version(&key("e3"), 3, Some("A")), "3");
    world.pass(100 * RETAIN_MS);
    world.sweep();
    assert_eq!(world.phase(&key("e3")), "absent");
    stale(world.run(&claim_version(&key("e2"), 2, Some("A"))), 3);
    stale(world.run(&claim_version(&key("e3"), 2, Some("A"))), 3);
    assert_eq!(world.say(&claim_version(&key("e3"), 3, Some("A"))), "new");
}

#[test]
fn retry_that_names_a_version_of_a_key_sealed_without_one_still_gets_the_receipt() {
    let mut world = World::new();
    world.done(&claim(&key("e2")), "2");
    world.done(&claim_version(&key("e3"), 3, Some("A")), "3");
    assert_eq!(world.say(&claim_version(&key("e2"), 2, Some("A"))), "duplicate");
}

#[test]
fn duplicate_of_an_older_version_still_gets_its_receipt() {
    let mut world = World::new();
    world.done(&claim_version(&key("e2"), 2, Some("A")), "2");
    world.done(&claim_version(&key("e3"), 3, Some("A")), "3");
    assert_eq!(world.say(&claim_version(&key("e2"), 2, Some("A"))), "duplicate");
    assert_eq!(world.say(&claim(&key("e2"))), "duplicate");
}

#[test]
fn without_a_source_each_key_is_its_own() {
    let mut world = World::new();
    world.done(&claim_version(&key("a"), 3, None), "3");
    stale(world.run(&claim_version(&key("a"), 2, None)), 3);
    assert_eq!(world.say(&claim_version(&key("b"), 2, None)), "new");
}

#[test]
fn integer_and_text_are_not_guessed_into_an_order() {
    let mut world = World::new();
    world.done(&claim_version(&key("a"), 3, Some("A")), "3");
    let text = claim_with(&key("b"), |claim| {
        let source = Source { kind: "order".into(), id: "A".into() };
        (claim.version, claim.source) = (Some(Version::Text("2026-01-01".into())), Some(source));
    });
    match world.run(&text) {
        Reply::Fence(fence::Reply::Incomparable { sealed_version }) => assert_eq!(sealed_version, Version::Integer(3)),
        other => panic!("expected incomparable, got {other:?}"),
    }
    assert_eq!(Version::Integer(9).order(&Version::Text("9".into())), None);
}

#[test]
fn key_field_with_the_version_orders_the_source_that_the_claim_names() {
    let sourced = |target: &Target, id: &str| {
        claim_with(target, |claim| claim.source = Some(Source { kind: "order".into(), id: id.into() }))
    };
    let per = &["doc", "source"];
    let mut world = World::new();
    world.done(&sourced(&document("d", "p", "10", per), "A"), "10");
    stale(world.run(&sourced(&document("d", "q", "9", per), "A")), 10);
    assert_eq!(world.say(&sourced(&document("e", "p", "9", per), "A")), "new");
    assert_eq!(world.say(&sourced(&document("d", "p", "9", per), "B")), "new");
    assert_eq!(world.say(&sourced(&document("d", "p", "11", per), "A")), "new");
}

// `per` may be a provider and a source: unrelated events of one provider must not make each other stale.
#[test]
fn key_field_with_the_version_orders_nothing_where_its_source_is_not_named() {
    for per in [&[][..], &["doc", "source"]] {
        let mut world = World::new();
        world.done(&claim(&document("d", "p", "10", per)), "10");
        assert_eq!(world.say(&claim(&document("d", "p", "9", per))), "new");
        assert!(world.version_heads().is_empty());
        // A version that the claim states is still judged within its own key.
        world.done(&claim_version(&document("d", "q", "10", per), 10, None), "10");
        assert_eq!(world.say(&claim_version(&document("e", "q", "9", per), 9, None)), "new");
    }
}

#[test]
fn key_field_with_the_version_orders_the_key_fields_that_the_scope_names() {
    let mut world = World::new();
    world.done(&claim(&document("d", "p", "10", &["doc"])), "10");
    stale(world.run(&claim(&document("d", "q", "9", &["doc"]))), 10);
    assert_eq!(world.say(&claim(&document("e", "q", "9", &["doc"]))), "new");
}

#[test]
fn version_of_a_claim_orders_the_source_that_the_scope_names() {
    let mut world = World::new();
    world.done(&claim_version(&document("d", "p", "x", &["doc"]), 10, None), "10");
    stale(world.run(&claim_version(&document("d", "q", "y", &["doc"]), 9, None)), 10);
    assert_eq!(world.say(&claim_version(&document("e", "p", "x", &["doc"]), 9, None)), "new");
}

#[test]
fn version_without_any_named_source_never_reaches_another_key() {
    let mut world = World::new();
    world.done(&claim_version(&document("d", "p", "10", &[]), 10, None), "10");
    assert_eq!(world.say(&claim_version(&document("e", "p", "9", &[]), 9, None)), "new");
    stale(world.run(&claim_version(&document("d", "p", "9", &[]), 9, None)), 10);
}

#[test]
fn order_of_source_fields_in_a_policy_does_not_matter() {
    let mut world = World::new();
    world.done(&claim_version(&document("d", "p", "x", &["doc", "part"]), 10, None), "10");
    stale(world.run(&claim_version(&document("d", "p", "y", &["part", "doc"]), 9, None)), 10);
    // The same values under other names are another source.
    assert_eq!(world.say(&claim_version(&document("p", "d", "x", &["doc", "part"]), 9, None)), "new");
}

#[test]
fn claimed_source_is_not_mistaken_for_key_fields() {
    let scope = || Scope { retain_ms: RETAIN_MS, ..Scope::new("PAIR", ["kind", "name"]) };
    let pair = |a: &str, b: &str| target_of(scope(), &[("kind", a), ("name", b)], None);
    let mut world = World::new();
    world.done(&claim_version(&pair("x", "y"), 5, Some("A")), "5");
    assert_eq!(world.say(&claim_version(&pair("order", "A"), 1, None)), "new");
}

#[test]
fn versions_order_as_numbers_or_as_text() {
    let parsed = |text: &str| Version::from_field(text);
    assert!(parsed("10").order(&parsed("9")).unwrap().is_gt());
    assert!(parsed("-3").order(&parsed("-2")).unwrap().is_lt());
    assert!(parsed("007").order(&parsed("7")).unwrap().is_eq());
    assert!(parsed("2026-01-31T00:00:00Z").order(&parsed("2026-02-01T00:00:00Z")).unwrap().is_lt());
    assert_eq!(parsed("1.10"), Version::Text("1.10".into()));
    assert_eq!(parsed(""), Version::Text(String::new()));
}
