//! Some nodes on one PostgreSQL, each with a line of its own that can be cut; and the audit of what they hold.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use fencepost_rig::{PostgresServer, Proxy};
use rustix::process::Signal;

use super::{
    super::{
        client::Client,
        server::{Serve, Server, until},
    },
    callers::{Addresses, LEASE_MS_LONG},
    checker::check,
    history::{Ask, Content, Heard, History, Op},
};

/// Keys asked for in one request of an audit.
const PAGE: usize = 500;
/// How long a node under load may take to end in order.
const RETIRED: Duration = Duration::from_secs(10);

/// A node and its line to the database.
pub struct Seat {
    server: Option<Server>,
    pub line: Proxy,
    store: String,
}

impl Seat {
    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// The address of the store as this node knows it.
    pub fn store(&self) -> &str {
        &self.store
    }
}

pub struct Town {
    pub seats: Vec<Seat>,
    pub postgres: PostgresServer,
    /// The database, past all lines.
    pub database: String,
    pub addresses: Arc<Addresses>,
}

impl Town {
    pub fn start(nodes: usize) -> Self {
        Self::on(PostgresServer::start(), nodes)
    }

    pub fn on(postgres: PostgresServer, nodes: usize) -> Self {
        let database = postgres.fresh_database();
        let port = format!(":{}/", postgres.port());
        // All at once, as after a power cut.
        let seats = thread::scope(|scope| {
            let starting: Vec<_> = (0..nodes)
                .map(|_| {
                    let line = Proxy::start(postgres.port());
                    let store = database.replace(&port, &format!(":{}/", line.port()));
                    scope.spawn(move || Seat { server: Some(Serve::sharing(&store).start()), line, store })
                })
                .collect();
            starting.into_iter().map(|seat| seat.join().unwrap()).collect()
        });
        let own = Self { seats, postgres, database, addresses: Arc::default() };
        own.publish();
        own
    }

    fn publish(&self) {
        self.addresses.set(self.seats.iter().map(|seat| seat.server().address).collect());
    }

    pub fn node(&self, seat: usize) -> &Server {
        self.seats[seat].server()
    }

    pub fn nodes(&self) -> Vec<&Server> {
        self.seats.iter().map(Seat::server).collect()
    }

    /// kill -9 of a node, and another one in its place.
    pub fn replace(&mut self, seat: usize) {
        self.take(seat).kill();
        self.fill(seat);
    }

    /// SIGTERM of a node, and another one in its place.
    pub fn retire(&mut self, seat: usize) {
        let old = self.take(seat);
        old.signal(Signal::TERM);
        let begun = Instant::now();
        let (status, said) = old.wait();
        assert_eq!(status.code(), Some(0), "{said}");
        // It waits for what is under way, and nothing here takes long.
        assert!(begun.elapsed() < RETIRED, "SIGTERM took {:?}: {said}", begun.elapsed());
        self.fill(seat);
    }

    pub fn take(&mut self, seat: usize) -> Server {
        self.seats[seat].server.take().unwrap()
    }

    pub fn fill(&mut self, seat: usize) {
        self.seats[seat].server = Some(Serve::sharing(&self.seats[seat].store).start());
        self.publish();
    }

    /// Returns when every node says that its store acknowledges.
    pub fn until_ready(&self) {
        for seat in &self.seats {
            let mut anybody = seat.server().client("");
            until("every node is ready again", || (anybody.get("/readyz").status == 200).then_some(()));
        }
    }

    /// Asks every node for every one of these keys, seals what is free, and asks all of them again.
    pub fn audit(&self, history: &History, keys: impl Iterator<Item = u64>) {
        audit(&self.addresses, history, keys);
    }
}

/// See [`Town::audit`].
pub fn audit(addresses: &Addresses, history: &History, keys: impl Iterator<Item = u64>) {
    let claim = Ask::Claim { lease_ms: LEASE_MS_LONG, wait_ms: 0 };
    let keys: Vec<u64> = keys.collect();
    for page in keys.chunks(PAGE) {
        let claims: Vec<(u64, Ask)> = page.iter().map(|key| (*key, claim.clone())).collect();
        let first = ask_all(addresses, history, 0, &claims);
        let free = page.iter().zip(first).filter_map(|(key, heard)| match heard {
            Heard::New { token } => Some((*key, token)),
            _ => None,
        });
        let seals: Vec<(u64, Ask)> = free
            .map(|(key, token)| {
                history.effect(key, token);
                (key, Ask::Seal { token, content: Content::of(key, token, 0) })
            })
            .collect();
        ask_all(addresses, history, 1 % addresses.count(), &seals);
        for node in 0..addresses.count() {
            ask_all(addresses, history, node, &claims);
        }
    }
}

// Until there is an answer: these requests are safe to repeat.
fn ask_all(addresses: &Addresses, history: &History, node: usize, asks: &[(u64, Ask)]) -> Vec<Heard> {
    if asks.is_empty() {
        return Vec::new();
    }
    let commands: Vec<String> = asks.iter().map(|(key, ask)| ask.command(*key)).collect();
    let body = format!("{{\"commands\":[{}]}}", commands.join(","));
    until("an audit is answered", || {
        let mut client = Client::new(addresses.get(node), "dev-partner").patience(Duration::from_secs(15));
        let start_us = history.now_us();
        let answer = client.try_post("/v1/fences/batch", &body);
        let heard = match answer {
            Ok(answer) if answer.status == 200 => Heard::results(&answer.text()),
            other => vec![Heard::answer(other); asks.len()],
        };
        assert_eq!(heard.len(), asks.len(), "a batch was answered in part");
        history.record_all(node, asks, start_us, &heard);
        (!heard.iter().any(Heard::is_open)).then_some(heard)
    })
}

/// Fails with the first breaches of a history from a key on, where it has any.
#[track_caller]
pub fn assert_kept(history: &History, nodes: usize, from_key: u64, said: &str) {
    let ops: Vec<Op> = history.ops().into_iter().filter(|op| op.key >= from_key).collect();
    let breaches = check(&ops, &history.effects(), nodes);
    let shown: Vec<&str> = breaches.iter().take(4).map(|breach| breach.what.as_str()).collect();
    assert!(breaches.is_empty(), "{} breaches; {said}\n{}", breaches.len(), shown.join("\n"));
}
