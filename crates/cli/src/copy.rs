//! `fencepost copy`: copies every row from one store to another, and compares both.
//! Never writes to the source. Called by `main`.

use std::{
    io::{IsTerminal, Write, stdin, stdout},
    process::ExitCode,
};

use anyhow::{Context, bail};
use fencepost::{clock::SystemClock, moving};

use crate::{
    keys,
    moving::{Teller, Use, address, open, runtime},
    table::counted,
};

/// Copy every row of a store to another one, and compare both.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    /// Where the rows are: a directory, postgres://… or redis://…
    from: String,
    /// Where they go: an empty store, or the target of the same copy, interrupted
    to: String,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

const AFTER: &str = "\
Stop the servers of both stores first: the comparison finds what is written meanwhile, and the copy fails.
The source is never changed. An interrupted copy goes on where it stopped: run it again.

Examples:
  fencepost copy ./fencepost-data postgres://fp@db/fences
  fencepost copy postgres://fp@db/fences redis+cluster://c-1,c-2 --yes
  fencepost copy ./fencepost-data /mnt/larger/fencepost-data

Credentials and keys are not rows: take DIR/credentials.yml and DIR/secret.key along where the new server needs them.";

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (from, to) = (address(&args.from)?, address(&args.to)?);
    if from == to {
        bail!("{from} is both source and target");
    }
    if !args.yes && !agreed(&format!("Copy every row of {from} to {to}? Nothing may write to either meanwhile."))? {
        bail!("nothing was copied");
    }
    runtime()?.block_on(async {
        let source = open(&from, Use::CopyFrom).await?;
        let target = open(&to, Use::Fill).await?;
        let mut teller = Teller::default();
        let copied = moving::copy(&source, &target, &SystemClock::default(), &mut |progress| teller.tell(progress))
            .await
            .with_context(|| format!("not copied from {from} to {to}"))?;
        drop(teller);
        println!("copied    {}", copied.rows);
        println!("compared  every row, both ways");
        if copied.already > 0 {
            println!("resumed   {} of them were there already", copied.already);
        }
        if copied.expired > 0 {
            println!("left out  {} whose retention is over", counted(copied.expired, "row"));
        }
        if copied.unserved > 0 {
            println!(
                "note      {} of versions and repetitions kept there, but {to} cannot serve scopes that need them: \
                 a write there touches one row only",
                counted(copied.unserved, "head")
            );
        }
        let needed = moving::KeysNeeded::of(&target).await.with_context(|| format!("cannot read {to}"))?;
        print!("{}", keys::told_of_target(&needed, Some(&from), &to));
        println!("next      fencepost serve --store {to}");
        Ok(ExitCode::SUCCESS)
    })
}

fn agreed(question: &str) -> anyhow::Result<bool> {
    if !stdin().is_terminal() {
        bail!("{question} Add --yes");
    }
    print!("{question} [y/N] ");
    stdout().flush()?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
