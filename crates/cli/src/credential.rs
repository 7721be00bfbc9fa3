//! `fencepost credential`: creates, rotates, revokes and lists the tokens that clients send.
//! A token is printed once and kept nowhere; a running server follows the file within a second. Called by `main`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::bail;
use clap::Subcommand;
use fencepost::{
    clock::{Clock as _, SystemClock},
    dispatch::key_file::{self, KeyChange},
    policy::{
        Policy,
        credentials::{Credentials, Issued},
        duration,
        identity::{Identity, Planners, Role, Warehouses},
        instant_text,
    },
};

use crate::{outbound::KEY_FILE, place::require_data_dir};

/// Create, rotate, revoke or list credentials.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
    /// Directory of the store, which holds the credentials too
    #[arg(long, value_name = "DIR", global = true)]
    data: Option<PathBuf>,
}

const AFTER: &str = "\
Examples:
  fencepost credential create acme --role partner --expires 90d
  fencepost credential rotate acme --overlap 24h   both tokens valid for a day
  fencepost credential revoke acme                 at once, all of its tokens
  fencepost credential create wes --role executor --planner wms
  fencepost credential planners wes wms wms-2      it now serves these two
  fencepost credential rotate-key                  a new key seals secrets; the
                                                   old one still opens";

const ROTATE_KEY: &str = "\
A running server reads the file within a second and seals its stored transports anew. With several nodes, which need the \
same file: --stage, copy the file to every node, then --promote, copy it again.";

