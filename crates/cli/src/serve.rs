//! `fencepost serve`: opens the store, serves clients, and shuts down in order on a signal. Called by `main`.
//! Never starts without a credential that would be accepted, and never with public tokens on a public address.

use std::{
    io::{self, IsTerminal, stdout},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use fencepost::{
    Fencepost,
    clock::SystemClock,
    engine::EngineLimits,
    ingest,
    policy::{
        Policy,
        config::{Config, Flags},
        credentials::{Credentials, FILE_NAME},
        finding,
        identity::Directory,
        server::{ServerSettings, listen_address},
        settings::FenceStore,
    },
    store::{
        Address, Durability, Node,
        address::Opener,
        codec, embedded,
        private::{self, Tightened},
    },
};
use fencepost_front::{Budget, ClientAuth, Drained, Limits, Proxies, Tls};
use fencepost_wire::{
    http::{
        App, Listener, Routes,
        gateway::Gateway,
        policy::{PolicyOrigin, Reload, reload},
    },
    log::{Level, Log},
    metrics::Metrics,
    problem,
};
use tokio::{
    net::TcpListener,
    runtime::Handle,
    signal::unix::{Signal, SignalKind},
    sync::oneshot,
};

use crate::{outbound, place, threads::Threads, watch};

/// Serve fences over HTTP.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    /// Work at once on loopback, with the public tokens dev-admin, dev-planner, dev-executor, dev-partner,
    /// dev-partner-2, dev-viewer
    #[arg(long)]
    dev: bool,
    /// Address and port [default: server.listen of the configuration, 127.0.0.1:7411]
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// Directory of the embedded store [default: server.data of the configuration, ./fencepost-data]
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    data: Option<PathBuf>,
    /// Where fences are kept: postgres://…, redis://…, redis+cluster://… or a directory
    #[arg(long, value_name = "URL", env = "FENCEPOST_STORE", hide_env_values = true)]
    store: Option<String>,
    /// Policy and settings; see docs/guides/policy.md, and --print-defaults for every key
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print every setting with its default and its meaning, and exit
    #[arg(long)]
    print_defaults: bool,
    /// Read and write rows only up to this format, as an older release does
    #[arg(long, hide = true, value_name = "N")]
    row_format_max: Option<u8>,
}

const AFTER: &str = "\
Settings come from the built-in defaults, then --config FILE, then variables such as \
FENCEPOST_SERVER__LOG__LEVEL=warn, then these flags.

SIGTERM or SIGINT: accepts no new connection, finishes what is in flight, then ends.
SIGHUP, or POST /admin/policy: reads --config FILE again, all or nothing, without a restart.
Credentials created or revoked with `fencepost credential` take effect within a second, without a restart; --dev knows \
its own identities alone.

Several processes can serve one PostgreSQL or Redis: any of them answers any key, and none is special.
Keep a password in FENCEPOST_STORE and not on the command line, which others can read.

Examples:
  fencepost serve --dev
  fencepost serve --config fencepost.yml --data /var/lib/fencepost \\
      --listen 0.0.0.0:7411
  fencepost serve --dev --store postgres://fencepost@db.internal/fencepost
  fencepost serve --dev --store redis+cluster://10.0.0.1:6379,10.0.0.2:6379";

/// The most connections on the admin listener, which operators and probes use.
const ADMIN_CONNECTIONS_MAX: usize = 256;
/// How long requests on the admin listener may take once all others have ended.
const ADMIN_GRACE_MS: u64 = 5_000;

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.print_defaults {
        print!("{}", fencepost::policy::DEFAULTS);
        return Ok(ExitCode::SUCCESS);
    }
    let config = config(&args)?;
    let policy = policy(&config)?;
    let store = store_address(&args, &policy)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    // On PostgreSQL or Redis a commit is a network exchange: connections are then served on the runtime that makes it.
    let threads = match (&store, policy.server.threads) {
        (Address::Directory(_), fencepost::policy::server::ThreadMode::Bound) => Threads::bound()?,
        _ => Threads::default(),
    };
    let code = runtime.block_on(serve(&args, config, policy, store, threads.handles()))?;
    // A client that never reads must not keep a finished server alive.
    threads.end();
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(code)
}

