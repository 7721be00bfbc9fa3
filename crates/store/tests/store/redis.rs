//! Guarantees of the Redis store alone: its durability, its expiry, and its verdicts when something breaks.

use std::time::{Duration, Instant};

use fencepost_kernel::{
    Millis, RowKey, Tenant, Write,
    fence::{self, AgainHead, Fence, Receipt, State, Token, Trace, scope::OnLapse},
    key::Kind,
    row::{CommitId, Record},
};
use fencepost_rig::{Proxy, RedisServer as Server};
use fencepost_store::{
    Durability, Error, Store,
    Verdict::{self, Applied},
    WriteSet,
    redis::Redis,
};
use fencepost_testkit::{until, until_within};
use futures::executor::block_on;

use super::redis_rig::Stores;

const NOW: Millis = Millis(1_767_225_600_000);
const HOUR_MS: u64 = 3_600_000;

fn fence(state: State) -> Record {
    Record::from(Fence {
        tenant: Tenant::new("acme"),
        scope: "BOOKING".into(),
        fields: Vec::new().into(),
        seq: None,
        first_seen: NOW,
        token: Token(1),
        attempt: 1,
        body: None,
        source: None,
        version: None,
        state,
        events: Vec::new(),
    })
}

pub fn pending() -> Record {
    fence(State::Pending {
        lease_expires: NOW,
        on_lapse: OnLapse::Recover,
        forget_at: Some(NOW.plus(1)),
        doubted_at: None,
        held_by: None,
    })
}

fn sealed(expires: Millis) -> Record {
    fence(State::Sealed { receipt: Receipt { effect_id: "E".to_owned(), body: "r".into() }, at: NOW, expires })
}

