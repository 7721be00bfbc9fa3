//! The conditions of a run: cores, kernel, filesystem, sync latency, and how busy the cores are.
//! Never changes a setting of the machine.
//! Called by `main`, `contest`, `scale`, `report`, `dispatch` and `ingest`.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use crate::stats::Sample;
use crate::stop;

/// The machine at the start of a run.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Cores that this process may use.
    pub cores: usize,
    /// The model name in /proc/cpuinfo.
    pub cpu: String,
    /// The kernel's release.
    pub kernel: String,
    pub memory_mib: u64,
    /// Type of the filesystem under the servers' folders.
    pub filesystem: String,
    /// Load average of the last minute, before the run started anything.
    pub load: f64,
}

impl Machine {
    /// Reads the machine's properties; `work` is the folder that the servers write to.
    pub fn look(work: &Path) -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split(':').nth(1)).unwrap_or("?").trim().to_owned()
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let memory_kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
        Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_mib: memory_kib / 1024,
            filesystem: filesystem_of(work).unwrap_or_else(|| "?".to_owned()),
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
        }
    }

    /// Reasons to doubt the figures of this machine, as sentences.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if cfg!(debug_assertions) {
            warnings.push("this is a debug build: the figures mean nothing, run with --release".to_owned());
        }
        if self.load > 0.25 * self.cores as f64 {
            warnings.push(format!("load average is {} on {} cores: others are busy here", self.load, self.cores));
        }
        if ["tmpfs", "ramfs", "overlay"].contains(&self.filesystem.as_str()) {
            warnings.push(format!(
                "the data is on {}: a sync may cost nothing there; choose a real disk with --work",
                self.filesystem
            ));
        }
        warnings
    }

    /// The machine for the results file.
    pub fn json(&self) -> Value {
        json!({
            "cores": self.cores, "cpu": self.cpu, "kernel": self.kernel, "memory_mib": self.memory_mib,
            "filesystem": self.filesystem, "load_average_before": self.load,
        })
    }
}

fn filesystem_of(work: &Path) -> Option<String> {
    let work = fs::canonicalize(work).ok()?;
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let mounted = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let (_, kind) = mounted.filter(|(at, _)| work.starts_with(at)).max_by_key(|(at, _)| at.len())?;
    Some(kind.to_owned())
}

/// A file on the servers' disk for timing appends and syncs; deleted on drop.
pub struct Probe {
    file: File,
    path: PathBuf,
}

impl Probe {
    /// Creates the file in this folder.
    pub fn open(dir: &Path) -> Result<Probe> {
        let path = dir.join("sync-latency");
        Ok(Probe { file: File::create(&path)?, path })
    }

    /// Appends 4 KiB, syncs, and records the time that took.
    pub fn sync(&mut self, sample: &mut Sample) -> Result<()> {
        let began = Instant::now();
        self.file.write_all(&[0x5a; 4096])?;
        self.file.sync_data()?;
        sample.record(began.elapsed())
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // The folder may be deleted already.
        let _ = fs::remove_file(&self.path);
    }
}

/// Measures syncs, one after another, for this long.
pub fn sync_latency(dir: &Path, length: Duration) -> Result<Sample> {
    let mut probe = Probe::open(dir)?;
    let end = Instant::now() + length;
    let mut sample = Sample::new(length);
    while Instant::now() < end {
        stop::check()?;
        probe.sync(&mut sample)?;
    }
    Ok(sample)
}

/// Share of the cores that other processes may use; above it, figures are doubtful.
pub const OTHERS_BUSY_MAX: f64 = 0.1;

/// Syncs all filesystems, then waits until the cores are quiet or `patience` is over. Returns the last share in use.
pub fn settle(patience: Duration) -> Result<f64> {
    let patience_ends = Instant::now() + patience;
    Command::new("sync").status()?;
    loop {
        stop::check()?;
        let before = cpu_ticks();
        std::thread::sleep(Duration::from_millis(300));
        let after = cpu_ticks();
        let total = after.1.saturating_sub(before.1).max(1);
        let busy = after.0.saturating_sub(before.0) as f64 / total as f64;
        if busy <= OTHERS_BUSY_MAX || Instant::now() >= patience_ends {
            return Ok(busy);
        }
    }
}

/// Ticks of all cores since boot: busy, and total.
fn cpu_ticks() -> (u64, u64) {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks: Vec<u64> = stat
        .lines()
        .next()
        .map(|line| line.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect())
        .unwrap_or_default();
    let total = ticks.iter().sum();
    // Words 4 and 5 are idle time and time waiting for I/O.
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    (total - idle, total)
}

/// The first line that `program --version` prints.
pub fn version_of(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("?").to_owned()
}

/// Resident memory of a process in bytes: now, and at its peak.
pub fn resident(pid: u32) -> Result<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        let words = line.and_then(|line| line.split_whitespace().nth(1));
        words.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    Ok((field("VmRSS:"), field("VmHWM:")))
}

/// Processor time of all threads of a process in microseconds, in steps of 10,000.
pub fn cpu_us(pid: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name is in parentheses and may hold spaces. User and system time are words 12 and 13 after it.
    let words = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    Ok(words.filter_map(|word| word.parse::<u64>().ok()).sum::<u64>() * 10_000)
}

/// Processor time of a process and of all that descend from it, in microseconds: of those that have ended, too.
pub fn cpu_us_with_descendants(pid: u32) -> Result<u64> {
    // Parent, and ticks: its own and those of children that it has waited for.
    let mut seen: Vec<(u32, u32, u64)> = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(one) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // It may have ended meanwhile.
        let Ok(stat) = fs::read_to_string(format!("/proc/{one}/stat")) else { continue };
        let words: Vec<u64> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .map(|word| word.parse().unwrap_or(0))
            .collect();
        if let (Some(parent), Some(ticks)) = (words.get(1), words.get(11..15)) {
            seen.push((one, *parent as u32, ticks.iter().sum()));
        }
    }
    let (mut family, mut at) = (vec![pid], 0);
    while let Some(parent) = family.get(at).copied() {
        family.extend(seen.iter().filter(|(_, of, _)| *of == parent).map(|(one, ..)| *one));
        at += 1;
    }
    Ok(seen.iter().filter(|(one, ..)| family.contains(one)).map(|(_, _, ticks)| ticks).sum::<u64>() * 10_000)
}

/// Bytes that a folder occupies on disk, in whole blocks.
pub fn disk_bytes(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // A running server may remove a file meanwhile.
        let Ok(metadata) = entry.metadata() else { continue };
        sum += metadata.blocks() * 512;
        if metadata.is_dir() {
            sum += disk_bytes(&entry.path()).unwrap_or(0);
        }
    }
    Ok(sum)
}
