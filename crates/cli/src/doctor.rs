//! `fencepost doctor`: checks that this machine is fit to hold fences: directory, disk, sync, clock, limits, server.
//! Writes only a small file of its own in the data directory, and removes it. Opens a store that no server uses, to see
//! which keys it needs. Called by `main`.

mod keys;

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant, SystemTime},
};

use fencepost::policy::Policy;
use fencepost_kernel::json;

use crate::{
    client::ServerArgs,
    place::{is_data_dir, not_a_data_dir},
    table::counted,
};

/// Check disk, sync latency, clock, limits and a running server. Exits 1 if something must be fixed.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  fencepost doctor --data /var/lib/fencepost")]
pub struct Args {
    /// Directory of the store [default: ./fencepost-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Key file of a store that is not being served [default: secret.key in the data directory]
    #[arg(long, value_name = "FILE", env = "FENCEPOST_DISPATCH__KEY_FILE")]
    key_file: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

enum Health {
    Good,
    Warn,
    Bad,
}

struct Report {
    bad: usize,
}

impl Report {
    fn say(&mut self, health: Health, what: &str, found: impl std::fmt::Display) {
        let mark = match health {
            Health::Good => "ok  ",
            Health::Warn => "warn",
            Health::Bad => {
                self.bad += 1;
                "BAD "
            }
        };
        println!("{mark}  {what:<14} {found}");
    }
}

const BRING_BACK: &str =
    "their lanes do not start. Put that key into its key file, as a second line where there is one, or PUT them again";
const SYNCS: usize = 50;
const FREE_BYTES_MIN: u64 = 1 << 30;

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut report = Report { bad: 0 };
    let asked = args.data.is_some();
    let data = args.data.unwrap_or_else(|| Policy::builtin().server.data);
    directory(&mut report, &data, asked);
    let here = existing(&data);
    disk(&mut report, &here);
    sync(&mut report, &here);
    clock(&mut report, &here);
    limits(&mut report);
    running(&mut report, &args.server);
    keys::of_directory(&mut report, &data, args.key_file);
    Ok(if report.bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

// A named directory must be a data directory. The default one may not exist yet: that is only a warning.
fn directory(report: &mut Report, data: &Path, asked: bool) {
    match (is_data_dir(data), asked) {
        (true, _) => report.say(Health::Good, "data", data.display()),
        (false, true) => report.say(Health::Bad, "data", not_a_data_dir(data)),
        (false, false) => {
            report.say(Health::Warn, "data", format!("there is no {} yet; name another with --data", data.display()));
        }
    }
}

// The directory itself, or its nearest ancestor that exists: the store would be made on that disk.
fn existing(data: &Path) -> PathBuf {
    let absolute = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
    absolute.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

fn disk(report: &mut Report, dir: &Path) {
    match rustix::fs::statvfs(dir) {
        Ok(stat) => {
            let (free, total) = (stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize);
            let health = if free < FREE_BYTES_MIN { Health::Bad } else { Health::Good };
            report.say(
                health,
                "disk",
                format!("{} MiB free of {} MiB under {}", free >> 20, total >> 20, dir.display()),
            );
        }
        Err(error) => report.say(Health::Bad, "disk", format!("{}: {error}", dir.display())),
    }
}

fn sync(report: &mut Report, dir: &Path) {
    match syncs(dir) {
        Ok(mut took) => {
            took.sort();
            let (middle, worst) = (took[SYNCS / 2], took[SYNCS - 1]);
            // A disk that syncs in no time at all usually does not sync.
            let (health, word) = if middle < Duration::from_micros(20) {
                (Health::Warn, "; suspiciously fast: does this disk honour fdatasync?")
            } else if middle > Duration::from_millis(20) {
                (Health::Warn, "; slow: group commit helps under load, but each lone request waits this long")
            } else {
                (Health::Good, "")
            };
            report.say(
                health,
                "sync",
                format!("fdatasync of 4 KiB: p50 {middle:.1?}, worst of {SYNCS} {worst:.1?}{word}"),
            );
        }
        Err(error) => report.say(Health::Bad, "sync", format!("{}: {error}", dir.display())),
    }
}

fn syncs(dir: &Path) -> std::io::Result<Vec<Duration>> {
    let path = dir.join(format!(".fencepost-doctor-{}", std::process::id()));
    let mut file = File::options().write(true).create_new(true).open(&path)?;
    let took = (0..SYNCS)
        .map(|_| {
            file.write_all(&[0; 4096])?;
            let start = Instant::now();
            file.sync_data()?;
            Ok(start.elapsed())
        })
        .collect();
    fs::remove_file(&path)?;
    took
}

fn clock(report: &mut Report, dir: &Path) {
    let now = SystemTime::now();
    // The newest file of the store shows whether the system clock has gone back since it was written.
    let newest = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.metadata().ok()?.modified().ok())
        .max();
    match newest.and_then(|newest| newest.duration_since(now).ok()) {
        Some(ahead) if ahead > Duration::from_secs(2) => report.say(
            Health::Warn,
            "clock",
            format!(
                "the system clock is {ahead:.0?} behind files in the store: store time will not go back, but check the clock"
            ),
        ),
        _ => report.say(Health::Good, "clock", "not behind the store's files"),
    }
}

fn limits(report: &mut Report) {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let wanted = Policy::builtin().server.limits.connections_max as u64 + 256;
    match files {
        Some(files) if files < wanted => {
            report.say(
                Health::Warn,
                "open files",
                format!("{files}: raise `ulimit -n` to {wanted} for the default connection limit"),
            );
        }
        Some(files) => report.say(Health::Good, "open files", files),
        None => report.say(Health::Good, "open files", "unlimited"),
    }
}

fn running(report: &mut Report, server: &ServerArgs) {
    match server.get("/readyz") {
        Ok((200, body)) => {
            report.say(Health::Good, "server", format!("{} is ready", server.url));
            let told = nodes(report, server);
            let lacks_key = json::parse(&body).is_ok_and(|said| said.get("dispatch").is_some());
            if lacks_key && !told {
                report.say(
                    Health::Bad,
                    "keys",
                    format!("transports are sealed with a key that the server does not have; {BRING_BACK}"),
                );
            }
        }
        Ok((status, _)) => report.say(
            Health::Bad,
            "server",
            match status {
                404 => format!("{} has no /readyz: give the address of server.admin_listen as --url", server.url),
                _ => format!("{} answers {status}: its store does not acknowledge; see its log", server.url),
            },
        ),
        Err(error) => report.say(Health::Warn, "server", format!("{error:#}")),
    }
}

// Reports the server's store, keys and nodes, and returns whether the server showed them. That needs an admin's or
// viewer's token; without one the server is still known to be ready.
fn nodes(report: &mut Report, server: &ServerArgs) -> bool {
    let Ok(body) = server.read("/admin/nodes?limit=1000") else {
        report.say(Health::Warn, "nodes", "not shown: give --token of an admin or a viewer");
        return false;
    };
    let Ok(said) = json::parse(&body) else { return false };
    let text =
        |node: &json::JsonNode<'_>, name: &str| node.get(name).and_then(|value| value.as_str().map(str::to_owned));
    let durability = text(&said, "durability").unwrap_or_default();
    let health = if durability == "synced" { Health::Good } else { Health::Warn };
    let (store, because) = (text(&said, "store").unwrap_or_default(), text(&said, "because").unwrap_or_default());
    report.say(health, "store", format!("{store}: {durability} ({because})"));
    keys(report, &said);
    let Some(json::Value::Array(items)) = said.get("items").map(|items| &items.value) else { return true };
    for node in items {
        let field = |name: &str| text(node, name).unwrap_or_default();
        let holds = node.get("holds").and_then(|holds| holds.as_u64());
        let holds = holds.map(|holds| format!(", holds {}", counted(holds, "claim"))).unwrap_or_default();
        let seen = field("seen_at");
        report.say(Health::Good, "node", format!("{} on {}, seen {seen}{holds}", field("id"), field("address")));
    }
    true
}

// Reports whether the server can open every stored transport, and whether it needs other keys than the first for that.
fn keys(report: &mut Report, said: &json::JsonNode<'_>) {
    let Some(keys) = said.get("keys") else { return };
    let count = |name: &str| keys.get(name).and_then(|value| value.as_u64());
    let first = keys.get("first").and_then(|first| first.as_str()).unwrap_or_default();
    let missing = match keys.get("missing").map(|missing| &missing.value) {
        Some(json::Value::Array(missing)) => {
            missing.iter().filter_map(|key| key.as_str()).collect::<Vec<_>>().join(", ")
        }
        _ => String::new(),
    };
    match (count("unreadable"), count("others").unwrap_or_default()) {
        _ if !missing.is_empty() => {
            let transports = match count("unreadable").unwrap_or_default() {
                0 => "transports are".to_owned(),
                1 => "1 transport is".to_owned(),
                unreadable => format!("{unreadable} transports are"),
            };
            let found = format!("{transports} sealed with {missing}, which the server does not have; {BRING_BACK}");
            report.say(Health::Bad, "keys", found);
        }
        (Some(unreadable), _) if unreadable > 0 => {
            report.say(
                Health::Bad,
                "keys",
                format!("{} cannot be opened: PUT them again", counted(unreadable, "transport")),
            );
        }
        (Some(_), 0) => report.say(Health::Good, "keys", format!("{first} seals every transport")),
        (Some(_), others) => report.say(
            Health::Warn,
            "keys",
            format!(
                "{first} seals every transport; {others} more in the file, which can go unless staged or needed by \
                 cursors: fencepost credential rotate-key --drop-old"
            ),
        ),
        (None, 0) => report.say(Health::Good, "keys", format!("{first} seals")),
        (None, others) => {
            report.say(Health::Warn, "keys", format!("{first} seals; {others} more in the file are still needed"));
        }
    }
}
