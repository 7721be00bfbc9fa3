//! The directory that knows a credential's holder: the policy's identities, and those of the credentials file.
//! Never lets in by half: what changes is made whole beside what is in force, and then put in its place.
//! Called by the HTTP server for each request, by the command line at start and on a reload.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ahash::HashMap;

use super::Policy;
use super::credentials::{self, Stamp};
use super::finding::{Finding, Severity};
use super::identity::{Credential, Holder, Identity, Planners, Role, Sha, Warehouses};

/// Knows the holder of a credential.
#[derive(Debug)]
pub struct Directory {
    table: RwLock<Table>,
    // Held while the table is made anew, so that of two who do so the later one wins with all it knows.
    fixed: Mutex<Vec<Holder>>,
    follows: Follows,
    file: Option<PathBuf>,
    /// Whether a planner may name executors that nobody has made: under `--dev` they come into being.
    makes_executors: bool,
    // The file as it was when it was last refused, and why: told of once.
    refused: Mutex<Option<(Option<Stamp>, Vec<Finding>)>>,
}

/// Where a directory's fixed identities come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Follows {
    /// From whoever made it; a policy changes nothing.
    Nobody,
    Policy,
}

/// A directory as another policy would have it.
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
    // By its id; one without a credential is an executor, too: events are pushed to it.
    executors: BTreeMap<String, Arc<Identity>>,
    stamp: Option<Stamp>,
}

/// Whether a second look at the credentials file changed anything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refresh {
    /// The file is as it was.
    Same,
    /// It was read anew.
    Read,
    /// It was read anew, without those who are somebody else in the policy.
    Partly(Vec<Finding>),
}

impl Directory {
    /// The identities of `serve --dev`. Their tokens are public: loopback only.
    pub fn dev() -> Self {
        Self { makes_executors: true, ..Self::of(dev_holders()) }
    }

    /// A directory of none but these.
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

    /// What it would know under another policy, or why not. Nothing is in force yet; none where it follows no policy.
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

    /// Puts what was prepared into force.
    pub fn adopt(&self, prepared: Prepared) {
        let mut fixed = self.fixed.lock().unwrap_or_else(PoisonError::into_inner);
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = prepared.table;
        *fixed = prepared.fixed;
    }

    /// Reads the credentials file again if it changed since. On an error what was known stays in force, and the same error of
    /// the same file is told once: what is `Same` may be a file that is still refused. Who is somebody else in the policy is
    /// left out, and keeps nobody else's revocation from counting.
    pub fn refresh(&self) -> Result<Refresh, Vec<Finding>> {
        let Some(file) = &self.file else { return Ok(Refresh::Same) };
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let stamped = Stamp::of(file).map_err(|error| vec![unreadable(file, &error)]);
        let stamp = stamped.as_ref().ok().cloned();
        if stamp.is_some() && refused.is_none() && self.read().stamp == stamp {
            return Ok(Refresh::Same);
        }
        // A refused file is read each time: what kept it from being read may be mended beside it, such as its mode.
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

    fn reread(&self, stamp: Option<Stamp>) -> Result<Refresh, Vec<Finding>> {
        let Some(file) = &self.file else { return Ok(Refresh::Same) };
        let fixed = self.fixed.lock().unwrap_or_else(PoisonError::into_inner);
        let (table, findings) = Self::table_with(&fixed, file, stamp)?;
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = table;
        Ok(if findings.is_empty() { Refresh::Read } else { Refresh::Partly(findings) })
    }

    // The table, and whom it leaves out.
    fn table_with(fixed: &[Holder], file: &Path, stamp: Option<Stamp>) -> Result<(Table, Vec<Finding>), Vec<Finding>> {
        // Stamped before it is read: a change in between is then seen the next time.
        let stamp = match stamp {
            Some(stamp) => stamp,
            None => Stamp::of(file).map_err(|error| vec![unreadable(file, &error)])?,
        };
        let held = credentials::read(file)?;
        let (all, findings) = joined(fixed, held, file);
        Ok((Table::new(&all, Some(stamp)), findings))
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The holder of a bearer token.
    pub fn authenticate(&self, token: &str, now_ms: u64) -> Option<Arc<Identity>> {
        // The table is searched by hash: how long that takes says nothing about any token.
        find(&self.read().tokens, Sha::of(token), now_ms)
    }

    /// The holder of a client certificate, by the SHA-256 of its DER form.
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

    /// Whether nobody can come in: then there is nothing to start for.
    pub fn is_empty(&self) -> bool {
        let table = self.read();
        table.tokens.is_empty() && table.certificates.is_empty()
    }
}

/// The identities of `serve --dev`, to put beside those of a policy.
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
    fn new(holders: &[Holder], stamp: Option<Stamp>) -> Self {
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

/// Credentials of one identity add up over both places; who it is must be the same in both, else those of the file do not
/// count, and a finding says so.
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

/// A file that could not be read.
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
