//! Starts the real binary and ends it with the test. Waits for its own words, never for a time to pass.

use std::{
    ffi::OsStr,
    fs::File,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio},
    sync::{
        Mutex,
        mpsc::{Receiver, channel},
    },
    thread,
    time::Instant,
};

pub use fencepost_testkit::{PATIENCE, until};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use super::client::Client;

pub const BINARY: &str = env!("CARGO_BIN_EXE_fencepost");

/// A command that knows nothing of the tester's own environment.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).stdin(Stdio::null());
    command
}

/// One run of the binary to its end.
pub fn fencepost<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    command(BINARY).args(args).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// How a server is to be started.
pub struct Serve {
    command: Command,
    log: Option<PathBuf>,
}

impl Serve {
    /// `serve --dev` on a free port.
    pub fn dev(data: &Path) -> Self {
        Self::plain(data).arg("--dev")
    }

    /// `serve` on a free port.
    pub fn plain(data: &Path) -> Self {
        Self::under(command(BINARY), data)
    }

    /// The binary as the last argument of another program.
    pub fn under(command: Command, data: &Path) -> Self {
        Self::on("127.0.0.1:0", command, data)
    }

    /// On any address.
    pub fn on(address: &str, mut command: Command, data: &Path) -> Self {
        command.args(["serve", "--listen", address, "--data"]).arg(data);
        Self { command, log: None }
    }

    /// On whatever address the configuration says.
    pub fn bare(mut command: Command, data: &Path) -> Self {
        command.args(["serve", "--data"]).arg(data);
        Self { command, log: None }
    }

    /// `serve --dev` on a free port, as one of those that share a store.
    pub fn sharing(store: &str) -> Self {
        Self::dev_anywhere().arg("--store").arg(store)
    }

    /// `serve --dev` on a free port, with the store that the environment names.
    pub fn dev_anywhere() -> Self {
        let mut command = command(BINARY);
        command.args(["serve", "--dev", "--listen", "127.0.0.1:0"]);
        Self { command, log: None }
    }

    /// Anything that says that it serves.
    pub fn ready(command: Command) -> Self {
        Self { command, log: None }
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Keeps the JSON lines of standard output in a file.
    pub fn log(mut self, path: PathBuf) -> Self {
        self.log = Some(path);
        self
    }

    fn spawn(&mut self) -> Child {
        let out = self.log.as_ref().map_or_else(Stdio::null, |path| File::create(path).unwrap().into());
        self.command.stdout(out).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub fn start(mut self) -> Server {
        let begun = Instant::now();
        let mut child = self.spawn();
        let words = follow(child.stderr.take().unwrap());
        let mut said = String::new();
        loop {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            let Ok(line) = words.recv_timeout(left) else {
                let _ = child.kill();
                panic!("the server did not start ({:?}); it said:\n{said}", child.wait());
            };
            let url = line.strip_prefix("fencepost: serving on ");
            if let Some((_, address)) = url.and_then(|url| url.split_once("://")) {
                let address = address.trim().parse().unwrap();
                return Server { child, address, words: words.into(), said, ended: false, tracee: None };
            }
            said += &line;
        }
    }

    /// Its message and exit status, where it must refuse to serve.
    pub fn refused(mut self) -> (ExitStatus, String) {
        let mut child = self.spawn();
        let mut said = String::new();
        for line in follow(child.stderr.take().unwrap()) {
            if line.contains("serving on") {
                let _ = child.kill();
                panic!("it serves, and should have refused to; it said:\n{said}{line}");
            }
            said += &line;
        }
        (child.wait().unwrap(), said)
    }
}

// Lines as they come; the channel closes with the stream.
fn follow(stderr: ChildStderr) -> Receiver<String> {
    let (lines, words) = channel();
    thread::spawn(move || {
        let mut stderr = BufReader::new(stderr);
        let mut line = String::new();
        while stderr.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            let _ = lines.send(std::mem::take(&mut line));
        }
        let _ = stderr.read_to_end(&mut Vec::new());
    });
    words
}

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    // Behind a lock only so that many threads may borrow the server.
    words: Mutex<Receiver<String>>,
    said: String,
    ended: bool,
    /// The server itself, where the child is a tracer: killing that one alone would let this one go on.
    pub tracee: Option<Pid>,
}

impl Server {
    pub fn client(&self, token: &str) -> Client {
        Client::new(self.address, token)
    }

    /// As the partner `acme`.
    pub fn acme(&self) -> Client {
        self.client("dev-partner")
    }

    /// As the partner `globex`.
    pub fn globex(&self) -> Client {
        self.client("dev-partner-2")
    }

    pub fn admin(&self) -> Client {
        self.client("dev-admin")
    }

    /// Returns when so many claims wait for somebody else's seal.
    pub fn until_waiting(&self, count: usize) {
        self.until_metric(&format!("fencepost_waiters {count}\n"));
    }

    /// Returns when so many polls wait for something new.
    pub fn until_polling(&self, count: usize) {
        self.until_metric(&format!("fencepost_pollers {count}\n"));
    }

    fn until_metric(&self, line: &str) {
        let mut anybody = self.client("");
        until(line, || anybody.get("/metrics").text().contains(line).then_some(()));
    }

    /// The address of the operators' listener, which it tells after its own.
    pub fn admin_address(&mut self) -> SocketAddr {
        let words = self.words.get_mut().unwrap();
        loop {
            let line = words.recv_timeout(PATIENCE).unwrap();
            if let Some((_, address)) = line.split_once("admin on http://") {
                return address.trim().parse().unwrap();
            }
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// SIGSTOP, and nothing of it runs when this returns: the signal itself only asks the threads to stop.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid().as_raw_nonzero());
        until("every thread stands still", || {
            let mut states = std::fs::read_dir(&tasks).unwrap().map(|task| task.unwrap().path().join("stat"));
            // The state follows the name, which is in brackets. A thread that ended meanwhile has no file.
            states.all(|stat| std::fs::read_to_string(stat).map_or(true, |stat| stat.contains(") T "))).then_some(())
        });
    }

    /// kill -9, and gone when this returns.
    pub fn kill(mut self) {
        self.end();
    }

    /// Waits for the end that a signal began. Everything it said on standard error comes with it.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let begun = Instant::now();
        // Standard error closes with the process: this waits without asking again and again.
        while let Ok(line) = self.words.get_mut().unwrap().recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) {
            self.said += &line;
        }
        assert!(begun.elapsed() < PATIENCE, "the server does not end");
        self.ended = true;
        (self.child.wait().unwrap(), std::mem::take(&mut self.said))
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            // A tracer ends by itself once the server is gone. Were it killed as well, the server could outlive the wait.
            let _ = rustix::process::kill_process(self.tracee.unwrap_or(self.pid()), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A development server on a directory of its own.
pub struct Dev {
    pub server: Server,
    pub dir: TempDir,
}

impl std::ops::Deref for Dev {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

pub fn dev() -> Dev {
    let dir = tempfile::tempdir().unwrap();
    Dev { server: Serve::dev(&dir.path().join("data")).start(), dir }
}

/// A development server with a policy of its own.
pub fn dev_with(policy: &str) -> Dev {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("fencepost.yml");
    std::fs::write(&config, policy).unwrap();
    let server = Serve::dev(&dir.path().join("data")).arg("--config").arg(&config).start();
    Dev { server, dir }
}
