//! `fencepost why`: a readable timeline of one key. Asks a running server; only reads.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::{Context, bail};
use fencepost_kernel::json::{self, Node, Value};

use crate::client::{Server, encode};

/// Explain a key: what happened, when, and why it did not happen again.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    /// The scope, such as BOOKING
    scope: String,
    /// Every key field of the scope; for a repetition also its number, such as resendSeq=1
    #[arg(required = true, value_name = "FIELD=VALUE")]
    fields: Vec<String>,
    /// Whose key it is, where several tenants have it
    #[arg(long)]
    tenant: Option<String>,
    /// Print the server's answer as it is
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

const AFTER: &str = "\
Examples:
  fencepost why INDEX_BUILD index_hash=9f2c
  fencepost why NOTIFICATION groupId=G-42 type=VOUCHER channel=EMAIL reservationUrn=R-1 resendSeq=1
  FENCEPOST_URL=https://fences.internal FENCEPOST_TOKEN=fp_... fencepost why BOOKING ...

Exits 0 where the key is known, 2 where it is not.";

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut path = format!("/admin/idempotency/lookup?scope={}", encode(&args.scope));
    for field in &args.fields {
        let (name, value) = field.split_once('=').with_context(|| format!("{field:?} is not FIELD=VALUE"))?;
        let _ = write!(path, "&{}={}", encode(name), encode(value));
    }
    if let Some(tenant) = &args.tenant {
        let _ = write!(path, "&tenant={}", encode(tenant));
    }
    let body = args.server.read(&path)?;
    let answer = json::parse(&body).context("the server's answer is not JSON")?;
    let known = match answer.get("exists").map(|exists| &exists.value) {
        Some(Value::Bool(known)) => *known,
        _ => bail!("the server's answer makes no sense"),
    };
    if args.json {
        println!("{}", String::from_utf8_lossy(&body));
    } else if known {
        print!("{}", told(&args.scope, &args.fields, &answer));
    } else {
        let why = if args.tenant.is_some() { UNKNOWN } else { NOT_FOUND };
        println!("{} {}\n\n{why}", args.scope, args.fields.join(" "));
    }
    Ok(if known { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

const UNKNOWN: &str = "Unknown: never claimed, or its retention is over. The next claim would run.";

// Nobody may take this for the other.
const NOT_FOUND: &str = "\
Not found under the tenants that were searched: the token's own; for an admin or viewer all that have an identity, and
those of webhooks. A queue's group (queue:GROUP) and an identity that is gone are not among them. Name the tenant with
--tenant to know whether it was never claimed.";

fn told(scope: &str, fields: &[String], answer: &Node<'_>) -> String {
    let text = |name: &str| answer.get(name).and_then(Node::as_str).unwrap_or("?");
    let number = |name: &str| answer.get(name).and_then(Node::as_u64).unwrap_or(0);
    let mut out = format!(
        "{scope} {}\ntenant {}, key {}\nstate  {}, attempts {}, replays {}, conflicts {}\n\n",
        fields.join(" "),
        text("tenant"),
        text("idempotencyKey"),
        text("state"),
        number("attempts"),
        number("replays"),
        number("conflicts"),
    );
    if let Some(Value::Array(history)) = answer.get("history").map(|history| &history.value) {
        for moment in history {
            let part = |name: &str| moment.get(name).and_then(Node::as_str);
            let _ = write!(out, "  {}  {:<12}", part("at").unwrap_or("?"), part("decision").unwrap_or("?"));
            if let Some(token) = moment.get("token").and_then(Node::as_u64) {
                let _ = write!(out, " token {token}");
            }
            if let (Some(by), Some(why)) = (part("by"), part("why")) {
                let _ = write!(out, " by {by}: {why}");
            }
            out.push('\n');
        }
    }
    let because = match text("state") {
        "sealed" => format!(
            "It ran once, as {}, sealed at {}. Until {} every claim gets that receipt and nothing runs.",
            text("resultUrn"),
            text("sealedAt"),
            text("expiresAt")
        ),
        "pending" => format!("Somebody holds the claim until {}. Others are told to wait.", text("leaseExpiresAt")),
        "lapsed" => format!(
            "The last holder's lease ran out at {}. The next claim may run, and is told so.",
            text("leaseExpiresAt")
        ),
        "in_doubt" => format!(
            "The last holder's lease ran out at {} and nobody knows whether it had its effect. Nothing runs until a person resolves it:\n  POST /admin/idempotency/resolve",
            text("leaseExpiresAt")
        ),
        "released" => format!("The last attempt gave the key back at {}. The next claim may run.", text("releasedAt")),
        other => other.to_owned(),
    };
    let _ = writeln!(out, "\n{because}");
    out
}
