//! Sends each command to the server that holds its slot, in order, in one pipeline per server.
//! Never repeats a command that may have been carried out, unless it only reads. Called by the store for everything.
//!
//! The driver's own cluster client is not used: it repeats a whole pipeline when one answer in it is a redirection, and
//! hides whether a failed command was ever sent. Here both decide between "not applied" and "outcome unknown".

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use ::redis::{Cmd, Pipeline, Value, cmd};
use futures::future::join_all;
use tokio::sync::Mutex;

use super::{
    address::Settings,
    cluster::{Map, Node},
    link::Fault,
    script,
};

/// The tries of a redirected or refused command, by the pause before each.
const PAUSES_MS: [u64; 4] = [0, 50, 150, 400];
/// How long a fresh slot map is good enough for every caller that asks for one.
const MAP_FRESH: Duration = Duration::from_millis(50);
/// No further try after this long, so that a caller soon learns that the servers are down.
const TRY_MAX: Duration = Duration::from_millis(1_000);
const WAIT_MAX_MS: u64 = 1_000;

/// Whether a command only reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    Read,
    /// Sent on a connection of its own: a commit that waits for replicas holds up no reader.
    Write,
}

/// A command, and the slot of its keys.
pub(super) struct Ask {
    pub(super) slot: u16,
    pub(super) command: Cmd,
}

/// The outcome of a command.
pub(super) type Answer = Result<Value, Fault>;

/// Sends commands to every server of the store.
pub(super) struct Router {
    settings: Settings,
    /// The servers that the address names.
    seeds: Vec<Arc<Node>>,
    map: RwLock<Arc<Map>>,
    refreshed: Mutex<Option<Instant>>,
}

// One command on its way: where it goes if not to the owner of its slot, and whether scripts must be loaded first.
#[derive(Clone)]
struct Destination {
    at: usize,
    asking: Option<Arc<Node>>,
    scripts: bool,
}

impl Router {
    pub(super) async fn connect(settings: Settings) -> Result<Self, String> {
        let seeds = settings.seeds.iter().cloned().map(Node::new).collect::<Result<Vec<_>, _>>()?;
        let map = if settings.cluster { Map::discover(&seeds, None).await? } else { Map::single(&seeds[0]) };
        Ok(Self { settings, seeds, map: RwLock::new(Arc::new(map)), refreshed: Mutex::default() })
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn map(&self) -> Arc<Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One answer for each command, in their order.
    pub(super) async fn send(&self, does: Does, asks: &[Ask]) -> Vec<Answer> {
        let mut answers: Vec<Answer> = asks.iter().map(|_| Err(Fault::NotSent("not tried".to_owned()))).collect();
        let started = Instant::now();
        let mut open: Vec<Destination> =
            (0..asks.len()).map(|at| Destination { at, asking: None, scripts: false }).collect();
        for (round, pause_ms) in PAUSES_MS.into_iter().enumerate() {
            if pause_ms > 0 && self.settings.cluster {
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            }
            let map = self.map();
            let (mut again, mut lost) = (Vec::new(), false);
            for (destination, answer) in self.round(does, asks, &map, &open).await {
                lost |= matches!(answer, Err(Fault::Lost(_)));
                again.extend(self.next(does, &map, destination, &answer));
                answers[destination.at] = answer;
            }
            // Also after the last try: a master that died in silence uses up the time of every try, and only a fresh
            // map leads to the replica that took over.
            if self.settings.cluster
                && (lost || again.iter().any(|destination| !destination.scripts && destination.asking.is_none()))
            {
                self.refresh(&map).await;
            }
            if again.is_empty() || round + 1 == PAUSES_MS.len() || started.elapsed() > TRY_MAX {
                break;
            }
            open = again;
        }
        answers
    }

    // Sends the commands that are open, to all servers at the same time, in order on each.
    async fn round<'w>(
        &self,
        does: Does,
        asks: &[Ask],
        map: &Map,
        open: &'w [Destination],
    ) -> Vec<(&'w Destination, Answer)> {
        let mut answers = Vec::with_capacity(open.len());
        let mut groups: BTreeMap<&str, (Arc<Node>, Vec<&Destination>)> = BTreeMap::new();
        for destination in open {
            match destination.asking.as_ref().or_else(|| map.owner(asks[destination.at].slot)) {
                Some(node) => {
                    groups.entry(node.name()).or_insert_with(|| (node.clone(), Vec::new())).1.push(destination)
                }
                None => answers.push((destination, Err(Fault::NotSent("no server holds this slot".to_owned())))),
            }
        }
        let sent = groups.into_values().map(|(node, ways)| async move {
            let outcome = self.exchange(does, asks, &node, &ways).await;
            if deposed(does, &outcome) {
                node.leave().await;
            }
            (ways, outcome)
        });
        for (ways, outcome) in join_all(sent).await {
            match outcome {
                Ok(values) => answers.extend(ways.into_iter().zip(values)),
                Err(fault) => answers.extend(ways.into_iter().map(|destination| (destination, Err(fault.clone())))),
            }
        }
        answers
    }

