//! `fencepost lanes show`: prints one lane for a person, with what it waits for and the commands that can follow.
//! Never calls the server: its caller has the server's answer. Called by `lanes`.

use fencepost_kernel::json::JsonNode;

use crate::{
    table::{plain, since, until},
    wes::{answer, number, parse, text},
};

/// Prints a lane, or with `json` the server's answer as it is.
pub(super) fn show(body: &[u8], json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", String::from_utf8_lossy(body));
        return Ok(());
    }
    let lane = parse(body)?;
    let name = text(&lane, "lane");
    println!("{name}");
    let line = |what: &str, said: String| println!("  {what:<12} {}", plain(&said));
    line("lane_id", text(&lane, "lane_id").to_owned());
    line("transport", text(&lane, "transport").to_owned());
    line("state", text(&lane, "state").to_owned());
    let (tail, settled) = (number(&lane, "tail"), number(&lane, "settled"));
    line("positions", format!("the last is {tail}; settled up to {settled}, {} to go", number(&lane, "backlog")));
    if let Some(head) = lane.get("head") {
        let attempts = number(head, "attempts");
        let mut said = format!("position {}, attempts that failed: {attempts}", number(head, "seq"));
        if attempts > 0 {
            said += &format!(", the first {} ago", since(text(head, "first_attempt_at")));
            line("head", said);
            line("last answer", answer(head));
        } else {
            line("head", said);
        }
    }
    if let Some(pause) = lane.get("paused") {
        let (by, why) = (text(pause, "by"), text(pause, "why"));
        line("paused", format!("since {}, by {by}: {why}", text(pause, "at")));
    }
    if !text(&lane, "owner").is_empty() {
        line("driven by", text(&lane, "owner").to_owned());
    }
    println!("\n{}", because(name, &lane));
    Ok(())
}

fn because(name: &str, lane: &JsonNode<'_>) -> String {
    let head = lane.get("head");
    let seq = head.map(|head| number(head, "seq")).unwrap_or_default();
    match text(lane, "state") {
        "idle" => "Everything that was published is acknowledged or dead. Nothing waits.".to_owned(),
        "waiting" => "What was published waits until the executor has fetched and acknowledged it.".to_owned(),
        "delivering" => format!("Position {seq} is on its way, or about to be."),
        "retrying" => format!(
            "Position {seq} is tried again in {}; those behind it wait, in order. To give it up now:\n  fencepost lanes skip {name} {seq}",
            head.map(|head| until(text(head, "next_attempt_at"))).unwrap_or_default()
        ),
        "paused" => {
            format!("Nothing leaves, and the 24 hours of the head stand still, until:\n  fencepost lanes resume {name}")
        }
        "blocked" if !text(lane, "missing_key").is_empty() => format!(
            "Its transport is sealed with the key {}, which the server's key file does not hold. Nothing is attempted, and \
             the 24 hours of the head do not begin, until an operator puts the key back, or the transport is PUT again.",
            text(lane, "missing_key")
        ),
        "blocked" => format!(
            "Position {seq} is a dead letter, and the lane waits until somebody redrives or discards it:\n  fencepost dlq list --warehouse {}",
            text(lane, "warehouse_id")
        ),
        other => other.to_owned(),
    }
}
