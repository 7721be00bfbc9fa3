//! Nexa: a desk for disrupted passengers (cases, demand, waves, bookings, vouchers, payments, agent runs), in which
//! everything is retried and nothing happens twice. Called by people and by tests.
//!
//!     cargo build && cargo run -p fencepost-examples --bin nexa
//!
//! runs the whole story with real processes, and counts how often each effect was requested and how often it happened.
//! With `--without-fence` it shows the same without fences. The parts can be started one by one, too:
//!
//!     fencepost serve --dev --config contracts/nexa.yml
//!     nexa services --listen 127.0.0.1:9001
//!     nexa desk --listen 127.0.0.1:9000 --folder ./nexa
//!     nexa worker --desk http://127.0.0.1:9000 --services http://127.0.0.1:9001 --fencepost http://127.0.0.1:7411
//!
//! Read `worker.rs` first: claim, query if recovering, act, seal. The guide is docs/guides/nexa.md.

mod effects;
mod queue;
mod story;
mod worker;

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use clap::{Parser, Subcommand};
use fencepost_examples::{http, programs};

use effects::{Effects, Journal};
use queue::Queue;

/// A desk for disrupted passengers, in which everything is retried and nothing happens twice
#[derive(Parser)]
#[command(
    name = "nexa",
    after_help = "Without a command it tells the story. It needs the fencepost binary: `cargo build` first."
)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Tells the story without fences, and fails: that is its point
    #[arg(long)]
    without_fence: bool,
}

#[derive(Subcommand)]
enum Command {
    /// The desk: cases, demand requests and waves in a file, and the queue of jobs
    Desk {
        /// Where to listen
        #[arg(long, default_value = "127.0.0.1:9000")]
        listen: String,
        /// Where its files are
        #[arg(long)]
        folder: PathBuf,
        /// Copies that the queue makes of every job
        #[arg(long, default_value_t = 2)]
        copies: usize,
        /// How long a job that is not reported done stays hidden
        #[arg(long, default_value_t = 400)]
        redeliver_ms: u64,
    },
    /// The hotel, the mailer, the card service and the model, which count their calls
    Services {
        /// Where to listen
        #[arg(long, default_value = "127.0.0.1:9001")]
        listen: String,
    },
    /// Works through the queue until it is empty
    Worker(worker::Places),
}

#[tokio::main]
async fn main() -> ExitCode {
    programs::ended(run(Args::parse()).await)
}

async fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        None => story::tell(args.without_fence).await,
        Some(Command::Worker(places)) => worker::work(&places).await,
        Some(Command::Services { listen }) => {
            let services = Effects::new(&["hotel", "mail", "card", "model"], None);
            http::serve(&listen, Arc::new(services).router()).await
        }
        Some(Command::Desk { listen, folder, copies, redeliver_ms }) => {
            std::fs::create_dir_all(&folder)?;
            let kept = Journal::open(&folder.join("desk.jsonl"))?;
            let records = Effects::new(&["cases", "demands", "waves"], Some(kept));
            let queue = Queue::open(&folder.join("queue.jsonl"), copies, Duration::from_millis(redeliver_ms))?;
            http::serve(&listen, Arc::new(records).router().merge(Arc::new(queue).router())).await
        }
    }
}
