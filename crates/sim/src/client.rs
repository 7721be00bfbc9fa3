//! Carries requests to some node that runs and back, over a network that loses, delays and repeats them.
//! Never changes a request (but see the planted bug), and records what its sender can know.
//! Called by the callers.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fencepost::{
    dispatch::Dispatch,
    engine::{Engine, Error},
};
use fencepost_kernel::{Command, Reply, fence};
use tokio::{sync::Notify, time::sleep};

use crate::{
    acts::acting,
    faults::{Faults, strikes},
    history::{Ask, ObservedAnswer, RequestOutcome},
    items::{Desk, Items},
    lanes::Lanes,
    plant::Plant,
    recorder::{Asked, Recorder},
    town::{Town, answer},
    twin::Twin,
};

/// Everyone who serves now.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) run: usize,
    pub(crate) nodes: Vec<Node>,
    /// The store itself, where users have transactions of their own on it.
    pub(crate) shared: Option<Arc<Twin>>,
}

/// One engine that runs, and a sign of its death.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) number: usize,
    pub(crate) engine: Engine,
    /// Its lanes, where this world has any.
    pub(crate) lanes: Option<Dispatch>,
    /// Its way to take items, where this world has any.
    pub(crate) items: Option<Desk>,
    pub(crate) death: Arc<CrashSignal>,
}

impl Node {
    /// It is dead: it sends nothing new, and its callers hear nothing.
    pub(crate) fn dies(&self) {
        if let Some(lanes) = &self.lanes {
            lanes.stop();
        }
        self.death.strike();
    }
}

/// A sign that everybody hears, in the order in which they began to listen: a `watch` would wake them in random order.
#[derive(Default)]
pub(crate) struct CrashSignal {
    happened: AtomicBool,
    bell: Notify,
}

impl CrashSignal {
    pub(crate) fn strike(&self) {
        self.happened.store(true, Ordering::Relaxed);
        self.bell.notify_waiters();
    }

    pub(crate) fn has_happened(&self) -> bool {
        self.happened.load(Ordering::Relaxed)
    }

    pub(crate) async fn heard(&self) {
        let heard = self.bell.notified();
        if !self.has_happened() {
            heard.await;
        }
    }
}

/// Shared by every client of a world.
pub(crate) struct Network {
    pub(crate) live: Mutex<Option<Live>>,
    pub(crate) town: Arc<Town>,
    pub(crate) lanes: Option<Arc<Lanes>>,
    pub(crate) items: Option<Arc<Items>>,
    pub(crate) faults: Faults,
    pub(crate) plant: Option<Plant>,
    pub(crate) recorder: Arc<Recorder>,
}

/// The answer to a request, as its sender hears it.
pub(crate) enum Heard<T> {
    Reply(T),
    /// It certainly did not happen.
    NotApplied,
    Maybe,
}

impl Network {
    pub(crate) fn live(&self) -> Option<Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The store that nodes share and users have transactions on, and its run.
    pub(crate) fn shared_store(&self) -> Option<(usize, Arc<Twin>)> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let live = live.as_ref()?;
        live.shared.clone().map(|twin| (live.run, twin))
    }

    // Two planted bugs: an operator who is wrong about a doubt is told otherwise.
    fn told(&self, answer: ObservedAnswer) -> ObservedAnswer {
        match (self.plant, answer) {
            (Some(Plant::ResolvesAnything), ObservedAnswer::NotInDoubt) => ObservedAnswer::Resolved { replay: false },
            (Some(Plant::ReplaysAnything), ObservedAnswer::NotInDoubt) => ObservedAnswer::Resolved { replay: true },
            (_, answer) => answer,
        }
    }

    /// Any of the nodes that serve, and the run it belongs to.
    pub(crate) fn some_node(&self, rng: &mut fastrand::Rng) -> Option<(usize, Node)> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let live = live.as_ref()?;
        rng.choice(&live.nodes).map(|node| (live.run, node.clone()))
    }
}

/// One sender.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) network: Arc<Network>,
    pub(crate) rng: fastrand::Rng,
}

impl Client {
    pub(crate) fn new(name: String, network: Arc<Network>, rng: fastrand::Rng) -> Self {
        Self { name, network, rng }
    }

