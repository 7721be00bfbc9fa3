//! The disk fills up: acknowledgements stop at once, and nothing acknowledged is lost when there is space again.

use std::{fs::File, io::Write, sync::Mutex};

use super::{
    disk::Disk,
    ledger::{Ledger, Load, hear, seed},
    server::Serve,
};

const DISK_MIB: u64 = 96;
const LEFT_MIB: u64 = 8;
/// Receipts that fill what is left within a second.
const PAD: usize = 16 << 10;

// Fills the disk, and leaves a little.
fn ballast(disk: &Disk) {
    let mut file = File::create(disk.beside("ballast")).unwrap();
    let mebibyte = vec![0x5a; 1 << 20];
    while file.write_all(&mebibyte).is_ok() {}
    let whole = file.metadata().unwrap().len();
    file.set_len(whole - (LEFT_MIB << 20)).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn a_full_disk_stops_acknowledging_at_once_and_loses_nothing() {
    let mut disk = match Disk::new(DISK_MIB) {
        Ok(disk) => disk,
        Err(why) => return eprintln!("full disk not possible here: {why}"),
    };
    let ledger = Mutex::new(Ledger::default());
    let server = Serve::dev(&disk.data()).start();
    ballast(&disk);
    let load = Load { ledger: &ledger, address: server.address, seed: seed(), pad: PAD };
    // The load ends when every one of its clients has been refused.
    load.run(|acks| hear(&acks, usize::MAX));
    let breaches = ledger.lock().unwrap().breaches().to_vec();
    assert!(breaches.is_empty(), "{breaches:?}");

    let refused = |server: &super::server::Server| {
        let mut acme = server.acme();
        let answer = acme.claim("INDEX_BUILD", &serde_json::json!({"index_hash": "one more"}));
        answer.problem(503, "store-unavailable");
        assert!(answer.header("retry-after").is_some());
        assert!(!answer.text().contains("disk"), "nothing internal in a message: {}", answer.text());
        acme.get("/readyz").problem(503, "store-unavailable");
        assert_eq!(acme.get("/healthz").status, 200);
    };
    refused(&server);
    // Space alone does not bring it back: the disk's content is known only after a restart.
    std::fs::remove_file(disk.beside("ballast")).unwrap();
    refused(&server);
    server.kill();
    disk.back();

    let server = Serve::dev(&disk.data()).start();
    let audit = ledger.lock().unwrap().audit(server.address, 0, PAD);
    assert_eq!((audit.lost_claims, audit.lost_seals), (0, 0), "{audit:?}");
    assert!(audit.seals > 50, "the disk was full too soon to prove anything: {audit:?}");
    server.acme().claim("INDEX_BUILD", &serde_json::json!({"index_hash": "one more"})).token();
    eprintln!("full disk: {} claims and {} seals acknowledged before it was full, 0 lost", audit.claims, audit.seals);
    server.kill();
}

#[test]
fn a_disk_without_room_for_a_store_is_named_at_the_start() {
    let disk = match Disk::new(DISK_MIB) {
        Ok(disk) => disk,
        Err(why) => return eprintln!("full disk not possible here: {why}"),
    };
    let mut file = File::create(disk.beside("ballast")).unwrap();
    let page = [0x5a; 4096];
    while file.write_all(&page).is_ok() {}
    let (status, said) = Serve::dev(&disk.data()).refused();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("full") || said.contains("No space left"), "{said}");
    std::fs::remove_file(disk.beside("ballast")).unwrap();
    drop(file);
    Serve::dev(&disk.data()).start().kill();
}
