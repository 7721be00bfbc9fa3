//! The credentials file in the data directory: made, rotated and revoked by `fencepost credential`.
//! Never written in place, and never holds a token: a reader sees the old file or the new one, whole.
//! Called by the command line to change it, by `Directory` to read it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::finding::{Finding, Severity, has_errors};
use super::holders;
use super::identity::{Credential, Holder, Identity, Planners, Role, Sha, Warehouses};
use super::read::Reader;
use super::yaml::{self, Layer, PolicyText, YamlValue};

/// The file's name in the data directory.
pub const FILE_NAME: &str = "credentials.yml";

/// Why a change was not made.
#[derive(Debug)]
pub enum Error {
    /// This file or directory could not be read or written.
    Io(PathBuf, io::Error),
    /// The file there cannot be understood; it is left as it was.
    Invalid(Vec<Finding>),
    /// No identity and no credential has this name.
    Unknown(String),
    /// The identity exists with other roles, warehouses or planners.
    Differs(String),
    /// Only an executor serves planners.
    NoExecutor(String),
    /// A new identity without roles could do nothing.
    NoRoles(String),
    /// This cannot be an identity's name.
    Name(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Invalid(findings) => f.write_str(super::finding::human(findings).trim_end()),
            Self::Unknown(name) => {
                write!(f, "no identity or credential is called {name}; `fencepost credential list` shows them")
            }
            Self::Differs(id) => {
                write!(
                    f,
                    "{id} is there with other roles, warehouses or planners; leave them out, change the planners with \
                     `fencepost credential planners`, or revoke it first"
                )
            }
            Self::NoExecutor(id) => write!(f, "{id} is no executor, and only executors serve planners"),
            Self::NoRoles(id) => write!(f, "{id} is new and needs a role: admin, viewer, planner, executor or partner"),
            Self::Name(id) => {
                write!(f, "`{id}` cannot name an identity: use 1 to 128 visible ASCII characters without quotes")
            }
        }
    }
}

impl std::error::Error for Error {}

/// A new token, which is shown once.
pub struct Issued {
    /// The token itself; it is kept nowhere.
    pub token: String,
    /// The part that the file keeps: the hash and the times.
    pub credential: Credential,
}

/// The credentials file of a data directory.
#[derive(Clone, Debug)]
pub struct Credentials {
    path: PathBuf,
}

