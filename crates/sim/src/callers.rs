//! The clients of the world: workers that claim, act and seal, pause past their leases and come back as zombies; an
//! operator who resolves doubts; a housekeeper. They never look inside the engine, only at its replies.
//! Spawned by `world`.

use std::{sync::Arc, time::Duration};

use fencepost_kernel::{
    Tenant,
    fence::{self, Fence, Phase},
    row::Record,
};
use tokio::time::sleep;

use crate::{
    client::{Client, Node, granted},
    history::{Ask, ObservedAnswer, RequestOutcome, key_name},
    plant::Plant,
    recorder::Asked,
    town::{name_of, shown, version_of},
};

/// A claim that a worker once had.
#[derive(Clone)]
struct Held {
    base: String,
    seq: Option<u64>,
    token: u64,
    lease_ms: u64,
    sealed: Option<(String, String)>,
}

/// Someone who works.
pub(crate) struct Worker {
    client: Client,
    grudges: Vec<Held>,
    effects: u32,
}

impl Worker {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, grudges: Vec::new(), effects: 0 }
    }

    pub(crate) async fn live(mut self, steps: u32) {
        for _ in 0..steps {
            self.client.pause(900).await;
            match self.client.rng.u8(0..10) {
                0 => self.batch().await,
                1..3 if !self.grudges.is_empty() => self.come_back().await,
                _ => self.cycle().await,
            }
        }
    }

    fn pick(&mut self) -> (String, Option<u64>) {
        let base = self.client.network.town.some_key(&mut self.client.rng);
        let again = base.contains("/NOTE/") && self.client.rng.u8(0..4) > 0;
        let seq = again.then(|| [1, 1, 1, 2, 2, 3, 4][self.client.rng.usize(0..7)]);
        (base, seq)
    }

    fn claim(&mut self, base: &str) -> Ask {
        let rng = &mut self.client.rng;
        let body = [Some("b0"), Some("b0"), Some("b0"), Some("b0"), Some("b1"), None][rng.usize(0..6)];
        // Only the claim itself carries a version in SYNC, and a retry may forget it.
        let omitted = base.contains("/SYNC/") && rng.u8(0..3) == 0;
        Ask::Claim {
            body: body.map(str::to_owned),
            version: version_of(base).filter(|_| !omitted),
            lease_ms: [100, 301, 800, 2_001][rng.usize(0..4)],
            wait_ms: if rng.u8(0..4) == 0 { rng.u64(1..2_000) } else { 0 },
        }
    }

    async fn cycle(&mut self) {
        let (base, seq) = self.pick();
        let ask = self.claim(&base);
        for _ in 0..3 {
            let outcome = self.client.send(&base, seq, ask.clone()).await;
            if let Some((token, _)) = granted(&outcome) {
                let lease_ms = if let Ask::Claim { lease_ms, .. } = ask { lease_ms } else { 0 };
                return self.act(Held { base, seq, token, lease_ms, sealed: None }).await;
            }
            match outcome {
                // It may have been let in or not: all it can do is ask again.
                RequestOutcome::Maybe | RequestOutcome::NotApplied => self.client.pause(400).await,
                RequestOutcome::Answered(ObservedAnswer::InFlight { .. }) if self.client.rng.bool() => {
                    self.client.pause(500).await
                }
                RequestOutcome::Answered(_) => return,
            }
        }
    }

    async fn act(&mut self, mut held: Held) {
        match self.client.rng.u8(0..20) {
            0..6 => self.effect_and_seal(&mut held).await,
            6..8 => self.renew_at_the_last_moment(&held).await,
            8..11 => {
                for _ in 0..self.client.rng.u8(1..4) {
                    self.client.pause(held.lease_ms).await;
                    let renew = Ask::Renew { token: held.token, lease_ms: [150, 900][self.client.rng.usize(0..2)] };
                    self.client.send(&held.base, held.seq, renew).await;
                }
                self.effect_and_seal(&mut held).await;
            }
            11..13 => {
                let release = Ask::Release { token: held.token };
                if self.client.send(&held.base, held.seq, release.clone()).await == RequestOutcome::Maybe {
                    self.client.send(&held.base, held.seq, release).await;
                }
            }
            13..16 => {
                self.effect(&held);
                sleep(Duration::from_millis(held.lease_ms * self.client.rng.u64(1..4))).await;
                self.seal(&mut held).await;
            }
            16..18 => {
                sleep(Duration::from_millis(held.lease_ms * self.client.rng.u64(1..4))).await;
                self.effect_and_seal(&mut held).await;
            }
            _ => {
                if self.client.rng.bool() {
                    self.effect(&held);
                }
            }
        }
        if self.grudges.len() < 6 {
            self.grudges.push(held);
        }
    }

    // Renews at the very end of its lease, while another caller claims the same key.
    async fn renew_at_the_last_moment(&mut self, held: &Held) {
        let early_ms = self.client.rng.u64(0..60);
        sleep(Duration::from_millis(held.lease_ms.saturating_sub(early_ms))).await;
        let network = self.client.network.clone();
        let mut rival = Client::new(format!("{}*", self.client.name), network, self.client.rng.fork());
        let (base, seq, ask) = (held.base.clone(), held.seq, self.claim(&held.base));
        tokio::spawn(async move {
            for _ in 0..3 {
                rival.pause(200).await;
                rival.send(&base, seq, ask.clone()).await;
            }
        });
        let renew = Ask::Renew { token: held.token, lease_ms: 900 };
        self.client.send(&held.base, held.seq, renew).await;
    }

    fn effect(&mut self, held: &Held) {
        self.effects += 1;
        self.client.network.recorder.effect(&self.client.name, &key_name(&held.base, held.seq), held.token);
    }

    async fn effect_and_seal(&mut self, held: &mut Held) {
        self.client.pause(held.lease_ms / 2).await;
        self.effect(held);
        self.seal(held).await;
    }

    async fn seal(&mut self, held: &mut Held) {
        let key = key_name(&held.base, held.seq);
        let (name, number) = (self.client.name.clone(), self.effects);
        let fresh = || (format!("{name}-{number}"), format!("[{key} {number} by {name}]"));
        let (effect, receipt) = held.sealed.get_or_insert_with(fresh).clone();
        let seal = Ask::Seal { token: held.token, effect, receipt };
        for _ in 0..4 {
            match self.client.send(&held.base, held.seq, seal.clone()).await {
                RequestOutcome::Answered(_) => return,
                _ => self.client.pause(600).await,
            }
        }
    }

    // A zombie: long past its time, it still believes in its token.
    async fn come_back(&mut self) {
        let mut held = self.grudges.swap_remove(self.client.rng.usize(0..self.grudges.len()));
        self.client.network.recorder.tally("zombie_came_back");
        match self.client.rng.u8(0..8) {
            6..8 => {
                let name = NAMES[self.client.rng.usize(0..2)].to_owned();
                self.client.send(&held.base, held.seq, Ask::Alias { name }).await;
            }
            0 => {
                let renew = Ask::Renew { token: held.token, lease_ms: 500 };
                self.client.send(&held.base, held.seq, renew).await;
            }
            1 => {
                self.client.send(&held.base, held.seq, Ask::Release { token: held.token }).await;
            }
            2 => {
                // The same holder with another story.
                held.sealed = None;
                self.effects += 1_000;
                self.seal(&mut held).await;
            }
            _ => self.seal(&mut held).await,
        }
    }

    // Several requests in one commit; on one key, so that their order shows.
    async fn batch(&mut self) {
        let known = self.grudges.last().filter(|_| self.client.rng.bool()).map(|held| (held.base.clone(), held.seq));
        let (base, seq) = known.unwrap_or_else(|| self.pick());
        let mut asks = vec![];
        if let Some(held) = self.grudges.iter().find(|held| held.base == base && held.seq == seq) {
            asks.push(match self.client.rng.u8(0..3) {
                0 => Ask::Release { token: held.token },
                1 => Ask::Renew { token: held.token, lease_ms: 400 },
                _ => {
                    Ask::Seal { token: held.token, effect: "batch".to_owned(), receipt: format!("[{base} in a batch]") }
                }
            });
        }
        for _ in 0..self.client.rng.u8(1..4) {
            asks.push(self.claim(&base));
        }
        let mut asked: Vec<Asked> = asks.into_iter().map(|ask| Asked { base: base.clone(), seq, ask }).collect();
        let (other, other_seq) = self.pick();
        let ask = self.claim(&other);
        asked.push(Asked { base: other, seq: other_seq, ask });
        self.client.network.recorder.tally("batch");
        let sent = asked.clone();
        for (one, outcome) in sent.into_iter().zip(self.client.send_all(asked).await) {
            if let Some((token, _)) = granted(&outcome) {
                let mut held = Held { base: one.base, seq: one.seq, token, lease_ms: 100, sealed: None };
                if self.client.rng.bool() {
                    self.effect_and_seal(&mut held).await;
                }
                self.grudges.push(held);
            }
        }
    }
}

