//! Who is calling: identities, their roles, and the directory that knows a credential's holder.
//! Never keeps a token: only its SHA-256, so a stolen file lets nobody in.
//! Called by the HTTP server for each request, and by the command line at start.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use sha2::{Digest as _, Sha256};

use super::Policy;
use super::credentials::{self, Stamp};
use super::finding::{Finding, Severity};

/// What an identity may do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// Everything, for any tenant it names.
    Admin,
    /// Reading what an admin may read.
    Viewer,
    /// Publishing dispatch for its warehouses.
    Planner,
    /// Executing dispatch and reporting back.
    Executor,
    /// Its own fences and its own items.
    Partner,
}

impl Role {
    /// Every role by its name in files and on the command line.
    pub const NAMES: [(&'static str, Role); 5] = [
        ("admin", Role::Admin),
        ("viewer", Role::Viewer),
        ("planner", Role::Planner),
        ("executor", Role::Executor),
        ("partner", Role::Partner),
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Viewer => "viewer",
            Self::Planner => "planner",
            Self::Executor => "executor",
            Self::Partner => "partner",
        }
    }

    /// The role of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, role)| *role)
    }
}

/// The warehouses an identity may act in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Warehouses {
    /// Each, those to come too.
    All,
    /// These alone.
    Named(BTreeSet<String>),
}

impl Warehouses {
    /// Whether this warehouse is among them.
    pub fn allow(&self, warehouse: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(named) => named.contains(warehouse),
        }
    }
}

/// Somebody who may call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its name; where its roles have keys of their own, also the tenant.
    pub id: String,
    /// What it may do.
    pub roles: BTreeSet<Role>,
    /// Where it may do it.
    pub warehouses: Warehouses,
}

impl Identity {
    /// An identity with these roles, in the warehouses named.
    pub fn new(id: impl Into<String>, roles: impl IntoIterator<Item = Role>, warehouses: Warehouses) -> Self {
        Self { id: id.into(), roles: roles.into_iter().collect(), warehouses }
    }

    /// Whether it has this role.
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Whether keys can be its own: admins and viewers only look at those of others.
    pub fn is_tenant(&self) -> bool {
        self.roles.iter().any(|role| matches!(role, Role::Planner | Role::Executor | Role::Partner))
    }
}

/// The SHA-256 of a token or of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Sha(pub [u8; 32]);

impl Sha {
    /// The hash of a token. Tokens carry 256 random bits, so one plain hash cannot be searched.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Reads 64 hexadecimal digits; colons between them, as certificate tools print, are left out.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let digits: Vec<u8> = hex
            .chars()
            .filter(|c| *c != ':')
            .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect::<Option<_>>()?;
        let bytes: Vec<u8> =
            digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
        (digits.len() == 64).then_some(())?;
        bytes.try_into().ok().map(Self)
    }

    /// As 64 lower-case hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A token's hash, or a certificate's, and until when it counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credential {
    /// The hash.
    pub sha: Sha,
    /// When it was made, where known.
    pub created_ms: Option<u64>,
    /// The first instant at which it no longer counts.
    pub expires_ms: Option<u64>,
}

impl Credential {
    /// What people call it: the first digits of its hash, which give nothing away.
    pub fn id(&self) -> String {
        self.sha.hex()[..12].to_owned()
    }

    /// Whether it counts at this time.
    pub fn live(&self, now_ms: u64) -> bool {
        self.expires_ms.is_none_or(|expires| now_ms < expires)
    }
}

/// An identity with all it can show.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Who it is.
    pub identity: Identity,
    /// Its bearer tokens.
    pub tokens: Vec<Credential>,
    /// Its client certificates.
    pub certificates: Vec<Credential>,
}

/// Knows the holder of a credential.
#[derive(Debug)]
pub struct Directory {
    table: RwLock<Table>,
    fixed: Vec<Holder>,
    file: Option<PathBuf>,
}

#[derive(Default, Debug)]
struct Table {
    tokens: HashMap<Sha, (Arc<Identity>, Option<u64>)>,
    certificates: HashMap<Sha, (Arc<Identity>, Option<u64>)>,
    tenants: BTreeSet<String>,
    stamp: Option<Stamp>,
}

/// Whether a second look at the credentials file changed anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refresh {
    /// The file is as it was.
    Same,
    /// It was read anew.
    Read,
}

impl Directory {
    /// The identities of `serve --dev`. Their tokens are public: loopback only.
    pub fn dev() -> Self {
        Self::of(dev_holders())
    }

    /// A directory of none but these.
    pub fn of(holders: Vec<Holder>) -> Self {
        let table = RwLock::new(Table::new(&holders, None));
        Self { table, fixed: holders, file: None }
    }

    /// The policy's identities, and those of the credentials file where there is one.
    pub fn load(policy: &Policy, file: Option<&Path>) -> Result<Self, Vec<Finding>> {
        let directory = Self { file: file.map(Into::into), ..Self::of(policy.identities.clone()) };
        directory.reread(None)?;
        Ok(directory)
    }

    /// Reads the credentials file again if it changed since. On an error what was known stays in force.
    pub fn refresh(&self) -> Result<Refresh, Vec<Finding>> {
        let Some(file) = &self.file else { return Ok(Refresh::Same) };
        let stamp = Stamp::of(file).map_err(|error| vec![unreadable(file, &error)])?;
        let known = self.read().stamp.clone();
        if known.is_some() && known == Some(stamp.clone()) { Ok(Refresh::Same) } else { self.reread(Some(stamp)) }
    }

    fn reread(&self, stamp: Option<Stamp>) -> Result<Refresh, Vec<Finding>> {
        let Some(file) = &self.file else { return Ok(Refresh::Same) };
        // Stamped before it is read: a change in between is then seen the next time.
        let stamp = match stamp {
            Some(stamp) => stamp,
            None => Stamp::of(file).map_err(|error| vec![unreadable(file, &error)])?,
        };
        let held = credentials::read(file)?;
        let table = Table::new(&joined(&self.fixed, held, file)?, Some(stamp));
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = table;
        Ok(Refresh::Read)
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
        let table = self.read();
        let mut known = table.tokens.values().chain(table.certificates.values()).map(|(identity, _)| identity);
        known.find(|identity| identity.id == id && identity.has(Role::Executor)).cloned()
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
        identity: Identity::new(id, roles.iter().copied(), Warehouses::All),
        tokens: vec![Credential { sha: Sha::of(token), created_ms: None, expires_ms: None }],
        certificates: Vec::new(),
    };
    vec![
        one("dev-admin", "dev-admin", &[Role::Admin]),
        one("dev-planner", "fgai-wms", &[Role::Planner]),
        one("dev-executor", "dev-wes", &[Role::Executor, Role::Partner]),
        one("dev-partner", "acme", &[Role::Partner]),
        one("dev-partner-2", "globex", &[Role::Partner]),
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
        }
        table
    }
}

/// Credentials of one identity add up over both places; who it is must be the same in both.
fn joined(fixed: &[Holder], held: Vec<Holder>, file: &Path) -> Result<Vec<Holder>, Vec<Finding>> {
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
                message: format!("{} has other roles or warehouses here than in the policy", holder.identity.id),
                fix: Some("make the two the same, or keep the identity in one place".into()),
            }),
        }
    }
    if findings.is_empty() { Ok(all.into_values().collect()) } else { Err(findings) }
}

fn unreadable(file: &Path, error: &std::io::Error) -> Finding {
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
