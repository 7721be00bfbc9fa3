//! A queue's messages under fences: which are acknowledged, which come again, and which are dead.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fencepost::{
    Claim, Claimed, Done, Fencepost,
    engine::EngineLimits,
    kernel::{Scope, fence::scope::OnLapse},
    queue::{
        Because, Consumer, DeadMessageReason, Handled, HandlerFailure, Message, MessageVerdict, SCOPE, dedupe_id, field,
    },
    store::memory::Memory,
};
use fencepost_testkit::clock::ManualClock;

use crate::world::{policy, world};

type Failed = HandlerFailure<&'static str>;

fn message(offset: i64, body: &str) -> Message {
    Message {
        topic: "orders".to_owned(),
        partition: 3,
        offset,
        key: "o-7".to_owned(),
        dedupe_id: "d-1".to_owned(),
        body: body.to_owned().into(),
    }
}

fn key() -> [(&'static str, &'static str); 4] {
    [("topic", "orders"), ("partition", "3"), ("message_key", "o-7"), ("dedupe_id", "d-1")]
}

async fn consumer() -> (Consumer, Fencepost, Arc<ManualClock>) {
    let (once, hand) = world().await;
    (Consumer::new(once.clone()).unwrap().wait(Duration::ZERO), once, hand)
}

async fn fail(consumer: &Consumer, message: &Message, failure: Failed) -> Handled {
    consumer.handle(message, |_, _| async { Err(failure) }).await
}

async fn succeed(consumer: &Consumer, message: &Message) -> MessageVerdict {
    consumer.handle(message, |_, _| async { Ok::<_, Failed>(Done::new("E", "{}")) }).await.verdict
}

async fn never(message: &Message, _: Claim) -> Result<Done, Failed> {
    panic!("{message:?} must not be handled")
}

fn busy() -> Failed {
    HandlerFailure::Temporary { error: "busy", after: None }
}

fn acknowledged(verdict: &MessageVerdict) -> Option<(&str, bool)> {
    match verdict {
        MessageVerdict::Acknowledge { effect_id, replayed } => Some((effect_id, *replayed)),
        _ => None,
    }
}

fn because(verdict: &MessageVerdict) -> &Because {
    match verdict {
        MessageVerdict::Redeliver { because, .. } => because,
        MessageVerdict::Acknowledge { .. } => panic!("acknowledged"),
        MessageVerdict::Dead(letter) => panic!("dead: {}", letter.detail),
    }
}