    pub(crate) async fn pause(&mut self, ms_max: u64) {
        let wait_ms = self.rng.u64(0..=ms_max);
        sleep(Duration::from_millis(wait_ms)).await;
    }

    /// Sends one request; the outcome is as its sender learns it.
    pub(crate) async fn send(&mut self, base: &str, seq: Option<u64>, ask: Ask) -> RequestOutcome {
        let asked = vec![Asked { base: base.to_owned(), seq, ask }];
        self.send_all(asked).await.pop().unwrap_or(RequestOutcome::Maybe)
    }

    /// The same for requests that travel as one batch.
    pub(crate) async fn send_all(&mut self, asked: Vec<Asked>) -> Vec<RequestOutcome> {
        let faults = self.network.faults.clone();
        let recorder = self.network.recorder.clone();
        if strikes(&mut self.rng, faults.repeated) {
            self.repeat(asked.clone());
        }
        self.pause(5).await;
        if strikes(&mut self.rng, faults.request_lost) {
            recorder.count("request_lost", format_args!("{} sends {} into the void", self.name, asked[0].ask));
            self.pause(300).await;
            return vec![RequestOutcome::Maybe; asked.len()];
        }
        let gives_up_ms = self.gives_up_ms();
        let outcomes = self.deliver(&asked, gives_up_ms).await;
        self.pause(5).await;
        outcomes
    }

    // The same bytes once more, at once or some time later; the reply is dropped.
    fn repeat(&mut self, asked: Vec<Asked>) {
        let mut ghost = Self { name: format!("{}'", self.name), network: self.network.clone(), rng: self.rng.fork() };
        tokio::spawn(async move {
            let late_ms_max = if ghost.rng.bool() { 5 } else { 3_000 };
            ghost.pause(late_ms_max).await;
            ghost.network.recorder.tally("request_repeated");
            ghost.deliver(&asked, None).await;
        });
    }

    async fn deliver(&mut self, asked: &[Asked], gives_up_ms: Option<u64>) -> Vec<RequestOutcome> {
        let Some((run, node)) = self.network.some_node(&mut self.rng) else {
            return vec![RequestOutcome::NotApplied; asked.len()];
        };
        let recorder = self.network.recorder.clone();
        let first = recorder.invoke(&self.name, (run, node.number), asked);
        let network = self.network.clone();
        let outcomes = match self.call(&node, gives_up_ms, ask(&network, &node.engine, asked, first)).await {
            Heard::Reply(replies) => {
                let told = |(one, reply)| RequestOutcome::Answered(network.told(answer(one, reply)));
                asked.iter().zip(&replies).map(told).collect()
            }
            Heard::NotApplied => vec![RequestOutcome::NotApplied; asked.len()],
            Heard::Maybe => vec![RequestOutcome::Maybe; asked.len()],
        };
        for (place, outcome) in outcomes.iter().enumerate() {
            recorder.close(first + place, outcome.clone());
        }
        outcomes
    }

    /// After how long it gives up its next request, where it does.
    pub(crate) fn gives_up_ms(&mut self) -> Option<u64> {
        let gives_up = self.network.faults.gives_up;
        strikes(&mut self.rng, gives_up).then(|| self.rng.u64(0..200))
    }

