//! The process of one server: starts it, waits for it, kills it. Called by this crate's servers.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::until;

const WAIT_MAX: Duration = Duration::from_secs(30);

/// A running server. Dropping it kills it: its data is deleted, too, so no orderly shutdown is needed.
pub(crate) struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    pub(crate) fn spawn(mut command: Command, dir: &Path) -> Self {
        let log = dir.join("log");
        let output = File::options().create(true).append(true).open(&log).unwrap();
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?} did not start: {error}"));
        Self { child, log }
    }

    /// Waits until `probe` is true. Panics with the server's log if the server ends or takes too long.
    pub(crate) fn ready(&mut self, mut probe: impl FnMut() -> bool) {
        let log = || std::fs::read_to_string(&self.log).unwrap_or_default();
        let begun = Instant::now();
        until("a server is ready", || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && begun.elapsed() < WAIT_MAX, "not ready (ended: {ended:?}); its log:\n{}", log());
            probe()
        });
    }

    /// Kills the process and all that it started, and waits until they are gone.
    pub(crate) fn kill(&mut self) {
        let children = children_of(self.child.id());
        let _ = self.child.kill();
        children.iter().for_each(|pid| signal(*pid, Signal::KILL));
        let _ = self.child.wait();
        // The parent that inherits the children reaps them some time later; a zombie holds nothing any more.
        until("the children of a killed server are gone", || children.iter().all(|pid| is_over(*pid)));
    }

    /// Sends a signal to the processes that the server started.
    pub(crate) fn signal_children(&self, what: Signal) {
        children_of(self.child.id()).into_iter().for_each(|pid| signal(pid, what));
    }

    pub(crate) fn signal(&self, what: Signal) {
        signal(self.child.id(), what);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn signal(pid: u32, what: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // The process may have ended already; then there is nothing to do.
        let _ = kill_process(pid, what);
    }
}

fn children_of(parent: u32) -> Vec<u32> {
    let numbers =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| stat(*pid).is_some_and(|(_, of)| of == parent)).collect()
}

fn is_over(pid: u32) -> bool {
    stat(pid).is_none_or(|(state, _)| state == "Z")
}

// State and parent follow the name, which is in parentheses and may hold any character.
fn stat(pid: u32) -> Option<(String, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = text.rsplit_once(") ")?.1.split(' ');
    Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
}
