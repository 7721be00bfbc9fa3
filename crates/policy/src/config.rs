//! What a server was started with: a file, the variables and the flags laid over it. It can be read again, and gives the
//! same policy as a start would.
//! Never changes what is in force: the caller does, once it knows the whole of what would change.
//! Called by `serve` at start and when it is told to reload, and by `check`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::finding::Finding;
use super::{Policy, check, directory};

/// Flags that go over the file and the variables.
#[derive(Clone, Default, Debug)]
pub struct Flags {
    /// In place of `server.listen`.
    pub listen: Option<SocketAddr>,
    /// In place of `server.data`.
    pub data: Option<PathBuf>,
}

/// Where a policy comes from.
#[derive(Clone, Default, Debug)]
pub struct Config {
    /// The file, where there is one.
    pub file: Option<PathBuf>,
    /// The variables of the process.
    pub variables: Vec<(String, String)>,
    /// The flags of the command.
    pub flags: Flags,
}

impl Config {
    /// Reads everything anew. Every error found is returned: `serve`, a reload and `check` all judge here.
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