    /// Reads from a node. No answer is heard of one that fails, or that has died meanwhile.
    pub(crate) async fn read<T>(
        &self,
        (run, node): (usize, &Node),
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Option<T> {
        let answer = tokio::select! {
            biased;
            answer = asked => answer.ok()?,
            () = node.death.heard() => return None,
        };
        // The machine may have died without this node's being told.
        self.network.live().filter(|live| live.run == run).map(|_| answer)
    }

    /// Asks a node that may die meanwhile, over a network that may lose the reply.
    pub(crate) async fn call<T>(
        &mut self,
        node: &Node,
        gives_up_ms: Option<u64>,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Heard<T> {
        let recorder = self.network.recorder.clone();
        let patience = Duration::from_millis(gives_up_ms.unwrap_or(600_000));
        // A reply that left before the node died is still read.
        let reply = tokio::select! {
            biased;
            reply = asked => Some(reply),
            () = node.death.heard() => None,
            () = sleep(patience) => {
                recorder.tally("gave_up");
                None
            }
        };
        let lost = strikes(&mut self.rng, self.network.faults.reply_lost);
        match reply {
            Some(Ok(reply)) if !lost => Heard::Reply(reply),
            Some(Ok(_)) => {
                recorder.tally("reply_lost");
                Heard::Maybe
            }
            Some(Err(Error::Unavailable(_))) => Heard::NotApplied,
            Some(Err(error)) => {
                recorder.note(format_args!("  {} hears: {error}", self.name));
                Heard::Maybe
            }
            None => Heard::Maybe,
        }
    }
}

async fn ask(network: &Network, engine: &Engine, asked: &[Asked], first: usize) -> Result<Vec<Reply>, Error> {
    let acting = asked.first().and_then(|one| acting(engine, first, &one.ask));
    let engine = acting.as_ref().unwrap_or(engine);
    let mut commands: Vec<Command> = asked.iter().filter_map(|one| network.town.command(one)).collect();
    if network.plant == Some(Plant::NoTokenCheck) {
        for command in &mut commands {
            swap_token(engine, command).await;
        }
    }
    match (commands.pop(), asked) {
        (Some(Command::Fence(fence::Command::Claim(claim))), [Asked { ask: Ask::Claim { wait_ms, .. }, .. }]) => engine
            .claim(Command::Fence(fence::Command::Claim(claim)), Duration::from_millis(*wait_ms))
            .await
            .map(|reply| vec![reply]),
        (Some(command), [_]) => engine.ask(&command).await.map(|reply| vec![reply]),
        (last, _) => {
            commands.extend(last);
            engine.ask_all(commands).await
        }
    }
}

async fn swap_token(engine: &Engine, command: &mut Command) {
    if let Command::Fence(fence::Command::Seal(seal)) = command
        && let Ok(Some(known)) = engine.explain(seal.target.key).await
    {
        seal.token = known.fence.token;
    }
}

/// The token of a granted claim.
pub(crate) fn granted(outcome: &RequestOutcome) -> Option<(u64, u64)> {
    match outcome {
        RequestOutcome::Answered(ObservedAnswer::New { token, lease_expires, .. }) => Some((*token, *lease_expires)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use fencepost::engine::EngineLimits;
    use fencepost_store::Memory;

    use super::*;
    use crate::{clock::Clocks, history::History};

    async fn client() -> (Client, Node) {
        let clocks = Arc::new(Clocks::new(None));
        let limits = EngineLimits { first_commit_id: Some(1), ..EngineLimits::default() };
        let engine = Engine::new(Arc::new(Memory::new()), clocks.clone(), limits, Box::new(()), None).await;
        let (engine, _) = engine.expect("an engine");
        let node = Node { number: 0, engine, lanes: None, items: None, death: Arc::default() };
        let mut rng = fastrand::Rng::with_seed(1);
        let network = Network {
            live: Some(Live { run: 0, nodes: vec![node.clone()], shared: None }).into(),
            town: Town::draw(&mut rng).into(),
            lanes: None,
            items: None,
            faults: Faults::none(),
            plant: None,
            recorder: Recorder::new(clocks, History::default()).into(),
        };
        (Client::new("reader".to_owned(), network.into(), rng), node)
    }

    async fn slowly() -> Result<u8, Error> {
        sleep(Duration::from_millis(10)).await;
        Ok(7)
    }

    // Seeds 12000008172 and 12000026053: a node was held, died, and its list of doubts arrived when it would have gone on. By then
    // the time that only it knew was lost, and the list showed doubts that lay ahead.
    #[tokio::test(start_paused = true)]
    async fn answer_of_a_node_that_has_died_meanwhile_reaches_no_reader() {
        let (client, node) = client().await;
        assert_eq!(client.read((0, &node), slowly()).await, Some(7));
        assert_eq!(client.read((1, &node), slowly()).await, None, "another run");
        let dies = async {
            sleep(Duration::from_millis(5)).await;
            node.dies();
        };
        assert_eq!(tokio::join!(client.read((0, &node), slowly()), dies).0, None);
    }
}
