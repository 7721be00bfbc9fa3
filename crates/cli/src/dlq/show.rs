//! `fencepost dlq show`: prints one dead letter for a person, with the commands that can follow.
//! Never calls the server: its caller has the server's answer. Called by `dlq`.

use fencepost_kernel::json::JsonNode;

use crate::{
    table::{plain, since},
    wes::{answer, is, number, parse, text},
};

/// Prints a dead letter, or with `json` the server's answer as it is.
pub(super) fn show(body: &[u8], json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", String::from_utf8_lossy(body));
        return Ok(());
    }
    let letter = parse(body)?;
    let part = |name: &str| text(&letter, name);
    println!("{}", part("id"));
    let line = |what: &str, said: String| println!("  {what:<12} {}", plain(&said));
    line("event", format!("{}, {} for {}", part("correlation_id"), part("kind"), part("warehouse_id")));
    line("lane", format!("{}, position {}", part("lane"), number(&letter, "seq")));
    line("published", part("published_at").to_owned());
    line("died", format!("{}, {} ago: {}", part("died_at"), since(part("died_at")), reason(part("reason"))));
    line(
        "attempts",
        match number(&letter, "attempts") {
            0 => "none".to_owned(),
            count => format!("{count}, the first at {}", part("first_attempt_at")),
        },
    );
    line("last answer", answer(&letter));
    let cancelled = letter.get("cancelled_by").and_then(JsonNode::as_str);
    line("cancelled", cancelled.map_or_else(|| "no".to_owned(), |by| format!("yes, by {by}")));
    line("state", state(&letter));
    if let Some(event) = letter.get("event") {
        println!("\n{}", event.raw.lines().map(plain).collect::<Vec<_>>().join("\n"));
    }
    println!("\n{}", because(&letter, cancelled));
    Ok(())
}

fn reason(word: &str) -> &str {
    match word {
        "horizon" => "the receiver did not take it within 24 hours",
        "too_large" => "it is larger than the receiver takes",
        "skipped" => "a person skipped it",
        other => other,
    }
}

fn state(letter: &JsonNode<'_>) -> String {
    let state = text(letter, "state");
    let Some(decided) = letter.get("decided") else { return state.to_owned() };
    let mut said = format!("{state} by {} at {}", text(decided, "by"), text(decided, "at"));
    if let Some(seq) = decided.get("seq").and_then(JsonNode::as_u64) {
        said += &format!(", to position {seq}");
    }
    match text(decided, "why") {
        "" => said,
        why => format!("{said}: {why}"),
    }
}

fn because(letter: &JsonNode<'_>, cancelled: Option<&str>) -> String {
    let id = text(letter, "id");
    let discard = format!("  fencepost dlq discard {id} --why WHY");
    match (text(letter, "state"), cancelled) {
        ("redriven", _) => "It was sent again. If nobody takes it, it waits here once more.".to_owned(),
        ("discarded", _) => "It was given up, and goes 30 days after that.".to_owned(),
        (_, Some(by)) => format!("Its planner took it back with {by}, so it is not sent again:\n{discard}"),
        _ => {
            let waits = if is(letter, "blocks") { "Its lane waits for a decision. " } else { "" };
            format!("{waits}To send it again, or to give it up:\n  fencepost dlq redrive {id}\n{discard}")
        }
    }
}