fn config(args: &Args) -> anyhow::Result<Config> {
    Ok(Config {
        file: args.config.clone(),
        variables: variables()?,
        flags: Flags { listen: args.listen, data: args.data.clone() },
    })
}

/// The variables that may be settings: those named `FENCEPOST_…`. Others may hold any bytes, and are not read.
pub fn variables() -> anyhow::Result<Vec<(String, String)>> {
    let ours = std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"FENCEPOST_"));
    ours.map(|(name, value)| match (name.into_string(), value.into_string()) {
        (Ok(name), Ok(value)) => Ok((name, value)),
        (Ok(name), Err(_)) => bail!("not started: the value of {name} is not UTF-8"),
        (Err(name), _) => bail!("not started: the variable {} is not named in UTF-8", name.to_string_lossy()),
    })
    .collect()
}

fn policy(config: &Config) -> anyhow::Result<Policy> {
    match config.read() {
        Ok(policy) => {
            eprint!("{}", finding::human(&policy.findings));
            Ok(policy)
        }
        Err(findings) => bail!("not started: the configuration was refused\n{}", finding::human(&findings).trim_end()),
    }
}

// The flag, then the policy's `stores`, then the data directory, which also holds the credentials.
fn store_address(args: &Args, policy: &Policy) -> anyhow::Result<Address> {
    let stores = &policy.stores;
    let text = match (&args.store, stores.fence, &stores.url) {
        (Some(store), ..) => store,
        (None, FenceStore::Embedded, _) => return Ok(Address::Directory(policy.server.data.clone())),
        (None, _, Some(url)) => url,
        (None, kind, None) => bail!("not started: `stores.fence: {kind:?}` has no url; give --store URL", kind = kind),
    };
    Address::parse(text).map_err(anyhow::Error::msg)
}