// Spread over the whole range of ids.
pub fn key(number: u64) -> RowKey {
    let mut id = [7; 32];
    id[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    RowKey { kind: Kind::Fence, id }
}

pub fn set(id: u64, key: RowKey, expect: Option<u64>, record: Record) -> WriteSet {
    WriteSet::new(CommitId(id), vec![Write { key, expect: expect.map(CommitId), put: Some(record) }])
}

pub fn commit(store: &Redis, sets: &[WriteSet]) -> Result<Vec<Verdict>, Error> {
    block_on(store.commit(sets, NOW))
}

pub fn revision(store: &Redis, key: RowKey) -> Option<u64> {
    block_on(store.load(&[key])).unwrap()[0].as_ref().map(|row| row.revision.0)
}

// Row keys are bytes; a pattern finds the only one.
fn of_row(server: &Server, command: &str, arguments: &str) -> String {
    let script = format!("return redis.call('{command}', redis.call('KEYS', '{{*}}:[1-5]:*')[1]{arguments})");
    server.cli(&["EVAL", &script, "0"])
}

// A replica in step.
fn replica_of(master: &Server) -> Server {
    let replica = Server::start(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    until("it is in step", || replica.cli(&["INFO", "replication"]).contains("master_link_status:up"));
    replica
}

#[test]
fn durability_is_what_the_server_is_set_to() {
    let stores = Stores::new();
    let promised = |settings: &[&str]| {
        let server = Server::start(settings);
        let promises = stores.open(&server.url()).promises();
        (promises.durability, promises.because.replace(&server.port().to_string(), "PORT"))
    };
    assert_eq!(promised(&["--appendonly", "yes", "--appendfsync", "always"]).0, Durability::Synced);
    let everysec = promised(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    assert_eq!(everysec, (Durability::Delayed, "127.0.0.1:PORT has appendfsync everysec".to_owned()));
    assert_eq!(promised(&[]), (Durability::None, "127.0.0.1:PORT has appendonly no".to_owned()));
}

#[test]
fn a_server_that_may_evict_is_refused() {
    let server = Server::start(&["--maxmemory-policy", "allkeys-lru"]);
    let refused = Stores::new().try_open(&server.url()).err().unwrap();
    assert!(matches!(&refused, Error::Broken(why) if why.contains("allkeys-lru")), "{refused}");
}

#[test]
fn the_privileges_that_the_guide_names_are_enough() {
    let (server, stores) = (Server::synced(), Stores::new());
    let guide = include_str!("../../../../docs/guides/redis.md");
    let list = guide.lines().find_map(|line| line.strip_prefix("**Privileges.** ")).unwrap();
    let named = list.split("; on a cluster").next().unwrap().split('`').skip(1).step_by(2);
    let named: Vec<String> = named.map(|name| format!("+{}", name.to_lowercase().replace(' ', "|"))).collect();
    let grant = ["ACL", "SETUSER", "fp", "on", ">secret", "~{fencepost*"];
    let words: Vec<&str> = grant.into_iter().chain(named.iter().map(String::as_str)).collect();
    assert_eq!(server.cli(&words), "OK");
    let url = format!("redis://fp:secret@127.0.0.1:{}", server.port());
    for (rule, durability) in [("+ping", Durability::Synced), ("-config|get", Durability::Delayed)] {
        assert_eq!(server.cli(&["ACL", "SETUSER", "fp", rule]), "OK");
        let store = stores.open(&format!("{url}?prefix=fencepost-{durability:?}"));
        assert_eq!(store.promises().durability, durability);
        commit(&store, &[set(1, key(1), None, pending())]).unwrap();
        let remove = Write { key: key(1), expect: Some(CommitId(1)), put: None };
        let gone = WriteSet::new(CommitId(2), vec![remove]);
        assert_eq!(commit(&store, &[gone]).unwrap(), [Applied]);
        assert!(block_on(store.scan(Kind::Fence, None, 10)).unwrap().is_empty());
        assert!(block_on(store.due(Kind::Fence, NOW, None, 10)).unwrap().is_empty());
    }
}

#[test]
fn rows_laid_out_in_another_way_are_refused() {
    let (server, stores) = (Server::start(&[]), Stores::new());
    drop(stores.open(&server.url()));
    server.cli(&["SET", "{fencepost}:layout", "1 shards=1024"]);
    let refused = stores.try_open(&server.url()).err().unwrap();
    assert!(matches!(&refused, Error::Broken(why) if why.contains("shards=1024")), "{refused}");
}

#[test]
fn only_a_sealed_fence_has_a_time_to_live() {
    let (server, stores) = (Server::start(&[]), Stores::new());
    let expires = Some(NOW.plus(1));
    let lasting = [
        (Kind::Fence, pending()),
        (
            Kind::Fence,
            fence(State::Pending {
                lease_expires: NOW,
                on_lapse: OnLapse::Hold,
                forget_at: None,
                doubted_at: None,
                held_by: None,
            }),
        ),
        (Kind::Fence, fence(State::Released { at: NOW, expires: NOW.plus(1) })),
        (Kind::AgainHead, Record::Fence(fence::Record::AgainHead(AgainHead { last: 1, sealed: true, expires }))),
        (Kind::Trace, Record::Fence(fence::Record::Trace(Trace { expires, ..Trace::default() }.into()))),
    ];
    for (kind, record) in lasting {
        server.cli(&["FLUSHALL"]);
        let (store, key) = (stores.open(&server.url()), RowKey { kind, ..key(1) });
        commit(&store, &[set(1, key, None, record)]).unwrap();
        assert_eq!(of_row(&server, "PTTL", ""), "-1", "{kind:?}");
        if kind == Kind::Fence {
            commit(&store, &[set(2, key, Some(1), sealed(NOW.plus(HOUR_MS)))]).unwrap();
            let ttl_ms: u64 = of_row(&server, "PTTL", "").parse().unwrap();
            assert!((HOUR_MS..HOUR_MS + 60_001).contains(&ttl_ms), "a little after its expiry: {ttl_ms}");
            commit(&store, &[set(3, key, Some(2), pending())]).unwrap();
            assert_eq!(of_row(&server, "PTTL", ""), "-1", "no longer sealed");
        }
    }
}

#[test]
fn a_row_that_redis_dropped_leaves_the_index_with_the_next_scan() {
    let (server, stores) = (Server::start(&[]), Stores::new());
    let store = stores.open(&server.url());
    commit(&store, &[set(1, key(1), None, sealed(NOW))]).unwrap();
    of_row(&server, "PEXPIRE", ", 0");
    let indexed = || server.cli(&["EVAL", "return #redis.call('KEYS', '*:index:1:*')", "0"]);
    assert_eq!((revision(&store, key(1)), indexed().as_str()), (None, "1"));
    assert!(block_on(store.scan(Kind::Fence, None, 10)).unwrap().is_empty());
    assert_eq!(indexed(), "0");
}

#[test]
fn a_damaged_row_stops_the_store() {
    let (server, stores) = (Server::start(&[]), Stores::new());
    let store = stores.open(&server.url());
    commit(&store, &[set(1, key(1), None, pending())]).unwrap();
    of_row(&server, "SETRANGE", ", 12, 'xyz'");
    assert!(matches!(block_on(store.load(&[key(1)])), Err(Error::Broken(_))));
}

#[test]
fn scripts_that_were_flushed_are_loaded_again() {
    let (server, stores) = (Server::start(&[]), Stores::new());
    let store = stores.open(&server.url());
    server.cli(&["SCRIPT", "FLUSH"]);
    let sets = [set(1, key(1), None, pending()), set(2, key(1), Some(1), pending())];
    assert_eq!(commit(&store, &sets).unwrap(), [Applied, Applied]);
}

#[test]
fn a_commit_that_landed_in_part_converges_when_it_is_repeated() {
    const ROWS: u64 = 300;
    let (server, stores) = (Server::synced(), Stores::new());
    // Each row is claimed and then sealed in the same commit, over several scripts.
    let claims = (1..=ROWS).map(|n| set(n, key(n), None, pending()));
    let seals = (1..=ROWS).map(|n| set(ROWS + n, key(n), Some(n), sealed(NOW.plus(HOUR_MS))));
    let sets: Vec<WriteSet> = claims.chain(seals).collect();
    let mut landed = Vec::new();
    for bytes in [20_000, 40_000, 60_000, 80_000, 100_000] {
        let proxy = Proxy::start(server.port());
        let cut_off = stores.open(&format!("redis://127.0.0.1:{}?prefix=p{bytes}", proxy.port()));
        proxy.cut_after(bytes);
        let cut = commit(&cut_off, &sets);
        assert!(matches!(cut, Err(Error::Unknown(_))), "{cut:?}");
        landed.push((1..=ROWS).filter_map(|n| revision(&cut_off, key(n))).count());
        assert_eq!(commit(&cut_off, &sets).unwrap(), vec![Applied; 2 * ROWS as usize]);
        (1..=ROWS).for_each(|n| assert_eq!(revision(&cut_off, key(n)), Some(ROWS + n)));
    }
    assert!(landed.iter().any(|count| (1..ROWS as usize).contains(count)), "some cuts hit the middle: {landed:?}");
}

#[test]
fn a_server_that_is_down_is_told_soon_and_found_again() {
    let (mut server, stores) = (Server::synced(), Stores::new());
    let store = stores.open(&server.url());
    commit(&store, &[set(1, key(1), None, pending())]).unwrap();
    server.kill();
    let started = Instant::now();
    // The connection it had may have carried the first try; from then on it is known that nothing left.
    let _ = commit(&store, &[set(2, key(2), None, pending())]);
    let refused = commit(&store, &[set(2, key(2), None, pending())]);
    assert!(matches!(refused, Err(Error::NotApplied(_))), "{refused:?}");
    assert!(matches!(block_on(store.load(&[key(1)])), Err(Error::NotApplied(_))));
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    server.restart();
    assert_eq!(revision(&store, key(1)), Some(1));
    assert_eq!(commit(&store, &[set(2, key(2), None, pending())]).unwrap(), [Applied]);
}

#[test]
fn a_server_that_refuses_to_write_has_written_nothing() {
    let (server, stores) = (Server::start(&[]), Stores::new());
    let store = stores.open(&server.url());
    for (limit, free) in
        [(["maxmemory", "1"], ["maxmemory", "0"]), (["min-replicas-to-write", "1"], ["min-replicas-to-write", "0"])]
    {
        server.cli(&["CONFIG", "SET", limit[0], limit[1]]);
        let refused = commit(&store, &[set(1, key(1), None, pending()), set(2, key(2), None, pending())]);
        assert!(matches!(refused, Err(Error::NotApplied(_))), "{refused:?}");
        server.cli(&["CONFIG", "SET", free[0], free[1]]);
        assert_eq!([revision(&store, key(1)), revision(&store, key(2))], [None, None]);
    }
    assert_eq!(commit(&store, &[set(1, key(1), None, pending())]).unwrap(), [Applied]);
}

#[test]
fn a_server_that_does_not_answer_leaves_the_outcome_unknown() {
    let (server, stores) = (Server::start(&[]), Stores::new());
    let store = stores.open(&server.url());
    server.cli(&["CLIENT", "PAUSE", "3000"]);
    let started = Instant::now();
    let paused = commit(&store, &[set(1, key(1), None, pending())]);
    assert!(matches!(paused, Err(Error::Unknown(_))), "{paused:?}");
    assert!(started.elapsed() < Duration::from_millis(2_900), "{:?}", started.elapsed());
    // It did happen, later; a repetition finds that out.
    let repeat = || commit(&store, &[set(1, key(1), None, pending())]).ok();
    assert_eq!(until_within(Duration::from_secs(20), "the repetition has an outcome", repeat), [Applied]);
}

#[test]
fn a_replica_that_is_asked_for_and_missing_leaves_the_outcome_unknown() {
    let (master, stores) = (Server::start(&["--repl-diskless-sync-delay", "0"]), Stores::new());
    let url = format!("{}?replicas=1", master.url());
    let refused = stores.try_open(&url).err().unwrap();
    assert!(refused.to_string().contains("replicas"), "{refused}");
    let mut replica = replica_of(&master);
    let store = stores.open(&url);
    assert_eq!(commit(&store, &[set(1, key(1), None, pending())]).unwrap(), [Applied]);
    replica.kill();
    let alone = commit(&store, &[set(2, key(2), None, pending())]);
    assert!(matches!(&alone, Err(Error::Unknown(why)) if why.contains("replicas")), "{alone:?}");
}

#[test]
fn a_name_that_follows_the_master_is_followed_after_a_switchover() {
    let (old, stores) = (Server::start(&["--repl-diskless-sync-delay", "0"]), Stores::new());
    let new = replica_of(&old);
    let proxy = Proxy::start(old.port());
    let store = stores.open(&format!("redis://127.0.0.1:{}", proxy.port()));
    let both = stores.open(&format!("{}?replicas=1", old.url()));
    assert_eq!(commit(&both, &[set(1, key(1), None, pending())]).unwrap(), [Applied]);
    assert_eq!(revision(&store, key(1)), Some(1));
    new.cli(&["REPLICAOF", "NO", "ONE"]);
    // It keeps its connections and its rows; new rows never come to it.
    old.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    proxy.lead_to(new.port());
    let refused = commit(&store, &[set(2, key(2), None, pending())]);
    assert!(matches!(&refused, Err(Error::NotApplied(why)) if why.contains("READONLY")), "{refused:?}");
    assert_eq!(commit(&store, &[set(2, key(2), None, pending())]).unwrap(), [Applied]);
    assert_eq!([revision(&store, key(1)), revision(&store, key(2))], [Some(1), Some(2)]);
}

#[test]
fn reads_go_where_writes_go_when_their_connection_was_lost() {
    let ([old, new], stores) = ([(); 2].map(|()| Server::start(&[])), Stores::new());
    let proxy = Proxy::start(old.port());
    let store = stores.open(&format!("redis://127.0.0.1:{}", proxy.port()));
    assert_eq!(revision(&store, key(1)), None);
    proxy.lead_to(new.port());
    let clients = old.cli(&["CLIENT", "LIST"]);
    let writes = clients.lines().find(|client| client.contains("cmd=evalsha")).unwrap();
    let id = writes.strip_prefix("id=").unwrap().split(' ').next().unwrap();
    assert_eq!(old.cli(&["CLIENT", "KILL", "ID", id]), "1");
    let lost = commit(&store, &[set(1, key(1), None, pending())]);
    assert!(matches!(lost, Err(Error::Unknown(_))), "{lost:?}");
    assert_eq!(commit(&store, &[set(1, key(1), None, pending())]).unwrap(), [Applied]);
    assert_eq!(revision(&store, key(1)), Some(1));
}

#[test]
fn the_servers_clock_is_the_stores_clock() {
    let (server, stores) = (Server::start(&[]), Stores::new());
    let store = stores.open(&server.url());
    let there = || server.cli(&["TIME"]).lines().next().unwrap().parse::<u64>().unwrap() * 1_000;
    let before = there();
    block_on(store.load(&[key(1)])).unwrap();
    let now = store.now().unwrap().0;
    assert!(before <= now + 1_000 && now < there() + 2_000, "{before} {now}");
    block_on(store.commit(&[], Millis(now + HOUR_MS))).unwrap();
    assert!(stores.open(&server.url()).now().unwrap().0 > now + HOUR_MS, "never before what was committed");
}

// Nothing was ever committed: the heartbeat alone brings the time along.
#[test]
fn engines_keep_one_time_when_the_servers_clock_goes_back() {
    let (mut server, stores) = (Server::synced(), Stores::new());
    let first = stores.open(&server.url());
    let before = first.now().unwrap();
    server.restart_with_clock(-3_600);
    let second = stores.open(&server.url());
    let apart = || first.now().unwrap().since(second.now().unwrap());
    until_within(Duration::from_secs(10), "both have one time", || apart() <= 1_000);
    let third = stores.open(&server.url());
    assert!(second.now().unwrap().since(third.now().unwrap()) < 1_000, "who starts later has the time at once");
    assert!(third.now().unwrap() >= before);
}