#[derive(Subcommand)]
enum Action {
    /// Create a token; creates the identity if it is new
    Create {
        /// The identity; for partners, planners and executors also the tenant
        id: String,
        /// Role of the identity: admin, viewer, planner, executor, partner
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
        /// Warehouses it may act in [default: all]
        #[arg(long = "warehouse", value_name = "ID")]
        warehouses: Vec<String>,
        /// Planners that an executor serves [default: none]
        #[arg(long = "planner", value_name = "ID")]
        planners: Vec<String>,
        /// How long the token is valid, such as 90d [default: until revoked]
        #[arg(long, value_name = "SPAN")]
        expires: Option<String>,
    },
    /// Create a new token; the old ones stay valid for the overlap
    Rotate {
        /// The identity
        id: String,
        /// How long the old tokens stay valid
        #[arg(long, value_name = "SPAN", default_value = "24h")]
        overlap: String,
        /// How long the new token is valid [default: until revoked]
        #[arg(long, value_name = "SPAN")]
        expires: Option<String>,
    },
    /// Set which planners an executor serves; its tokens stay
    Planners {
        /// The executor
        id: String,
        /// Its planners; without one it serves none
        planners: Vec<String>,
    },
    /// Create a new key that seals webhook secrets and cursors; earlier keys still open
    #[command(after_help = ROTATE_KEY)]
    RotateKey {
        /// The file of keys [default: secret.key in the data directory]
        #[arg(long, value_name = "FILE", conflicts_with = "data")]
        key_file: Option<PathBuf>,
        /// Put the new key last: it opens and does not seal yet, for several nodes
        #[arg(long, group = "step")]
        stage: bool,
        /// Let the staged key seal, once every node has it
        #[arg(long, group = "step")]
        promote: bool,
        /// Remove every key but the first, a staged one too; run `fencepost doctor` first. They stay in FILE.dropped
        #[arg(long, group = "step")]
        drop_old: bool,
    },
    /// Revoke one credential, or an identity with all of its credentials
    Revoke {
        /// An identity, or a credential's id from `list`
        name: String,
    },
    /// List identities and their credentials; tokens are not kept and cannot be shown
    List,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let data = args.data.unwrap_or_else(|| Policy::builtin().server.data);
    let file = Credentials::in_dir(&data);
    // `create` may run before the data directory exists, and a named key file may be elsewhere. All else needs it.
    let anywhere = match &args.action {
        Action::Create { .. } => true,
        Action::RotateKey { key_file, .. } => key_file.is_some(),
        Action::Rotate { .. } | Action::Planners { .. } | Action::Revoke { .. } | Action::List => false,
    };
    if !anywhere {
        require_data_dir(&data)?;
    }
    let now_ms = SystemClock::default().wall_ms();
    match args.action {
        Action::Create { id, roles, warehouses, planners, expires } => {
            let roles: Vec<Role> = roles.iter().map(|name| role(name)).collect::<anyhow::Result<_>>()?;
            let warehouses = if warehouses.is_empty() {
                Warehouses::All
            } else {
                Warehouses::Named(warehouses.into_iter().collect())
            };
            let identity = Identity::new(id, roles, warehouses).serving(named(planners));
            let issued = file.create(identity, until(expires, now_ms)?, now_ms)?;
            show(&issued, file.path());
        }
        Action::Rotate { id, overlap, expires } => {
            let issued = file.rotate(&id, span(&overlap)?, until(expires, now_ms)?, now_ms)?;
            show(&issued, file.path());
        }
        Action::Planners { id, planners } => {
            let now = if planners.is_empty() { "no planner".to_owned() } else { planners.join(", ") };
            file.serve(&id, named(planners), now_ms)?;
            println!("{id} serves {now}; the list replaces the one before");
        }
        Action::RotateKey { key_file, stage, promote, drop_old } => {
            let path = key_file.unwrap_or_else(|| data.join(KEY_FILE));
            let change = match (stage, promote, drop_old) {
                (true, ..) => KeyChange::Stage,
                (_, true, _) => KeyChange::Promote,
                (.., true) => KeyChange::DropOld,
                _ => KeyChange::Rotate,
            };
            let keys = key_file::change(&path, change).map_err(anyhow::Error::msg)?;
            if drop_old {
                let kept = key_file::dropped(&path);
                eprintln!("dropped keys are kept in {}; delete it once every transport opens", kept.display());
            }
            for (at, key) in keys.iter().enumerate() {
                println!("{}  {}", key.fingerprint(), if at == 0 { "seals" } else { "opens" });
            }
        }
        Action::Revoke { name } => {
            for id in file.revoke(&name, now_ms)? {
                println!("revoked {id}");
            }
        }
        Action::List => {
            let holders = file.list()?;
            if holders.is_empty() {
                eprintln!("no credentials in {}; create one with fencepost credential create", data.display());
            }
            for holder in holders {
                let roles: Vec<_> = holder.identity.roles.iter().map(|role| role.name()).collect();
                let serves = match &holder.identity.planners {
                    _ if !holder.identity.has(Role::Executor) => String::new(),
                    Planners::Named(named) if named.is_empty() => "  serves no planner".to_owned(),
                    Planners::Named(named) => {
                        format!("  serves {}", named.iter().map(String::as_str).collect::<Vec<_>>().join(","))
                    }
                    Planners::Any => "  serves every planner".to_owned(),
                };
                println!("{}  {}{serves}", holder.identity.id, roles.join(","));
                for credential in holder.tokens.iter().chain(&holder.certificates) {
                    let state = if credential.live(now_ms) { "" } else { "  (expired)" };
                    let until = credential
                        .expires_ms
                        .map_or("until revoked".to_owned(), |ms| format!("until {}", instant_text(ms)));
                    println!("  {}  {until}{state}", credential.id());
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn role(name: &str) -> anyhow::Result<Role> {
    match Role::from_name(name) {
        Some(role) => Ok(role),
        None => bail!("unknown role {name:?}: admin, viewer, planner, executor or partner"),
    }
}

fn named(planners: Vec<String>) -> Planners {
    Planners::Named(planners.into_iter().collect())
}

fn span(text: &str) -> anyhow::Result<Duration> {
    duration::parse(text).map(Duration::from_millis).map_err(|why| anyhow::anyhow!("{text:?}: {why}"))
}

fn until(expires: Option<String>, now_ms: u64) -> anyhow::Result<Option<u64>> {
    expires.map(|text| Ok(now_ms.saturating_add(span(&text)?.as_millis() as u64))).transpose()
}

// The token alone on standard output, so that a script can take it; the rest is for the person.
fn show(issued: &Issued, path: &Path) {
    println!("{}", issued.token);
    eprintln!("This token is shown once. Its hash ({}) is kept in {}.", issued.credential.id(), path.display());
}