/// Doubts on one page.
const LISTED_MAX: usize = 10;

/// The names that callers give.
const NAMES: [&str; 2] = ["latest", "first"];

/// Looks at doubts now and then, and asks the outside world what really happened.
pub(crate) async fn operator(mut client: Client) {
    loop {
        client.pause(4_000).await;
        if client.network.plant == Some(Plant::ResolvesAnything) {
            let base = client.network.town.some_key(&mut client.rng);
            client.send(&base, None, Ask::Resolve { token: None, sealed: None }).await;
        }
        let Some((run, node)) = client.network.some_node(&mut client.rng) else { continue };
        let recorder = client.network.recorder.clone();
        let asked_at = recorder.moment("operator asks for the list of doubts");
        let asked = node.engine.in_doubt(None, LISTED_MAX);
        let Some(doubts) = client.read((run, &node), asked).await else { continue };
        let full = doubts.len() >= LISTED_MAX;
        let doubts: Vec<_> = doubts.iter().filter_map(|(_, row)| fence_of(&row.record)).collect();
        let names = doubts.iter().map(|fence| key_name(&name_of(fence), fence.seq)).collect();
        recorder.listed((run, node.number), asked_at, names, full);
        for fence in &doubts {
            let asked = Asked { base: name_of(fence), seq: fence.seq, ask: Ask::Look };
            let shown = shown(fence, Phase::InDoubt);
            recorder.looked((run, node.number), asked_at, &asked, shown);
        }
        drop(node);
        for fence in doubts {
            let (base, seq) = (name_of(&fence), fence.seq);
            let key = key_name(&base, seq);
            let done = client.network.recorder.has_effect(&key, fence.token.0);
            let sealed = done.then(|| (format!("{key}-found"), format!("[{key} as resolved]")));
            let token = client.rng.bool().then_some(fence.token.0);
            // An operator is slow too: by now the doubt may be gone, or another one.
            client.pause(600).await;
            client.send(&base, seq, Ask::Resolve { token, sealed }).await;
        }
    }
}

