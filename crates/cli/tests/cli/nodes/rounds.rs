//! Rounds of load and faults: start, break one or two things, let them mend, ask for everything, judge.
//! The faults are chosen by a seed that is printed; the threads' own order is not.

use std::time::Duration;

use rustix::process::Signal;

use super::{
    callers::{Acks, Load},
    history::History,
    town::{Town, assert_kept},
};

/// Far longer than a recovery takes.
const RECOVERY: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// kill -9 of PostgreSQL, then a start on the same data.
    KillDatabase,
    /// kill -9 of the processes behind every connection: PostgreSQL recovers by itself.
    CrashBackends,
    /// Every process of PostgreSQL stopped for a while: nothing is refused, nothing is answered.
    FreezeDatabase,
    /// Every connection of every node cut at once.
    CutAll,
    /// One node's connections cut again and again, each time after some bytes: in the middle of a commit.
    CutInCommit,
    /// One node cannot reach the database for a while.
    RefuseOne,
    /// kill -9 of a node, then another one.
    KillNode,
    /// A node stopped past the short leases, then let go on.
    PauseNode,
    /// SIGTERM of a node, then another one.
    RetireNode,
}

pub const FAULTS: [Fault; 9] = [
    Fault::KillDatabase,
    Fault::CutInCommit,
    Fault::KillNode,
    Fault::PauseNode,
    Fault::FreezeDatabase,
    Fault::CutAll,
    Fault::RefuseOne,
    Fault::RetireNode,
    Fault::CrashBackends,
];

impl Fault {
    /// Breaks and mends.
    pub fn strike(self, town: &mut Town, acks: &Acks, random: &mut fastrand::Rng) {
        let seat = random.usize(..town.seats.len());
        let mut a_while = |from, to| acks.pass(Duration::from_millis(random.u64(from..to)));
        match self {
            Self::KillDatabase => {
                town.postgres.kill();
                a_while(1, 400);
                town.postgres.restart();
            }
            Self::CrashBackends => {
                town.postgres.crash_backends();
                town.until_ready();
            }
            Self::FreezeDatabase => {
                town.postgres.freeze(true);
                a_while(200, 2_500);
                town.postgres.freeze(false);
            }
            Self::CutAll => town.seats.iter().for_each(|seat| seat.line.cut()),
            Self::CutInCommit => {
                for _ in 0..6 {
                    town.seats[seat].line.cut_after(random.u64(1..6_000));
                    acks.pass(Duration::from_millis(random.u64(30..120)));
                }
            }
            Self::RefuseOne => {
                let line = &town.seats[seat].line;
                line.refuse(true);
                line.cut();
                a_while(200, 1_500);
                line.refuse(false);
            }
            Self::KillNode => town.replace(seat),
            Self::PauseNode => {
                town.node(seat).pause();
                a_while(300, 1_500);
                town.node(seat).signal(Signal::CONT);
            }
            Self::RetireNode => town.retire(seat),
        }
    }
}

/// Rounds on the same servers; nodes are replaced only where a fault says so.
pub struct Rounds {
    pub town: Town,
    pub history: History,
    next_key: u64,
}

impl Rounds {
    pub fn new(town: Town) -> Self {
        Self { town, history: History::default(), next_key: 0 }
    }

    /// One round. The first fault follows from the seed alone: neighbouring seeds try every kind.
    pub fn round(&mut self, seed: u64) -> Vec<Fault> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut faults = vec![FAULTS[(seed % FAULTS.len() as u64) as usize]];
        if random.u8(..3) == 0 {
            faults.push(FAULTS[random.usize(..FAULTS.len())]);
        }
        let said = format!("{faults:?}; replay with\n  {}", replay(seed));
        let from = self.next_key;
        let addresses = self.town.addresses.clone();
        let load = Load { history: &self.history, addresses: &addresses, seed: random.u64(..), first_key: from };
        let town = &mut self.town;
        self.next_key = load.run(|acks| {
            let alive = |count, when: &str| assert!(acks.hear(count, RECOVERY), "no seal {when} {said}");
            alive(random.usize(1..40), "before");
            for fault in &faults {
                fault.strike(town, acks, &mut random);
                acks.pass(Duration::from_millis(random.u64(1..100)));
            }
            alive(20, "after");
        });
        self.town.until_ready();
        self.town.audit(&self.history, from..self.next_key);
        assert_kept(&self.history, self.town.seats.len(), from, &said);
        faults
    }

    /// Every key of every round, once more.
    pub fn finish(&self, seed: u64) {
        self.town.audit(&self.history, 0..self.next_key);
        assert_kept(&self.history, self.town.seats.len(), 0, &format!("at the end; replay with\n  {}", replay(seed)));
    }
}

/// The command that runs one round again.
fn replay(seed: u64) -> String {
    format!("FENCEPOST_SEED={seed} FENCEPOST_ROUNDS=1 cargo nextest run -p fencepost-cli nodes::faults --no-capture")
}
