//! A document pipeline: content is cut into snippets once, an index is built once for each hash, and readers follow an
//! alias that moves to finished indexes only. Called by people and by tests.
//!
//!     cargo build && cargo run -p fencepost-examples --bin documents
//!
//! runs the whole story with real processes, and counts how often each effect was requested and how often it happened.
//! With `--without-fence` it shows the same without fences. The steps can be run one by one against any server, too:
//!
//!     fencepost serve --dev
//!     documents ingest --shelf ./shelf a.txt b.txt
//!     documents build --shelf ./shelf
//!     documents swap --shelf ./shelf search
//!     documents search --shelf ./shelf search fence
//!
//! Read `pipeline.rs` first. The guide is docs/guides/documents.md.

mod pipeline;
mod shelf;
mod story;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use fencepost_examples::programs;

use pipeline::{Pipeline, Stop};

/// A document pipeline that may be run again and again
#[derive(Parser)]
#[command(
    name = "documents",
    after_help = "Without a command it tells the story. It needs the fencepost binary: `cargo build` first."
)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Acts without asking for a claim, to see what fences are for; the story then fails, which is its point
    #[arg(long, global = true)]
    without_fence: bool,
}

/// Where things are.
#[derive(clap::Args)]
struct Place {
    /// The folder with snippets and indexes
    #[arg(long)]
    shelf: PathBuf,
    /// The Fencepost server
    #[arg(long, default_value = "http://127.0.0.1:7411")]
    fencepost: String,
    /// The credential for it
    #[arg(long, default_value = "dev-partner")]
    token: String,
    /// How long a process may be silent before the next one is let in
    #[arg(long, default_value_t = 2_000)]
    lease_ms: u64,
    /// Stands still at a step, so that it can be killed there
    #[arg(long)]
    stop: Option<Stop>,
}

#[derive(Subcommand)]
enum Command {
    /// Cuts files into snippets; the same content has the same snippet ids
    Ingest {
        #[command(flatten)]
        place: Place,
        /// Words in a snippet
        #[arg(long, default_value_t = 8)]
        words: usize,
        /// The files; a document's id is its file's name
        files: Vec<PathBuf>,
    },
    /// Builds the index of what is on the shelf, once per hash
    Build {
        #[command(flatten)]
        place: Place,
    },
    /// Points an alias at the index of what is on the shelf; refused unless its build is sealed
    Swap {
        #[command(flatten)]
        place: Place,
        /// The alias
        alias: String,
    },
    /// Finds a word in the index that an alias points at
    Search {
        #[command(flatten)]
        place: Place,
        /// The alias
        alias: String,
        /// The word
        word: String,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    programs::ended(run(Args::parse()).await)
}

async fn run(Args { command, without_fence }: Args) -> anyhow::Result<()> {
    let Some(command) = command else { return story::tell(without_fence).await };
    let with = |place: &Place| Pipeline::new(place, without_fence);
    match command {
        Command::Ingest { place, words, files } => {
            let pipeline = with(&place)?;
            for file in files {
                println!("{}", pipeline.ingest(&file, words).await?);
            }
        }
        Command::Build { place } => println!("{}", with(&place)?.build().await?),
        Command::Swap { place, alias } => println!("{}", with(&place)?.swap(&alias).await?),
        Command::Search { place, alias, word } => println!("{}", with(&place)?.search(&alias, &word).await?),
    }
    Ok(())
}
