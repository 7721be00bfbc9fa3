//! Checks the places that commands take (address to listen on, directory, store), and says what to do if one is wrong.
//! Never creates anything. Called by every command that takes one.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{anyhow, bail};
use fencepost::{
    policy::credentials::FILE_NAME,
    store::{
        Address, Error,
        embedded::{IN_USE, is_store},
    },
};
use tokio::net::TcpListener;

use crate::outbound::KEY_FILE;

/// Listens on an address. The error says what to do; `instead` names the flag or setting for another address.
pub async fn listen(address: SocketAddr, instead: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!("the address is in use; is another Fencepost running? use {instead}")
            }
            io::ErrorKind::AddrNotAvailable => format!("this machine has no such address; use {instead}"),
            io::ErrorKind::PermissionDenied if address.port() < 1_024 => {
                format!("ports below 1024 need a privilege (CAP_NET_BIND_SERVICE); use a higher one with {instead}")
            }
            _ => error.to_string(),
        };
        anyhow!("cannot listen on {address}: {why}")
    })
}

/// Whether a directory holds anything of Fencepost's: a store, credentials or keys.
pub fn is_data_dir(dir: &Path) -> bool {
    is_store(dir) || dir.join(FILE_NAME).is_file() || dir.join(KEY_FILE).is_file()
}

/// The error text for a directory that should be the data directory and is not.
pub fn not_a_data_dir(dir: &Path) -> String {
    let shown = dir.display();
    if !dir.is_dir() {
        return format!("directory {shown} does not exist; name the data directory with --data");
    }
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let near: Option<PathBuf> = entries.map(|entry| entry.path()).filter(|path| is_data_dir(path)).min();
    let instead = match near {
        Some(near) => format!("did you mean --data {}?", near.display()),
        None => "name the data directory with --data".to_owned(),
    };
    format!("{shown} is not a Fencepost data directory: it holds no store and no credentials; {instead}")
}

/// Refuses a directory that is not a data directory.
pub fn require_data_dir(dir: &Path) -> anyhow::Result<()> {
    if !is_data_dir(dir) {
        bail!(not_a_data_dir(dir));
    }
    Ok(())
}

/// The error for a store that could not be opened; `in_use` is the advice for where another process has it.
pub fn not_opened(address: &Address, error: &Error, in_use: &str) -> anyhow::Error {
    match address {
        Address::Directory(path) if error.why().contains(IN_USE) => anyhow!("{} {IN_USE}; {in_use}", path.display()),
        _ => anyhow!("cannot open the store: {}", address.not_opened(error)),
    }
}
