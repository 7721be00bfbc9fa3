//! Counts connections, in all and for each client address. A connection past a bound goes to the reserve, where only
//! probes are answered: a server with no free connection can still report its health.
//! Never waits, and never keeps an address that has no connection. Called by `accept`.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use super::peer::client_network;

/// Decides which addresses are proxies; the connections of a proxy belong to many clients.
#[derive(Clone)]
pub struct Proxies(Arc<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl Proxies {
    /// The addresses for which `is_proxy` is true.
    pub fn new(is_proxy: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_proxy))
    }

    /// No address is a proxy's.
    pub fn none() -> Self {
        Self::new(|_| false)
    }
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proxies(..)")
    }
}

/// The connections that may be served in full.
pub(super) struct Seats {
    free: Arc<Semaphore>,
    total: u32,
    per_client_max: usize,
    /// Many clients share these addresses, so their connections count only in the total.
    proxies: Proxies,
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One connection's seat; given back on drop.
pub(super) struct Seat {
    client: IpAddr,
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
    _permit: OwnedSemaphorePermit,
}

impl Seats {
    pub(super) fn new(total: usize, per_client_max: usize, proxies: Proxies) -> Self {
        let total = u32::try_from(total).unwrap_or(u32::MAX);
        Self { free: Arc::new(Semaphore::new(total as usize)), total, per_client_max, proxies, taken: Arc::default() }
    }

    /// A seat for a connection from `addr`; `None` where all are taken, or its client has its maximum.
    pub(super) fn take(&self, addr: IpAddr) -> Option<Seat> {
        let client = client_network(addr);
        let permit = self.free.clone().try_acquire_owned().ok()?;
        let mut taken = lock(&self.taken);
        let count = taken.entry(client).or_default();
        if *count >= self.per_client_max && !(self.proxies.0)(addr.to_canonical()) {
            return None;
        }
        *count += 1;
        Some(Seat { client, taken: self.taken.clone(), _permit: permit })
    }

    /// Ends when no seat is taken.
    pub(super) async fn all_free(&self) {
        let _ = self.free.acquire_many(self.total).await;
    }

    pub(super) fn len_taken(&self) -> usize {
        self.total as usize - self.free.available_permits()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        if let Some(count) = taken.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.client);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connections on which only probes are served. A new one ends the oldest, so a silent client cannot block the others.
pub(super) struct Reserve {
    max: usize,
    seated: Mutex<VecDeque<AbortHandle>>,
}

impl Reserve {
    pub(super) fn new(max: usize) -> Self {
        Self { max, seated: Mutex::default() }
    }

    pub(super) fn seat(&self, connection: AbortHandle) {
        let mut seated = lock(&self.seated);
        seated.retain(|connection| !connection.is_finished());
        seated.push_back(connection);
        if seated.len() > self.max
            && let Some(oldest) = seated.pop_front()
        {
            oldest.abort();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn one_client_gets_its_share_and_a_freed_seat_can_be_taken_again() {
        let seats = Seats::new(4, 2, Proxies::none());
        let [a, b] = ["10.0.0.1", "::ffff:10.0.0.2"].map(|addr| addr.parse().unwrap());
        let (first, _second) = (seats.take(a).unwrap(), seats.take(a).unwrap());
        assert!(seats.take(a).is_none());
        assert_eq!(seats.len_taken(), 2, "a refusal takes no seat");
        let others = [seats.take(b).unwrap(), seats.take("10.0.0.2".parse().unwrap()).unwrap()];
        assert!(seats.take("10.0.0.3".parse().unwrap()).is_none(), "all are taken");
        drop(first);
        assert!(seats.take(b).is_none(), "an IPv4 address is one client in both spellings");
        let _third = seats.take(a).unwrap();
        drop(others);
        assert!(!lock(&seats.taken).contains_key(&"10.0.0.2".parse::<IpAddr>().unwrap()));
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_client() {
        let seats = Seats::new(4, 1, Proxies::none());
        let _first = seats.take("2001:db8:1:2:3::1".parse().unwrap()).unwrap();
        assert!(seats.take("2001:db8:1:2:ffff::9".parse().unwrap()).is_none());
        assert!(seats.take("2001:db8:1:3::1".parse().unwrap()).is_some());
    }

    #[test]
    fn connections_of_a_proxy_count_only_among_all() {
        let seats = Seats::new(4, 1, Proxies::new(|addr| addr.to_string().starts_with("10.")));
        let held: Vec<_> = (0..4).map_while(|_| seats.take("10.1.2.3".parse().unwrap())).collect();
        assert_eq!(held.len(), 4);
        assert!(seats.take("10.1.2.3".parse().unwrap()).is_none());
    }
}
