//! `fencepost consume`: hands the messages of a queue to a local handler, each with its effect once.
//! Never commits an offset before the seal: the Kafka source and the library ensure that. Called by `main`.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use fencepost::{
    Fencepost,
    policy::{Policy, config::Config, finding},
    queue::{ATTEMPTS_MAX_DEFAULT, Consumer},
    store::embedded::IN_USE,
};
use fencepost_wire::{
    log::{Level, Log},
    sources::{
        handler::MessageHandler,
        kafka::{Begin, KafkaSource, KafkaSourceSettings},
    },
};

/// Hand the messages of Kafka topics to a handler, each with its effect once.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    /// Where the cluster is found; several with commas
    #[arg(long, value_name = "HOST:PORT")]
    brokers: String,
    /// Consumer group; those that name the same one share its partitions
    #[arg(long, value_name = "GROUP")]
    group: String,
    /// Topic to consume; may be given several times
    #[arg(long = "topic", value_name = "TOPIC", required = true)]
    topics: Vec<String>,
    /// Where each message is posted
    #[arg(long, value_name = "URL")]
    to: String,
    /// Where fences are kept: a directory, or postgres://…, redis://…, redis+cluster://… for several consumers
    #[arg(long, value_name = "URL", env = "FENCEPOST_STORE", hide_env_values = true)]
    store: Option<String>,
    /// Directory of the fences, for this process alone [default: ./fencepost-consume]
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    data: Option<PathBuf>,
    /// Policy and settings: the scope QUEUE_MESSAGE, `stores`, `server.log`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Record header that names a message; without it in a record, the offset does
    #[arg(long, value_name = "NAME", default_value = "dedupe-id")]
    dedupe_header: String,
    /// Topic of the dead letters [default: that of the message, with .dead at its end]
    #[arg(long, value_name = "TOPIC")]
    dead_letter: Option<String>,
    /// Attempts at a message before it goes to the dead letters
    #[arg(long, value_name = "N", default_value_t = ATTEMPTS_MAX_DEFAULT, value_parser = clap::value_parser!(u32).range(1..))]
    attempts_max: u32,
    /// Where a group begins a topic that it has never committed anything of; later partitions are read from their start
    #[arg(long, value_enum, default_value_t = From::Earliest)]
    from: From,
    /// How many messages may be at the handler at one time, each of another partition
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: u16,
    /// How long the handler may take over a message
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Tenant of the fences [default: queue:GROUP]
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Any other setting of the Kafka client (librdkafka), such as session.timeout.ms=10000; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    more: Vec<(String, String)>,
}

#[derive(Clone, Copy, ValueEnum)]
enum From {
    Earliest,
    Latest,
}

const AFTER: &str = "\
Each message is claimed under (topic, partition, key, dedupe id), posted to the handler, sealed, and only then is its \
offset committed. Partitions go side by side; within one, messages go in order, one after the other.

What the handler answers, and what becomes of the message:
  2xx                      sealed; Fencepost-Effect-Id of the answer, if any, is
                           its effect id
  401 403 408 409 425 429  nothing happened: tried again, later each time
                           (Retry-After counts)
  connection refused       nothing happened: waits until the handler is there;
                           no message dies of that
  3xx and other 4xx        to the dead letters; a redirect is not followed
  5xx, a timeout, a reset  unknown: tried again when the lease is over, with
                           Fencepost-Recovering: true
An answer may say it itself with Fencepost-Outcome: applied | not-applied.

The handler gets the message byte for byte, with Idempotency-Key (the same for every attempt), Fencepost-Attempt, \
Fencepost-Token, Fencepost-Recovering, Fencepost-Topic, -Partition, -Offset and -Key, and the record's traceparent.