impl Credentials {
    /// The file of this data directory, whether it exists or not.
    pub fn in_dir(data: &Path) -> Self {
        Self { path: data.join(FILE_NAME) }
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every identity in the file, with its credentials.
    pub fn list(&self) -> Result<Vec<Holder>, Error> {
        read(&self.path).map_err(Error::Invalid)
    }

    /// Creates a token, and with its first token also the identity. Without roles the identity must exist already.
    pub fn create(&self, identity: Identity, expires_ms: Option<u64>, now_ms: u64) -> Result<Issued, Error> {
        if !holders::id_fits(&identity.id) {
            return Err(Error::Name(identity.id));
        }
        let bare = identity.roles.is_empty() && identity.planners.is_empty();
        if !identity.planners.is_empty() && !identity.roles.is_empty() && !identity.has(Role::Executor) {
            return Err(Error::NoExecutor(identity.id));
        }
        self.change(now_ms, |all| {
            let issued = issue(expires_ms, now_ms)?;
            match all.iter_mut().find(|holder| holder.identity.id == identity.id) {
                Some(holder) if bare || holder.identity == identity => {
                    holder.tokens.push(issued.credential.clone());
                }
                Some(_) => return Err(Error::Differs(identity.id)),
                None if identity.roles.is_empty() => return Err(Error::NoRoles(identity.id)),
                None => {
                    let tokens = vec![issued.credential.clone()];
                    all.push(Holder { identity, tokens, certificates: Vec::new() });
                }
            }
            Ok(issued)
        })
    }

    /// Replaces the list of planners that an executor serves. Its tokens stay.
    pub fn serve(&self, id: &str, planners: Planners, now_ms: u64) -> Result<(), Error> {
        self.change(now_ms, |all| {
            let holder = all.iter_mut().find(|holder| holder.identity.id == id);
            let holder = holder.ok_or_else(|| Error::Unknown(id.into()))?;
            if !holder.identity.has(Role::Executor) {
                return Err(Error::NoExecutor(id.into()));
            }
            holder.identity.planners = planners;
            Ok(())
        })
    }

    /// Creates a token for an identity. Its other tokens expire after the overlap at the latest.
    pub fn rotate(&self, id: &str, overlap: Duration, expires_ms: Option<u64>, now_ms: u64) -> Result<Issued, Error> {
        let overlap_ms = u64::try_from(overlap.as_millis()).unwrap_or(u64::MAX);
        let until_ms = now_ms.saturating_add(overlap_ms);
        self.change(now_ms, |all| {
            let holder = all.iter_mut().find(|holder| holder.identity.id == id);
            let holder = holder.ok_or_else(|| Error::Unknown(id.into()))?;
            for old in &mut holder.tokens {
                old.expires_ms = Some(old.expires_ms.map_or(until_ms, |expires| expires.min(until_ms)));
            }
            let issued = issue(expires_ms, now_ms)?;
            holder.tokens.push(issued.credential.clone());
            Ok(issued)
        })
    }

    /// Removes one credential, or an identity with all of its credentials. Returns the ids of the removed credentials.
    pub fn revoke(&self, name: &str, now_ms: u64) -> Result<Vec<String>, Error> {
        self.change(now_ms, |all| {
            let mut gone = Vec::new();
            for holder in all.iter_mut() {
                let whole = holder.identity.id == name;
                for list in [&mut holder.tokens, &mut holder.certificates] {
                    gone.extend(list.extract_if(.., |c| whole || c.id() == name).map(|c| c.id()));
                }
            }
            let before = all.len();
            all.retain(|holder| holder.identity.id != name);
            if gone.is_empty() && all.len() == before { Err(Error::Unknown(name.into())) } else { Ok(gone) }
        })
    }

    fn change<T>(&self, now_ms: u64, edit: impl FnOnce(&mut Vec<Holder>) -> Result<T, Error>) -> Result<T, Error> {
        let io = |error| Error::Io(self.path.clone(), error);
        if let Some(dir) = self.path.parent() {
            fencepost_store::private::create_dir(dir).map_err(io)?;
        }
        // Without this lock, one of two commands at once would overwrite the change of the other.
        let lock = private().create(true).truncate(false).open(self.path.with_extension("lock")).map_err(io)?;
        lock.lock().map_err(io)?;
        let mut all = self.list()?;
        for holder in &mut all {
            holder.tokens.retain(|credential| credential.live(now_ms));
        }
        let done = edit(&mut all)?;
        self.write(&all).map_err(io)?;
        Ok(done)
    }

    fn write(&self, all: &[Holder]) -> io::Result<()> {
        let fresh = self.path.with_extension("new");
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = private().create_new(true).open(&fresh)?;
        file.write_all(text(all).as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, &self.path)?;
        // The rename itself must survive a power cut: a revoked token may not come back.
        match self.path.parent() {
            Some(dir) => File::open(dir)?.sync_all(),
            None => Ok(()),
        }
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn issue(expires_ms: Option<u64>, now_ms: u64) -> Result<Issued, Error> {
    let mut random = [0; 32];
    getrandom::fill(&mut random)
        .map_err(|error| Error::Io(PathBuf::from("random"), io::Error::other(error.to_string())))?;
    let token = format!("fp_{}", base32(&random));
    let credential = Credential { sha: Sha::of(&token), created_ms: Some(now_ms), expires_ms };
    Ok(Issued { token, credential })
}

/// Base32 in digits and letters that are hard to confuse: no i, l, o or u.
fn base32(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let (mut text, mut held, mut bits) = (String::new(), 0_u32, 0);
    for byte in bytes {
        held = held << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(DIGITS[(held >> bits) as usize & 31]));
        }
    }
    if bits > 0 {
        text.push(char::from(DIGITS[(held << (5 - bits)) as usize & 31]));
    }
    text
}

/// Every identity in the file; none where there is no file.
pub fn read(path: &Path) -> Result<Vec<Holder>, Vec<Finding>> {
    let name = path.display().to_string();
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            let message = format!("cannot be read: {error}");
            let finding = Finding {
                severity: Severity::Error,
                rule: "unreadable",
                file: name,
                line: 0,
                col: 0,
                message,
                fix: None,
            };
            return Err(vec![finding]);
        }
    };
    let source = Arc::new(PolicyText { name, layer: Layer::File });
    let (tree, findings) = yaml::parse(&source, &text);
    let mut reader = Reader { findings };
    let mut all = Vec::new();
    if let Some(fields) = tree.as_ref().and_then(|tree| reader.fields(tree, "the credentials", &["identities"])) {
        let nobody = yaml::YamlNode { mark: fields.mark.clone(), value: YamlValue::Null };
        let read = holders::read(&mut reader, fields.get("identities").unwrap_or(&nobody));
        all = read.into_iter().map(|read| read.holder).collect();
    }
    if has_errors(&reader.findings) { Err(reader.findings) } else { Ok(all) }
}

fn text(all: &[Holder]) -> String {
    // JSON is YAML: serde_json writes it, and the reader of policies reads it.
    let rows = |list: &[Credential]| -> Vec<serde_json::Value> {
        list.iter()
            .map(|credential| {
                let mut row = serde_json::Map::new();
                row.insert("sha256".into(), credential.sha.hex().into());
                for (name, at) in [("created", credential.created_ms), ("expires", credential.expires_ms)] {
                    row.extend(at.map(|ms| (name.to_owned(), holders::instant_text(ms).into())));
                }
                row.into()
            })
            .collect()
    };
    let mut text =
        "# Made by `fencepost credential`. Hashes only; the tokens are kept nowhere.\nidentities:\n".to_owned();
    for holder in all {
        let roles: Vec<&str> = holder.identity.roles.iter().map(|role| role.name()).collect();
        let warehouses = match &holder.identity.warehouses {
            Warehouses::All => serde_json::json!("all"),
            Warehouses::Named(named) => serde_json::json!(named),
        };
        let (id, tokens) = (&holder.identity.id, rows(&holder.tokens));
        let mut row = serde_json::json!({ "id": id, "roles": roles, "warehouses": warehouses,
            "credentials": tokens, "certificates": rows(&holder.certificates) });
        // Left out where there are none, so that the previous release can read the file.
        if let (Planners::Named(planners), Some(row)) = (&holder.identity.planners, row.as_object_mut())
            && !planners.is_empty()
        {
            row.insert("planners".to_owned(), serde_json::json!(planners));
        }
        text.push_str(&format!("  - {row}\n"));
    }
    text
}

/// The modification time, length and inode, which change when the file is replaced. Cheap enough to check every second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileStamp(Option<(SystemTime, u64, u64)>);

impl FileStamp {
    /// The stamp of the file as it is now; a missing file has a stamp too.
    pub fn of(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(meta) => Ok(Self(Some((meta.modified()?, meta.len(), inode(&meta))))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self(None)),
            Err(error) => Err(error),
        }
    }
}

#[cfg(unix)]
fn inode(meta: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(meta)
}

#[cfg(not(unix))]
fn inode(_: &fs::Metadata) -> u64 {
    0
}
