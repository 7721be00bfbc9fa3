//! Clients that claim, act and seal through any node: some with short leases, some give up, some come back late with an
//! old token, some ask twice. Everything they ask and hear is recorded. Never judges.

use std::{
    net::SocketAddr,
    sync::{
        Condvar, Mutex, RwLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    super::client::Client,
    history::{Ask, Content, Heard, History},
};

/// Longer than any round: within it a key has one holder.
pub const LEASE_MS_LONG: u64 = 3_600_000;
const CALLERS: u64 = 8;
/// A client that waits no longer than this, so that some outcomes stay unknown.
const PATIENCE: Duration = Duration::from_millis(1_200);
/// How long a client stays away that was not answered.
const BACK_OFF: Duration = Duration::from_millis(10);
const TRIES_MAX: usize = 6;
/// Keys that everybody wants at the same time.
const SHARED_KEYS: u64 = 6;

/// Where the nodes are now.
#[derive(Default)]
pub struct Addresses(RwLock<Vec<SocketAddr>>);

impl Addresses {
    pub fn set(&self, addresses: Vec<SocketAddr>) {
        *self.0.write().unwrap() = addresses;
    }

    pub fn get(&self, node: usize) -> SocketAddr {
        self.0.read().unwrap()[node]
    }

    pub fn count(&self) -> usize {
        self.0.read().unwrap().len()
    }
}

/// Rings once, when the load is to end.
#[derive(Default)]
struct Bell(Mutex<bool>, Condvar);

impl Bell {
    fn ring(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    /// Whether it has rung, after waiting for it this long.
    fn rung(&self, wait: Duration) -> bool {
        *self.1.wait_timeout_while(self.0.lock().unwrap(), wait, |rung| !*rung).unwrap().0
    }
}

/// The words of the load while it runs: which node acknowledged a seal.
pub struct Acks(Receiver<usize>);

impl Acks {
    /// Hears so many seals, or for this long. Whether there were so many.
    pub fn hear(&self, count: usize, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        (0..count).all(|_| match self.0.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(_) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => panic!("the load has ended by itself"),
        })
    }

    /// Hears everything for so long, whatever it is.
    pub fn pass(&self, span: Duration) {
        self.hear(usize::MAX, span);
    }
}

/// A load on some nodes.
pub struct Load<'a> {
    pub history: &'a History,
    pub addresses: &'a Addresses,
    pub seed: u64,
    /// The first key that nobody has used yet.
    pub first_key: u64,
}

impl Load<'_> {
    /// Runs while `meanwhile` does, and says which key is the next that nobody has used.
    pub fn run(&self, meanwhile: impl FnOnce(&Acks)) -> u64 {
        let (next, over) = (AtomicU64::new(self.first_key), Bell::default());
        let (sender, heard) = channel();
        thread::scope(|scope| {
            for caller in 0..CALLERS {
                let mut caller = self.caller(caller, &next, &over, sender.clone());
                scope.spawn(move || caller.work());
            }
            drop(sender);
            // A failure in there must not leave the load running for ever.
            let _ends = Ends(&over);
            meanwhile(&Acks(heard));
        });
        next.into_inner()
    }

    fn caller<'l>(&'l self, number: u64, next: &'l AtomicU64, over: &'l Bell, acks: Sender<usize>) -> Caller<'l> {
        Caller {
            load: self,
            next,
            over,
            acks,
            random: fastrand::Rng::with_seed(self.seed ^ (number << 32)),
            clients: (0..self.addresses.count()).map(|_| None).collect(),
            late: Vec::new(),
        }
    }
}

struct Ends<'a>(&'a Bell);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.ring();
    }
}

struct Caller<'l> {
    load: &'l Load<'l>,
    next: &'l AtomicU64,
    over: &'l Bell,
    acks: Sender<usize>,
    random: fastrand::Rng,
    clients: Vec<Option<(SocketAddr, Client)>>,
    /// Claims that were left lying, to be sealed late.
    late: Vec<(u64, u64)>,
}

impl Caller<'_> {
    fn work(&mut self) {
        while !self.over.rung(Duration::ZERO) {
            if self.random.u8(..8) == 0 && !self.late.is_empty() {
                let (key, token) = self.late.swap_remove(self.random.usize(..self.late.len()));
                self.seal(key, token);
            }
            self.errand();
        }
        // A claim is a promise too: its holder comes back for it.
        for (key, token) in std::mem::take(&mut self.late) {
            self.seal(key, token);
        }
    }

    fn errand(&mut self) {
        let newest = self.next.load(Ordering::Relaxed);
        let key = if self.random.bool() {
            self.next.fetch_add(1, Ordering::Relaxed)
        } else {
            self.random.u64(newest.saturating_sub(SHARED_KEYS).max(self.load.first_key)..=newest)
        };
        // A key that was only guessed at counts as used, too.
        self.next.fetch_max(key + 1, Ordering::Relaxed);
        let lease_ms = if self.random.u8(..3) == 0 { self.random.u64(1..250) } else { LEASE_MS_LONG };
        let wait_ms = if self.random.u8(..6) == 0 { self.random.u64(1..300) } else { 0 };
        let claim = Ask::Claim { lease_ms, wait_ms };
        let Heard::New { token } = self.insist(key, &claim) else { return };
        self.load.history.effect(key, token);
        match self.random.u8(..10) {
            0 => drop(self.insist(key, &Ask::Release { token })),
            // Given up, and then sealed all the same: that must be refused.
            1 => {
                self.insist(key, &Ask::Release { token });
                self.seal(key, token);
            }
            2 | 3 => self.late.push((key, token)),
            _ => self.seal(key, token),
        }
    }

    fn seal(&mut self, key: u64, token: u64) {
        let seal = |turn| Ask::Seal { token, content: Content::of(key, token, turn) };
        self.insist(key, &seal(0));
        match self.random.u8(..8) {
            0 => drop(self.insist(key, &seal(0))),
            1 => drop(self.insist(key, &seal(1))),
            2 => drop(self.insist(key, &Ask::Claim { lease_ms: LEASE_MS_LONG, wait_ms: 0 })),
            _ => {}
        }
    }

    // Asks again where there was no answer, each time through any node.
    fn insist(&mut self, key: u64, ask: &Ask) -> Heard {
        let mut heard = Heard::Unknown;
        for _ in 0..TRIES_MAX {
            heard = self.ask(key, ask);
            if !heard.is_open() || self.over.rung(BACK_OFF) {
                break;
            }
        }
        heard
    }

    fn ask(&mut self, key: u64, ask: &Ask) -> Heard {
        let node = self.random.usize(..self.clients.len());
        let address = self.load.addresses.get(node);
        let known = self.clients[node].take().filter(|(known, _)| *known == address);
        let (_, mut client) =
            known.unwrap_or_else(|| (address, Client::new(address, "dev-partner").patience(PATIENCE).unjudging()));
        let mut broken = false;
        let heard = self.load.history.record(key, node, ask, || {
            let answer = client.try_post(ask.path(), ask.body(key));
            broken = answer.is_err();
            Heard::answer(answer)
        });
        // An answer that comes too late must not be taken for the next one's.
        if !broken {
            self.clients[node] = Some((address, client));
        }
        if matches!(heard, Heard::Sealed { .. }) {
            let _ = self.acks.send(node);
        }
        heard
    }
}