Promised: no offset is committed before its message is sealed or a dead letter; a message that was sealed is never posted \
again, whichever process crashes; a copy whose first one is pending waits. Not promised: a handler that dies, or whose \
consumer dies, between its effect and the seal sees the message again: it must look at Idempotency-Key.
A message that must be tried again holds up its own partition. Attempts are counted across restarts.
A dead letter that is copied back to its topic and partition, with its headers, is a new message to the tenant that \
buried it, once; to any other it is the message that it has had.

A directory is for one process. Several consumers, or one beside `fencepost serve`, share PostgreSQL or Redis.
SIGTERM or SIGINT: finishes what is at the handler, commits, leaves the group.

Examples:
  fencepost consume --brokers 127.0.0.1:9092 --group billing --topic orders \\
      --to http://127.0.0.1:8000/handle
  fencepost consume --brokers k1:9092,k2:9092 --group billing \\
      --topic orders --topic refunds --to http://127.0.0.1:8000/handle \\
      --store postgres://fencepost@db.internal/fencepost
  fencepost consume --brokers k1:9092 --group mail --topic mails \\
      --to http://127.0.0.1:8000/send --dedupe-header message-id \\
      --dead-letter dead-mails --attempts-max 5";

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE is expected")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let policy = policy(&args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let ended = runtime.block_on(consume(args, policy));
    // A cluster that does not answer must not keep a finished consumer alive.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended.map(|()| ExitCode::SUCCESS)
}

fn policy(args: &Args) -> anyhow::Result<Policy> {
    let variables = crate::serve::variables()?;
    match (Config { file: args.config.clone(), variables, ..Config::default() }).read() {
        Ok(policy) => Ok(policy),
        Err(findings) => bail!("the configuration was refused\n{}", finding::human(&findings).trim_end()),
    }
}

// The flags, then the policy's `stores`, then a directory that is not the default of `serve`.
fn store(args: &Args, policy: &Policy) -> String {
    let directory = args.data.as_ref().map(|data| data.display().to_string());
    let named = args.store.clone().or(directory).or_else(|| policy.stores.url.clone());
    named.unwrap_or_else(|| "./fencepost-consume".to_owned())
}

async fn consume(args: Args, policy: Policy) -> anyhow::Result<()> {
    let handler = MessageHandler::new(&args.to, Duration::from_secs(args.timeout)).map_err(anyhow::Error::msg)?;
    let (address, level) = (store(&args, &policy), policy.server.log.level);
    let once = Fencepost::connect(&address, policy).await.map_err(|error| match error.to_string() {
        taken if taken.contains(IN_USE) => {
            anyhow!("{address} {IN_USE}; stop it, use --data, or share a --store postgres://…")
        }
        why => anyhow!(why),
    })?;
    let tenant = args.tenant.clone().unwrap_or_else(|| format!("queue:{}", args.group));
    let consumer = Consumer::new(once.tenant(&tenant))?.attempts_max(args.attempts_max);
    let settings = KafkaSourceSettings {
        brokers: args.brokers,
        group: args.group,
        topics: args.topics,
        begin: match args.from {
            From::Earliest => Begin::Earliest,
            From::Latest => Begin::Latest,
        },
        dedupe_header: args.dedupe_header,
        dead_letter: args.dead_letter,
        concurrency_max: args.concurrency.into(),
        more: args.more,
    };
    let log = Log::new(level, std::io::stdout());
    let source = KafkaSource::new(settings, consumer, handler, log.clone()).map_err(anyhow::Error::msg)?;
    let stop = crate::serve::stop(log.clone(), once.engine().now().0);
    eprintln!("fencepost: consuming, with fences in {}", without_secret(&address));
    log.line(Level::Info, once.engine().now().0, "consuming").text("tenant", &tenant).text("to", &args.to);
    let ended: Result<(), String> = source.run(stop).await;
    once.close().await;
    log.flush();
    ended.map_err(|why| anyhow!("stopped: {why}"))
}

// The address as the store prints it, which leaves a password out.
fn without_secret(address: &str) -> String {
    fencepost::store::Address::parse(address).map_or_else(|_| "a store".to_owned(), |address| address.to_string())
}
