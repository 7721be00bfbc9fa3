//! Shares the places for requests in flight between rules and clients. Each share follows from the free places: a
//! single rule gets half of all places, a single tenant two thirds, and the more want places, the less each gets. So
//! neither a hanging upstream nor a greedy client keeps the others out, and a tenant of a hanging upstream still
//! reaches its others. Without a credential, one address gets a fifth, and all addresses together a third.
//! Never waits. Called by the gateway before a request leaves.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fencepost::policy::{identity::Identity, server::ServerSettings};
use fencepost_kernel::Tenant;
use http::request::Parts;

use crate::problem::{Code, Problem};
use fencepost_front::{PeerAddr, client_network};

/// The unit that places are counted by.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Client {
    /// A tenant, from any address.
    Tenant(Tenant),
    /// Without a credential, an IPv4 address or an IPv6 /64, since one machine may have all addresses of that.
    Address(IpAddr),
    /// All clients without a credential together: addresses are cheap.
    Anonymous,
}

impl Client {
    /// The tenant of a credential; without one, the address that a trusted proxy names, or else that of the connection.
    pub(super) fn of(caller: Option<&Identity>, parts: &Parts, server: &ServerSettings) -> Self {
        if let Some(caller) = caller {
            return Self::Tenant(caller.tenant().clone());
        }
        let Some(PeerAddr(peer)) = parts.extensions.get::<PeerAddr>() else { return Self::Anonymous };
        let told = || {
            let last = parts.headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?;
            last.rsplit(',').next()?.trim().parse().ok()
        };
        let address = server.trusts(peer.ip()).then(told).flatten();
        Self::Address(client_network(address.unwrap_or(peer.ip())))
    }

    /// How many places it may hold while `free` places are free.
    fn places_max(&self, free: usize) -> usize {
        match self {
            Self::Tenant(_) => free * 2,
            Self::Anonymous => (free / 2).max(1),
            Self::Address(_) => (free / 4).max(1),
        }
    }

    /// The units that its requests are counted by: itself and, for an address, all clients without a credential.
    fn counted(&self) -> impl Iterator<Item = Self> {
        let all = matches!(self, Self::Address(_)).then_some(Self::Anonymous);
        [Some(self.clone()), all].into_iter().flatten()
    }
}

/// Places for requests in flight.
#[derive(Clone)]
pub(super) struct Shares {
    max: usize,
    taken: Arc<Mutex<Taken>>,
}

/// Only holders of a place are counted, so this never grows past the number of places.
#[derive(Default)]
struct Taken {
    all: usize,
    rules: HashMap<Arc<str>, usize>,
    clients: HashMap<Client, usize>,
}

/// A place for one request, until it is dropped.
pub(super) struct RequestSlot {
    shares: Shares,
    rule: Arc<str>,
    client: Client,
}

impl Shares {
    pub(super) fn new(max: usize) -> Self {
        Self { max, taken: Arc::default() }
    }

    /// A place for a request of a client to a rule's upstream.
    pub(super) fn take(&self, rule: &Arc<str>, client: Client) -> Result<RequestSlot, Problem> {
        let mut taken = self.lock();
        let free = self.max.saturating_sub(taken.all);
        let held = |count: Option<&usize>| count.copied().unwrap_or_default();
        let busy = |why: &str| {
            let detail = format!("too many requests {why} are under way; nothing was done");
            Err(Problem::new(Code::GatewayBusy, detail).retry_after(1))
        };
        if free == 0 {
            return busy("to upstreams");
        }
        if held(taken.rules.get(rule)) >= free {
            return busy("to this rule's upstream");
        }
        if client.counted().any(|client| held(taken.clients.get(&client)) >= client.places_max(free)) {
            return busy("of this client");
        }
        taken.all += 1;
        *taken.rules.entry(rule.clone()).or_default() += 1;
        for client in client.counted() {
            *taken.clients.entry(client).or_default() += 1;
        }
        drop(taken);
        Ok(RequestSlot { shares: self.clone(), rule: rule.clone(), client })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        let mut taken = self.shares.lock();
        taken.all -= 1;
        less(&mut taken.rules, &self.rule);
        for client in self.client.counted() {
            less(&mut taken.clients, &client);
        }
    }
}

