//! `fencepost forget`: gives up a sealed or released outcome, so that the next claim of its key is new. Looks the key up, and names
//! the attempt that it found: one that was sealed in between is not given up. Asks a running server. Called by `main`.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::Context;

use crate::{
    client::{ServerArgs, encode},
    wes::{get, is, number, parse, post, quoted, text},
};

/// Give up what was sealed under a key, so that the effect may be had again.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    /// The scope, such as BOOKING
    scope: String,
    /// Every key field of the scope
    #[arg(required = true, value_name = "FIELD=VALUE")]
    fields: Vec<String>,
    /// The repetition, where one is meant and not the effect itself
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seq: Option<u64>,
    /// The tenant that has the key, where several do
    #[arg(long)]
    tenant: Option<String>,
    /// The reason, kept in the audit and in the history of the key
    #[arg(long)]
    why: String,
    #[command(flatten)]
    server: ServerArgs,
}

const AFTER: &str = "\
Examples:
  fencepost forget INDEX_BUILD index_hash=9f2c --why 'the index was lost'
  fencepost forget NOTIFICATION groupId=G-42 type=VOUCHER channel=EMAIL \\
      reservationUrn=R-1 --seq 1 --why 'the mail server lost it'

The effect happens again with the next claim: be sure that it should. A key that is claimed or in doubt is refused. Safe \
to repeat. Exits 0 when it is done, 1 when the server refuses or does not answer, 2 where nothing is known under the key.";

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut path = format!("/admin/idempotency/lookup?scope={}", encode(&args.scope));
    let mut key = String::new();
    for field in &args.fields {
        let (name, value) = field.split_once('=').with_context(|| format!("{field:?} is not FIELD=VALUE"))?;
        let _ = write!(path, "&{}={}", encode(name), encode(value));
        let comma = if key.is_empty() { "" } else { "," };
        let _ = write!(key, "{comma}{}:{}", quoted(name), quoted(value));
    }
    let mut seq = String::new();
    if let Some(number) = args.seq {
        let _ = write!(path, "&seq={number}");
        seq = format!(",\"seq\":{number}");
    }
    if let Some(tenant) = &args.tenant {
        let _ = write!(path, "&tenant={}", encode(tenant));
    }
    let found = get(&args.server, &path)?;
    let found = parse(&found)?;
    if !is(&found, "exists") {
        println!("Nothing is known under this key: its next claim is new.");
        return Ok(ExitCode::from(2));
    }
    let body = format!(
        "{{\"scope\":{},\"key\":{{{key}}}{seq},\"tenant\":{},\"token\":{},\"why\":{}}}",
        quoted(&args.scope),
        quoted(text(&found, "tenant")),
        number(&found, "token"),
        quoted(&args.why),
    );
    let answer = post(&args.server, "/admin/idempotency/forget", &body)?;
    if is(&parse(&answer)?, "replay") {
        println!("It was forgotten already. The next claim is new.");
        return Ok(ExitCode::SUCCESS);
    }
    match text(&found, "resultUrn") {
        "" => println!("Forgotten. The next claim is new."),
        effect => println!("Forgotten: {effect}, sealed at {}. The next claim is new.", text(&found, "sealedAt")),
    }
    Ok(ExitCode::SUCCESS)
}
