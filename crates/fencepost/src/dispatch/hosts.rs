//! Chooses which host is sent to next: bounded in all, bounded per host, and retries starve no first attempts.
//! Never waits, and knows lanes by their ids only: a host without room is not looked at. Called by `table`.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use fencepost_kernel::{LaneId, lane::Lane};

/// How many first attempts at a host come before each retry there, while both wait.
const FRESH_TURNS: u8 = 7;
/// The mean pace of retries to a host that is down, over all of its places; and the longest time for which one place is
/// closed to retries.
const AGAIN_EVERY: Duration = Duration::from_millis(2);
const KEPT_MAX: Duration = Duration::from_secs(1);

/// Whether an attempt at a lane's head (its first unsettled event) is the first one or a retry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Try {
    First,
    Again,
}

impl Try {
    /// The kind of a lane's next attempt.
    pub(super) fn of(lane: &Lane) -> Self {
        if lane.trouble.is_some() { Self::Again } else { Self::First }
    }
}

#[derive(Default)]
struct Host {
    /// Lanes whose head was not tried yet, and those whose head has failed.
    fresh: VecDeque<LaneId>,
    troubled: VecDeque<LaneId>,
    /// First attempts since the last retry.
    fresh_turns: u8,
    in_flight: usize,
    /// Of the attempts in flight, those that are retries.
    in_flight_retries: usize,
    /// Places that are closed to retries, since a retry failed there.
    kept: usize,
    in_ring: bool,
    in_again: bool,
}

impl Host {
    fn fresh_may(&self, per_host_max: usize) -> bool {
        !self.fresh.is_empty() && self.in_flight < per_host_max
    }

    // An eighth of the places is left to first attempts, even where retries hang.
    fn troubled_may(&self, per_host_max: usize) -> bool {
        let retries_max = per_host_max - per_host_max / 8;
        !self.troubled.is_empty() && self.in_flight < per_host_max && self.in_flight_retries + self.kept < retries_max
    }

    /// The lane that goes next, and which attempt it makes.
    fn take(&mut self, per_host_max: usize, troubled_too: bool) -> Option<(LaneId, Try)> {
        let fresh = self.fresh_may(per_host_max);
        let troubled = troubled_too && self.troubled_may(per_host_max);
        if troubled && (self.fresh_turns >= FRESH_TURNS || !fresh) {
            self.fresh_turns = 0;
            return self.troubled.pop_front().map(|id| (id, Try::Again));
        }
        if !fresh {
            return None;
        }
        self.fresh_turns = self.fresh_turns.saturating_add(1);
        self.fresh.pop_front().map(|id| (id, Try::First))
    }

    fn is_idle(&self) -> bool {
        let waits = self.in_ring || self.in_again || !self.fresh.is_empty() || !self.troubled.is_empty();
        !waits && self.in_flight + self.kept == 0
    }
}

/// Hosts in turn, each once, with the number of its turn.
type Ring = VecDeque<(u64, Arc<str>)>;

/// The hosts that have events to be sent.
pub(super) struct Hosts {
    hosts: HashMap<Arc<str>, Host>,
    /// Hosts with a first attempt to make and room for it.
    ring: Ring,
    /// Hosts with retries only. They keep their turn while as many retries are in flight as there may be.
    again: Ring,
    turns: u64,
    flying: usize,
    flying_troubled: usize,
    in_flight_max: usize,
    per_host_max: usize,
}

impl Hosts {
    pub(super) fn new(in_flight_max: usize, per_host_max: usize) -> Self {
        Self {
            hosts: HashMap::new(),
            ring: Ring::new(),
            again: Ring::new(),
            turns: 0,
            flying: 0,
            flying_troubled: 0,
            in_flight_max,
            per_host_max,
        }
    }

