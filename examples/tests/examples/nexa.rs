//! Tests the Nexa desk end to end: real processes, the real binary, and a worker that dies at the worst moment.

use std::process::{Command, Output};

use fencepost_examples::{
    http::until,
    nexa::{Counts, Fences, Stage, click_by_bucket, click_by_token},
};
use serde_json::{Value, json};

const NEXA: &str = env!("CARGO_BIN_EXE_nexa");
const CASE: &str = "urn:nexa:case:1";

fn stage() -> Stage {
    Stage::start(NEXA.into(), Fences::On).unwrap()
}

fn story(arguments: &[&str]) -> (Output, String) {
    let output = Command::new(NEXA).args(arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, told)
}

/// A row of the story's last table: requested, wanted, had, calls.
fn row(told: &str, words: &str) -> Vec<u64> {
    let line = told.lines().rev().find(|line| line.starts_with(words)).unwrap_or_else(|| panic!("{words}: {told}"));
    line[words.len()..].split_whitespace().map_while(|number| number.parse().ok()).collect()
}

fn booking(group: &str) -> Value {
    json!({"caseUrn": CASE, "waveUrn": "urn:nexa:wave:1", "groupId": group})
}

fn voucher(reservation: &str) -> Value {
    json!({"groupId": "G-1", "type": "VOUCHER", "channel": "EMAIL", "reservationUrn": reservation})
}

fn decisions(told: &Value) -> Vec<&str> {
    told["history"].as_array().unwrap().iter().map(|moment| moment["decision"].as_str().unwrap()).collect()
}

#[test]
fn the_whole_story_has_every_effect_once() {
    let (output, told) = story(&[]);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    for words in
        ["cases opened", "demand requests", "waves run", "rooms booked", "vouchers sent", "cards charged", "model runs"]
    {
        let [asked, wanted, had, calls] = row(&told, words)[..] else { panic!("{told}") };
        assert!(asked > wanted, "{words}: {told}");
        // A call without an effect would mean that the service, not the fence, prevented a repetition.
        assert_eq!((had, calls), (wanted, wanted), "{words}: {told}");
    }
}

#[test]
fn the_same_story_without_fences_has_them_too_often() {
    let (output, told) = story(&["--without-fence"]);
    assert!(!output.status.success(), "{told}");
    for words in ["cases opened", "waves run", "rooms booked", "vouchers sent", "cards charged", "model runs"] {
        let numbers = row(&told, words);
        assert!(numbers[2] > numbers[1], "{words}: {told}");
    }
}

#[tokio::test]
async fn a_retried_webhook_gets_the_first_answer_byte_for_byte() {
    let stage = stage();
    let event = |minute: u8| json!({"externalEventId": "AF-1042", "sentAt": format!("09:0{minute}")});
    let first = stage.event(&event(0)).await.unwrap();
    assert_eq!((first.status, first.header("x-nexa-replayed")), (201, None));
    assert_eq!(first.json(), json!({"caseUrn": CASE, "externalEventId": "AF-1042", "status": "OPEN"}));
    for minute in 1..4 {
        let again = stage.event(&event(minute)).await.unwrap();
        assert_eq!((again.status, again.header("x-nexa-replayed")), (200, Some("true")));
        assert_eq!((&again.body, again.header("content-type")), (&first.body, first.header("content-type")));
    }
    assert_eq!(stage.counts("cases").await.unwrap(), Counts { calls: 1, asked: 0, had: 1 });
    let told = stage.lookup("CASE_CREATION", &json!({"externalEventId": "AF-1042"}), "").await.unwrap();
    assert_eq!((&told["state"], &told["resultUrn"], &told["attempts"]), (&json!("sealed"), &json!(CASE), &json!(1)));
    // Another event is another case, and an event without its id is none.
    assert_eq!(stage.event(&json!({"externalEventId": "AF-1043"})).await.unwrap().json()["caseUrn"], "urn:nexa:case:2");
    assert_eq!(stage.event(&json!({"flight": "AF1042"})).await.unwrap().status, 400);
    assert_eq!(stage.counts("cases").await.unwrap().had, 2);
}

#[tokio::test]
async fn the_same_webhook_eight_times_at_once_opens_one_case() {
    let stage = stage();
    stage.faults("cases", &["slow"]).await.unwrap();
    let event = json!({"externalEventId": "AF-1"});
    let send = async || stage.event(&event).await.unwrap().status;
    let (a, b, c, d, e, f, g, h) = tokio::join!(send(), send(), send(), send(), send(), send(), send(), send());
    let statuses = [a, b, c, d, e, f, g, h];
    // One request was let through. The others had to come back, or arrived late enough to get its answer.
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 201, 409].contains(status)), "{statuses:?}");
    assert_eq!(stage.counts("cases").await.unwrap(), Counts { calls: 1, asked: 0, had: 1 });
}

