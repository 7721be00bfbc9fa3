//! kill -9 under load, again and again on one store: nothing acknowledged is lost, and no key has two holders.

use std::sync::Mutex;

use super::{
    ledger::{Ledger, Load, cycles, hear, seed},
    server::Serve,
};

#[test]
fn nothing_acknowledged_is_lost_by_kill_9_under_load() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let dir = tempfile::tempdir().unwrap();
    let ledger = Mutex::new(Ledger::default());
    let cycles = cycles(200);
    let (mut from, mut unheard, mut open) = (0, 0, 0);
    for cycle in 0..cycles {
        let server = Serve::dev(dir.path()).start();
        let audit = ledger.lock().unwrap().audit(server.address, from, 0);
        assert_eq!((audit.lost_claims, audit.lost_seals), (0, 0), "cycle {cycle}, seed {seed}: {audit:?}");
        unheard += audit.unheard_seals;
        open += audit.claims - audit.seals;
        from = ledger.lock().unwrap().next_key();
        let load = Load { ledger: &ledger, address: server.address, seed: random.u64(..), pad: 0 };
        let enough = random.usize(1..60);
        load.run(|acks| {
            hear(&acks, enough);
            server.kill();
        });
        let breaches = ledger.lock().unwrap().breaches().to_vec();
        assert!(breaches.is_empty(), "cycle {cycle}, seed {seed}: {breaches:?}");
    }
    let server = Serve::dev(dir.path()).start();
    let audit = ledger.lock().unwrap().audit(server.address, 0, 0);
    assert_eq!((audit.lost_claims, audit.lost_seals), (0, 0), "at the end, seed {seed}: {audit:?}");
    assert!(audit.seals > cycles, "the load did too little to prove anything: {audit:?}");
    eprintln!(
        "kill -9: {cycles} cycles, {} claims and {} seals acknowledged, 0 lost; {open} claims open at a kill, {unheard} of them sealed unheard",
        audit.claims, audit.seals
    );
}