fn fence_of(record: &Record) -> Option<Arc<Fence>> {
    if let Record::Fence(fence::Record::Fence(fence)) = record { Some(fence.clone()) } else { None }
}

/// Looks at some key now and then.
pub(crate) async fn reader(mut client: Client) {
    loop {
        client.pause(700).await;
        let Some((run, node)) = client.network.some_node(&mut client.rng) else { continue };
        let town = client.network.town.clone();
        let base = town.some_key(&mut client.rng);
        if client.rng.u8(0..3) == 0 {
            look_up(&mut client, (run, &node), &base).await;
            continue;
        }
        let Some(target) = town.target(&base, None) else { continue };
        let recorder = client.network.recorder.clone();
        let asked_at = recorder.moment(format_args!("reader@{run}.{} {base}", node.number));
        let Some(known) = client.read((run, &node), node.engine.explain(target.key)).await else { continue };
        let shown = known.map_or(ObservedAnswer::Absent, |known| shown(&known.fence, known.phase));
        recorder.looked((run, node.number), asked_at, &Asked { base, seq: None, ask: Ask::Look }, shown);
    }
}

// Where a name leads that somebody of this key's tenant may have given.
async fn look_up(client: &mut Client, (run, node): (usize, &Node), base: &str) {
    let (tenant, name) = (base.split('/').next().unwrap_or_default(), NAMES[client.rng.usize(0..2)]);
    let recorder = client.network.recorder.clone();
    let asked_at = recorder.moment(format_args!("reader@{run}.{} asks for {tenant}/{name}", node.number));
    let tenant_id = Tenant::new(tenant);
    let Some(alias) = client.read((run, node), node.engine.alias(&tenant_id, name)).await else { return };
    let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
    let shown = alias.map(|alias| (alias.receipt.effect_id.clone(), text(&alias.receipt.body)));
    recorder.named((run, node.number), asked_at, (tenant, name), shown);
}

/// Background work at random times.
pub(crate) async fn housekeeper(mut client: Client) {
    loop {
        client.pause(2_500).await;
        if let Some((run, node)) = client.network.some_node(&mut client.rng) {
            let outcome = client.read((run, &node), node.engine.housekeep()).await;
            client.network.recorder.count("housekeeping", format_args!("{outcome:?}"));
        }
    }
}
