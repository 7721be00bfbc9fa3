//! How the suite opens, kills and cuts stores on a PostgreSQL of their own.

use std::sync::Arc;

use fencepost_kernel::{
    Millis, RowKey, Tenant, Write,
    fence::{Fence, Receipt, State, Token, scope::OnLapse},
    key::Kind,
    row::{CommitId, Record},
};
use fencepost_rig::{PostgresServer as Server, Proxy};
use fencepost_store::{Error, Store, WriteSet, address::Opener, conformance::Harness, postgres::Postgres};
use tokio::runtime::Runtime;

/// The first of January 2026: past, for every database these tests meet.
pub const NOW: u64 = 1_767_225_600_000;
pub const DAY_MS: u64 = 24 * 3_600_000;

/// A server, and a runtime for the stores on it.
pub struct Rig {
    pub server: Server,
    pub runtime: Runtime,
}

pub fn opener(node: &str) -> Opener {
    Opener { node: node.to_owned(), address: format!("{node}:80"), release: "test".to_owned(), format_max: None }
}

impl Rig {
    pub fn new() -> Self {
        Self::with(&[])
    }

    pub fn with(settings: &[&str]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Self { server: Server::start_with(settings), runtime }
    }

    pub fn try_open(&self, url: &str, opener: &Opener) -> Result<Arc<Postgres>, Error> {
        self.runtime.block_on(Postgres::open(url, opener)).map(Arc::new)
    }

    pub fn open(&self, url: &str, node: &str) -> Arc<Postgres> {
        self.try_open(url, &opener(node)).unwrap()
    }

    /// A store in a database of its own, and where that is.
    pub fn fresh(&self, node: &str) -> (Arc<Postgres>, String) {
        let url = self.server.fresh_database();
        (self.open(&url, node), url)
    }

    /// The same database through a proxy.
    pub fn through(&self, url: &str) -> (Proxy, String) {
        let proxy = Proxy::start(self.server.port());
        let detour = url.replace(&format!(":{}/", self.server.port()), &format!(":{}/", proxy.port()));
        (proxy, detour)
    }
}

/// Stores that end with their server.
pub struct OnServer {
    rig: Rig,
    /// The database of each store that was handed out, latest last.
    urls: Vec<String>,
}

impl OnServer {
    pub fn new() -> Self {
        Self { rig: Rig::new(), urls: Vec::new() }
    }

    fn name(&self) -> String {
        format!("node-{}", self.urls.len())
    }
}

impl Harness for OnServer {
    fn open(&mut self) -> Arc<dyn Store> {
        let (store, url) = self.rig.fresh(&self.name());
        self.urls.push(url);
        store
    }

    fn beside(&mut self, _: &Arc<dyn Store>) -> Arc<dyn Store> {
        self.rig.open(self.urls.last().unwrap(), "beside")
    }

    fn crash(&mut self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        drop(store);
        self.rig.server.kill();
        self.rig.server.restart();
        Some(self.rig.open(self.urls.last().unwrap(), &self.name()))
    }

    fn interrupt(&mut self, store: Arc<dyn Store>, sets: &[WriteSet], now: Millis) -> Vec<Arc<dyn Store>> {
        drop(store);
        let before = self.urls.last().unwrap().clone();
        let mut found: Vec<Arc<dyn Store>> = Vec::new();
        let mut lost = 0;
        // Nothing of it, a part of its first message, places between, and more than it has.
        for cut in [0, 60, 400, 1_000, 1_800, 3_000, 6_000, 100_000] {
            let image = copy(&self.rig.server, &before, cut);
            let (proxy, detour) = self.rig.through(&image);
            let store = self.rig.open(&detour, &format!("cut-{cut}"));
            // The connection is there before it is cut.
            self.rig.runtime.block_on(store.commit(&[], now)).unwrap();
            proxy.cut_after(cut);
            match self.rig.runtime.block_on(store.commit(sets, now)) {
                Ok(_) => {}
                Err(Error::NotApplied(_) | Error::Unknown(_)) => lost += 1,
                Err(error) => panic!("a lost connection is not damage: {error}"),
            }
            drop(store);
            found.push(self.rig.open(&image, &format!("after-{cut}")));
            self.urls.push(image);
        }
        assert!((3..=7).contains(&lost), "the cuts miss the commit: {lost} of 8 hit it");
        found
    }

    fn sweep(&mut self, store: &Arc<dyn Store>, now: Millis) {
        self.rig.runtime.block_on(async {
            store.sweep(now, 1_000).await.unwrap();
        });
    }
}

/// A copy of a database that nobody uses any more.
fn copy(server: &Server, url: &str, number: u64) -> String {
    let (base, from) = url.rsplit_once('/').unwrap();
    let to = format!("{from}_{number}");
    let end = format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{from}'");
    server.sql(&server.url(), &end);
    server.sql(&server.url(), &format!("CREATE DATABASE {to} TEMPLATE {from}"));
    format!("{base}/{to}")
}

pub fn key(number: u64) -> RowKey {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    id[31] = number as u8;
    RowKey { kind: Kind::Fence, id }
}

pub fn fence(number: u64, state: State) -> Fence {
    Fence {
        tenant: Tenant::new("acme"),
        scope: "BOOKING".into(),
        fields: vec![("booking".to_owned(), number.to_string())].into(),
        seq: None,
        first_seen: Millis(NOW),
        token: Token(NOW),
        attempt: 1,
        body: None,
        source: None,
        version: None,
        state,
        events: Vec::new(),
    }
}

pub fn sealed(number: u64, expires: u64) -> Record {
    let receipt = Receipt { effect_id: format!("E{number}"), body: vec![number as u8; 40].into() };
    fence(number, State::Sealed { receipt, at: Millis(NOW), expires: Millis(expires) }).into()
}

pub fn pending(number: u64, lease_expires: u64, on_lapse: OnLapse) -> Record {
    let forget_at = (on_lapse == OnLapse::Recover).then_some(Millis(lease_expires + DAY_MS));
    fence(
        number,
        State::Pending { lease_expires: Millis(lease_expires), on_lapse, forget_at, doubted_at: None, held_by: None },
    )
    .into()
}

pub fn put(number: u64, expect: Option<u64>, record: Record) -> Write {
    Write { key: key(number), expect: expect.map(CommitId), put: Some(record) }
}

pub fn set(id: u64, writes: impl Into<Vec<Write>>) -> WriteSet {
    WriteSet::new(CommitId(id), writes.into())
}
