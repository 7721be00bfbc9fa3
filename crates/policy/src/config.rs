//! Reads a policy from a file, with variables and flags laid over it. A reload gives the same policy as a start would.
//! Never changes the policy in force: the caller does, once it knows every change.
//! Called by `serve` at start and on a reload, by `consume` and by `check`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::finding::Finding;
use super::{Policy, check, directory};

/// Flags that override the file and the variables.
#[derive(Clone, Default, Debug)]
pub struct Flags {
    /// Overrides `server.listen`.
    pub listen: Option<SocketAddr>,
    /// Overrides `server.data`.
    pub data: Option<PathBuf>,
}

/// The sources of a policy.
#[derive(Clone, Default, Debug)]
pub struct Config {
    pub file: Option<PathBuf>,
    /// Environment variables by name and value. Only names that begin with `FENCEPOST_` count.
    pub variables: Vec<(String, String)>,
    /// The flags of the command line.
    pub flags: Flags,
}

impl Config {
    /// Reads all sources again. Returns every error found, the same for `serve`, a reload and `check`.
    pub fn read(&self) -> Result<Policy, Vec<Finding>> {
        let text = self.file.as_deref().map(read).transpose()?;
        let file = text.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
        let mut policy = Policy::load(file, self.variables.iter().cloned())?;
        policy.server.data = self.flags.data.clone().unwrap_or(policy.server.data);
        if let Some(listen) = self.flags.listen {
            policy.server.listen = listen;
            let loops = check::loops(&policy.routes, listen);
            if !loops.is_empty() {
                return Err(loops);
            }
        }
        Ok(policy)
    }
}

/// A policy file's name, as findings show it, and its text.
pub fn read(path: &Path) -> Result<(String, String), Vec<Finding>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok((path.display().to_string(), text)),
        Err(error) => Err(vec![directory::unreadable(path, &error)]),
    }
}
