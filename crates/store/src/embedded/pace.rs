//! Delays a commit while fjall's background workers are behind with flushing memtables or merging tables.
//! Never waits for workers that have failed: fjall's own throttling sleeps 100 ms a time, and for ever on a full disk.
//! Called by the embedded store before each commit.

use std::{thread, time::Duration};

use fjall::{Database, Keyspace, PersistMode};

/// fjall throttles at four, and one commit can add one. Every sealed memtable has a flush under way, so the wait ends.
const SEALED_MEMTABLES_MAX: usize = 2;
/// fjall stops at thirty, and one commit can add one here, too.
const UNMERGED_TABLES_MAX: usize = 25;
const PAUSE: Duration = Duration::from_millis(1);

/// Returns once there is room in all `keyspaces`, or with the error of a background worker.
pub(super) fn wait_for_room(db: &Database, keyspaces: [&Keyspace; 4]) -> fjall::Result<()> {
    let full = |keyspace: &Keyspace| {
        keyspace.sealed_memtable_count() > SEALED_MEMTABLES_MAX || keyspace.l0_table_count() > UNMERGED_TABLES_MAX
    };
    while keyspaces.into_iter().any(full) {
        // There is nothing left to write: called because it fails where a background worker has failed.
        db.persist(PersistMode::Buffer)?;
        thread::sleep(PAUSE);
    }
    Ok(())
}
