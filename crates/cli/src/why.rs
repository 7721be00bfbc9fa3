//! `fencepost why`: prints a timeline of one key. Asks a running server, and only reads. Called by `main`.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::{Context, bail};
use fencepost_kernel::json::{self, JsonNode, Value};

use crate::client::{ServerArgs, encode, not_fencepost};

/// Explain a key: what happened, when, and why it did not happen again.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    /// The scope, such as BOOKING
    scope: String,
    /// Every key field of the scope; for a repetition also its number, such as resendSeq=1
    #[arg(required = true, value_name = "FIELD=VALUE")]
    fields: Vec<String>,
    /// The tenant that has the key, where several do
    #[arg(long)]
    tenant: Option<String>,
    /// Print the server's answer as it is
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

const AFTER: &str = "\
Examples:
  fencepost why INDEX_BUILD index_hash=9f2c
  fencepost why NOTIFICATION groupId=G-42 type=VOUCHER channel=EMAIL \\
      reservationUrn=R-1 resendSeq=1
  export FENCEPOST_URL=https://fences.internal FENCEPOST_TOKEN=fp_...

Exits 0 if the key is known, 2 if it is not.";

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut path = format!("/admin/idempotency/lookup?scope={}", encode(&args.scope));
    for field in &args.fields {
        let (name, value) = field.split_once('=').with_context(|| format!("{field:?} is not FIELD=VALUE"))?;
        let _ = write!(path, "&{}={}", encode(name), encode(value));
    }
    if let Some(tenant) = &args.tenant {
        let _ = write!(path, "&tenant={}", encode(tenant));
    }
    let (status, body) = args.server.get(&path)?;
    let answer = json::parse(&body).ok();
    if status != 200 {
        if let Some(Value::Array(tenants)) =
            answer.as_ref().and_then(|said| said.get("tenants")).map(|list| &list.value)
        {
            let tenants: Vec<&str> = tenants.iter().filter_map(JsonNode::as_str).collect();
            bail!("several tenants have this key; use --tenant: {}", tenants.join(", "));
        }
        return Err(args.server.refused(status, &body));
    }
    let (answer, known) = match answer.as_ref().map(|answer| (answer, answer.get("exists").map(|exists| &exists.value)))
    {
        Some((answer, Some(Value::Bool(known)))) => (answer, *known),
        _ => return Err(not_fencepost(&args.server.url, "answered something else")),
    };
    if args.json {
        println!("{}", String::from_utf8_lossy(&body));
    } else if known {
        print!("{}", told(&args.scope, &args.fields, answer));
    } else {
        let why = if args.tenant.is_some() { UNKNOWN } else { NOT_FOUND };
        let repeated = repetitions(answer);
        println!(
            "{} {}\n\n{repeated}{}",
            args.scope,
            args.fields.join(" "),
            if repeated.is_empty() { why } else { FORGOTTEN }
        );
    }
    Ok(if known { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

const UNKNOWN: &str = "Unknown: never claimed, or its retention is over. The next claim would run.";

// For an effect that has expired while some of its repetitions have not.
const FORGOTTEN: &str = "The effect itself is no longer known: its retention is over.";

// Must not read like UNKNOWN: the key may be there, under a tenant that was not searched.
const NOT_FOUND: &str = "\
Not found under the tenants that were searched: the token's own; for an admin or
viewer all that have an identity, and those of webhooks. The tenant of a queue's
group (queue:GROUP) and an identity that was removed are not searched. Name the
tenant with --tenant to know whether the key was never claimed.";

// The effect's repetitions, a line each.
fn repetitions(answer: &JsonNode<'_>) -> String {
    let Some(Value::Array(repeated)) = answer.get("repetitions").map(|list| &list.value) else { return String::new() };
    let mut out = String::new();
    for one in repeated {
        let text = |name: &str| one.get(name).and_then(JsonNode::as_str);
        let seq = one.get("seq").and_then(JsonNode::as_u64).unwrap_or(0);
        let _ = write!(out, "  repetition {seq}  {}", text("state").unwrap_or("?"));
        let _ = match (text("sealedAt"), text("releasedAt"), text("leaseExpiresAt")) {
            (Some(at), ..) => write!(out, " at {at} as {}", text("resultUrn").unwrap_or("?")),
            (_, Some(at), _) => write!(out, " at {at}"),
            (.., Some(at)) => write!(out, ", lease until {at}"),
            _ => Ok(()),
        };
        out.push('\n');
    }
    let total = answer.get("repetitionsTotal").and_then(JsonNode::as_u64).unwrap_or(0);
    if let earlier @ 1.. = total.saturating_sub(repeated.len() as u64) {
        out.insert_str(
            0,
            &format!("  {earlier} earlier of {total} repetitions are not shown; name one with its number\n"),
        );
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

// The last decision of a person about the key, with its author and time; none where a claim was granted after that.
fn resolution<'a>(answer: &'a JsonNode<'_>) -> Option<(&'a str, &'a str, &'a str)> {
    let Some(Value::Array(history)) = answer.get("history").map(|history| &history.value) else { return None };
    let part = |moment: &'a JsonNode<'_>, name: &str| moment.get(name).and_then(JsonNode::as_str);
    let decision = |moment: &&'a JsonNode<'_>| part(moment, "decision");
    let last = history
        .iter()
        .rev()
        .find(|moment| matches!(decision(moment), Some("resolved" | "forgotten" | "new" | "recovered")))?;
    Some((decision(&last)?, part(last, "by")?, part(last, "at")?))
}

fn told(scope: &str, fields: &[String], answer: &JsonNode<'_>) -> String {
    let text = |name: &str| answer.get(name).and_then(JsonNode::as_str).unwrap_or("?");
    let number = |name: &str| answer.get(name).and_then(JsonNode::as_u64).unwrap_or(0);
    let mut out = format!(
        "{scope} {}\ntenant {}, key {}\nstate  {}, attempts {}, replays {}, conflicts {}\n",
        fields.join(" "),
        text("tenant"),
        text("idempotencyKey"),
        text("state"),
        number("attempts"),
        number("replays"),
        number("conflicts"),
    );
    if let mismatches @ 1.. = number("bodyMismatches") {
        let _ = writeln!(out, "       of the replays, {mismatches} came with another body than the first");
    }
    out.push('\n');
    if let Some(Value::Array(history)) = answer.get("history").map(|history| &history.value) {
        for moment in history {
            let part = |name: &str| moment.get(name).and_then(JsonNode::as_str);
            let _ = write!(out, "  {}  {:<12}", part("at").unwrap_or("?"), part("decision").unwrap_or("?"));
            if let Some(token) = moment.get("token").and_then(JsonNode::as_u64) {
                let _ = write!(out, " token {token}");
            }
            if let (Some(by), Some(why)) = (part("by"), part("why")) {
                let _ = write!(out, " by {by}: {why}");
            }
            out.push('\n');
        }
    }
    out.push('\n');
    out += &repetitions(answer);
    let person = resolution(answer);
    let because = match (text("state"), person) {
        ("sealed", Some((_, by, at))) => format!(
            "{by} resolved it as done at {at}, as {}. Until {} every claim gets that receipt and nothing runs; a late seal of \
             its holder is refused.",
            text("resultUrn"),
            text("expiresAt")
        ),
        ("sealed", None) => format!(
            "It ran once, as {}, sealed at {}. Until {} every claim gets that receipt and nothing runs.",
            text("resultUrn"),
            text("sealedAt"),
            text("expiresAt")
        ),
        ("pending", _) => {
            format!("A worker holds the claim until {}. Others are told to wait.", text("leaseExpiresAt"))
        }
        ("lapsed", _) => format!(
            "The last holder's lease ran out at {}. The next claim may run, and is told so.",
            text("leaseExpiresAt")
        ),
        ("in_doubt", _) => format!(
            "The last holder's lease ran out at {}, and whether it had its effect is unknown.\n\
             Nothing runs until a person resolves it:\n  POST /admin/idempotency/resolve",
            text("leaseExpiresAt")
        ),
        ("released", Some(("forgotten", by, at))) => {
            format!("{by} gave its outcome up at {at}. The next claim may run.")
        }
        ("released", Some((_, by, at))) => format!(
            "{by} resolved it as not done at {at}. The next claim may run; a late seal of the lost holder is refused."
        ),
        ("released", None) => {
            format!("The last attempt gave the key back at {}. The next claim may run.", text("releasedAt"))
        }
        (other, _) => other.to_owned(),
    };
    let _ = writeln!(out, "{because}");
    out
}
