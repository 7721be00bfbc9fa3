//! The story: an airline, an operator, a queue and dying workers, scene by scene with what was counted.
//! Fails where an effect happened too often; without fences it must fail. Called by `main`.

use std::fmt::Write as _;

use fencepost_examples::nexa::{Fences, Stage, click_by_bucket, click_by_token};
use serde_json::json;

/// The effects that each service must have at the end: its jobs, words for the effects, their number.
const WANTED: [(&str, &str, &str, u64); 7] = [
    ("cases", "", "cases opened", 1),
    ("demands", "demand", "demand requests", 3),
    ("waves", "wave", "waves run", 1),
    ("hotel", "booking", "rooms booked", 3),
    ("mail", "notification", "vouchers sent", 4),
    ("card", "payment", "cards charged", 3),
    ("model", "agent", "model runs", 1),
];

/// How often the airline sends one event.
const EVENTS: usize = 5;
const CASE: &str = "urn:nexa:case:1";
/// Two clicks in milliseconds since the Unix epoch: 09:59:59 and 10:00:01 of one day.
const CLICKS_MS: [u64; 2] = [1_794_736_799_000, 1_794_736_801_000];

/// Runs the story and prints it.
pub async fn tell(without_fence: bool) -> anyhow::Result<()> {
    let fences = if without_fence { Fences::Off } else { Fences::On };
    let stage = Stage::start(std::env::current_exe()?, fences)?;
    case(&stage).await?;
    demand(&stage).await?;
    bookings(&stage).await?;
    operator(&stage).await?;
    println!("\nThe agent is asked twice for run 1 of a review item.");
    for _ in 0..2 {
        stage.enqueue(json!({"kind": "agent", "key": {"itemUrn": "urn:nexa:item:1", "runSeq": "1"}})).await?;
    }
    stage.work().await?;
    if fences == Fences::On {
        explain(&stage).await?;
    }
    let (table, wrong) = table(&stage).await?;
    println!("\n{table}");
    anyhow::ensure!(wrong == 0, "{wrong} of {} kinds of effects happened too often", WANTED.len());
    println!("Everything was repeated, and nothing happened twice.");
    Ok(())
}

async fn case(stage: &Stage) -> anyhow::Result<()> {
    println!("An airline's webhook AF-1042 comes five times, each with its own time of sending.");
    for minute in 0..EVENTS {
        let event = json!({"externalEventId": "AF-1042", "flight": "AF1042", "sentAt": format!("09:0{minute}")});
        let answer = stage.event(&event).await?;
        let replayed = answer.header("x-nexa-replayed").unwrap_or("no");
        println!("  {} {}  X-Nexa-Replayed: {replayed}", answer.status, answer.json());
    }
    Ok(())
}

async fn demand(stage: &Stage) -> anyhow::Result<()> {
    println!(
        "\nThe operator double-clicks \"approve\" at 09:59:59 and 10:00:01. Meals are recognised by a bucket of ten minutes,"
    );
    println!(
        "and the clicks fall on either side of its boundary: two requests. That is the trap of a bucket, with fences too."
    );
    for at_ms in CLICKS_MS {
        stage.enqueue(click_by_bucket(CASE, "MEALS", at_ms)).await?;
    }
    println!("Rooms are recognised by a token that the page made when it was opened: one request.");
    for _ in CLICKS_MS {
        stage.enqueue(click_by_token(CASE, "SURGE", "page-7f3a")).await?;
    }
    Ok(())
}

async fn bookings(stage: &Stage) -> anyhow::Result<()> {
    println!("\nThe queue brings every job twice. A worker books at the hotel and is killed before it can seal.");
    stage.work_and_die_after("hotel").await?;
    println!("The next worker recovers: it asks the hotel first. It charges a card, and is killed before it can seal.");
    stage.work_and_die_after("card").await?;
    println!("The workers after it do the rest. Nobody charges that card again: the charge is in doubt.");
    stage.work().await?;
    for doubt in stage.in_doubt().await? {
        println!("  in doubt: {} {}", doubt["scope"].as_str().unwrap_or_default(), doubt["key"]);
        println!("  an admin asks the card service and resolves it as {}", stage.resolve(&doubt).await?);
        stage.enqueue(json!({"kind": "payment", "key": doubt["key"]})).await?;
    }
    stage.work().await
}

async fn operator(stage: &Stage) -> anyhow::Result<()> {
    println!(
        "\nThe operator double-clicks \"resend the voucher\", and then \"book another hotel\" for the first group."
    );
    let voucher =
        json!({"groupId": "G-1", "type": "VOUCHER", "channel": "EMAIL", "reservationUrn": "urn:nexa:hotel:1"});
    let booking = json!({"caseUrn": CASE, "waveUrn": "urn:nexa:wave:1", "groupId": "G-1"});
    for _ in 0..2 {
        stage.enqueue(json!({"kind": "notification", "key": voucher, "seq": 1})).await?;
        stage.enqueue(json!({"kind": "booking", "key": booking, "seq": 1})).await?;
    }
    stage.work().await
}

async fn explain(stage: &Stage) -> anyhow::Result<()> {
    println!("\nWhy did it not happen again? GET /admin/idempotency/lookup knows:");
    let booking = json!({"caseUrn": CASE, "waveUrn": "urn:nexa:wave:1", "groupId": "G-1"});
    let asked = [
        ("CASE_CREATION", json!({"externalEventId": "AF-1042"}), ""),
        ("BOOKING", booking.clone(), ""),
        ("BOOKING", booking, "&rebookSeq=1"),
        ("PAYMENT_TOKENIZATION", json!({"caseUrn": CASE, "reservationUrn": "urn:nexa:hotel:1"}), ""),
    ];
    for (scope, key, more) in asked {
        let told = stage.lookup(scope, &key, more).await?;
        let history: Vec<&str> =
            told["history"].as_array().into_iter().flatten().filter_map(|moment| moment["decision"].as_str()).collect();
        let (state, urn) = (told["state"].as_str(), told["resultUrn"].as_str());
        println!(
            "  {scope}{more}: {} as {}: {}",
            state.unwrap_or("unknown"),
            urn.unwrap_or("nothing"),
            history.join(", ")
        );
    }
    Ok(())
}

async fn table(stage: &Stage) -> anyhow::Result<(String, usize)> {
    let mut text = format!("{:<18}{:>8}{:>8}{:>8}{:>8}\n", "", "asked", "wanted", "had", "calls");
    let mut wrong = 0;
    for (service, kind, words, wanted) in WANTED {
        let asked = if kind.is_empty() { EVENTS } else { stage.jobs(kind).await? };
        let counts = stage.counts(service).await?;
        let mark = if counts.had == wanted { "" } else { "   <- too often" };
        wrong += usize::from(counts.had != wanted);
        writeln!(text, "{words:<18}{asked:>8}{wanted:>8}{:>8}{:>8}{mark}", counts.had, counts.calls)?;
    }
    Ok((text, wrong))
}