    async fn exchange(
        &self,
        does: Does,
        asks: &[Ask],
        node: &Node,
        ways: &[&Destination],
    ) -> Result<Vec<Answer>, Fault> {
        let mut pipeline = Pipeline::with_capacity(ways.len() + 1);
        if ways.iter().any(|destination| destination.scripts) {
            for load in script::all() {
                pipeline.add_command(load);
            }
        }
        let mut places = Vec::with_capacity(ways.len());
        for destination in ways {
            if destination.asking.is_some() {
                pipeline.add_command(cmd("ASKING"));
            }
            places.push(pipeline.len());
            pipeline.add_command(asks[destination.at].command.clone());
        }
        let replicas = if does == Does::Write { self.settings.replicas } else { 0 };
        if replicas > 0 {
            let mut wait = cmd("WAIT");
            wait.arg(replicas).arg(WAIT_MAX_MS);
            pipeline.add_command(wait);
        }
        let link = if does == Does::Write { &node.writes } else { &node.reads };
        let mut values = link.send(&pipeline).await.map_err(|fault| named(node, fault))?;
        let short = (replicas > 0).then(|| values.pop()).flatten().filter(|have| !reached(have, replicas));
        let answer = |at: &usize| match (std::mem::take(&mut values[*at]), &short) {
            (Value::ServerError(error), _) => Err(Fault::Refused(error)),
            // The write is on this server, but not yet on enough replicas.
            (_, Some(have)) => {
                Err(Fault::Lost(format!("{}: {replicas} replicas asked for, and WAIT said {have:?}", node.name())))
            }
            (value, None) => Ok(value),
        };
        Ok(places.iter().map(answer).collect())
    }

    // The next try of a command after an answer; none where that answer is final.
    fn next(&self, does: Does, map: &Map, destination: &Destination, answer: &Answer) -> Option<Destination> {
        let afresh = Destination { at: destination.at, asking: None, scripts: false };
        let fault = answer.as_ref().err()?;
        match fault {
            Fault::Lost(_) => (does == Does::Read).then_some(afresh),
            Fault::NotSent(_) => self.settings.cluster.then_some(afresh),
            Fault::Refused(error) => match error.code() {
                "NOSCRIPT" => Some(Destination { scripts: true, ..destination.clone() }),
                "ASK" => {
                    Some(Destination { asking: Some(map.asked(&self.settings.seeds[0], error.details()?)?), ..afresh })
                }
                "MOVED" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "LOADING" | "READONLY"
                    if self.settings.cluster =>
                {
                    Some(afresh)
                }
                _ => None,
            },
        }
    }

    // Reads the slot map again, unless another caller has just done so.
    async fn refresh(&self, seen: &Arc<Map>) {
        let mut refreshed = self.refreshed.lock().await;
        if !Arc::ptr_eq(seen, &self.map()) || refreshed.is_some_and(|at| at.elapsed() < MAP_FRESH) {
            return;
        }
        if let Ok(map) = Map::discover(&self.seeds, Some(seen)).await {
            *self.map.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(map);
        }
        *refreshed = Some(Instant::now());
    }
}

// Whether another server may be behind this one's name by now. A master that became a replica keeps its connections;
// and reads must not stay with a server that writes have left.
fn deposed(does: Does, outcome: &Result<Vec<Answer>, Fault>) -> bool {
    match outcome {
        Err(fault) => does == Does::Write && matches!(fault, Fault::Lost(_)),
        Ok(answers) => answers.iter().filter_map(|answer| answer.as_ref().err()).any(|fault| fault.says("READONLY")),
    }
}

fn reached(have: &Value, replicas: u32) -> bool {
    matches!(have, Value::Int(have) if *have >= i64::from(replicas))
}

fn named(node: &Node, fault: Fault) -> Fault {
    match fault {
        Fault::NotSent(why) => Fault::NotSent(format!("{}: {why}", node.name())),
        Fault::Lost(why) => Fault::Lost(format!("{}: {why}", node.name())),
        refused => refused,
    }
}
