//! Finds the holder of a credential among the policy's identities and those of the credentials file.
//! Never shows half of a change: a new table is built completely, and then replaces the one in force.
//! Called by the HTTP server for each request, by the command line at start and on a reload.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ahash::HashMap;

use super::Policy;
use super::credentials::{self, FileStamp};
use super::finding::{Finding, Severity};
use super::identity::{Credential, Holder, Identity, Planners, Role, Sha, Warehouses};

/// The identities in force, found by credential.
#[derive(Debug)]
pub struct Directory {
    table: RwLock<Table>,
    // Locked while the table is rebuilt, so that of two rebuilds the later one wins, and has read the newer state.
    fixed: Mutex<Vec<Holder>>,
    follows: Follows,
    file: Option<PathBuf>,
    /// Whether a planner may name any executor, also one that does not exist: only under `--dev`.
    makes_executors: bool,
    // The stamp of the last refused file, and its findings, which are reported once.
    refused: Mutex<Option<(Option<FileStamp>, Vec<Finding>)>>,
}

/// Where a directory's fixed identities come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Follows {
    /// From the constructor's caller; a policy changes nothing.
    Nobody,
    Policy,
}

/// The identities under another policy, ready to be put into force.
#[derive(Debug)]
pub struct Prepared {
    fixed: Vec<Holder>,
    table: Table,
}

#[derive(Default, Debug)]
struct Table {
    tokens: HashMap<Sha, (Arc<Identity>, Option<u64>)>,
    certificates: HashMap<Sha, (Arc<Identity>, Option<u64>)>,
    tenants: BTreeSet<String>,
    // By id. An executor without a credential is in it too: events are pushed to it.
    executors: BTreeMap<String, Arc<Identity>>,
    stamp: Option<FileStamp>,
}

/// The outcome of reading the credentials file again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refresh {
    /// The file has not changed, or is still refused for a reason that was returned before.
    Same,
    /// The file was read again, and all of it is in force.
    Read,
    /// The file was read again, without the identities that differ from the policy; a finding names each.
    Partly(Vec<Finding>),
}

impl Directory {
    /// The identities of `serve --dev`. Their tokens are public: loopback only.
    pub fn dev() -> Self {
        Self { makes_executors: true, ..Self::of(dev_holders()) }
    }

    /// A directory of these identities alone, which follows no policy and no file.
    pub fn of(holders: Vec<Holder>) -> Self {
        let table = RwLock::new(Table::new(&holders, None));
        let (follows, file, refused) = (Follows::Nobody, None, Mutex::default());
        Self { table, fixed: holders.into(), follows, file, makes_executors: false, refused }
    }

    /// The policy's identities, and those of the credentials file where there is one.
    pub fn load(policy: &Policy, file: Option<&Path>) -> Result<Self, Vec<Finding>> {
        let fixed = Self::of(policy.identities.clone());
        let directory = Self { file: file.map(Into::into), follows: Follows::Policy, ..fixed };
        match directory.reread(None)? {
            Refresh::Partly(findings) => Err(findings),
            _ => Ok(directory),
        }
    }

    /// Builds the identities under another policy. Changes nothing yet. None where the directory follows no policy.
    pub fn prepare(&self, policy: &Policy) -> Result<Option<Prepared>, Vec<Finding>> {
        if self.follows == Follows::Nobody {
            return Ok(None);
        }
        let fixed = policy.identities.clone();
        let (table, findings) = match &self.file {
            Some(file) => Self::table_with(&fixed, file, None)?,
            None => (Table::new(&fixed, None), Vec::new()),
        };
        if !findings.is_empty() {
            return Err(findings);
        }
        if table.tokens.is_empty() && table.certificates.is_empty() {
            return Err(vec![nobody()]);
        }
        Ok(Some(Prepared { fixed, table }))
    }

    /// Puts prepared identities into force.
    pub fn adopt(&self, prepared: Prepared) {
        let mut fixed = self.fixed.lock().unwrap_or_else(PoisonError::into_inner);
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = prepared.table;
        *fixed = prepared.fixed;
    }

