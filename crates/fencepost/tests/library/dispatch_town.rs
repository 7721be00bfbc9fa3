//! One random plan: its lanes, its weather, the acts of people and processes, and the auditor's verdict.
//! The same seed is the same plan and the same run.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use fencepost::{
    dispatch::DriverSettings,
    kernel::{
        Millis, Reply, dispatch,
        lane::{self, Act, AfterDead, DeadLetter, Fate},
    },
    store::{Store, memory::Memory},
};

use super::{
    dispatch_auditor::{Cancelled, LaneStory, Lives, Span, audit},
    dispatch_liar::Liar,
    dispatch_outcome::{Bell, Bug, Outcome},
    dispatch_plan::{Step, WAREHOUSES, plan},
    dispatch_receiver::{Forecast, Ledger, Receivers, Said, Sighting},
    dispatch_world::{HOUR_MS, Node, SECOND_MS, Virtual, in_virtual_time, lane_of, pass},
};

/// How many virtual hours a plan may take to come to its end.
const HOURS_MAX: u64 = 24 * 60;

struct Town {
    rng: fastrand::Rng,
    bug: Bug,
    clock: Arc<Virtual>,
    store: Arc<dyn Store>,
    weather: Arc<HashMap<String, Forecast>>,
    ledger: Arc<Ledger>,
    bell: Arc<Bell>,
    settings: DriverSettings,
    policies: Vec<AfterDead>,
    node: Option<(Node, Arc<AtomicBool>)>,
    second: Option<Node>,
    downs: Vec<Span>,
    published: BTreeMap<usize, Vec<(String, u64)>>,
    /// Pauses and ends of pauses by people.
    pauses: Vec<(usize, Millis, bool)>,
    redriven: BTreeSet<(usize, u64)>,
    /// Heads that were sent again where they were.
    again: Vec<(usize, u64, Millis)>,
    cancelled: Vec<(usize, Cancelled)>,
}

pub fn run(seed: u64, bug: Bug) -> Outcome {
    fastrand::seed(seed);
    in_virtual_time(async move {
        let mut rng = fastrand::Rng::with_seed(seed);
        let clock = Virtual::new(if bug == Bug::FastClock { 2 } else { 1 });
        let (weather, steps) = plan(&mut rng, clock.now());
        let mut told = format!("{} lanes, {} steps", weather.len(), steps.len());
        for warehouse in WAREHOUSES.iter().filter_map(|name| weather.get(*name).map(|spans| (name, spans))) {
            told.push_str(&format!("\n{warehouse:?}"));
        }
        let store: Arc<dyn Store> = match bug {
            Bug::None => Arc::new(Memory::new()),
            bug => Arc::new(Liar { inner: Memory::new(), bug }),
        };
        let bell = Arc::new(Bell { clock: clock.clone(), deaths: Mutex::default() });
        let settings = DriverSettings {
            in_flight_max: rng.usize(1..8),
            per_host_max: rng.usize(1..5),
            ..DriverSettings::default()
        };
        let block = |_| if rng.u8(0..5) == 0 { AfterDead::Block } else { AfterDead::Continue };
        let policies = (0..weather.len()).map(block).collect();
        let mut town = Town {
            rng,
            bug,
            clock,
            store,
            weather: Arc::new(weather),
            ledger: Arc::default(),
            bell,
            settings,
            policies,
            node: None,
            second: None,
            downs: Vec::new(),
            published: BTreeMap::new(),
            pauses: Vec::new(),
            redriven: BTreeSet::new(),
            again: Vec::new(),
            cancelled: Vec::new(),
        };
        town.live(steps).await;
        town.judge(seed, told).await
    })
}

impl Town {
    async fn live(&mut self, steps: Vec<(u64, Step)>) {
        self.start().await;
        for (warehouse, after_dead) in self.policies.iter().enumerate() {
            let host = format!("host{}", warehouse % 2);
            self.node().route(WAREHOUSES[warehouse], &host, *after_dead).await;
        }
        let start = self.clock.now();
        for (at_ms, step) in steps {
            pass(start.plus(at_ms).since(self.clock.now())).await;
            self.step(step).await;
        }
        for _ in 0..HOURS_MAX {
            if self.drained().await {
                break;
            }
            for warehouse in 0..self.weather.len() {
                self.resume(warehouse).await;
            }
            self.visit().await;
            pass(HOUR_MS).await;
        }
    }

