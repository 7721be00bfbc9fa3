//! What clients were promised, kept outside the server: every acknowledged claim and seal, and the load that earns them.
//! The judge of crashes and power cuts: after a restart each promise is asked for again.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use super::client::{Answer, Client};

const SCOPE: &str = "INDEX_BUILD";
/// Longer than any run: within it a key has one holder, whatever happens to the server.
const LEASE_MS: u64 = 3_600_000;
const WORKERS: u64 = 8;

/// Every promise, and every breach that was seen while the load ran.
#[derive(Default)]
pub struct Ledger {
    keys: BTreeMap<u64, Promise>,
    breaches: Vec<String>,
    next_key: u64,
}

#[derive(Clone, Copy)]
struct Promise {
    token: u64,
    sealed: bool,
}

/// What an audit found.
#[derive(Default, Debug, Clone, Copy)]
pub struct Audit {
    pub claims: usize,
    pub seals: usize,
    pub lost_claims: usize,
    pub lost_seals: usize,
    /// Seals that were under way when the server died, and that it had kept.
    pub unheard_seals: usize,
}

/// A receipt that any second writer would write differently: odd spacing, 1.0, a number past 2^64, escapes.
fn receipt(key: u64, token: u64, pad: usize) -> String {
    let pad = "x".repeat(pad);
    format!(
        "{{ \"key\" : {key},\"token\":{token}.0 , \"big\":123456789012345678901234567890,\t\"u\":\"\\u00fc\u{fc}\",\"pad\":\"{pad}\"}}"
    )
}

fn claim_body(key: u64) -> String {
    format!("{{\"scope\":\"{SCOPE}\",\"key\":{{\"index_hash\":\"{key}\"}},\"lease_ms\":{LEASE_MS}}}")
}

fn seal_body(key: u64, token: u64, pad: usize) -> String {
    let receipt = receipt(key, token, pad);
    format!(
        "{{\"scope\":\"{SCOPE}\",\"key\":{{\"index_hash\":\"{key}\"}},\"token\":{token},\"effect_id\":\"E-{key}\",\"receipt\":{receipt}}}"
    )
}

impl Ledger {
    /// Breaches seen by the load itself. None may be there.
    pub fn breaches(&self) -> &[String] {
        &self.breaches
    }

    fn claimed(&mut self, key: u64, token: u64) {
        if let Some(earlier) = self.keys.insert(key, Promise { token, sealed: false }) {
            self.breaches.push(format!("key {key} was given to two: tokens {} and {token}", earlier.token));
        }
    }

    fn sealed(&mut self, key: u64) {
        self.keys.get_mut(&key).unwrap().sealed = true;
    }

    fn replayed(&mut self, key: u64, answer: &Answer, pad: usize) {
        let told = self.keys.get(&key).map(|promise| receipt(key, promise.token, pad));
        if !told.is_some_and(|told| holds(&answer.text(), &told)) {
            self.breaches.push(format!("key {key} was replayed as {}", answer.text()));
        }
    }

    /// Asks a restarted server for everything that was promised since key `from`. Claims that were left open are sealed,
    /// each with the token it was given, and so become promises themselves.
    pub fn audit(&mut self, address: SocketAddr, from: u64, pad: usize) -> Audit {
        let mut client = Client::new(address, "dev-partner");
        let mut found = Audit::default();
        let keys: Vec<(u64, Promise)> = self.keys.range(from..).map(|(key, promise)| (*key, *promise)).collect();
        for page in keys.chunks(500) {
            let commands: Vec<String> =
                page.iter().map(|(key, _)| claim_body(*key).replacen('{', "{\"op\":\"claim\",", 1)).collect();
            let answer = client.post("/v1/fences/batch", format!("{{\"commands\":[{}]}}", commands.join(",")));
            answer.ok(200);
            let text = answer.text();
            let results: Vec<&str> = text.split("{\"status\":").skip(1).collect();
            assert_eq!(results.len(), page.len(), "{text}");
            for ((key, promise), result) in page.iter().zip(results) {
                self.judge(*key, *promise, result, pad, &mut found, &mut client);
            }
        }
        found
    }

    fn judge(&mut self, key: u64, promise: Promise, result: &str, pad: usize, found: &mut Audit, client: &mut Client) {
        found.claims += 1;
        found.seals += usize::from(promise.sealed);
        let duplicate = result.starts_with("200,") && holds(result, &receipt(key, promise.token, pad));
        let in_flight = result.starts_with("409,") && result.contains("\"code\":\"in-flight\"");
        match (promise.sealed, duplicate, in_flight) {
            (true, true, _) => {}
            (true, false, _) => found.lost_seals += 1,
            (false, true, _) => {
                found.unheard_seals += 1;
                self.sealed(key);
            }
            (false, false, true) => {
                let sealed = client.post("/v1/fences/seal", seal_body(key, promise.token, pad));
                if sealed.status == 200 { self.sealed(key) } else { found.lost_claims += 1 }
            }
            (false, false, false) => found.lost_claims += 1,
        }
    }

