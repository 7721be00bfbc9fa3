//! One random plan: its lanes, its weather, what people and processes do, and what the auditor says of it.
//! The same seed is the same plan and the same run.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fencepost::{
    dispatch::{Alarm, Settings},
    kernel::{
        Millis, Reply,
        command::{Act, Failure},
        lane::{AfterDead, DeadLetter, Fate, Reason, Trouble},
    },
    store::{Store, memory::Memory},
};

use super::{
    dispatch_auditor::{LaneStory, Lives, Span, audit},
    dispatch_liar::Liar,
    dispatch_receiver::{Forecast, Ledger, Receivers, Said, Sighting, Weather},
    dispatch_world::{HOUR_MS, Node, SECOND_MS, Virtual, in_virtual_time, lane_of, pass},
};

/// What is wrong on purpose.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bug {
    None,
    Lies,
    TwoDrivers,
    ForgetsLetters,
    SettlesAhead,
    FastClock,
    ForgetsPauses,
    ForgetsWaits,
}

/// What came of a plan, or of many.
#[derive(Default, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub plan: String,
    pub wrong: Vec<String>,
    pub story: Vec<String>,
    pub attempts: usize,
    pub deaths: usize,
    pub redriven: usize,
    pub crashes: usize,
    pub pauses: usize,
    pub cancels: usize,
    pub gone: usize,
    pub virtual_hours: u64,
}

impl Outcome {
    pub fn add(&mut self, other: &Self) {
        self.attempts += other.attempts;
        self.deaths += other.deaths;
        self.redriven += other.redriven;
        self.crashes += other.crashes;
        self.pauses += other.pauses;
        self.cancels += other.cancels;
        self.gone += other.gone;
        self.virtual_hours += other.virtual_hours;
    }
}

#[derive(Clone, Debug)]
enum Step {
    Publish { warehouse: usize, cancels: bool },
    Pause { warehouse: usize },
    Resume { warehouse: usize },
    /// The process dies, and another comes after a while.
    Crash { down_ms: u64 },
    /// The same, but it is asked to stop first and given time.
    Stop { down_ms: u64 },
    /// A person looks at what waits for one.
    Visit,
}

const WAREHOUSES: [&str; 4] = ["w0", "w1", "w2", "w3"];
/// How many virtual hours a plan may take to come to its end.
const HOURS_MAX: u64 = 24 * 60;

/// Hears of deaths from the driver.
struct Bell {
    clock: Arc<Virtual>,
    deaths: Mutex<Vec<(String, String, Millis, Reason)>>,
}

impl Alarm for Bell {
    fn died(&self, _: &str, letter: &DeadLetter) {
        let entry = &letter.entry;
        let death = (entry.warehouse.clone(), entry.correlation_id.clone(), self.clock.now(), letter.reason);
        self.deaths.lock().unwrap().push(death);
    }
    fn blocked(&self, _: &str, _: u64, _: &Trouble) {}
    fn attempted(&self, _: &str, _: Result<(), &Failure>, _: Duration) {}
}

struct Town {
    rng: fastrand::Rng,
    bug: Bug,
    clock: Arc<Virtual>,
    store: Arc<dyn Store>,
    weather: Arc<HashMap<String, Forecast>>,
    ledger: Arc<Ledger>,
    bell: Arc<Bell>,
    settings: Settings,
    policies: Vec<AfterDead>,
    node: Option<(Node, Arc<AtomicBool>)>,
    second: Option<Node>,
    downs: Vec<Span>,
    stops: usize,
    published: BTreeMap<usize, Vec<(String, u64)>>,
    /// Pauses and ends of pauses by people.
    pauses: Vec<(usize, Millis, bool)>,
    redriven: BTreeSet<(usize, u64)>,
    /// Heads that were sent again where they were.
    again: Vec<(usize, u64, Millis)>,
}

pub fn run(seed: u64, bug: Bug) -> Outcome {
    fastrand::seed(seed);
    in_virtual_time(async move {
        let mut rng = fastrand::Rng::with_seed(seed);
        let clock = Virtual::new(if bug == Bug::FastClock { 2 } else { 1 });
        let (weather, steps) = plan(&mut rng, clock.now());
        let mut plan = format!("{} lanes, {} steps", weather.len(), steps.len());
        for warehouse in WAREHOUSES.iter().filter_map(|name| weather.get(*name).map(|spans| (name, spans))) {
            plan.push_str(&format!("\n{warehouse:?}"));
        }
        let store: Arc<dyn Store> = match bug {
            Bug::None => Arc::new(Memory::new()),
            bug => Arc::new(Liar { inner: Memory::new(), bug }),
        };
        let bell = Arc::new(Bell { clock: clock.clone(), deaths: Mutex::default() });
        let settings =
            Settings { in_flight_max: rng.usize(1..8), per_host_max: rng.usize(1..5), ..Settings::default() };
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
            stops: 0,
            published: BTreeMap::new(),
            pauses: Vec::new(),
            redriven: BTreeSet::new(),
            again: Vec::new(),
        };
        town.live(steps).await;
        town.judge(seed, plan).await
    })
}

