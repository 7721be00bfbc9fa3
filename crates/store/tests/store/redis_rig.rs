//! How the suite opens, kills and cuts off Redis stores.

use std::sync::Arc;

use fencepost_kernel::{Millis, key::Kind};
use fencepost_rig::{Cluster, Proxy, RedisServer as Server};
use fencepost_store::{Store, Verdict, WriteSet, conformance::Harness, redis::Redis};
use tokio::runtime::Runtime;

/// A runtime that stores live on.
pub struct Stores {
    runtime: Runtime,
    count: usize,
}

impl Stores {
    pub fn new() -> Self {
        Self {
            runtime: tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
            count: 0,
        }
    }

    pub fn open(&self, url: &str) -> Arc<Redis> {
        Arc::new(self.try_open(url).unwrap_or_else(|error| panic!("{url}: {error}")))
    }

    pub fn try_open(&self, url: &str) -> Result<Redis, fencepost_store::Error> {
        self.runtime.block_on(Redis::open(url))
    }

    fn fresh(&mut self) -> String {
        self.count += 1;
        format!("law{}", self.count)
    }
}

/// One server that syncs before every reply, with a prefix for each store.
pub struct Single {
    stores: Stores,
    server: Server,
    prefix: String,
}

impl Single {
    pub fn new() -> Self {
        Self { stores: Stores::new(), server: Server::synced(), prefix: String::new() }
    }

    fn at(&self, port: u16) -> Arc<Redis> {
        self.stores.open(&format!("redis://127.0.0.1:{port}?prefix={}", self.prefix))
    }
}

impl Harness for Single {
    fn open(&mut self) -> Arc<dyn Store> {
        self.prefix = self.stores.fresh();
        self.at(self.server.port())
    }

    fn crash(&mut self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        drop(store);
        self.server.kill();
        self.server.restart();
        Some(self.at(self.server.port()))
    }

    fn interrupt(&mut self, store: Arc<dyn Store>, sets: &[WriteSet], now: Millis) -> Vec<Arc<dyn Store>> {
        let (mut prefixes, mut failed) = (Vec::new(), 0);
        // From nothing of it to all of it; a set of the suite takes some hundred bytes.
        for bytes in (0..1_500).step_by(125).chain([1, 1 << 20]) {
            self.prefix = self.stores.fresh();
            self.stores.runtime.block_on(copy(&*store, &*self.at(self.server.port())));
            let proxy = Proxy::start(self.server.port());
            let cut_off = self.at(proxy.port());
            proxy.cut_after(bytes);
            failed += usize::from(self.stores.runtime.block_on(cut_off.commit(sets, now)).is_err());
            prefixes.push(self.prefix.clone());
        }
        assert!((1..prefixes.len()).contains(&failed), "some cuts come too late, and some do not: {failed}");
        self.server.kill();
        self.server.restart();
        let reopened = prefixes.into_iter().map(|prefix| {
            self.prefix = prefix;
            self.at(self.server.port()) as Arc<dyn Store>
        });
        reopened.collect()
    }

    fn sweep(&mut self, _: &Arc<dyn Store>, _: Millis) {}
}

/// A cluster of six, with a prefix for each store.
pub struct Six {
    stores: Stores,
    cluster: Cluster,
    parameters: &'static str,
    prefix: String,
}

impl Six {
    pub fn new(parameters: &'static str) -> Self {
        Self { stores: Stores::new(), cluster: Cluster::start(), parameters, prefix: String::new() }
    }

    fn current(&self) -> Arc<Redis> {
        self.stores.open(&format!("{}?prefix={}{}", self.cluster.url(), self.prefix, self.parameters))
    }
}

impl Harness for Six {
    fn open(&mut self) -> Arc<dyn Store> {
        self.prefix = self.stores.fresh();
        self.current()
    }

    fn crash(&mut self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        drop(store);
        self.cluster.kill_all();
        self.cluster.restart_all();
        Some(self.current())
    }

    fn interrupt(&mut self, store: Arc<dyn Store>, sets: &[WriteSet], now: Millis) -> Vec<Arc<dyn Store>> {
        // Somewhere in the middle, before, or after: wherever the kill hits.
        let commit = self.stores.runtime.spawn({
            let (store, sets) = (store.clone(), sets.to_vec());
            async move { drop(store.commit(&sets, now).await) }
        });
        self.cluster.kill_all();
        self.stores.runtime.block_on(commit).unwrap();
        self.cluster.restart_all();
        vec![self.current()]
    }

    fn sweep(&mut self, _: &Arc<dyn Store>, _: Millis) {}
}

/// The same rows under the same revisions, in an empty store.
async fn copy(from: &dyn Store, to: &dyn Store) {
    let now = from.time_floor().await.unwrap();
    for kind in [Kind::Fence, Kind::VersionHead, Kind::AgainHead, Kind::Alias, Kind::Trace] {
        for (key, row) in from.scan(kind, None, 1_000).await.unwrap() {
            let write = fencepost_kernel::Write { key, expect: None, put: Some(row.record.clone()) };
            let set = WriteSet::new(row.revision, vec![write]);
            assert_eq!(to.commit(&[set], now).await.unwrap(), [Verdict::Applied]);
        }
    }
}
