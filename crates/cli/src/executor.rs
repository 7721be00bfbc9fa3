//! `fencepost executor`: a server in front of a service that executes work. Verifies and fences what planners post, and
//! hands each event over once. Never starts without a secret: an unsigned event has no known sender. Called by `main`.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, anyhow, bail};
use fencepost::{
    Fencepost,
    executor::Receiver,
    policy::server::{Level, listen_address},
    signature::Secret,
    store::embedded::IN_USE,
};
use fencepost_front::Limits;
use fencepost_wire::{
    http::executor::{EventHandler, Front, router},
    log::Log,
    problem,
};

/// Receive dispatch by webhook for a service that executes it.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    /// Address and port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7412", value_parser = listen_address)]
    listen: SocketAddr,
    /// Directory of the fences: what was received is remembered here for seven days
    #[arg(long, value_name = "DIR", default_value = "./fencepost-executor")]
    data: PathBuf,
    /// File with the planner's secret; a second line is the secret before it, while they are being changed
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
    /// Where each event is handed over, once, as a POST; any 2xx means that it is done
    #[arg(long, value_name = "URL")]
    forward: String,
    /// How long the handler may take
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    timeout: u64,
}

const AFTER: &str = "\
Planners post to http://ADDR/webhooks/dispatch. A wrong signature is answered 401, and nothing is touched. An event that \
was received before is answered {\"accepted\":true,\"replay\":true} and not handed over again. The planner is answered only \
after the outcome is on disk; a handler that is down makes the planner try again.

The handler gets the envelope byte for byte, with Idempotency-Key, Fencepost-Token and Fencepost-Attempt. It may see an \
event again if it, or this process, died before it answered.

Example:
  printf %s \"$SECRET\" > planner.secret
  fencepost executor --secret-file planner.secret \\
      --forward http://127.0.0.1:9000/dispatch";

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let code = runtime.block_on(serve(args))?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(code)
}

async fn serve(args: Args) -> anyhow::Result<ExitCode> {
    let text = std::fs::read_to_string(&args.secret_file)
        .with_context(|| format!("cannot read {}", args.secret_file.display()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let secrets: Vec<Secret> =
        lines.map(|line| Secret::new(line.as_bytes())).collect::<Result<_, _>>().map_err(anyhow::Error::msg)?;
    if secrets.is_empty() || secrets.len() > 2 {
        bail!("{} must hold one secret, or two, a line each", args.secret_file.display());
    }
    let handler = EventHandler::new(&args.forward, Duration::from_secs(args.timeout)).map_err(anyhow::Error::msg)?;
    let once = Fencepost::open(&args.data).await.map_err(|error| match error.to_string() {
        taken if taken.contains(IN_USE) => anyhow!("{} {IN_USE}; stop it or use --data", args.data.display()),
        why => anyhow!(why),
    })?;
    let listener = crate::place::listen(args.listen, "--listen").await?;
    let log = Log::new(Level::Info, std::io::stdout());
    let shutdown = crate::serve::stop(log.clone(), once.engine().now().0);
    eprintln!("fencepost: serving on http://{}", listener.local_addr()?);
    let engine = once.engine().downgrade();
    let now_ms = move || engine.upgrade().map_or(0, |engine| engine.now().0);
    let receiver = Receiver::new(once.clone(), secrets);
    let limits = Limits { refuse: problem::refuse, is_probe: |_, path| path == "/healthz", ..Limits::default() };
    let front = Front::new(receiver, handler, log.clone(), now_ms, limits.budget.clone());
    fencepost_front::serve(listener, router(front.clone()), limits, None, Vec::new(), shutdown).await;
    front.rest().await;
    once.close().await;
    log.flush();
    Ok(ExitCode::SUCCESS)
}
