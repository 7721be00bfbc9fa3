//! Acknowledged writes are synced, whatever the database's own defaults say.

use std::time::Duration;

use fencepost_rig::PostgresServer;

use super::{
    super::server::Serve,
    callers::Load,
    history::History,
    town::{Town, assert_kept},
};

const ENOUGH: Duration = Duration::from_secs(20);

#[test]
fn a_database_that_acknowledges_before_it_syncs_is_made_to_sync() {
    // The log is not written by itself for a while: a write acknowledged without a sync dies with the server.
    let mut town = Town::on(PostgresServer::start_with(&["synchronous_commit=off", "wal_writer_delay=10s"]), 2);
    let database = town.database.clone();
    let name = database.rsplit('/').next().unwrap();
    town.postgres.sql(&database, &format!("ALTER DATABASE {name} SET synchronous_commit = off"));
    // Sessions that begin after the change, too.
    town.replace(1);
    let history = History::default();
    let addresses = town.addresses.clone();
    let mut first_key = 0;
    for round in 0..3 {
        let load = Load { history: &history, addresses: &addresses, seed: round, first_key };
        let next = load.run(|acks| {
            assert!(acks.hear(40, ENOUGH));
            town.postgres.kill();
            acks.pass(Duration::from_millis(50));
            town.postgres.restart();
            town.until_ready();
            assert!(acks.hear(10, ENOUGH));
        });
        town.audit(&history, first_key..next);
        first_key = next;
    }
    assert_kept(&history, 2, 0, "synchronous_commit was off for the database");
}

#[test]
fn the_same_database_does_lose_what_nobody_made_it_sync() {
    let mut postgres = PostgresServer::start_with(&["synchronous_commit=off", "wal_writer_delay=10s"]);
    let database = postgres.fresh_database();
    postgres.sql(&database, "CREATE TABLE kept (n int)");
    let lost = (0..5).any(|n| {
        postgres.sql(&database, "CHECKPOINT");
        postgres.sql(&database, &format!("INSERT INTO kept VALUES ({n})"));
        postgres.kill();
        postgres.restart();
        postgres.sql(&database, &format!("SELECT count(*) FROM kept WHERE n = {n}")) == "0"
    });
    assert!(lost, "this setting loses nothing here: the test beside this one proves nothing");
}

#[test]
fn a_scope_that_asks_for_a_sync_is_refused_on_a_database_without_fsync() {
    let postgres = PostgresServer::start_with(&["fsync=off"]);
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("fencepost.yml");
    std::fs::write(&config, "scopes: {REFUND: {key: [orderId], durability: synced}}").unwrap();
    let (status, said) = Serve::sharing(&postgres.fresh_database()).arg("--config").arg(&config).refused();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("REFUND") && said.contains("fsync"), "{said}");
}