fn plan(rng: &mut fastrand::Rng, start: Millis) -> (HashMap<String, Forecast>, Vec<(u64, Step)>) {
    let (mut weather, mut steps) = (HashMap::new(), Vec::new());
    for (warehouse, name) in WAREHOUSES[..rng.usize(1..=4)].iter().enumerate() {
        let (spans, ends_well) = forecast(rng, start);
        weather.insert((*name).to_owned(), spans);
        for _ in 0..rng.usize(1..if ends_well { 8 } else { 3 }) {
            let at_ms = if rng.bool() { rng.u64(0..20 * HOUR_MS) } else { rng.u64(0..60 * SECOND_MS) };
            steps.push((at_ms, Step::Publish { warehouse, cancels: rng.u8(0..6) == 0 }));
        }
        for _ in 0..rng.usize(0..3) {
            let at_ms = rng.u64(0..30 * HOUR_MS);
            let short = rng.bool();
            let span_ms = rng.u64(0..if short { 20 * SECOND_MS } else { 30 * HOUR_MS });
            steps.push((at_ms, Step::Pause { warehouse }));
            steps.push((at_ms + span_ms, Step::Resume { warehouse }));
        }
    }
    for _ in 0..rng.usize(0..4) {
        let down_ms = if rng.bool() { rng.u64(0..5 * SECOND_MS) } else { rng.u64(0..3 * HOUR_MS) };
        let at_ms = if rng.bool() { rng.u64(0..30 * HOUR_MS) } else { rng.u64(0..60 * SECOND_MS) };
        steps.push((at_ms, if rng.bool() { Step::Crash { down_ms } } else { Step::Stop { down_ms } }));
    }
    steps.extend((1..12).map(|visit| (visit * 3 * HOUR_MS, Step::Visit)));
    steps.sort_by_key(|(at_ms, _)| *at_ms);
    (weather, steps)
}

fn forecast(rng: &mut fastrand::Rng, start: Millis) -> (Forecast, bool) {
    let ends_well = rng.u8(0..3) > 0;
    let mut spans = Vec::new();
    let mut at = start;
    for _ in 0..rng.usize(0..6) {
        let weather = match rng.u8(0..12) {
            0 => Weather::Slow(rng.u64(0..14_999)),
            1 | 2 => Weather::Broken,
            3 => Weather::Busy(rng.u64(0..3 * HOUR_MS)),
            4 | 5 => Weather::Silent,
            6 => Weather::Deaf,
            7 => Weather::Flaky,
            8 => Weather::Gone,
            9 => Weather::TooLarge,
            _ => Weather::Up,
        };
        spans.push((at, weather));
        let long = rng.bool() && weather != Weather::TooLarge;
        at = at.plus(rng.u64(1..if long { 20 * HOUR_MS } else { 120 * SECOND_MS }));
    }
    spans.push((at, if ends_well { Weather::Up } else { rng.choice([Weather::Broken, Weather::Silent]).unwrap() }));
    (spans, ends_well)
}

impl Town {
    async fn live(&mut self, steps: Vec<(u64, Step)>) {
        self.start().await;
        for warehouse in 0..self.weather.len() {
            let host = format!("host{}", warehouse % 2);
            self.node().route(WAREHOUSES[warehouse], &host, self.policies[warehouse]).await;
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
                if let Reply::OnLane { .. } = reply {
                    self.pauses.push((warehouse, self.clock.now(), true));
                }
            }
            Step::Resume { warehouse } => self.resume(warehouse).await,
            Step::Crash { down_ms } => self.down(down_ms).await,
            Step::Stop { down_ms } => {
                self.stops += 1;
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
        let Reply::Published { seq, .. } = reply else { panic!("{id} heard {reply:?}") };
        self.published.entry(warehouse).or_default().push((id.clone(), seq));
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
        for warehouse in 0..self.weather.len() {
            let lane = lane_of(WAREHOUSES[warehouse]);
            let Some(view) = self.node().dispatch.lane(lane).await.unwrap() else { continue };
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
                if let Reply::Letter { letter: told, .. } = reply {
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
        let mut turns: Vec<(Millis, bool)> = by_people.chain(gone.filter_map(|seen| Some((seen.ended?, true)))).collect();
        turns.sort_by_key(|(at, _)| *at);
        let (mut spans, mut since) = (Vec::new(), None);
        for (at, on) in turns {
            match (on, since) {
                (true, None) => since = Some(at),
                (false, Some(from)) => {
                    spans.push((from, at));
                    since = None;
                }
                _ => {}
            }
        }
        spans
    }
}
