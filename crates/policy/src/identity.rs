//! Callers: identities, their roles, and their credentials.
//! Never keeps a token: only its SHA-256, so a stolen file gives no access.
//! Called by the readers of policies and credentials, and by the HTTP server.

use std::collections::BTreeSet;

use fencepost_kernel::Tenant;
use sha2::{Digest as _, Sha256};

pub use super::directory::{Directory, Prepared, Refresh, dev_holders};

/// The permissions of an identity.
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
    /// Every warehouse, future ones too.
    All,
    /// These alone.
    Named(BTreeSet<String>),
}

impl Warehouses {
    /// The warehouses of an identity whose file does not name any: all of them. But none for a planner or executor that
    /// is no admin or viewer: it acts in warehouses, and must be given its own.
    pub fn unsaid(roles: &BTreeSet<Role>) -> Self {
        let has = |role| roles.contains(&role);
        let acts = has(Role::Planner) || has(Role::Executor);
        if acts && !has(Role::Admin) && !has(Role::Viewer) { Self::Named(BTreeSet::new()) } else { Self::All }
    }

    /// Whether this warehouse is among them.
    pub fn allow(&self, warehouse: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(named) => named.contains(warehouse),
        }
    }
}

/// The planners whose events an executor may get.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Planners {
    /// Every planner, future ones too. Under `--dev` only, no file can say so: else any planner could put events into
    /// an executor's polls by naming it.
    Any,
    /// These alone.
    Named(BTreeSet<String>),
}

impl Planners {
    /// Whether this planner is among them.
    pub fn allow(&self, planner: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Named(named) => named.contains(planner),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Named(named) if named.is_empty())
    }
}

/// A caller that is known by a credential.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its name; where its roles have keys of their own, also the tenant.
    pub id: String,
    /// Its permissions.
    pub roles: BTreeSet<Role>,
    /// The warehouses that it may act in.
    pub warehouses: Warehouses,
    /// The planners whose events it gets, where it is an executor.
    pub planners: Planners,
    tenant: Tenant,
}

impl Identity {
    /// An identity with these roles, in the warehouses named, that serves no planner.
    pub fn new(id: impl Into<String>, roles: impl IntoIterator<Item = Role>, warehouses: Warehouses) -> Self {
        let id = id.into();
        let (tenant, planners) = (Tenant::new(id.as_str()), Planners::Named(BTreeSet::new()));
        Self { tenant, id, roles: roles.into_iter().collect(), warehouses, planners }
    }

    /// The same, serving these planners.
    pub fn serving(self, planners: Planners) -> Self {
        Self { planners, ..self }
    }

    /// Whether it has this role.
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// The tenant that its keys belong to, if [`Identity::is_tenant`].
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Whether it can have keys of its own: an admin or viewer without another role only works with those of others.
    pub fn is_tenant(&self) -> bool {
        self.roles.iter().any(|role| matches!(role, Role::Planner | Role::Executor | Role::Partner))
    }
}

/// The SHA-256 of a token or of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Sha(pub [u8; 32]);

impl Sha {
    /// The hash of a token. Tokens carry 256 random bits, so a plain hash cannot be reversed by trying tokens.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Reads 64 hexadecimal digits; colons between them, as certificate tools print, are ignored.
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

/// The hash of a token or certificate, and how long it is valid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credential {
    /// The hash.
    pub sha: Sha,
    /// When it was made, where known; in milliseconds since 1970.
    pub created_ms: Option<u64>,
    /// The first instant at which it is no longer valid, in milliseconds since 1970; never where unset.
    pub expires_ms: Option<u64>,
}

impl Credential {
    /// Its name for people: the first 12 digits of the hash, which do not reveal the token.
    pub fn id(&self) -> String {
        self.sha.hex()[..12].to_owned()
    }

    /// Whether it is valid at this time.
    pub fn live(&self, now_ms: u64) -> bool {
        self.expires_ms.is_none_or(|expires| now_ms < expires)
    }
}

/// An identity with all of its credentials.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The identity itself.
    pub identity: Identity,
    /// Its bearer tokens.
    pub tokens: Vec<Credential>,
    /// Its client certificates.
    pub certificates: Vec<Credential>,
}
