//! Programs as processes of their own, so that a story or a test can kill -9 one of them. Each ends with its owner.
//! Never waits for a time to pass: a server is there when it says so. Used by stories and tests.

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

/// Far longer than a start takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running program; killed when dropped.
pub struct Program {
    // Behind a lock, so that who shares a program can end it.
    child: Mutex<Child>,
    url: String,
    lines: Receiver<String>,
}

impl Program {
    /// Starts a server, and returns when it serves.
    pub fn serving(command: &mut Command) -> anyhow::Result<Self> {
        let mut program = Self::start(command)?;
        let line = program.until("serving on http://")?;
        let url = line.split("serving on ").nth(1).unwrap_or_default();
        program.url = url.trim().to_owned();
        Ok(program)
    }

    /// Starts anything.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        let shown = format!("{command:?}");
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().with_context(|| shown)?;
        let stderr = child.stderr.take().context("no standard error")?;
        let (told, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // Read on when nobody listens any more: a full pipe would stop the program.
                let _ = told.send(line);
            }
        });
        Ok(Self { child: Mutex::new(child), url: String::new(), lines })
    }

    /// Waits until it says something on standard error.
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

    /// Where it serves.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// kill -9, and gone when this returns.
    pub fn kill(self) {
        self.end();
    }

    /// Waits for its end; an error where it failed.
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

    /// The same, for one that is still asked where it served.
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

/// The binary beside this program, where `cargo build` puts it, or the one that `FENCEPOST_BINARY` names.
fn binary() -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os("FENCEPOST_BINARY") {
        return Ok(named.into());
    }
    let own = std::env::current_exe()?;
    // A test lies one folder deeper.
    let beside = own.ancestors().skip(1).take(2).map(|folder| folder.join("fencepost")).find(|path| path.is_file());
    beside.context("there is no fencepost beside this program: run `cargo build` first, or name it in FENCEPOST_BINARY")
}

/// The end of a program: its error in a line, without where in the code it arose.
pub fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