async fn serve(
    args: &Args,
    config: Config,
    policy: Policy,
    store: Address,
    threads: Vec<Handle>,
) -> anyhow::Result<ExitCode> {
    let dev = args.dev;
    let settings = policy.server.clone();
    // The directory that --store names may be another one than the data directory, which holds the credentials.
    let mut places = vec![settings.data.clone()];
    if let Address::Directory(dir) = &store
        && *dir != settings.data
    {
        places.push(dir.clone());
    }
    let tightened: Vec<_> = places.iter().map(|dir| (dir, close_to_others(dir))).collect();
    let directory = directory(dev, &policy)?;
    let egress = outbound::egress(&policy, dev)?;
    let tls = settings.tls.as_ref().map(|tls| {
        let clients = tls.client_ca.clone().map_or(ClientAuth::Off, ClientAuth::Optional);
        Tls::load(&tls.cert, &tls.key, &clients)
    });
    let tls = tls.transpose()?;
    let listener = place::listen(settings.listen, "--listen").await?;
    let address = listener.local_addr()?;
    let admin = match settings.admin_listen {
        Some(address) => Some(place::listen(address, "another `server.admin_listen`").await?),
        None => None,
    };
    let admin_address = admin.as_ref().map(TcpListener::local_addr).transpose()?;
    let opener = opener(address, args.row_format_max, &settings)?;
    let in_use = "stop it or use --data";
    let opened = store.open(&opener).await.map_err(|error| place::not_opened(&store, &error, in_use))?;
    let metrics = Metrics::default();
    let limits = EngineLimits {
        waiters_max: settings.limits.waiters_max,
        waiters_per_tenant_max: settings.limits.waiters_per_tenant_max,
        ..EngineLimits::default()
    };
    let fencepost = Fencepost::over(
        opened,
        Arc::new(SystemClock::default()),
        policy,
        limits,
        Box::new(metrics.clone()),
        // One runtime for all callers, if there is one. Else the commit thread wakes callers itself.
        threads.is_empty().then(Handle::current),
    )
    .await?;
    let log = Log::new(settings.log.level, stdout());
    let now = || fencepost.engine().now().0;
    let node = Node {
        id: opener.node,
        address: opener.address,
        release: opener.release,
        format: args.row_format_max.unwrap_or(codec::VERSION),
        started: fencepost.engine().now(),
        seen: fencepost.engine().now(),
        holds: None,
    };
    let promises = fencepost.engine().promises();
    for (dir, tightened) in tightened {
        say_tightened(&log, now(), dir, tightened);
    }
    log.line(Level::Info, now(), "serving")
        .text("address", &address.to_string())
        .text("data", &settings.data.display().to_string())
        .text("store", &store.to_string())
        .text("node", &node.id)
        .text("admin_address", &admin_address.map(|address| address.to_string()).unwrap_or_default());
    if promises.durability < Durability::Synced {
        log.line(Level::Warn, now(), "an acknowledged fence may not survive a power cut")
            .text("why", &promises.because);
    }
    for (scope, why) in &fencepost.policy().unfit {
        log.line(Level::Warn, now(), "a built-in scope is not served on this store")
            .text("scope", scope)
            .text("why", why);
    }
    let dispatch = outbound::start(&fencepost, &node.id, egress.clone(), dev, &log, &metrics).await?;
    let budget = Budget::new(settings.limits.buffered_bytes_max);
    let gateway = Gateway::new(fencepost.policy()).map_err(anyhow::Error::msg)?;
    let app = Arc::new(App {
        fencepost: fencepost.clone(),
        dispatch: dispatch.clone(),
        egress,
        gateway,
        directory,
        origin: PolicyOrigin::new(config, fencepost.engine().now()),
        metrics,
        log: log.clone(),
        node,
        store: store.to_string(),
        slow_runtime: (!threads.is_empty()).then(Handle::current),
        budget: budget.clone(),
        dev,
    });

    let scheme = if tls.is_some() { "https" } else { "http" };
    // Signals are watched before the welcome is printed: a reader of it may send one at once.
    let stopping = stop(log.clone(), now());
    let hangups = tokio::signal::unix::signal(SignalKind::hangup()).context("SIGHUP cannot be watched")?;
    welcome(dev, scheme, address, admin_address);
    let watch = tokio::spawn(watch::run(app.clone()));
    let reloads = tokio::spawn(reloads(app.clone(), hangups));
    let (of_items, counting) = (app.clone(), app.clone());
    let (of_jobs, deciding, counting_jobs) = (app.clone(), app.clone(), app.clone());
    let jobs = tokio::spawn(ingest::jobs::run(
        fencepost.ingest_signals(),
        move || Some(of_jobs.fencepost.ingest_jobs()),
        move |collection, decided| deciding.metrics.items.decided(collection, decided),
        move |open| counting_jobs.metrics.items.jobs(open, counting_jobs.fencepost.engine().now()),
    ));
    let items = tokio::spawn(ingest::run(
        fencepost.ingest_signals(),
        move || Some(of_items.fencepost.ingest()),
        move |open| counting.metrics.items.quarantines(open, counting.fencepost.engine().now()),
    ));
    let trusted = settings.trusted_proxies.clone();
    let limits = Limits {
        connections_max: settings.limits.connections_max,
        connections_per_client_max: settings.limits.connections_per_client_max,
        proxies: Proxies::new(move |address| trusted.iter().any(|proxy| proxy.contains(address))),
        refuse: problem::refuse,
        head_bytes_max: settings.limits.header_bytes_max,
        body_bytes_max: settings.limits.request_bytes_max as u64,
        body_bytes_max_for: Routes::body_bytes_max,
        head_ms_max: settings.limits.header_timeout.as_millis() as u64,
        body_wait_ms_max: settings.limits.body_timeout.as_millis() as u64,
        idle_ms_max: settings.limits.idle_timeout.as_millis() as u64,
        grace_ms_max: settings.shutdown_grace.as_millis() as u64,
        is_plain: if settings.fast_path { Routes::is_plain } else { |_, _| false },
        is_probe: Routes::is_probe,
        budget,
        ..Limits::default()
    };
    // Callers that wait for another caller's seal get half of the grace period. Then they are answered without it.
    // The engine is held weakly: a server that has finished does not wait for this task.
    let (engine, patience) = (fencepost.engine().downgrade(), settings.shutdown_grace / 2);
    let told = OnceLock::new();
    let shutdown = async {
        stopping.await;
        let _ = told.set(Instant::now());
        // Starts no further delivery and ends all waiting polls. Deliveries in flight may finish.
        if let Ok(dispatch) = &dispatch {
            dispatch.stop();
        }
        tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            if let Some(engine) = engine.upgrade() {
                engine.dismiss_waiters();
            }
        });
    };
    // The admin listener closes last, so that operators can see there what is still in flight.
    let (end_admin, admin_ends) = oneshot::channel::<()>();
    let serving_admin = admin.map(|listener| {
        let budget = Budget::new(settings.limits.request_bytes_max * 8);
        let routes = Routes::admin(app.clone(), budget.clone());
        let limits =
            Limits { connections_max: ADMIN_CONNECTIONS_MAX, grace_ms_max: ADMIN_GRACE_MS, budget, ..limits.clone() };
        tokio::spawn(fencepost_front::serve(listener, routes, limits, tls.clone(), Vec::new(), async {
            let _ = admin_ends.await;
        }))
    });
    let listened = if serving_admin.is_some() { Listener::Public } else { Listener::Only };
    let drained =
        fencepost_front::serve(listener, Routes::new(app.clone(), listened), limits, tls, threads, shutdown).await;
    drop(end_admin);
    if let Some(serving) = serving_admin {
        let _ = serving.await;
    }
    for task in [watch, reloads, items, jobs] {
        task.abort();
        let _ = task.await;
    }
    if let Ok(dispatch) = &dispatch {
        dispatch.rest(settings.shutdown_grace.min(fencepost.policy().dispatch.timeout)).await;
    }
    let waited = told.get().map(Instant::elapsed).unwrap_or_default();
    app.gateway.rest(settings.shutdown_grace.saturating_sub(waited)).await;
    let cut = match drained {
        Drained::Whole => 0,
        Drained::Cut(connections) => connections,
    };
    log.line(Level::Info, now(), "stopped").number("cut", cut as u64);
    drop((app, dispatch));
    fencepost.close().await;
    log.flush();
    Ok(ExitCode::SUCCESS)
}

