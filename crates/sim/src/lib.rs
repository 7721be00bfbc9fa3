//! A seeded world that tries to break Fencepost: the real engine over a faulty twin of the store, under virtual time,
//! with callers that pause, repeat and come back as zombies, and an auditor that shares no code with the kernel.
//! Nothing depends on this crate; its tests and its binary call it.

pub mod auditor;
pub mod coverage;
pub mod history;
pub mod plant;

mod acts;
mod callers;
mod client;
mod clock;
mod disk;
mod faults;
mod hold;
mod items;
mod lanes;
mod nodes;
mod recorder;
mod town;
mod twin;
mod users;
mod world;

use auditor::Violation;
use history::History;
use plant::Plant;

/// One seed, lived and judged.
pub struct Run {
    pub seed: u64,
    pub history: History,
    /// Broken rules.
    pub violations: Vec<Violation>,
}

/// Lives one seed and judges it. Two runs of a seed are the same to the byte.
pub fn run(seed: u64, plant: Option<Plant>) -> Result<Run, std::io::Error> {
    judged(seed, world::live(seed, plant, false)?)
}

/// The same, and keeps its history as text.
pub fn run_with_text(seed: u64, plant: Option<Plant>) -> Result<Run, std::io::Error> {
    judged(seed, world::live(seed, plant, true)?)
}

fn judged(seed: u64, history: History) -> Result<Run, std::io::Error> {
    let violations = auditor::judge(&history);
    Ok(Run { seed, history, violations })
}

impl Run {
    /// The command that shows this seed again.
    pub fn replay(&self, plant: Option<Plant>) -> String {
        let plant = plant.map(|plant| format!(" --plant {}", plant.name())).unwrap_or_default();
        format!("cargo run -p fencepost-sim -- --seed {}{plant}", self.seed)
    }
}
