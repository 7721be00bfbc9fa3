//! The whole document pipeline as processes: Fencepost, a shelf, and steps that are run, raced and killed.
//! Never decides anything: it starts, queries and counts. Called by the story and by tests.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    http::Http,
    programs::{self, Program},
};

/// A Fencepost server and a shelf; dropping it ends the server.
pub struct Stage {
    program: PathBuf,
    without_fence: bool,
    fencepost: Program,
    folder: TempDir,
}

impl Stage {
    /// Starts a server. `program` is the binary `documents`, which runs the steps.
    pub fn start(program: PathBuf, without_fence: bool) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let fencepost = programs::fencepost(folder.path(), None)?;
        Ok(Self { program, without_fence, fencepost, folder })
    }

    /// Writes a document and returns its path.
    pub fn document(&self, name: &str, text: &str) -> anyhow::Result<String> {
        let path = self.folder.path().join(name);
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    /// Runs one step to its end; returns its output, or why it failed.
    pub fn run(&self, step: &str, more: &[&str]) -> anyhow::Result<Result<Value, String>> {
        finished(self.begin(step, more)?)
    }

    /// Runs the same step in several processes at once.
    pub fn race(&self, processes: usize, step: &str) -> anyhow::Result<Vec<Result<Value, String>>> {
        let racing: Result<Vec<_>, _> = (0..processes).map(|_| self.begin(step, &[])).collect();
        racing?.into_iter().map(finished).collect()
    }

    /// Starts a step and kills it where it pauses: at `claimed` or `acted`.
    pub fn kill(&self, step: &str, more: &[&str], stop: &str) -> anyhow::Result<()> {
        let program = Program::start(self.command(step, more).args(["--stop", stop]).stdout(Stdio::null()))?;
        program.until("standing still")?;
        program.kill();
        Ok(())
    }

    /// The number of snippets on the shelf.
    pub fn snippets(&self) -> usize {
        self.lines("shelf/snippets.jsonl").len()
    }

    /// How often a build was requested, and how often an index was built.
    pub fn builds(&self) -> (usize, usize) {
        let lines = self.lines("shelf/builds.log");
        let count = |word: &str| lines.iter().filter(|line| line.starts_with(word)).count();
        (count("asked"), count("built"))
    }

    /// The lines that the server has logged so far.
    pub fn log(&self) -> Vec<Value> {
        self.lines("log.jsonl").iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The server's metrics.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        let answer = Http::new().get(&format!("{}/metrics", self.fencepost.url())).await?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn command(&self, step: &str, more: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args([step, "--fencepost", self.fencepost.url(), "--shelf"]).arg(self.folder.path().join("shelf"));
        if self.without_fence {
            command.arg("--without-fence");
        }
        command.args(more).stdin(Stdio::null());
        command
    }

    fn begin(&self, step: &str, more: &[&str]) -> anyhow::Result<std::process::Child> {
        Ok(self.command(step, more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    }
}

fn finished(child: std::process::Child) -> anyhow::Result<Result<Value, String>> {
    let output = child.wait_with_output()?;
    Ok(match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout)?),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    })
}