#[tokio::test]
async fn a_desk_that_dies_after_it_opened_the_case_opens_no_second_one() {
    let mut stage = stage();
    let event = json!({"externalEventId": "AF-1"});
    stage.faults("cases", &["stall"]).await.unwrap();
    let (unheard, ()) = tokio::join!(stage.event(&event), async {
        until("the case", async || Ok((stage.counts("cases").await?.had == 1).then_some(()))).await.unwrap();
        // The webhook's own call fails when the desk is killed.
        stage.kill_desk();
    });
    assert_eq!(unheard.unwrap().status, 502);
    stage.restart_desk().unwrap();
    // The airline retries until the lease of the first attempt has expired.
    let told = until("the answer", async || Ok(Some(stage.event(&event).await?).filter(|told| told.status == 201)))
        .await
        .unwrap();
    assert_eq!(told.json()["caseUrn"], CASE);
    assert_eq!(stage.event(&event).await.unwrap().body, told.body);
    assert_eq!(stage.counts("cases").await.unwrap().had, 1);
    let told = stage.lookup("CASE_CREATION", &event, "").await.unwrap();
    assert_eq!((&told["resultUrn"], &told["attempts"]), (&json!(CASE), &json!(2)));
}

#[tokio::test]
async fn a_recovering_booking_asks_the_hotel_before_it_books() {
    let stage = stage();
    stage.enqueue(json!({"kind": "booking", "key": booking("G-1")})).await.unwrap();
    stage.work_and_die_after("hotel").await.unwrap();
    stage.work().await.unwrap();
    // One call, one query, one room: the second worker found the room of the first.
    assert_eq!(stage.counts("hotel").await.unwrap(), Counts { calls: 1, asked: 1, had: 1 });
    assert_eq!((stage.counts("mail").await.unwrap().had, stage.counts("card").await.unwrap().had), (1, 1));
    let told = stage.lookup("BOOKING", &booking("G-1"), "").await.unwrap();
    assert_eq!((&told["resultUrn"], &told["attempts"]), (&json!("urn:nexa:hotel:1"), &json!(2)));
    assert!(decisions(&told).contains(&"recovered"), "{told}");
    // The job is delivered again: no provider is called.
    stage.enqueue(json!({"kind": "booking", "key": booking("G-1")})).await.unwrap();
    stage.work().await.unwrap();
    assert_eq!(stage.counts("hotel").await.unwrap().calls, 1);
}

#[tokio::test]
async fn a_hotel_that_fails_in_any_way_books_once() {
    let stage = stage();
    // Refused and not booked; failed and not booked; booked with a lost answer; slow.
    for (group, fault) in [("G-1", "refuse"), ("G-2", "fail"), ("G-3", "lose"), ("G-4", "slow")] {
        stage.faults("hotel", &[fault]).await.unwrap();
        stage.enqueue(json!({"kind": "booking", "key": booking(group)})).await.unwrap();
        stage.work().await.unwrap();
    }
    // The first two were called again. After the two unknown outcomes the hotel was queried.
    assert_eq!(stage.counts("hotel").await.unwrap(), Counts { calls: 6, asked: 2, had: 4 });
}

#[tokio::test]
async fn resend_and_rebook_are_new_actions_and_a_double_click_is_one() {
    let stage = stage();
    stage.enqueue(json!({"kind": "booking", "key": booking("G-1")})).await.unwrap();
    stage.work().await.unwrap();
    for _ in 0..2 {
        stage.enqueue(json!({"kind": "notification", "key": voucher("urn:nexa:hotel:1"), "seq": 1})).await.unwrap();
        stage.enqueue(json!({"kind": "booking", "key": booking("G-1"), "seq": 1})).await.unwrap();
    }
    stage.work().await.unwrap();
    // The new reservation gets a voucher and a charge of its own.
    assert_eq!(stage.counts("hotel").await.unwrap().had, 2);
    assert_eq!(stage.counts("mail").await.unwrap().had, 3);
    assert_eq!(stage.counts("card").await.unwrap().had, 2);
    let told = stage.lookup("BOOKING", &booking("G-1"), "&rebookSeq=1").await.unwrap();
    assert_eq!((&told["state"], &told["resultUrn"]), (&json!("sealed"), &json!("urn:nexa:hotel:2")));
    let told = stage.lookup("NOTIFICATION", &voucher("urn:nexa:hotel:1"), "&resendSeq=1").await.unwrap();
    assert_eq!(told["state"], "sealed");
    // The third resend before the second is a mistake: a person must look at it.
    stage.enqueue(json!({"kind": "notification", "key": voucher("urn:nexa:hotel:1"), "seq": 3})).await.unwrap();
    stage.work().await.unwrap();
    let held = stage.held().await.unwrap();
    assert!(!held.is_empty() && held.iter().all(|(_, why)| why == "sequence-gap"), "{held:?}");
    assert_eq!(stage.counts("mail").await.unwrap().had, 3);
}

