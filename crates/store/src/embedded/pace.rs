//! Holds a commit back while the background is behind with writing memtables out, or with merging what it wrote.
//! Never waits for a background that has failed: fjall's own brakes sleep 100 ms at a time and, on a full disk, for ever.
//! Called by the embedded store before each commit.

use std::{thread, time::Duration};

use fjall::{Database, Keyspace, PersistMode};

/// fjall brakes at four, and one commit can add one. Every sealed memtable has a flush under way, so this ends.
const SEALED_MEMTABLES_MAX: usize = 2;
/// fjall stops at thirty, and one commit can add one here, too.
const UNMERGED_TABLES_MAX: usize = 25;
const PAUSE: Duration = Duration::from_millis(1);

/// Returns once there is room in all `keyspaces`, or with the fault of the background.
pub(super) fn wait_for_room(db: &Database, keyspaces: [&Keyspace; 4]) -> fjall::Result<()> {
    let full = |keyspace: &Keyspace| {
        keyspace.sealed_memtable_count() > SEALED_MEMTABLES_MAX || keyspace.l0_table_count() > UNMERGED_TABLES_MAX
    };
    while keyspaces.into_iter().any(full) {
        // Writes nothing that is not written yet; fails where a background worker has failed.
        db.persist(PersistMode::Buffer)?;
        thread::sleep(PAUSE);
    }
    Ok(())
}