// Runs before the store is opened, which makes its own files private too: here the log learns what was open to others.
fn close_to_others(data: &Path) -> io::Result<Tightened> {
    let credentials = [FILE_NAME, "credentials.lock", "credentials.new"];
    let keys = [outbound::KEY_FILE, "secret.key.lock", "secret.key.new"];
    let files: Vec<&str> = embedded::FILES.into_iter().chain(credentials).chain(keys).collect();
    match private::tighten(data, &files) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Tightened::default()),
        tightened => tightened,
    }
}

fn say_tightened(log: &Log, now_ms: u64, data: &Path, tightened: io::Result<Tightened>) {
    let data = data.display().to_string();
    let tightened = match tightened {
        Ok(tightened) => tightened,
        Err(error) => {
            let line = log.line(Level::Warn, now_ms, "cannot check the permissions of the data directory");
            drop(line.text("data", &data).text("why", &error.to_string()));
            return;
        }
    };
    if tightened.changed > 0 {
        log.line(Level::Warn, now_ms, "others could read files of the data directory; they no longer can")
            .text("data", &data)
            .number("changed", tightened.changed as u64);
    }
    if tightened.open {
        log.line(Level::Warn, now_ms, "other users can enter the data directory: it was left as it is because it holds other files or belongs to another user")
            .text("data", &data);
    }
}

// The node's name is random in part, so that no other run has had it: the rows under it are this run's alone.
fn opener(address: SocketAddr, format_max: Option<u8>, settings: &ServerSettings) -> anyhow::Result<Opener> {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    let nonce = getrandom::u32().context("no randomness")?;
    Ok(Opener {
        node: format!("{host}-{}-{nonce:08x}", address.port()),
        address: address.to_string(),
        release: env!("CARGO_PKG_VERSION").to_owned(),
        format_max,
        embedded: embedded::Options { journal_zeros: settings.journal_zeros, ..Default::default() },
    })
}