    fn node(&self) -> &Node {
        &self.node.as_ref().expect("a process runs").0
    }

    async fn start(&mut self) {
        let dead = Arc::new(AtomicBool::new(false));
        let sink = Arc::new(Receivers {
            clock: self.clock.clone(),
            weather: self.weather.clone(),
            ledger: self.ledger.clone(),
            life: self.downs.len(),
            dead: dead.clone(),
            lies_percent: if self.bug == Bug::Lies { 30 } else { 0 },
        });
        let start = |sink, id| {
            let (store, clock, bell) = (self.store.clone(), self.clock.clone(), self.bell.clone());
            Node::start(store, clock, sink, bell, self.settings.clone(), id)
        };
        let id = self.downs.len() as u64 * 1_000_000_000 + 1;
        let node = start(sink.clone(), id).await;
        if self.bug == Bug::TwoDrivers {
            self.second = Some(start(sink, id + 500_000_000).await);
        }
        self.node = Some((node, dead));
    }

    async fn down(&mut self, down_ms: u64) {
        let Some((node, dead)) = self.node.take() else { return };
        dead.store(true, Ordering::Release);
        let died = self.clock.now();
        node.crash();
        if let Some(second) = self.second.take() {
            second.crash();
        }
        pass(down_ms).await;
        self.downs.push((died, self.clock.now()));
        self.start().await;
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Publish { warehouse, cancels } => self.publish(warehouse, cancels).await,
            Step::Pause { warehouse } => {
                let pause = Act::Pause { by: "ada".into(), why: "tests".into() };
                let reply = self.node().dispatch.act(lane_of(WAREHOUSES[warehouse]), pause).await.unwrap();
                if let Reply::Lane(lane::Reply::OnLane { .. }) = reply {
                    self.pauses.push((warehouse, self.clock.now(), true));
                }
            }
            Step::Resume { warehouse } => self.resume(warehouse).await,
            Step::Crash { down_ms } => self.down(down_ms).await,
            Step::Stop { down_ms } => {
                self.node().dispatch.stop();
                pass(20 * SECOND_MS).await;
                self.down(down_ms).await;
            }
            Step::Visit => self.visit().await,
        }
    }

    async fn publish(&mut self, warehouse: usize, cancels: bool) {
        let known = self.published.entry(warehouse).or_default();
        let original = self.rng.choice(known.iter()).map(|(id, _)| id.clone()).filter(|_| cancels);
        let id = match &original {
            Some(original) => format!("cancel-{original}-{}", known.len()),
            None => format!("e{warehouse}-{}", known.len()),
        };
        let reply = self.node().publish(WAREHOUSES[warehouse], &id, original.as_deref()).await;
        let Reply::Dispatch(dispatch::Reply::Published { publication, .. }) = reply else {
            panic!("{id} heard {reply:?}")
        };
        if let (Some(original), Some(told)) = (&original, publication.original) {
            self.cancelled.push((warehouse, Cancelled { id: original.clone(), told, at: self.clock.now() }));
        }
        self.published.entry(warehouse).or_default().push((id.clone(), publication.seq));
        // A sender that is not sure asks again.
        if self.rng.bool() {
            let again = self.node().publish(WAREHOUSES[warehouse], &id, original.as_deref()).await;
            assert_eq!(again.decision(), "duplicate");
        }
    }

    async fn resume(&mut self, warehouse: usize) {
        self.node().resume(lane_of(WAREHOUSES[warehouse])).await;
        self.pauses.push((warehouse, self.clock.now(), false));
    }

    // Lets lanes go on whose receiver was gone, decides about letters that block, sends some others again.
    async fn visit(&mut self) {
        for (warehouse, name) in WAREHOUSES.iter().enumerate() {
            let Some(view) = self.node().dispatch.lane(lane_of(name)).await.unwrap() else { continue };
            if view.lane.paused.as_ref().is_some_and(|pause| pause.by == "receiver") {
                self.resume(warehouse).await;
            }
        }
        for letter in self.node().dispatch.letters(None, None, 1_000).await.unwrap() {
            if letter.letter.fate != Fate::Waiting {
                continue;
            }
            let warehouse = WAREHOUSES.iter().position(|name| lane_of(name) == letter.lane).expect("a lane of ours");
            let first = !self.redriven.contains(&(warehouse, letter.seq));
            if first && self.rng.u8(0..3) == 0 {
                let reply = self.node().redrive(letter.lane, letter.seq).await;
                if let Reply::Dispatch(dispatch::Reply::Letter { letter: told, .. }) = reply {
                    self.redriven.insert((warehouse, letter.seq));
                    if let Fate::Redriven { seq, .. } = told.fate
                        && told.blocks
                    {
                        self.again.push((warehouse, seq, self.clock.now()));
                    }
                    continue;
                }
            }
            if letter.letter.blocks || self.rng.u8(0..6) == 0 {
                self.node().discard(letter.lane, letter.seq).await;
            }
        }
    }

    async fn drained(&self) -> bool {
        let lanes = self.node().dispatch.lanes(None, None, 100).await.unwrap();
        lanes.iter().all(|view| view.lane.settled == view.tail)
    }

    async fn judge(mut self, seed: u64, plan: String) -> Outcome {
        let sightings = self.ledger.sightings();
        let deaths = std::mem::take(&mut *self.bell.deaths.lock().unwrap());
        let lives = Lives { downs: self.downs.clone() };
        let mut outcome = Outcome { seed, plan, crashes: self.downs.len(), ..Outcome::default() };
        for (warehouse, name) in WAREHOUSES.iter().enumerate().take(self.weather.len()) {
            let Some(view) = self.node().dispatch.lane(lane_of(name)).await.unwrap() else { continue };
            let mut story = LaneStory { settled: view.lane.settled, tail: view.tail, ..LaneStory::default() };
            story.published = self.published.remove(&warehouse).unwrap_or_default();
            story.sightings = sightings.iter().filter(|seen| seen.warehouse == *name).cloned().collect();
            let own = deaths.iter().filter(|(at, ..)| at == name);
            story.deaths = own.map(|(_, id, at, reason)| (id.clone(), *at, *reason)).collect();
            let cancelled = self.cancelled.iter().filter(|(at, _)| *at == warehouse);
            story.cancelled = cancelled.map(|(_, cancelled)| cancelled.clone()).collect();
            let again = self.again.iter().filter(|(at, ..)| *at == warehouse);
            story.again = again.map(|(_, seq, at)| (*seq, *at)).collect();
            story.pauses = self.spans(warehouse, &story.sightings, &lives);
            let letters = self.node().dispatch.letters(None, None, 1_000).await.unwrap();
            let own = letters.into_iter().filter(|letter| letter.lane == lane_of(name));
            story.letters = own.map(|letter| (letter.seq, DeadLetter::clone(&letter.letter))).collect();
            outcome.attempts += story.sightings.len();
            outcome.deaths += story.deaths.len();
            outcome.pauses += story.pauses.len();
            outcome.cancels += story.published.iter().filter(|(id, _)| id.starts_with("cancel")).count();
            outcome.gone += story.sightings.iter().filter(|seen| seen.said == Said::Gone).count();
            outcome.wrong.extend(audit(&story, &lives).into_iter().map(|wrong| format!("{name}: {wrong}")));
        }
        outcome.redriven = self.redriven.len();
        outcome.story = sightings.iter().map(|seen| format!("{seen:?}")).collect();
        outcome.story.extend(self.pauses.iter().map(|pause| format!("paused {pause:?}")));
        outcome.story.extend(self.downs.iter().map(|down| format!("down {down:?}")));
        outcome.story.extend(deaths.iter().map(|death| format!("{death:?}")));
        outcome.virtual_hours = self.clock.now().since(Millis(1_700_000_000_000)) / HOUR_MS;
        outcome
    }

    // When a lane was stopped: by people, or by a receiver that said it is gone.
    fn spans(&self, warehouse: usize, sightings: &[Sighting], lives: &Lives) -> Vec<Span> {
        let by_people = self.pauses.iter().filter(|(at, ..)| *at == warehouse).map(|(_, at, on)| (*at, *on));
        let gone = sightings.iter().filter(|seen| seen.said == Said::Gone && lives.recorded(seen));
        let mut turns: Vec<(Millis, bool)> =
            by_people.chain(gone.filter_map(|seen| Some((seen.ended?, true)))).collect();
        turns.sort_by_key(|(at, _)| *at);
        let (mut spans, mut since) = (Vec::new(), None);
        for (at, on) in turns {
            if on {
                since.get_or_insert(at);
            } else {
                spans.extend(since.take().map(|from| (from, at)));
            }
        }
        spans
    }
}
