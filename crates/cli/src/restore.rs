//! `fencepost restore`: fills an empty store from a backup, and names the span of time that is not in it.
//! Never writes before the whole file has passed its check. Called by `main`.

use std::{fs::File, path::PathBuf, process::ExitCode};

use anyhow::Context;
use fencepost::{
    clock::SystemClock,
    moving::{self, Restored},
};
use fencepost_wire::time::rfc3339;

use crate::{
    keys,
    moving::{Teller, Use, address, open, runtime},
    table::counted,
};

/// Fill an empty store from a backup, and say which span of time is not in it.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    /// The backup
    file: PathBuf,
    /// Where the rows go: an empty store, or the target of the same restore, interrupted
    to: String,
}

const AFTER: &str = "\
The file is checked whole before anything is written. The restored store gives no token that the lost one may have \
given: a worker that comes back with an old token is refused. What was sealed after the backup is unknown to it, and may \
run again on the next claim: the last lines name that span of time.

Examples:
  fencepost restore today.fpb ./fencepost-data
  fencepost restore today.fpb postgres://fp@db/fences";

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let to = address(&args.to)?;
    let mut file = File::open(&args.file).with_context(|| format!("cannot open {}", args.file.display()))?;
    runtime()?.block_on(async {
        let target = open(&to, Use::Fill).await?;
        let mut teller = Teller::default();
        let restored = moving::restore(&mut file, &target, &SystemClock::default(), &mut |progress| {
            teller.tell(progress);
        })
        .await
        .with_context(|| format!("{} was not restored to {to}", args.file.display()))?;
        drop(teller);
        print!("{}{}", told(&restored), keys::told_of_target(&restored.contents.keys, None, &to));
        println!("next      fencepost serve --store {to}");
        Ok(ExitCode::SUCCESS)
    })
}

fn told(restored: &Restored) -> String {
    let mut out = format!("restored  {}\n", restored.rows);
    if restored.already > 0 {
        out += &format!("resumed   {} of them were there already\n", restored.already);
    }
    if restored.expired > 0 {
        out += &format!("left out  {} whose retention is over\n", counted(restored.expired, "row"));
    }
    let (from, until) = (rfc3339(restored.forgotten.0.0), rfc3339(restored.forgotten.1.0));
    out += &format!("tokens    every new one is above {}, and above all that were given before\n", restored.floor.0);
    out += &format!(
        "forgotten effects sealed between {} and {} are unknown to this store: a claim for one of them\n          \
         runs it again. Ask the targets before you let callers retry what is from that span.\n",
        &*from, &*until
    );
    let contents = &restored.contents;
    if contents.pending + contents.lapsed + contents.in_doubt > 0 {
        let (pending, lapsed, in_doubt) = (contents.pending, contents.lapsed, contents.in_doubt);
        out += &format!(
            "open      when the backup was taken: {} pending, {lapsed} lapsed, {in_doubt} in doubt; each may have\n          \
             been sealed since\n",
            counted(pending, "fence")
        );
    }
    out
}
