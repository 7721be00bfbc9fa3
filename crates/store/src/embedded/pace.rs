//! Holds a commit back while the background is behind with writing memtables out.
//! Never waits for a background that has failed: fjall's own brake sleeps 100 ms at a time and, on a full disk, for ever.
//! Called by the embedded store before each commit.

use std::{thread, time::Duration};

use fjall::{Database, Keyspace, PersistMode};

/// fjall brakes at four, and one commit can add one. Every sealed memtable has a flush under way, so this ends.
const SEALED_MEMTABLES_MAX: usize = 2;
const PAUSE: Duration = Duration::from_millis(1);

/// Returns once there is room in `keyspace`, or with the fault of the background.
pub(super) fn wait_for_room(db: &Database, keyspace: &Keyspace) -> fjall::Result<()> {
    while keyspace.sealed_memtable_count() > SEALED_MEMTABLES_MAX {
        // Writes nothing that is not written yet; fails where a background worker has failed.
        db.persist(PersistMode::Buffer)?;
        thread::sleep(PAUSE);
    }
    Ok(())
}
