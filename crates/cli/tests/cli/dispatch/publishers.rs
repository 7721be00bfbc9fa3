//! Publishers that never give up on an event: cut off, refused or killed, they send it again under its id, through any node.
//! Their events and the answers are kept outside the server. Never judges.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Condvar, Mutex, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    super::client::{Answer, Client},
    checker::Sent,
    planner::{PLANNER_ID, event},
};

const PUBLISHERS: u64 = 6;
/// A publisher waits no longer than this for its answer.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// How long it stays away when it had none.
const BACK_OFF: Duration = Duration::from_millis(20);

/// Where the nodes are, what was sent to them, and what they told of it.
#[derive(Default)]
pub struct Outbox {
    pub nodes: RwLock<Vec<SocketAddr>>,
    sent: Mutex<HashMap<String, Sent>>,
    told: (Mutex<Told>, Condvar),
    publishers: AtomicU64,
}

#[derive(Default)]
struct Told {
    count: usize,
    over: bool,
}

impl Outbox {
    pub fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().values().cloned().collect()
    }

    /// How many events were acknowledged to their publishers.
    pub fn told(&self) -> usize {
        self.told.0.lock().unwrap().count
    }

    /// Publishes into so many lanes from all sides while `act` runs.
    pub fn load<T>(&self, lanes: usize, seed: u64, act: impl FnOnce(&Self) -> T) -> T {
        self.told.0.lock().unwrap().over = false;
        thread::scope(|scope| {
            for n in 0..PUBLISHERS {
                let name = self.publishers.fetch_add(1, Ordering::Relaxed);
                scope.spawn(move || Publisher::new(self, name, lanes, seed.wrapping_add(n)).run());
            }
            // Also where `act` panics: the publishers must not go on for ever.
            let _over = Over(self);
            act(self)
        })
    }

    /// Returns when so many more are acknowledged.
    pub fn hear(&self, more: usize, at_most: Duration) -> bool {
        let told = self.told.0.lock().unwrap();
        let until = told.count + more;
        !self.told.1.wait_timeout_while(told, at_most, |told| told.count < until).unwrap().1.timed_out()
    }

    /// Lets so much time go by.
    pub fn pass(&self, span: Duration) {
        let told = self.told.0.lock().unwrap();
        drop(self.told.1.wait_timeout_while(told, span, |told| !told.over).unwrap());
    }

    fn is_over(&self) -> bool {
        self.told.0.lock().unwrap().over
    }

    fn tell(&self, id: &str, seq: u64) {
        self.sent.lock().unwrap().get_mut(id).unwrap().seq = Some(seq);
        self.told.0.lock().unwrap().count += 1;
        self.told.1.notify_all();
    }
}

struct Over<'o>(&'o Outbox);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.told.0.lock().unwrap().over = true;
        self.0.told.1.notify_all();
    }
}

struct Publisher<'o> {
    outbox: &'o Outbox,
    name: u64,
    random: fastrand::Rng,
    client: Option<Client>,
    counts: Vec<u64>,
}

impl<'o> Publisher<'o> {
    fn new(outbox: &'o Outbox, name: u64, lanes: usize, seed: u64) -> Self {
        Self { outbox, name, random: fastrand::Rng::with_seed(seed), client: None, counts: vec![0; lanes] }
    }

    fn run(mut self) {
        while !self.outbox.is_over() {
            let lane = self.random.usize(..self.counts.len());
            let many = if self.random.u8(..4) == 0 { self.random.usize(2..5) } else { 1 };
            let events: Vec<Value> = (0..many).map(|_| self.next(lane)).collect();
            let body = if many == 1 { events[0].to_string() } else { json!({"events": events}).to_string() };
            // A publisher that hears no answer before the end is dead for good, and its event an open question.
            let Some(answer) = self.insist(&body) else { return };
            assert!(matches!(answer.status, 200 | 202), "{}: {body}", answer.text());
            let told = answer.json();
            let results = if many == 1 { vec![told] } else { told["results"].as_array().unwrap().clone() };
            assert_eq!(results.len(), many, "{}", answer.text());
            for (event, result) in events.iter().zip(&results) {
                let seq = result["seq"].as_u64().unwrap_or_else(|| panic!("{result}"));
                self.outbox.tell(event["correlation_id"].as_str().unwrap(), seq);
            }
        }
    }

    fn next(&mut self, lane: usize) -> Value {
        self.counts[lane] += 1;
        let own = (self.name, self.counts[lane]);
        let id = format!("p{}-{lane}-{}", own.0, own.1);
        let mut event = event(&id, &format!("WH-{lane}"));
        event["pad"] = json!("x".repeat(self.random.usize(..2_000)));
        let (body, lane) = (event.to_string().into_bytes(), format!("{PLANNER_ID}:WH-{lane}"));
        let sent = Sent { id: id.clone(), lane, body, publisher: own, seq: None };
        assert!(self.outbox.sent.lock().unwrap().insert(id, sent).is_none());
        event
    }

    fn insist(&mut self, body: &str) -> Option<Answer> {
        loop {
            match self.ask(body) {
                // Nothing was done, or nobody knows: the same again.
                Ok(answer) if answer.status != 503 => return Some(answer),
                _ => self.client = None,
            }
            if self.outbox.is_over() {
                return None;
            }
            self.outbox.pass(BACK_OFF);
        }
    }

    fn ask(&mut self, body: &str) -> std::io::Result<Answer> {
        const EVENTS: &str = "/wes/v1/dispatch/events";
        if self.random.u8(..24) == 0 {
            self.client = None;
        }
        let client = self.client.get_or_insert_with(|| {
            let nodes = self.outbox.nodes.read().unwrap();
            Client::new(nodes[self.random.usize(..nodes.len())], "dev-planner").patience(PATIENCE)
        });
        if self.random.u8(..24) == 0 {
            // Killed when it had just sent: its successor finds the event in its outbox.
            let headers = "authorization: Bearer dev-planner\r\ncontent-type: application/json\r\n";
            let begun = client.begin("POST", EVENTS, headers, body.as_bytes());
            return Err(begun.err().unwrap_or_else(|| std::io::ErrorKind::Interrupted.into()));
        }
        client.try_post(EVENTS, body)
    }
}

/// How long something took, for people.
pub fn since(begun: Instant) -> String {
    format!("{:.1} s", begun.elapsed().as_secs_f64())
}