fn less<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fencepost::policy::Policy;

    use super::*;

    fn tenant(name: &str) -> Client {
        Client::Tenant(Tenant::new(name))
    }

    /// Takes all that one client gets from some rules in turn.
    fn greedy(shares: &Shares, rules: &[&str], client: &Client) -> Vec<RequestSlot> {
        let mut places = Vec::new();
        for rule in rules.iter().cycle() {
            match shares.take(&Arc::from(*rule), client.clone()) {
                Ok(place) => places.push(place),
                Err(_) => return places,
            }
        }
        places
    }

    #[test]
    fn a_greedy_tenant_leaves_a_third_and_each_further_one_a_third_of_that() {
        let shares = Shares::new(120);
        let rules: Vec<String> = (0..120).map(|rule| format!("POST /{rule}")).collect();
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let first = greedy(&shares, &rules, &tenant("a"));
        let second = greedy(&shares, &rules, &tenant("b"));
        let third = greedy(&shares, &rules, &tenant("c"));
        assert_eq!((first.len(), second.len(), third.len()), (80, 27, 9));
        assert!(shares.take(&"POST /0".into(), tenant("d")).is_ok());
        drop(first);
        assert_eq!(greedy(&shares, &rules, &tenant("d")).len(), 56, "what is given back is for everybody");
    }

    #[test]
    fn a_rule_whose_upstream_hangs_leaves_half_to_the_others_whoever_asks() {
        let shares = Shares::new(100);
        let hung: Arc<str> = "POST /slow".into();
        let places: Vec<RequestSlot> =
            (0..1_000).filter_map(|n| shares.take(&hung, tenant(&format!("t{n}"))).ok()).collect();
        assert_eq!(places.len(), 50);
        assert!(shares.take(&"POST /fast".into(), tenant("t0")).is_ok());
    }

    #[test]
    fn readers_without_a_credential_are_counted_by_address_and_ipv6_by_network() {
        let at = |text: &str| Client::Address(client_network(text.parse().unwrap()));
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
        assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
        // One address leaves places to the others, and all addresses leave places to tenants, even at the same rule.
        let (shares, rule) = (Shares::new(100), Arc::from("GET /a"));
        let take = |address: Client| shares.take(&rule, address).ok();
        let one: Vec<RequestSlot> = (0..100).filter_map(|_| take(at("192.0.2.1"))).collect();
        let others: Vec<RequestSlot> = (2..100).filter_map(|n| take(at(&format!("192.0.2.{n}")))).collect();
        assert_eq!((one.len(), one.len() + others.len()), (20, 33));
        assert!(take(tenant("a")).is_some());
    }

    #[test]
    fn one_place_can_be_taken_and_nothing_is_left_behind() {
        let shares = Shares::new(1);
        let place = shares.take(&"POST /a".into(), tenant("a")).unwrap();
        assert!(shares.take(&"POST /b".into(), tenant("b")).is_err());
        drop(place);
        let taken = shares.lock();
        assert!(taken.all == 0 && taken.rules.is_empty() && taken.clients.is_empty());
    }

    #[test]
    fn reader_behind_a_trusted_proxy_is_counted_by_the_address_that_the_proxy_tells() {
        let policy = Policy::parse("p.yml", "server: {trusted_proxies: [10.0.0.0/8]}").unwrap();
        let client = |peer: &str, told: &[&str]| {
            let mut parts = http::Request::new(()).into_parts().0;
            parts.extensions.insert(PeerAddr((peer.parse::<IpAddr>().unwrap(), 1).into()));
            for value in told {
                parts.headers.append("x-forwarded-for", value.parse().unwrap());
            }
            Client::of(None, &parts, &policy.server)
        };
        let at = |address: &str| Client::Address(address.parse().unwrap());
        assert_eq!(client("10.0.0.1", &["192.0.2.1", "192.0.2.2, 192.0.2.3"]), at("192.0.2.3"));
        assert_eq!(client("10.0.0.1", &["nonsense"]), at("10.0.0.1"));
        assert_eq!(client("192.0.2.9", &["192.0.2.1"]), at("192.0.2.9"), "anybody can say anything");
    }
}
