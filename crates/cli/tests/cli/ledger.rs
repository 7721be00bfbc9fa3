//! The promises to clients, kept outside the server: every acknowledged claim and seal, and the load that earns them.
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
    power: Power,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Power {
    #[default]
    On,
    /// From before the cut begins: a sync that is under way then may end well and have kept nothing.
    Cutting,
    Off,
}

#[derive(Clone, Copy)]
struct Promise {
    token: u64,
    claim: Word,
    seal: Option<Word>,
}

/// A promise that was heard before the power was cut binds. One heard while it was being cut could not have left a
/// machine without power: it may be kept or not. (Under EXT4_IOC_SHUTDOWN the fdatasync that is under way returns 0,
/// and what it synced is gone: seen with strace. The next one returns EIO.)
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Binding,
    Late,
}

/// Findings of an audit.
#[derive(Default, Debug, Clone, Copy)]
pub struct Audit {
    pub claims: usize,
    pub seals: usize,
    pub lost_claims: usize,
    pub lost_seals: usize,
    /// Seals that were under way when the server died, and that it had kept.
    pub unheard_seals: usize,
    /// Claims and seals that were heard only while the power was being cut, and that were not kept.
    pub late: usize,
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

    /// Sets the state of the server's disk; the next audit finds it on again.
    pub fn power(&mut self, power: Power) {
        self.power = power;
    }

    fn word(&self) -> Word {
        if self.power == Power::On { Word::Binding } else { Word::Late }
    }

    fn claimed(&mut self, key: u64, token: u64) {
        let promise = Promise { token, claim: self.word(), seal: None };
        if let Some(earlier) = self.keys.insert(key, promise) {
            self.breaches.push(format!("key {key} was given to two: tokens {} and {token}", earlier.token));
        }
    }

    fn sealed(&mut self, key: u64) {
        let word = self.word();
        let promise = self.keys.get_mut(&key).unwrap();
        promise.seal = Some(word);
        if word == Word::Binding {
            // Heard with the power on: whatever it stands on was kept as well.
            promise.claim = word;
        }
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
        self.power = Power::On;
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
        let Promise { token, claim, seal } = promise;
        found.claims += usize::from(claim == Word::Binding);
        found.seals += usize::from(seal == Some(Word::Binding));
        let duplicate = result.starts_with("200,") && holds(result, &receipt(key, token, pad));
        let in_flight = result.starts_with("409,") && result.contains("\"code\":\"in-flight\"");
        if duplicate {
            found.unheard_seals += usize::from(seal.is_none());
            self.sealed(key);
        } else if seal == Some(Word::Binding) {
            found.lost_seals += 1;
            tell(found, format_args!("the seal of key {key} under token {token}; the answer is {result}"));
        } else if in_flight && client.post("/v1/fences/seal", seal_body(key, token, pad)).status == 200 {
            found.late += usize::from(seal.is_some());
            self.sealed(key);
        } else if claim == Word::Binding {
            found.lost_claims += 1;
            tell(found, format_args!("the claim of key {key} with token {token}; the answer is {result}"));
        } else {
            found.late += 1;
            self.keys.remove(&key);
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

// A few are enough to see what happened.
fn tell(found: &Audit, what: std::fmt::Arguments<'_>) {
    if found.lost_claims + found.lost_seals <= 2 {
        eprintln!("lost: {what}");
    }
}

// The whole value and nothing else: the next member follows it.
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
            let off = self.is_off();
            let answer = client.try_post("/v1/fences/claim", claim_body(key))?;
            match answer.status {
                201 => {
                    let token = answer.token();
                    if off {
                        self.breach(format!("key {key} was given away without power"));
                    }
                    self.ledger.lock().unwrap().claimed(key, token);
                    // Some are left open: a claim is a promise too.
                    if random.u8(..8) > 0 {
                        let off = self.is_off();
                        let sealed = client.try_post("/v1/fences/seal", seal_body(key, token, self.pad))?;
                        match sealed.status {
                            200 if off => self.breach(format!("key {key} was sealed without power")),
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

    fn is_off(&self) -> bool {
        self.ledger.lock().unwrap().power == Power::Off
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
