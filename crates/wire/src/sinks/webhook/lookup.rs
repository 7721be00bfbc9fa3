//! Looks names up, each only once at a time for all deliveries that wait for it.
//! Never judges an address, and never keeps one: the next connection asks again. Called by `judge`.

use std::{
    collections::HashMap,
    fmt::Display,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use tokio::{sync::Semaphore, task::spawn_blocking};

/// How many names are looked up at once: each takes a thread, and a silent name server blocks it.
const THREADS_MAX: usize = 64;

type Found = Result<Arc<[IpAddr]>, String>;
type Waiting = Shared<BoxFuture<'static, Found>>;

/// Looks names up. Clones share the lookups in flight.
#[derive(Clone, Debug)]
pub(super) struct Lookups(Arc<SharedLookups>);

#[derive(Debug)]
struct SharedLookups {
    under_way: Mutex<HashMap<String, Waiting>>,
    threads: Semaphore,
}

impl Lookups {
    pub(super) fn new() -> Self {
        Self(Arc::new(SharedLookups { under_way: Mutex::default(), threads: Semaphore::new(THREADS_MAX) }))
    }

    /// Every address of a name; there is at least one.
    pub(super) async fn find(&self, name: &str) -> Found {
        let waiting = self.0.under_way().entry(name.to_owned()).or_insert_with(|| self.begin(name)).clone();
        waiting.await
    }

    /// The lookup goes on when all waiting callers have given up; the next caller joins it.
    fn begin(&self, name: &str) -> Waiting {
        let (desk, name) = (self.0.clone(), name.to_owned());
        let failed = |why: &dyn Display| format!("the lookup broke off: {why}");
        let task = tokio::spawn(async move {
            let _permit = desk.threads.acquire().await.map_err(|error| failed(&error))?;
            let asked = name.clone();
            let found = spawn_blocking(move || ask(&asked)).await;
            desk.under_way().remove(&name);
            found.map_err(|error| failed(&error))?
        });
        async move { task.await.map_err(|error| failed(&error))? }.boxed().shared()
    }
}

impl SharedLookups {
    fn under_way(&self) -> MutexGuard<'_, HashMap<String, Waiting>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ask(name: &str) -> Found {
    let failed = |why: &dyn Display| format!("{name} cannot be looked up: {why}");
    let found = (name, 0).to_socket_addrs().map_err(|error| failed(&error))?;
    let found: Arc<[IpAddr]> = found.map(|address: SocketAddr| address.ip()).collect();
    if found.is_empty() { Err(failed(&"it has no address")) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn a_name_is_looked_up_once_for_all_who_wait_and_then_forgotten() {
        let lookups = Lookups::new();
        // With all threads taken, no lookup can end yet.
        let busy = lookups.0.threads.acquire_many(THREADS_MAX as u32).await.unwrap();
        let mut all = Box::pin(join_all((0..100).map(|_| lookups.find("localhost"))));
        assert!((&mut all).now_or_never().is_none());
        assert!(lookups.find("localhost").now_or_never().is_none(), "one who gives up");
        assert_eq!(lookups.0.under_way().len(), 1);
        drop(busy);
        for found in all.await {
            assert!(found.unwrap().iter().all(|address| address.is_loopback()));
        }
        assert_eq!(lookups.0.under_way().len(), 0);
        assert_eq!(lookups.0.threads.available_permits(), THREADS_MAX);
    }

    #[tokio::test]
    async fn a_name_that_is_not_there_is_named() {
        let refused = Lookups::new().find("nobody.invalid").await.unwrap_err();
        assert!(refused.contains("nobody.invalid cannot be looked up"), "{refused}");
    }
}
