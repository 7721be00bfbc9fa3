//! Runs programs as processes that a story or a test can kill with SIGKILL. Each ends when dropped.
//! Never waits a fixed time: a server is ready when it says so. Called by stories and tests.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, channel},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};

/// The longest wait for a program's next line; far longer than a start takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running program; killed when dropped.
pub struct Program {
    // Behind a lock, so that any owner of a shared program can end it.
    child: Mutex<Child>,
    url: String,
    lines: Receiver<String>,
}

impl Program {
    /// Starts a server, and returns once it serves.
    pub fn serving(command: &mut Command) -> anyhow::Result<Self> {
        let mut program = Self::start(command)?;
        let line = program.until("serving on http://")?;
        let url = line.split("serving on ").nth(1).unwrap_or_default();
        program.url = url.trim().to_owned();
        Ok(program)
    }

    /// Starts a program.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        let shown = format!("{command:?}");
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().with_context(|| shown)?;
        let stderr = child.stderr.take().context("no standard error")?;
        let (told, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // Reads on without a receiver: a full pipe would block the program.
                let _ = told.send(line);
            }
        });
        Ok(Self { child: Mutex::new(child), url: String::new(), lines })
    }

    /// Waits until the program writes a line with these words to standard error, and returns the line.
    pub fn until(&self, words: &str) -> anyhow::Result<String> {
        let mut said = String::new();
        loop {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else { bail!("it never said {words:?}, but:\n{said}") };
            if line.contains(words) {
                return Ok(line);
            }
            said = said + &line + "\n";
        }
    }

    /// The server's address; empty for a program that serves nothing.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Kills the program with SIGKILL; it is gone when this returns.
    pub fn kill(self) {
        self.end();
    }

    /// Waits until the program ends; an error where it failed.
    pub fn finish(self) -> anyhow::Result<()> {
        let mut said = String::new();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            said = said + &line + "\n";
        }
        let status = self.child.lock().unwrap_or_else(PoisonError::into_inner).wait()?;
        if !status.success() {
            bail!("it ended with {status} and said:\n{said}");
        }
        Ok(())
    }

    /// As `kill`, but the program's address stays readable.
    pub fn end(&self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts `fencepost serve --dev` on a free port, with its data and its log (`log.jsonl`) in a folder.
pub fn fencepost(folder: &Path, policy: Option<&str>) -> anyhow::Result<Program> {
    let mut command = Command::new(binary()?);
    command.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--data"]).arg(folder.join("data"));
    if let Some(policy) = policy {
        let file = folder.join("fencepost.yml");
        fs::write(&file, policy)?;
        command.arg("--config").arg(file);
    }
    Program::serving(command.stdout(File::create(folder.join("log.jsonl"))?))
}

/// The binary that `FENCEPOST_BINARY` names, or the one beside this program, where `cargo build` puts it.
fn binary() -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os("FENCEPOST_BINARY") {
        return Ok(named.into());
    }
    let own = std::env::current_exe()?;
    // The binary of a test is one folder deeper.
    let beside = own.ancestors().skip(1).take(2).map(|folder| folder.join("fencepost")).find(|path| path.is_file());
    beside.context("there is no fencepost beside this program: run `cargo build` first, or name it in FENCEPOST_BINARY")
}

/// The exit code of a program. Prints an error in one line, without a backtrace.
pub fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