    /// Reads the credentials file again if it has changed. On an error the known identities stay in force, and the same
    /// error of the same file is returned once: after that it is `Same`. An identity that differs from the policy is
    /// left out; the file's other changes, such as revocations, take effect.
    pub fn refresh(&self) -> Result<Refresh, Vec<Finding>> {
        let Some(file) = &self.file else { return Ok(Refresh::Same) };
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let stamped = FileStamp::of(file).map_err(|error| vec![unreadable(file, &error)]);
        let stamp = stamped.as_ref().ok().cloned();
        if stamp.is_some() && refused.is_none() && self.read().stamp == stamp {
            return Ok(Refresh::Same);
        }
        // A refused file is read each time: its cause may be fixed without a new stamp, such as its mode.
        match stamped.and_then(|stamp| self.reread(Some(stamp))) {
            Ok(read) => {
                *refused = None;
                Ok(read)
            }
            Err(findings) => {
                let now = Some((stamp, findings.clone()));
                if *refused == now {
                    return Ok(Refresh::Same);
                }
                *refused = now;
                Err(findings)
            }
        }
    }

    fn reread(&self, stamp: Option<FileStamp>) -> Result<Refresh, Vec<Finding>> {
        let Some(file) = &self.file else { return Ok(Refresh::Same) };
        let fixed = self.fixed.lock().unwrap_or_else(PoisonError::into_inner);
        let (table, findings) = Self::table_with(&fixed, file, stamp)?;
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = table;
        Ok(if findings.is_empty() { Refresh::Read } else { Refresh::Partly(findings) })
    }