#[tokio::test]
async fn a_charge_in_doubt_waits_for_a_person_and_is_made_once() {
    let stage = stage();
    let payment = json!({"caseUrn": CASE, "reservationUrn": "urn:nexa:hotel:1"});
    stage.enqueue(json!({"kind": "payment", "key": payment})).await.unwrap();
    stage.work_and_die_after("card").await.unwrap();
    stage.work().await.unwrap();
    let held = stage.held().await.unwrap();
    assert!(!held.is_empty() && held.iter().all(|(_, why)| why == "in-doubt"), "{held:?}");
    // No caller queried the service, and the card was not charged again.
    assert_eq!(stage.counts("card").await.unwrap(), Counts { calls: 1, asked: 0, had: 1 });
    assert_eq!(stage.lookup("PAYMENT_TOKENIZATION", &payment, "").await.unwrap()["state"], "in_doubt");
    let doubts = stage.in_doubt().await.unwrap();
    assert_eq!((doubts.len(), &doubts[0]["key"]), (1, &payment));
    assert_eq!(stage.resolve(&doubts[0]).await.unwrap(), "sealed");
    stage.enqueue(json!({"kind": "payment", "key": payment})).await.unwrap();
    stage.work().await.unwrap();
    assert_eq!(stage.counts("card").await.unwrap().had, 1);
    let told = stage.lookup("PAYMENT_TOKENIZATION", &payment, "").await.unwrap();
    assert_eq!((&told["state"], &told["resultUrn"]), (&json!("sealed"), &json!("urn:nexa:card:1")));
    assert!(told["history"].to_string().contains("the card service has the charge"), "{told}");
}

#[tokio::test]
async fn a_charge_that_never_was_is_made_after_a_person_said_so() {
    let stage = stage();
    let payment = json!({"caseUrn": CASE, "reservationUrn": "urn:nexa:hotel:9"});
    stage.faults("card", &["fail"]).await.unwrap();
    stage.enqueue(json!({"kind": "payment", "key": payment})).await.unwrap();
    stage.work().await.unwrap();
    let doubts = stage.in_doubt().await.unwrap();
    assert_eq!(doubts.len(), 1);
    assert_eq!(stage.resolve(&doubts[0]).await.unwrap(), "released");
    stage.enqueue(json!({"kind": "payment", "key": payment})).await.unwrap();
    stage.work().await.unwrap();
    assert_eq!(stage.counts("card").await.unwrap().had, 1);
}

#[tokio::test]
async fn two_clicks_around_the_boundary_of_a_bucket_are_two_requests_and_a_token_has_no_boundary() {
    let stage = stage();
    let boundary_ms = 1_794_736_800_000;
    for clicks in [[boundary_ms + 1_000, boundary_ms + 3_000], [boundary_ms - 1_000, boundary_ms + 1_000]] {
        let before = stage.counts("demands").await.unwrap().had;
        for at_ms in clicks {
            stage.enqueue(click_by_bucket(&format!("case-{before}"), "MEALS", at_ms)).await.unwrap();
        }
        stage.work().await.unwrap();
        let requests = stage.counts("demands").await.unwrap().had - before;
        assert_eq!(requests, if clicks[0] < boundary_ms { 2 } else { 1 });
    }
    let before = stage.counts("demands").await.unwrap().had;
    for _ in 0..2 {
        stage.enqueue(click_by_token(CASE, "MEALS", "page-7f3a")).await.unwrap();
    }
    stage.work().await.unwrap();
    assert_eq!(stage.counts("demands").await.unwrap().had - before, 1);
    // The same token with another request is a conflict, not a retry.
    let mut other = click_by_token(CASE, "MEALS", "page-7f3a");
    other["body"]["rooms"] = json!(60);
    stage.enqueue(other).await.unwrap();
    stage.work().await.unwrap();
    let held = stage.held().await.unwrap();
    assert!(
        !held.is_empty() && held.iter().all(|(_, why)| why.starts_with("conflict") && why.contains("/rooms")),
        "{held:?}"
    );
    assert_eq!(stage.counts("demands").await.unwrap().had - before, 1);
}
