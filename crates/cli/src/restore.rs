//! `fencepost restore`: fills an empty store from a backup, and says what the store cannot know.
//! Never writes before the whole file was found sound.

use std::{fs::File, path::PathBuf, process::ExitCode};

use anyhow::Context;
use fencepost::{
    clock::SystemClock,
    moving::{self, Restored},
};
use fencepost_wire::time::rfc3339;

use crate::moving::{Missing, Teller, address, open, runtime};

/// Fill an empty store from a backup, and say which span it may have forgotten.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    /// The backup
    file: PathBuf,
    /// Where the rows go: an empty store, or the target of the same restore, interrupted
    to: String,
}

const AFTER: &str = "\
The file is checked whole before anything is written. The restored store gives no token that the lost one may have
given: a worker that comes back with an old token is refused. What was sealed after the backup is unknown to it, and
may run again when it is asked for again: the last lines say of which span that is.

Examples:
  fencepost restore today.fpb ./fencepost-data
  fencepost restore today.fpb postgres://fp@db/fences";

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let to = address(&args.to)?;
    let mut file = File::open(&args.file).with_context(|| format!("cannot open {}", args.file.display()))?;
    runtime()?.block_on(async {
        let target = open(&to, Missing::Make).await?;
        let mut teller = Teller::default();
        let restored = moving::restore(&mut file, &target, &SystemClock::default(), &mut |progress| {
            teller.tell(progress);
        })
        .await
        .with_context(|| format!("{} was not restored to {to}", args.file.display()))?;
        drop(teller);
        print!("{}", told(&restored));
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
        out += &format!("left out  {} rows whose retention is over\n", restored.expired);
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
        out += &format!(
            "open      {} fences were pending, {} lapsed and {} in doubt when the backup was taken; each may have been\n          \
             sealed since\n",
            contents.pending, contents.lapsed, contents.in_doubt
        );
    }
    out
}