    // The table, and a finding for each identity that it leaves out.
    fn table_with(
        fixed: &[Holder],
        file: &Path,
        stamp: Option<FileStamp>,
    ) -> Result<(Table, Vec<Finding>), Vec<Finding>> {
        // Stamped before it is read: a change in between is then seen the next time.
        let stamp = match stamp {
            Some(stamp) => stamp,
            None => FileStamp::of(file).map_err(|error| vec![unreadable(file, &error)])?,
        };
        let held = credentials::read(file)?;
        let (all, findings) = joined(fixed, held, file);
        Ok((Table::new(&all, Some(stamp)), findings))
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The holder of a bearer token that has not expired.
    pub fn authenticate(&self, token: &str, now_ms: u64) -> Option<Arc<Identity>> {
        // The table is searched by hash, so the time that this takes reveals nothing about a token.
        find(&self.read().tokens, Sha::of(token), now_ms)
    }

    /// The holder of a client certificate by the SHA-256 of its DER form, unless that credential has expired.
    pub fn by_thumbprint(&self, sha256_hex: &str, now_ms: u64) -> Option<Arc<Identity>> {
        find(&self.read().certificates, Sha::from_hex(sha256_hex)?, now_ms)
    }

    /// Every identity that can have keys of its own, sorted.
    pub fn tenants(&self) -> Vec<String> {
        self.read().tenants.iter().cloned().collect()
    }

    /// The executor of this name, where there is one.
    pub fn executor(&self, id: &str) -> Option<Arc<Identity>> {
        self.read().executors.get(id).cloned()
    }

    /// Whether events of this planner may go to this executor: its identity says so. Under `--dev` they may go to any.
    pub fn serves(&self, executor: &str, planner: &str) -> bool {
        self.makes_executors || self.executor(executor).is_some_and(|known| known.planners.allow(planner))
    }

    /// Every executor that serves this planner, sorted.
    pub fn executors_of(&self, planner: &str) -> Vec<String> {
        let table = self.read();
        let serving = table.executors.values().filter(|identity| identity.planners.allow(planner));
        serving.map(|identity| identity.id.clone()).collect()
    }

    /// Every identity that has this role, sorted.
    pub fn with_role(&self, role: Role) -> Vec<String> {
        let table = self.read();
        let known = table.tokens.values().chain(table.certificates.values()).map(|(identity, _)| identity);
        let ids: BTreeSet<&str> = known.filter(|identity| identity.has(role)).map(|identity| &*identity.id).collect();
        ids.into_iter().map(str::to_owned).collect()
    }

    /// Whether no identity has a credential: then a server does not start.
    pub fn is_empty(&self) -> bool {
        let table = self.read();
        table.tokens.is_empty() && table.certificates.is_empty()
    }
}

/// The identities of `serve --dev`, also for tests that add their own.
pub fn dev_holders() -> Vec<Holder> {
    let one = |token: &str, id: &str, roles: &[Role]| Holder {
        identity: Identity::new(id, roles.iter().copied(), Warehouses::All)
            .serving(if roles.contains(&Role::Executor) { Planners::Any } else { Planners::Named(BTreeSet::new()) }),
        tokens: vec![Credential { sha: Sha::of(token), created_ms: None, expires_ms: None }],
        certificates: Vec::new(),
    };
    vec![
        one("dev-admin", "dev-admin", &[Role::Admin]),
        one("dev-planner", "fgai-wms", &[Role::Planner]),
        one("dev-executor", "dev-wes", &[Role::Executor, Role::Partner]),
        one("dev-partner", "acme", &[Role::Partner]),
        one("dev-partner-2", "globex", &[Role::Partner]),
        one("dev-viewer", "dev-viewer", &[Role::Viewer]),
    ]
}

fn find(rows: &HashMap<Sha, (Arc<Identity>, Option<u64>)>, sha: Sha, now_ms: u64) -> Option<Arc<Identity>> {
    let (identity, expires) = rows.get(&sha)?;
    expires.is_none_or(|expires| now_ms < expires).then(|| Arc::clone(identity))
}

impl Table {
    fn new(holders: &[Holder], stamp: Option<FileStamp>) -> Self {
        let mut table = Self { stamp, ..Self::default() };
        for holder in holders {
            let identity = Arc::new(holder.identity.clone());
            let row = |credential: &Credential| (credential.sha, (Arc::clone(&identity), credential.expires_ms));
            table.tokens.extend(holder.tokens.iter().map(row));
            table.certificates.extend(holder.certificates.iter().map(row));
            if identity.is_tenant() {
                table.tenants.insert(identity.id.clone());
            }
            if identity.has(Role::Executor) {
                table.executors.insert(identity.id.clone(), identity);
            }
        }
        table
    }
}

/// Adds up the credentials that an identity has in the policy and in the file. Where the two differ in its roles,
/// warehouses or planners, the file's credentials do not count, and a finding says so.
fn joined(fixed: &[Holder], held: Vec<Holder>, file: &Path) -> (Vec<Holder>, Vec<Finding>) {
    let mut all: BTreeMap<String, Holder> = fixed.iter().map(|h| (h.identity.id.clone(), h.clone())).collect();
    let mut findings = Vec::new();
    for holder in held {
        match all.get_mut(&holder.identity.id) {
            None => {
                all.insert(holder.identity.id.clone(), holder);
            }
            Some(known) if known.identity == holder.identity => {
                known.tokens.extend(holder.tokens);
                known.certificates.extend(holder.certificates);
            }
            Some(_) => findings.push(Finding {
                severity: Severity::Error,
                rule: "identity-differs",
                file: file.display().to_string(),
                line: 0,
                col: 0,
                message: format!(
                    "{} has other roles, warehouses or planners here than in the policy",
                    holder.identity.id
                ),
                fix: Some("make the two the same, or keep the identity in one place".into()),
            }),
        }
    }
    (all.into_values().collect(), findings)
}

fn nobody() -> Finding {
    Finding {
        severity: Severity::Error,
        rule: "nobody",
        file: "identities".into(),
        line: 0,
        col: 0,
        message: "no identity would have a credential any more".into(),
        fix: Some("keep an identity with a credential, or make one with `fencepost credential create`".into()),
    }
}

/// The finding for a file that could not be read.
pub(super) fn unreadable(file: &Path, error: &std::io::Error) -> Finding {
    Finding {
        severity: Severity::Error,
        rule: "unreadable",
        file: file.display().to_string(),
        line: 0,
        col: 0,
        message: format!("cannot be read: {error}"),
        fix: None,
    }
}