    /// The first key that no load has used yet.
    pub fn next_key(&self) -> u64 {
        self.next_key
    }

    /// A promise earned elsewhere than by the load.
    pub fn promise(&mut self, key: u64, token: u64) -> (String, String) {
        self.claimed(key, token);
        self.sealed(key);
        self.next_key = self.next_key.max(key + 1);
        (format!("E-{key}"), receipt(key, token, 0))
    }
}

// The whole value and nothing else: what follows it is the next member.
fn holds(answer: &str, receipt: &str) -> bool {
    answer.contains(&format!(",\"receipt\":{receipt},\"first_seen_at\":"))
}

/// Clients that claim and seal until the server is gone. Half of the keys are wanted by several of them.
pub struct Load<'a> {
    pub ledger: &'a Mutex<Ledger>,
    pub address: SocketAddr,
    pub seed: u64,
    /// Bytes added to every receipt.
    pub pad: usize,
}

impl Load<'_> {
    /// Runs the load; `end` is called with a channel that says one word for every acknowledged seal, and ends the server.
    pub fn run(&self, end: impl FnOnce(Receiver<()>)) {
        let first = self.ledger.lock().unwrap().next_key;
        // Even keys are everybody's, odd ones one worker's own.
        let own = AtomicU64::new(first | 1);
        let over = AtomicBool::new(false);
        let (acks, heard) = channel();
        thread::scope(|scope| {
            for worker in 0..WORKERS {
                let (acks, own, over) = (acks.clone(), &own, &over);
                scope.spawn(move || {
                    // The end of the server is the end of the load.
                    let _ = self.work(worker, first, own, over, &acks);
                });
            }
            drop(acks);
            end(heard);
            over.store(true, Ordering::Relaxed);
        });
        self.ledger.lock().unwrap().next_key = (own.load(Ordering::Relaxed) + 2) & !1;
    }

    fn work(&self, worker: u64, first: u64, own: &AtomicU64, over: &AtomicBool, acks: &Sender<()>) -> io::Result<()> {
        let mut random = fastrand::Rng::with_seed(self.seed ^ (worker << 32));
        let mut client = Client::new(self.address, "dev-partner");
        while !over.load(Ordering::Relaxed) {
            let highest = own.load(Ordering::Relaxed);
            let key =
                if random.bool() { own.fetch_add(2, Ordering::Relaxed) } else { random.u64(first..=highest) & !1 };
            let answer = client.try_post("/v1/fences/claim", claim_body(key))?;
            match answer.status {
                201 => {
                    let token = answer.token();
                    self.ledger.lock().unwrap().claimed(key, token);
                    // Some are left open: a claim is a promise too.
                    if random.u8(..8) > 0 {
                        let sealed = client.try_post("/v1/fences/seal", seal_body(key, token, self.pad))?;
                        match sealed.status {
                            200 => {
                                self.ledger.lock().unwrap().sealed(key);
                                let _ = acks.send(());
                            }
                            503 => return Ok(()),
                            _ => self.breach(format!("the seal of key {key} was answered {}", sealed.text())),
                        }
                    }
                }
                200 => self.ledger.lock().unwrap().replayed(key, &answer, self.pad),
                409 if answer.json()["code"] == "in-flight" => {}
                // The disk is gone or full: nothing was done, and nothing more will be.
                503 => return Ok(()),
                _ => self.breach(format!("the claim of key {key} was answered {}", answer.text())),
            }
        }
        Ok(())
    }

    fn breach(&self, what: String) {
        self.ledger.lock().unwrap().breaches.push(what);
    }
}

/// Hears so many acknowledged seals, or the end of the load.
pub fn hear(acks: &Receiver<()>, count: usize) {
    acks.iter().take(count).for_each(drop);
}

/// A seed, printed so that a failing run can be looked at again with `FENCEPOST_SEED`.
pub fn seed() -> u64 {
    let seed =
        std::env::var("FENCEPOST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    eprintln!("seed: FENCEPOST_SEED={seed}");
    seed
}

/// So many cycles, or ten times as many where `FENCEPOST_LONG=1` asks for it.
pub fn cycles(usual: usize) -> usize {
    if std::env::var("FENCEPOST_LONG").is_ok_and(|long| long == "1") { usual * 10 } else { usual }
}