fn directory(dev: bool, policy: &Policy) -> anyhow::Result<Directory> {
    let settings = &policy.server;
    if dev {
        for address in [Some(settings.listen), settings.admin_listen].into_iter().flatten() {
            if !address.ip().is_loopback() {
                bail!("--dev has public tokens and is for loopback only, not for {address}");
            }
        }
        return Ok(Directory::dev());
    }
    let file = Credentials::in_dir(&settings.data);
    let directory = Directory::load(policy, Some(file.path()));
    let directory = directory.map_err(|findings| anyhow::anyhow!("{}", finding::human(&findings).trim_end()))?;
    if directory.is_empty() {
        bail!(
            "not started: there are no credentials; create one with:\n  \
             fencepost credential create acme --role partner --data {}\n\
             or try it on this machine with `fencepost serve --dev`",
            settings.data.display()
        );
    }
    Ok(directory)
}

fn welcome(dev: bool, scheme: &str, address: SocketAddr, admin: Option<SocketAddr>) {
    eprintln!("fencepost: serving on {scheme}://{address}");
    if let Some(admin) = admin {
        eprintln!("fencepost: health, metrics and admin on {scheme}://{admin}");
    }
    if dev && std::io::stderr().is_terminal() {
        eprintln!("\n{}", example(&format!("{scheme}://{address}"), getrandom::u32().unwrap_or_default()));
    }
}

// The random key has not been claimed before, so that the answers are those that the text names.
fn example(url: &str, nonce: u32) -> String {
    let key = format!("\"scope\":\"INDEX_BUILD\",\"key\":{{\"index_hash\":\"{nonce:08x}\"}}");
    let curl = |path: &str, more: &str| {
        format!(
            "  curl -s {url}/v1/fences/{path} -H 'Authorization: Bearer dev-partner' \\\n       \
             -H 'Content-Type: application/json' \\\n       -d '{{{key}{more}}}'\n"
        )
    };
    format!(
        "Claim a key. The answer has a token:\n{}Seal it with that token. Every later claim of the key is answered with this \
         receipt:\n{}",
        curl("claim", ""),
        curl("seal", ",\"token\":TOKEN,\"effect_id\":\"build-1\",\"receipt\":{\"docs\":12}")
    )
}

// Reads the configuration again with every SIGHUP.
async fn reloads(app: Arc<App>, mut hangups: Signal) {
    while hangups.recv().await.is_some() {
        let app = app.clone();
        // `reload` logs its outcome. It reads a file, which may block.
        let _ = tokio::task::spawn_blocking(move || reload(&app, "SIGHUP", Reload::Apply)).await;
    }
}

/// Completes on the first SIGTERM or SIGINT. Signals are watched from this call on, not only from the first poll.
pub fn stop(log: Log, now_ms: u64) -> impl Future<Output = ()> {
    let signal = |kind| tokio::signal::unix::signal(kind).map_err(|error| error.to_string());
    let watched = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    async move {
        match watched {
            (Ok(mut terminate), Ok(mut interrupt)) => {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            }
            // Without signals there is no orderly end; kill -9 loses nothing that was acknowledged.
            _ => {
                log.line(Level::Warn, now_ms, "signals cannot be watched; only a kill will end this process");
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::example;

    #[test]
    fn example_of_the_banner_claims_and_then_seals_one_key() {
        let said = example("http://127.0.0.1:7411", 7);
        let bodies: Vec<&str> =
            said.split("-d '").skip(1).filter_map(|rest| rest.split_once('\'')).map(|(body, _)| body).collect();
        assert_eq!(bodies[0], r#"{"scope":"INDEX_BUILD","key":{"index_hash":"00000007"}}"#);
        let seal = bodies[1].replace("TOKEN", "1");
        for body in [bodies[0], &seal] {
            assert!(fencepost_kernel::json::parse(body.as_bytes()).is_ok(), "{body}");
        }
        assert!(seal.contains(r#""index_hash":"00000007""#) && said.contains("/v1/fences/seal -H"), "{said}");
    }
}