#[tokio::test]
async fn copies_of_a_message_have_its_effect_once_and_all_are_acknowledged() {
    let (consumer, ..) = consumer().await;
    let effects = AtomicUsize::new(0);
    for (copy, offset) in [41, 41, 55].into_iter().enumerate() {
        // The producer's own second copy has another offset, and the same id.
        let message = message(offset, r#"{"total": 12}"#);
        let handled = consumer
            .handle(&message, |message, claim| {
                effects.fetch_add(1, Ordering::SeqCst);
                assert_eq!(claim.attempt(), 1);
                async move { Ok::<_, Failed>(Done::new(format!("invoice of {}", message.key), "{}")) }
            })
            .await;
        assert_eq!(acknowledged(&handled.verdict), Some(("invoice of o-7", copy > 0)));
        assert_eq!(handled.decision, if copy > 0 { "duplicate" } else { "new" });
    }
    assert_eq!(effects.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_copy_whose_first_is_pending_is_never_acknowledged_until_it_is_sealed() {
    let (consumer, once, _) = consumer().await;
    let Claimed::New(first) = once.scope(SCOPE).key(key()).claim().await.unwrap() else { panic!() };
    for _ in 0..3 {
        let handled = consumer.handle(&message(41, "{}"), never).await;
        assert_eq!((handled.decision, because(&handled.verdict)), ("in_flight", &Because::InFlight));
    }
    first.seal("by the first", "{}").await.unwrap();
    assert_eq!(acknowledged(&succeed(&consumer, &message(41, "{}")).await), Some(("by the first", true)));
}

#[tokio::test]
async fn a_copy_that_waits_is_woken_by_the_seal() {
    let (consumer, once, _) = consumer().await;
    let Claimed::New(first) = once.scope(SCOPE).key(key()).claim().await.unwrap() else { panic!() };
    let (consumer, message) = (consumer.wait(Duration::from_secs(30)), message(41, "{}"));
    let mut copy = std::pin::pin!(succeed(&consumer, &message));
    while once.engine().waiting() == 0 {
        tokio::select! {
            biased;
            _ = &mut copy => panic!("nothing is sealed yet"),
            () = tokio::task::yield_now() => {}
        }
    }
    first.seal("done", "{}").await.unwrap();
    assert_eq!(acknowledged(&copy.await), Some(("done", true)));
}

#[tokio::test]
async fn a_temporary_error_releases_and_the_next_attempt_is_later_each_time() {
    let (consumer, ..) = consumer().await;
    let mut pauses = Vec::new();
    for attempt in 1..=4 {
        let handled = fail(&consumer, &message(41, "{}"), busy()).await;
        assert_eq!((handled.attempt, because(&handled.verdict)), (attempt, &Because::Temporary("busy".to_owned())));
        let MessageVerdict::Redeliver { after, .. } = handled.verdict else { panic!() };
        pauses.push(after);
    }
    assert!(pauses[3] > pauses[0], "{pauses:?}");
    let asked = HandlerFailure::Temporary { error: "busy", after: Some(Duration::from_secs(77)) };
    let MessageVerdict::Redeliver { after, .. } = fail(&consumer, &message(41, "{}"), asked).await.verdict else {
        panic!()
    };
    assert_eq!(after, Duration::from_secs(77), "the handler's own word counts");
    assert_eq!(acknowledged(&succeed(&consumer, &message(41, "{}")).await), Some(("E", false)));
}

#[tokio::test]
async fn a_message_that_fails_too_often_is_dead_and_its_burial_is_sealed() {
    let (consumer, once, _) = consumer().await;
    let consumer = consumer.attempts_max(2);
    assert_eq!(
        because(&fail(&consumer, &message(41, "{}"), busy()).await.verdict),
        &Because::Temporary("busy".to_owned())
    );
    let MessageVerdict::Dead(letter) = fail(&consumer, &message(41, "{}"), busy()).await.verdict else {
        panic!("not dead")
    };
    assert_eq!((letter.reason, letter.attempts, letter.detail.as_str()), (DeadMessageReason::Attempts, 2, "busy"));
    // Until it is buried, no copy is acknowledged.
    assert_eq!(because(&succeed(&consumer, &message(41, "{}")).await), &Because::InFlight);
    let buried = letter.bury(async { Ok::<_, String>("orders.dead/0/9".to_owned()) }).await;
    assert_eq!(acknowledged(&buried), Some(("dead:orders.dead/0/9", false)));
    // The consumer died before it committed: the copy is not buried again.
    assert_eq!(acknowledged(&succeed(&consumer, &message(41, "{}")).await), Some(("dead:orders.dead/0/9", true)));
    assert!(once.lookup(SCOPE, key()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_letter_that_is_not_sent_leaves_its_message_to_be_handed_in_again() {
    let (consumer, ..) = consumer().await;
    let refused = || HandlerFailure::Permanent("no such order");
    let MessageVerdict::Dead(letter) = fail(&consumer, &message(41, "{}"), refused()).await.verdict else { panic!() };
    assert_eq!(letter.reason, DeadMessageReason::Permanent);
    let unburied = letter.bury(async { Err::<String, _>("the broker is away") }).await;
    assert_eq!(because(&unburied), &Because::Unburied("the broker is away".to_owned()));
    let MessageVerdict::Dead(letter) = fail(&consumer, &message(41, "{}"), refused()).await.verdict else { panic!() };
    let buried = letter.bury(async { Ok::<_, String>("d/0/1".to_owned()) }).await;
    assert_eq!(acknowledged(&buried), Some(("dead:d/0/1", false)));
}

#[tokio::test]
async fn no_message_dies_of_a_handler_that_is_away() {
    let (consumer, ..) = consumer().await;
    let consumer = consumer.attempts_max(2);
    for _ in 0..5 {
        let handled = fail(&consumer, &message(41, "{}"), HandlerFailure::Away("refused")).await;
        assert_eq!(because(&handled.verdict), &Because::Away("refused".to_owned()));
    }
    assert_eq!(acknowledged(&succeed(&consumer, &message(41, "{}")).await), Some(("E", false)));
}

#[tokio::test]
async fn an_unknown_outcome_keeps_its_lease_and_the_next_attempt_is_told() {
    let (consumer, _, hand) = consumer().await;
    let message = message(41, "{}");
    let handled = fail(&consumer, &message, HandlerFailure::Unknown("timed out")).await;
    assert_eq!(because(&handled.verdict), &Because::Unknown("timed out".to_owned()));
    assert_eq!(because(&succeed(&consumer, &message).await), &Because::InFlight);
    hand.pass(30_000);
    let handled = consumer.handle(&message, |_, claim| async move {
        let earlier = claim.earlier().expect("an earlier attempt is unsettled").attempt;
        Ok::<_, Failed>(Done::new(format!("after attempt {earlier}"), "{}"))
    });
    assert_eq!(acknowledged(&handled.await.verdict), Some(("after attempt 1", false)));
}

#[tokio::test]
async fn a_message_that_kills_its_consumers_is_dead_without_another_attempt() {
    let (consumer, once, hand) = consumer().await;
    let consumer = consumer.attempts_max(2);
    for _ in 0..2 {
        // The holder is gone without a word.
        let Claimed::New(_) = once.scope(SCOPE).key(key()).claim().await.unwrap() else { panic!() };
        hand.pass(30_000);
    }
    let handled = consumer.handle(&message(41, "{}"), never).await;
    let MessageVerdict::Dead(letter) = handled.verdict else { panic!("not dead") };
    assert_eq!((letter.reason, letter.attempts), (DeadMessageReason::Attempts, 3));
}

#[tokio::test]
async fn a_message_whose_handler_was_away_since_an_unknown_outcome_is_handed_over_again() {
    let (consumer, _, hand) = consumer().await;
    let (consumer, message) = (consumer.attempts_max(2), message(41, "{}"));
    fail(&consumer, &message, HandlerFailure::Unknown("timed out")).await;
    hand.pass(30_000);
    for attempt in 2..=4 {
        let handled = fail(&consumer, &message, HandlerFailure::Away("refused")).await;
        assert_eq!((handled.attempt, because(&handled.verdict)), (attempt, &Because::Away("refused".to_owned())));
    }
    let handled = consumer.handle(&message, |_, claim| async move {
        let earlier = claim.earlier().expect("nobody has said what became of the first").attempt;
        Ok::<_, Failed>(Done::new(format!("after attempt {earlier}"), "{}"))
    });
    assert_eq!(acknowledged(&handled.await.verdict), Some(("after attempt 1", false)));
}

#[tokio::test]
async fn another_body_under_a_known_id_is_dead_once_and_the_first_stands() {
    let (consumer, ..) = consumer().await;
    assert_eq!(acknowledged(&succeed(&consumer, &message(41, r#"{"a":1,"b":2}"#)).await), Some(("E", false)));
    // The same JSON in other bytes is the same message.
    assert_eq!(acknowledged(&succeed(&consumer, &message(42, r#"{ "b": 2, "a": 1.0 }"#)).await), Some(("E", true)));
    for (copy, offset) in [43, 43, 44].into_iter().enumerate() {
        let handled = consumer.handle(&message(offset, "not the same"), never).await;
        assert_eq!((handled.decision, handled.effect_id.as_deref()), ("conflict", Some("E")), "the one that stands");
        let MessageVerdict::Dead(letter) = handled.verdict else { panic!() };
        assert_eq!((letter.reason, letter.attempts), (DeadMessageReason::Conflict, 0));
        let buried = letter.bury(async { Ok::<_, String>(format!("dead/{offset}")) }).await;
        assert_eq!(acknowledged(&buried), Some((format!("dead:dead/{offset}").as_str(), copy == 1)), "{copy}");
    }
    assert_eq!(acknowledged(&succeed(&consumer, &message(45, r#"{"a":1,"b":2}"#)).await), Some(("E", true)));
}

#[tokio::test]
async fn a_message_in_doubt_stays_where_it_is_until_a_person_has_resolved_it() {
    let (mut policy, hand) = (policy(), ManualClock::new());
    let held = Scope { on_lapse: OnLapse::Hold, ..(**policy.scope(SCOPE).unwrap()).clone() };
    policy.scopes.insert(SCOPE.to_owned(), Arc::new(held));
    let store = Arc::new(Memory::default());
    let once = Fencepost::over(store, hand.clone(), policy, EngineLimits::default(), Box::new(()), None).await.unwrap();
    let consumer = Consumer::new(once.clone()).unwrap().wait(Duration::ZERO);
    let Claimed::New(lost) = once.scope(SCOPE).key(key()).claim().await.unwrap() else { panic!() };
    hand.pass(1_000_000);
    for _ in 0..2 {
        assert_eq!(because(&succeed(&consumer, &message(41, "{}")).await), &Because::InDoubt);
    }
    lost.seal("after all", "{}").await.unwrap();
    assert_eq!(acknowledged(&succeed(&consumer, &message(41, "{}")).await), Some(("after all", true)));
}

#[tokio::test]
async fn groups_with_a_tenant_each_have_every_message_each() {
    let (_, once, _) = consumer().await;
    for group in ["queue:billing", "queue:mail"] {
        let consumer = Consumer::new(once.tenant(group)).unwrap();
        assert_eq!(acknowledged(&succeed(&consumer, &message(41, "{}")).await), Some(("E", false)), "{group}");
    }
}

#[test]
fn a_field_of_any_bytes_is_text_and_no_two_are_the_same() {
    assert_eq!(field("o-7 \u{e9}".as_bytes()), "o-7 \u{e9}");
    assert_eq!(field(b""), "");
    let odd = [&b"\xff"[..], b"\xfe", b"a\0", b"sha256:ab", b"offset:7", b"dead:7", &[b'x'; 600]];
    let fields: std::collections::BTreeSet<String> = odd.iter().map(|bytes| field(bytes)).collect();
    assert_eq!(fields.len(), odd.len());
    assert!(fields.iter().all(|field| field.starts_with("sha256:") && field.len() == 71), "{fields:?}");
    assert_eq!(dedupe_id(None, 7), "offset:7");
    assert_eq!(dedupe_id(Some(b""), 7), "offset:7");
    assert_eq!(dedupe_id(Some(b"m-1"), 7), "m-1");
}
