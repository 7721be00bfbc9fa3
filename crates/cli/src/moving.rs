//! Opens stores by their address, and prints progress.
//! Never moves a row itself. Called by `copy`, `backup`, `restore`, `doctor` and `dlq`.

use std::{
    io::{IsTerminal, Write, stderr},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail};
use fencepost::{
    moving::Progress,
    store::{Address, Store, address::Opener, embedded::is_store},
};
use fencepost_wire::time::rfc3339;

use crate::place;

/// How often the progress line changes on a terminal; elsewhere, `LINE_EVERY` is how often a new line is written.
const CHANGE_EVERY: Duration = Duration::from_millis(500);
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The purpose for which a store is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Its rows are written to a file.
    BackUp,
    /// Its rows are copied.
    CopyFrom,
    /// It is read, to see which keys it needs.
    Examine,
    /// It is filled. A directory without a store gets a new one.
    Fill,
}

impl Use {
    // Advice for where a server has the store open.
    fn while_served(self) -> &'static str {
        match self {
            Self::BackUp => {
                "back it up through its server:\n  FENCEPOST_TOKEN=… fencepost backup --url http://… --out FILE\nor stop the \
                 server first"
            }
            Self::Examine => "ask its server",
            Self::CopyFrom => "stop its server first: what it writes meanwhile would be missing from the copy",
            Self::Fill => "stop its server first, or name an empty store: only an empty one is filled",
        }
    }
}

pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")
}

pub fn address(text: &str) -> anyhow::Result<Address> {
    Address::parse(text).map_err(|why| anyhow!(why))
}

/// Opens a store that this command alone should use. Prints a note on each server that the store has a record of.
pub async fn open(address: &Address, purpose: Use) -> anyhow::Result<Arc<dyn Store>> {
    if let Address::Directory(path) = address
        && purpose != Use::Fill
        && !is_store(path)
    {
        bail!("there is no store in {address}");
    }
    let opener = Opener {
        node: format!("moving-{:016x}", getrandom::u64().context("no randomness")?),
        address: String::new(),
        release: env!("CARGO_PKG_VERSION").to_owned(),
        ..Opener::default()
    };
    let store = address.open(&opener).await;
    let store = store.map_err(|error| place::not_opened(address, &error, purpose.while_served()))?;
    let nodes = store.nodes().await.with_context(|| format!("cannot ask {address}"))?;
    for node in nodes.iter().filter(|node| !node.address.is_empty()) {
        eprintln!(
            "note: {address} was served by {} at {} until {} or later; stop it first",
            node.id,
            node.address,
            &*rfc3339(node.seen.0)
        );
    }
    Ok(store)
}

/// Prints progress on standard error: one line that changes on a terminal, elsewhere a new line now and then.
pub struct Teller {
    written: Instant,
    is_watched: bool,
    is_dirty: bool,
}

impl Default for Teller {
    fn default() -> Self {
        Self { written: Instant::now(), is_watched: stderr().is_terminal(), is_dirty: false }
    }
}

impl Teller {
    pub fn tell(&mut self, Progress { step, rows, rows_per_s }: Progress) {
        self.say(|| format!("{step}: {rows} rows, {rows_per_s} a second"));
    }

    pub fn say(&mut self, line: impl FnOnce() -> String) {
        if self.written.elapsed() < if self.is_watched { CHANGE_EVERY } else { LINE_EVERY } {
            return;
        }
        self.written = Instant::now();
        if self.is_watched {
            eprint!("\r\x1b[K{}", line());
            let _ = stderr().flush();
            self.is_dirty = true;
        } else {
            eprintln!("{}", line());
        }
    }
}

// Removes the progress line: an error must not be written into it.
impl Drop for Teller {
    fn drop(&mut self) {
        if self.is_dirty {
            eprint!("\r\x1b[K");
        }
    }
}
