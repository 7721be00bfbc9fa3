//! Every command in every state: the reply, and the state of the fence after it.
//! One row is one test; its columns are the seven states, in the order of `STATES`.

use fencepost_kernel::{
    Command, Reply, RowKey,
    fence::{self, DoubtOutcome, Granted, Observe, Sighting, Target, Token, scope::OnLapse},
    row::Record,
};

use super::world::{
    LEASE_MS, RETAIN_MS, START, World, alias, claim, claim_body, claim_version, claim_with, release, renew, resolve,
    resolve_sealed, scope, seal, target_in,
};

#[derive(Clone, Copy, Debug)]
enum At {
    Absent,
    Pending,
    Lapsed,
    InDoubt,
    Sealed,
    Released,
    Expired,
}

const STATES: [At; 7] = [At::Absent, At::Pending, At::Lapsed, At::InDoubt, At::Sealed, At::Released, At::Expired];

/// A world whose fence is in the given state. Its body is `{"n":1}`, and it carries version 5 of a source of
/// which version 5 is sealed elsewhere.
fn world_in(state: At) -> (World, Target, Token) {
    let on_lapse = if matches!(state, At::InDoubt) { OnLapse::Hold } else { OnLapse::Recover };
    let target = target_in(scope(on_lapse), "1");
    let mut world = World::new();
    world.done(&claim_version(&target_in(scope(on_lapse), "other"), 5, Some("A")), "\"elsewhere\"");
    if matches!(state, At::Absent) {
        return (world, target, Token(START.0));
    }
    let first = claim_with(&target, |claim| {
        let Command::Fence(fence::Command::Claim(versioned)) = claim_version(&target, 5, Some("A")) else {
            unreachable!()
        };
        let Command::Fence(fence::Command::Claim(bodied)) = claim_body(&target, r#"{"n":1}"#) else { unreachable!() };
        (claim.version, claim.source, claim.body) = (versioned.version, versioned.source, bodied.body);
    });
    let token = world.granted(&first).token;
    match state {
        At::Absent | At::Pending => {}
        At::Lapsed | At::InDoubt => world.pass(LEASE_MS),
        At::Sealed => drop(world.run(&seal(&target, token, "1"))),
        At::Released => drop(world.run(&release(&target, token))),
        At::Expired => {
            world.run(&seal(&target, token, "1"));
            world.pass(RETAIN_MS);
        }
    }
    (world, target, token)
}

/// Runs one command in every state and compares "reply > state after".
#[track_caller]
fn check(command: impl Fn(&Target, Token) -> Command, expected: [impl AsRef<str>; 7]) {
    let mut wrong = Vec::new();
    for (state, expected) in STATES.into_iter().zip(expected) {
        let (mut world, target, token) = world_in(state);
        let before = world.phase(&target);
        let command = command(&target, token);
        let decision = world.decide(&command);
        let recorded = if decision.writes.is_empty() { "" } else { ", recorded" };
        let said = match &decision.reply {
            Reply::Fence(fence::Reply::New(Granted { attempt, recovering, .. })) => {
                format!("new {attempt}{}", if recovering.is_some() { " recovering" } else { "" })
            }
            Reply::Fence(fence::Reply::Sealed { replay: true, .. })
            | Reply::Fence(fence::Reply::Released { replay: true }) => {
                format!("{} again", decision.reply.decision())
            }
            Reply::Fence(fence::Reply::FencedOff { .. }) | Reply::Fence(fence::Reply::SealConflict { .. }) => {
                format!("{}{recorded}", decision.reply.decision())
            }
            other => other.decision().to_owned(),
        };
        assert!(world.commit(&decision.writes));
        if decision.writes.is_empty() {
            assert_eq!(world.phase(&target), before, "nothing written, nothing changed");
        }
        let got = format!("{said} > {}", world.phase(&target));
        if got != expected.as_ref() {
            wrong.push(format!("{state:?}: got \"{got}\", expected \"{}\"", expected.as_ref()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The same answer in every state, which it leaves as it was.
fn stays(said: &str) -> [String; 7] {
    ["absent", "pending", "lapsed", "in_doubt", "sealed", "released", "expired"]
        .map(|state| format!("{said} > {state}"))
}

const NEW: &str = "new 1 > pending";
const IN_FLIGHT: &str = "in_flight > pending";
const RECOVERS: &str = "new 2 recovering > pending";
const IN_DOUBT: &str = "in_doubt > in_doubt";
const DUPLICATE: &str = "duplicate > sealed";
const RETRIES: &str = "new 2 > pending";

/// How a claim that nothing speaks against fares in each state.
const CLAIMS: [&str; 7] = [NEW, IN_FLIGHT, RECOVERS, IN_DOUBT, DUPLICATE, RETRIES, NEW];

#[test]
fn claim_with_the_same_body() {
    check(|target, _| claim_body(target, r#"{"n":1.0}"#), CLAIMS);
}

#[test]
fn claim_without_a_body_is_not_compared() {
    check(|target, _| claim(target), CLAIMS);
}

#[test]
fn claim_with_another_body_conflicts_unless_the_key_is_free() {
    check(
        |target, _| claim_body(target, r#"{"n":2}"#),
        [NEW, "conflict > pending", "conflict > lapsed", "conflict > in_doubt", "conflict > sealed", RETRIES, NEW],
    );
}

#[test]
fn claim_with_a_lower_version_is_stale_whatever_the_state() {
    check(|target, _| claim_version(target, 4, Some("A")), stays("stale"));
}

#[test]
fn claim_with_the_sealed_version_is_in_order() {
    check(|target, _| claim_version(target, 5, Some("A")), CLAIMS);
}

#[test]
fn claim_with_a_higher_version_is_in_order() {
    check(|target, _| claim_version(target, 6, Some("A")), CLAIMS);
}

#[test]
fn seal_with_the_right_token() {
    check(
        |target, token| seal(target, token, "1"),
        [
            "fenced_off > absent",
            "sealed > sealed",
            "sealed > sealed",
            "sealed > sealed",
            "sealed again > sealed",
            "fenced_off, recorded > released",
            "fenced_off > expired",
        ],
    );
}

#[test]
fn seal_with_an_old_token_is_refused_and_recorded() {
    check(
        |target, token| seal(target, Token(token.0 - 1), "1"),
        [
            "fenced_off > absent",
            "fenced_off, recorded > pending",
            "fenced_off, recorded > lapsed",
            "fenced_off, recorded > in_doubt",
            "fenced_off, recorded > sealed",
            "fenced_off, recorded > released",
            "fenced_off > expired",
        ],
    );
}

#[test]
fn seal_of_other_content_by_the_same_token_leaves_the_first() {
    check(
        |target, token| seal(target, token, "2"),
        [
            "fenced_off > absent",
            "sealed > sealed",
            "sealed > sealed",
            "sealed > sealed",
            "conflict > sealed",
            "fenced_off, recorded > released",
            "fenced_off > expired",
        ],
    );
}

#[test]
fn renew_with_the_right_token() {
    check(
        renew,
        [
            "fenced_off > absent",
            "renewed > pending",
            "renewed > pending",
            "in_doubt > in_doubt",
            "fenced_off > sealed",
            "fenced_off > released",
            "fenced_off > expired",
        ],
    );
}

#[test]
fn renew_with_an_old_token() {
    check(|target, token| renew(target, Token(token.0 - 1)), stays("fenced_off"));
}

#[test]
fn release_with_an_old_token() {
    check(|target, token| release(target, Token(token.0 - 1)), stays("fenced_off"));
}

#[test]
fn release_with_the_right_token() {
    check(
        release,
        [
            "fenced_off > absent",
            "released > released",
            "released > released",
            "released > released",
            "fenced_off > sealed",
            "released again > released",
            "fenced_off > expired",
        ],
    );
}

/// Only a doubt can be resolved.
fn resolves_to(after: &str) -> [String; 7] {
    let mut row = stays("not_in_doubt");
    row[3] = after.to_owned();
    row
}

#[test]
fn resolve_as_sealed_ends_only_a_doubt() {
    check(|target, _| resolve_sealed(target, "1"), resolves_to("resolved > sealed"));
}

#[test]
fn resolve_as_released_ends_only_a_doubt() {
    check(|target, _| resolve(target, DoubtOutcome::Released), resolves_to("resolved > released"));
}

#[test]
fn alias_stands_only_for_a_sealed_fence() {
    let mut row = stays("not_sealed");
    row[4] = "aliased > sealed".to_owned();
    check(|target, _| alias(target, "latest"), row);
}

#[test]
fn sweep_takes_only_what_is_expired() {
    let mut row = stays("done");
    row[6] = "done > absent".to_owned();
    check(|target, _| Command::Sweep(RowKey::fence(target.key)), row);
}

fn sighting(target: &Target) -> Command {
    let recent = vec![(START, Sighting::Duplicate)];
    Command::Fence(fence::Command::Observe(Observe {
        key: target.key,
        replays: 2,
        conflicts: 1,
        body_mismatches: 1,
        recent,
    }))
}

#[test]
fn observe_never_changes_a_fence() {
    check(|target, _| sighting(target), stays("done"));
}

#[test]
fn observe_counts_only_for_a_living_fence_and_the_count_goes_in_time() {
    for state in STATES {
        let (mut world, target, _) = world_in(state);
        world.run(&sighting(&target));
        world.run(&sighting(&target));
        match (state, world.record(RowKey::trace(target.key))) {
            (At::Absent | At::Expired, None) => {}
            (At::Absent | At::Expired, Some(_)) => panic!("{state:?} is nothing to count for"),
            (_, Some(Record::Fence(fence::Record::Trace(trace)))) => {
                assert_eq!((trace.replays, trace.conflicts, trace.body_mismatches, trace.recent.len()), (4, 2, 2, 2));
                assert!(trace.expires.is_some(), "{state:?}: a count that stays for ever");
            }
            (_, other) => panic!("{state:?} left {other:?}"),
        }
    }
}
