//! The power fails under load: acknowledged writes were on the disk. And the method has teeth: a store that does not
//! sync before it acknowledges is caught by it.

use std::sync::{Arc, Mutex};

use fencepost::{
    Claimed, Fencepost,
    clock::SystemClock,
    engine::EngineLimits,
    policy::Policy,
    store::embedded::{Embedded, Options},
};

use super::{
    disk::Disk,
    ledger::{Audit, Ledger, Load, Power, cycles, hear, seed},
    server::Serve,
};

const DISK_MIB: u64 = 512;

fn disk() -> Option<Disk> {
    Disk::new(DISK_MIB).map_err(|why| eprintln!("power cut not possible here: {why}")).ok()
}

#[test]
fn nothing_acknowledged_is_lost_by_a_power_cut_under_load() {
    let Some(mut disk) = disk() else { return };
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let ledger = Mutex::new(Ledger::default());
    let cycles = cycles(50);
    let (mut from, mut late) = (0, 0);
    for cycle in 0..cycles {
        let server = Serve::dev(&disk.data()).start();
        let audit = ledger.lock().unwrap().audit(server.address, from, 0);
        assert_eq!((audit.lost_claims, audit.lost_seals), (0, 0), "cycle {cycle}, seed {seed}: {audit:?}");
        late += audit.late;
        from = ledger.lock().unwrap().next_key();
        let load = Load { ledger: &ledger, address: server.address, seed: random.u64(..), pad: 0 };
        let enough = random.usize(1..60);
        load.run(|acks| {
            hear(&acks, enough);
            ledger.lock().unwrap().power(Power::Cutting);
            disk.cut();
            ledger.lock().unwrap().power(Power::Off);
            // Every client is refused; then nobody is left.
            hear(&acks, usize::MAX);
            server.kill();
        });
        let breaches = ledger.lock().unwrap().breaches().to_vec();
        assert!(breaches.is_empty(), "cycle {cycle}, seed {seed}: {breaches:?}");
        disk.back();
    }
    let server = Serve::dev(&disk.data()).start();
    let audit = ledger.lock().unwrap().audit(server.address, 0, 0);
    assert_eq!((audit.lost_claims, audit.lost_seals), (0, 0), "at the end, seed {seed}: {audit:?}");
    assert!(audit.seals > cycles, "the load did too little to prove anything: {audit:?}");
    eprintln!(
        "power cut: {cycles} cycles, {} claims and {} seals acknowledged, 0 lost; {late} heard while it was cut, and gone",
        audit.claims, audit.seals
    );
    server.kill();
}

const ACKNOWLEDGED: u64 = 50;

// The engine and the store as the server has them, in this process, so that the production binary has no switch for
// losing data. The power fails when all are acknowledged; then the real server is asked.
fn survivors(options: Options) -> Option<Audit> {
    let mut disk = disk()?;
    // The store itself is there before: only the acknowledgements are in question.
    Serve::dev(&disk.data()).start().kill();
    let mut ledger = Ledger::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Embedded::open(disk.data(), options).unwrap();
        let clock = Arc::new(SystemClock::default());
        let once =
            Fencepost::over(Arc::new(store), clock, Policy::builtin(), EngineLimits::default(), Box::new(()), None)
                .await
                .unwrap();
        let acme = once.tenant("acme");
        for key in 0..ACKNOWLEDGED {
            let fields = [("index_hash", key.to_string())];
            let claimed = acme.scope("INDEX_BUILD").key(fields).claim().await.unwrap();
            let Claimed::New(claim) = claimed else { panic!("key {key} is nobody's") };
            let (effect_id, receipt) = ledger.promise(key, claim.token().0);
            claim.seal(effect_id, receipt).await.unwrap();
        }
        drop(acme);
        disk.cut();
        once.close().await;
    });
    drop(runtime);
    disk.back();
    let server = Serve::dev(&disk.data()).start();
    let audit = ledger.audit(server.address, 0, 0);
    server.kill();
    Some(audit)
}

#[test]
fn a_store_that_does_not_sync_is_caught_by_the_power_cut() {
    let Some(synced) = survivors(Options::default()) else { return };
    assert_eq!((synced.seals, synced.lost_seals), (ACKNOWLEDGED as usize, 0), "with the sync: {synced:?}");
    let unsynced = Options { unsynced_loses_acknowledged_writes: true, ..Options::default() };
    let Some(unsynced) = survivors(unsynced) else { return };
    assert!(unsynced.lost_seals > 0, "a missing sync went unnoticed: {unsynced:?}");
    eprintln!("sync taken out: {} of {} acknowledged seals lost to the power cut", unsynced.lost_seals, unsynced.seals);
}