    /// The number of attempts in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.flying
    }

    /// Puts a lane in a host's queue. The host takes part only once [`Self::turn`] is called for it.
    pub(super) fn queue(&mut self, name: &Arc<str>, id: LaneId, attempt: Try) {
        let host = self.hosts.entry(name.clone()).or_default();
        match attempt {
            Try::First => host.fresh.push_back(id),
            Try::Again => host.troubled.push_back(id),
        }
    }

    /// Gives a host with work and room its turn among the others, and forgets an idle one.
    pub(super) fn turn(&mut self, name: &Arc<str>) {
        let Some(host) = self.hosts.get_mut(name) else { return };
        if host.fresh_may(self.per_host_max) {
            if !std::mem::replace(&mut host.in_ring, true) {
                self.turns += 1;
                self.ring.push_back((self.turns, name.clone()));
            }
        } else if host.troubled_may(self.per_host_max) {
            if !std::mem::replace(&mut host.in_again, true) {
                self.turns += 1;
                self.again.push_back((self.turns, name.clone()));
            }
        } else if host.is_idle() {
            self.hosts.remove(name);
        }
    }

    /// The next lane to send for; none where there is no room or no work.
    pub(super) fn next(&mut self) -> Option<(Arc<str>, LaneId, Try)> {
        while self.flying < self.in_flight_max {
            // Retries may not take all the room: other lanes would wait for receivers that are down.
            let troubled_too = self.flying_troubled < self.in_flight_max.div_ceil(2);
            let fresh = self.ring.front().map(|(turn, _)| *turn);
            let again = self.again.front().map(|(turn, _)| *turn).filter(|_| troubled_too);
            let from_again = again.is_some_and(|again| fresh.is_none_or(|fresh| again < fresh));
            let (_, name) = if from_again { self.again.pop_front() } else { self.ring.pop_front() }?;
            let Some(host) = self.hosts.get_mut(&name) else { continue };
            *(if from_again { &mut host.in_again } else { &mut host.in_ring }) = false;
            match host.take(self.per_host_max, troubled_too) {
                Some((id, attempt)) => return Some((name, id, attempt)),
                // Its queues are empty, its room is taken, or it has only retries, which must wait.
                None => self.turn(&name),
            }
        }
        None
    }

    /// Counts an attempt that begins.
    pub(super) fn launched(&mut self, name: &Arc<str>, attempt: Try) {
        let troubled = usize::from(attempt == Try::Again);
        self.flying += 1;
        self.flying_troubled += troubled;
        if let Some(host) = self.hosts.get_mut(name) {
            host.in_flight += 1;
            host.in_flight_retries += troubled;
        }
    }

    /// Counts an attempt that has ended: its host has room for another.
    pub(super) fn answered(&mut self, name: &Arc<str>, attempt: Try) {
        let troubled = usize::from(attempt == Try::Again);
        self.flying -= 1;
        self.flying_troubled -= troubled;
        if let Some(host) = self.hosts.get_mut(name) {
            host.in_flight -= 1;
            host.in_flight_retries -= troubled;
        }
        self.turn(name);
    }

    /// Counts an attempt that has failed. For a retry, returns how long its place stays closed to other retries.
    ///
    /// So retries to a host that is down come at a steady pace: thousands that are due together would take the
    /// processor and the disk from healthy hosts. First attempts may use the place at once.
    pub(super) fn failed(&mut self, name: &Arc<str>, attempt: Try) -> Option<Duration> {
        let kept = (attempt == Try::Again).then(|| {
            let places = u32::try_from(self.per_host_max).unwrap_or(u32::MAX);
            KEPT_MAX.min(AGAIN_EVERY.saturating_mul(2).saturating_mul(places)).mul_f64(fastrand::f64())
        });
        if let (Some(_), Some(host)) = (kept, self.hosts.get_mut(name)) {
            host.kept += 1;
        }
        self.answered(name, attempt);
        kept
    }

    /// Opens the place to retries again.
    pub(super) fn free(&mut self, name: &Arc<str>) {
        if let Some(host) = self.hosts.get_mut(name) {
            host.kept -= 1;
        }
        self.turn(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(hosts: &mut Hosts, name: &Arc<str>, attempt: Try) {
        hosts.queue(name, LaneId([0; 24]), attempt);
        hosts.turn(name);
    }

    fn launched(hosts: &mut Hosts) -> Option<Arc<str>> {
        let (name, _, attempt) = hosts.next()?;
        hosts.launched(&name, attempt);
        hosts.turn(&name);
        Some(name)
    }

    #[test]
    fn hosts_whose_retries_must_wait_keep_their_turn_and_are_not_gone_through() {
        let mut hosts = Hosts::new(2, 10);
        let names = ["a", "b", "c", "d", "e"].map(Arc::<str>::from);
        names.iter().for_each(|name| queued(&mut hosts, name, Try::Again));
        assert_eq!(launched(&mut hosts).as_ref(), Some(&names[0]), "half of all places are for retries");
        for pair in names.windows(2) {
            assert_eq!((launched(&mut hosts), launched(&mut hosts)), (None, None));
            // The other half is for first attempts, however many retries wait.
            let fresh = "fresh".into();
            queued(&mut hosts, &fresh, Try::First);
            assert_eq!(launched(&mut hosts).as_ref(), Some(&fresh));
            assert_eq!(launched(&mut hosts), None);
            hosts.answered(&fresh, Try::First);
            hosts.answered(&pair[0], Try::Again);
            assert_eq!(launched(&mut hosts).as_ref(), Some(&pair[1]));
        }
        hosts.answered(&names[4], Try::Again);
        assert!(hosts.hosts.is_empty() && hosts.ring.is_empty() && hosts.again.is_empty(), "who is idle is forgotten");
    }
}
