//! Every statement that runs more than once. Plain SQL: no advisory locks, no notifications, no sequences.
//! Never depends on the order of rows that it does not name. Used by the files beside it.
//!
//! Rows are locked in key order and only then written: see [0010](../../../../docs/decisions/0010-postgres.md).

// The key says the tenant, the scope, the fields and the repetition: they never change.
// Existing rows are locked first, in key order; then new ones are inserted, in key order; then the locked ones are
// changed. Counting the rows of a step makes the next one wait for it. A batch that waits holds no changed row that an
// earlier step of another could wait for, so two batches never wait for one another.
macro_rules! write_fences {
    ($last:literal) => {
        concat!(
            "WITH given AS MATERIALIZED (
                SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::smallint[], $4::text[], $5::text[], $6::text[],
                    $7::bigint[], $8::text[], $9::text[], $10::bigint[], $11::bigint[], $12::text[], $13::text[],
                    $14::text[], $15::timestamptz[], $16::timestamptz[], $17::timestamptz[], $18::timestamptz[],
                    $19::timestamptz[], $20::timestamptz[], $21::bigint[], $22::bytea[])
                AS given (key, expect, bucket, tenant, scope, fields, seq, state, on_lapse, token, attempt, effect_id,
                    source_kind, source_id, first_seen, lease_expires, sealed_at, released_at, expires_at, due_at,
                    revision, record)
            ), locked AS MATERIALIZED (
                SELECT given.* FROM given JOIN fencepost_fences old ON old.key = given.key
                WHERE given.expect IS NOT NULL AND old.revision = given.expect ORDER BY old.key FOR UPDATE OF old
            ), inserted AS (
                INSERT INTO fencepost_fences (key, bucket, tenant, scope, fields, seq, state, on_lapse, token, attempt,
                    effect_id, source_kind, source_id, first_seen, lease_expires, sealed_at, released_at, expires_at,
                    due_at, node, revision, record)
                SELECT key, bucket, tenant, scope, fields::jsonb, seq, state, on_lapse, token, attempt, effect_id,
                    source_kind, source_id, first_seen, lease_expires, sealed_at, released_at, expires_at, due_at, $23,
                    revision, record
                FROM given WHERE expect IS NULL AND (SELECT count(*) FROM locked) >= 0 ORDER BY key
                ON CONFLICT (key) DO NOTHING RETURNING key
            ), updated AS (
                UPDATE fencepost_fences old SET state = new.state, on_lapse = new.on_lapse, token = new.token,
                    attempt = new.attempt, effect_id = new.effect_id, source_kind = new.source_kind,
                    source_id = new.source_id, first_seen = new.first_seen, lease_expires = new.lease_expires,
                    sealed_at = new.sealed_at, released_at = new.released_at, expires_at = new.expires_at,
                    due_at = new.due_at, node = $23, revision = new.revision, record = new.record
                FROM locked new WHERE old.key = new.key AND (SELECT count(*) FROM inserted) >= 0
                RETURNING old.key
            )",
            $last,
            "SELECT 1::smallint, key, clock_timestamp() FROM inserted
             UNION ALL SELECT 1::smallint, key, clock_timestamp() FROM updated"
        )
    };
}

macro_rules! write_rows {
    ($last:literal) => {
        concat!(
            "WITH given AS MATERIALIZED (
                SELECT * FROM unnest($1::bytea[], $2::smallint[], $3::bigint[], $4::smallint[], $5::text[],
                    $6::timestamptz[], $7::timestamptz[], $8::bigint[], $9::bytea[])
                AS given (id, kind, expect, bucket, about, expires_at, due_at, revision, record)
            ), locked AS MATERIALIZED (
                SELECT given.* FROM given JOIN fencepost_rows old ON old.id = given.id AND old.kind = given.kind
                WHERE given.expect IS NOT NULL AND old.revision = given.expect ORDER BY old.id, old.kind FOR UPDATE OF old
            ), inserted AS (
                INSERT INTO fencepost_rows (id, kind, bucket, about, expires_at, due_at, node, revision, record)
                SELECT id, kind, bucket, about::jsonb, expires_at, due_at, $10, revision, record
                FROM given WHERE expect IS NULL AND (SELECT count(*) FROM locked) >= 0 ORDER BY id, kind
                ON CONFLICT (id, kind) DO NOTHING RETURNING kind, id
            ), updated AS (
                UPDATE fencepost_rows old SET about = new.about::jsonb, expires_at = new.expires_at,
                    due_at = new.due_at, node = $10,
                    revision = new.revision, record = new.record
                FROM locked new WHERE old.id = new.id AND old.kind = new.kind
                    AND (SELECT count(*) FROM inserted) >= 0
                RETURNING old.kind, old.id
            )",
            $last,
            "SELECT kind, id, clock_timestamp() FROM inserted
             UNION ALL SELECT kind, id, clock_timestamp() FROM updated"
        )
    };
}

/// Writes fences within a transaction; says which.
pub(super) const WRITE_FENCES: &str = write_fences!("");
/// The same as a transaction of its own, with the node's time floor. The floor comes last, so that no other commit
/// waits for it in vain.
pub(super) const COMMIT_FENCES: &str = write_fences!(
    ", floored AS (
        UPDATE fencepost_nodes SET floor = $24 WHERE id = $23 AND floor < $24 AND (SELECT count(*) FROM updated) >= 0
    ) "
);
/// Writes rows of the other kinds within a transaction; says which.
pub(super) const WRITE_ROWS: &str = write_rows!("");
/// Inserts rows of the other kinds within a transaction, where all are new; says which. Its parameters are those of
/// [`WRITE_ROWS`].
pub(super) const INSERT_ROWS: &str =
    "INSERT INTO fencepost_rows (id, kind, bucket, about, expires_at, due_at, node, revision, record)
    SELECT id, kind, bucket, about::jsonb, expires_at, due_at, $10, revision, record
    FROM unnest($1::bytea[], $2::smallint[], $3::bigint[], $4::smallint[], $5::text[],
        $6::timestamptz[], $7::timestamptz[], $8::bigint[], $9::bytea[])
        AS given (id, kind, expect, bucket, about, expires_at, due_at, revision, record)
    ORDER BY id, kind ON CONFLICT (id, kind) DO NOTHING RETURNING kind, id";
/// The same as a transaction of its own, with the node's time floor.
pub(super) const COMMIT_ROWS: &str = write_rows!(
    ", floored AS (
        UPDATE fencepost_nodes SET floor = $11 WHERE id = $10 AND floor < $11 AND (SELECT count(*) FROM updated) >= 0
    ) "
);
/// The time floor alone.
pub(super) const FLOOR: &str = "UPDATE fencepost_nodes SET floor = $2 WHERE id = $1 AND floor < $2";

/// Removes fences that were locked before.
pub(super) const DELETE_FENCES: &str = "DELETE FROM fencepost_fences WHERE key = ANY ($1)";
/// Removes rows that were locked before.
pub(super) const DELETE_ROWS: &str = "DELETE FROM fencepost_rows old
    USING unnest($1::bytea[], $2::smallint[]) AS given (id, kind) WHERE old.id = given.id AND old.kind = given.kind";
/// Removes rows, but for locked ones: a long transaction that writes a notice between nodes again must not stop the reader,
/// and the notice is read again after it.
pub(super) const DELETE_UNLESS_HELD: &str = "WITH free AS MATERIALIZED (
        SELECT old.id, old.kind FROM fencepost_rows old
        JOIN unnest($1::bytea[], $2::smallint[]) AS given (id, kind) ON old.id = given.id AND old.kind = given.kind
        ORDER BY old.id, old.kind FOR UPDATE OF old SKIP LOCKED
    ) DELETE FROM fencepost_rows old USING free WHERE old.id = free.id AND old.kind = free.kind";

/// Revisions of fences, without a lock.
pub(super) const LOOK_FENCES: &str = "SELECT 1::smallint, key, revision FROM fencepost_fences WHERE key = ANY ($1)";
/// Revisions of rows, without a lock.
pub(super) const LOOK_ROWS: &str = "SELECT old.kind, old.id, old.revision FROM fencepost_rows old
    JOIN unnest($1::bytea[], $2::smallint[]) AS given (id, kind) ON old.id = given.id AND old.kind = given.kind";
/// Revisions of fences, locked until the transaction ends.
pub(super) const LOCK_FENCES: &str = "SELECT 1::smallint, key, revision FROM fencepost_fences
    WHERE key = ANY ($1) ORDER BY key FOR UPDATE";
/// The same with a lock that others may share.
pub(super) const SHARE_FENCES: &str = "SELECT 1::smallint, key, revision FROM fencepost_fences
    WHERE key = ANY ($1) ORDER BY key FOR SHARE";
/// Revisions of rows, locked until the transaction ends, and the whole of those that merges read: the tail of a lane, a
/// counter.
pub(super) const LOCK_ROWS: &str =
    "SELECT old.kind, old.id, old.revision, CASE WHEN old.kind IN (8, 13) THEN old.record END
    FROM fencepost_rows old
    JOIN unnest($1::bytea[], $2::smallint[]) AS given (id, kind) ON old.id = given.id AND old.kind = given.kind
    ORDER BY old.id, old.kind FOR UPDATE OF old";
/// Revisions of rows, with a lock that others may share.
pub(super) const SHARE_ROWS: &str = "SELECT old.kind, old.id, old.revision FROM fencepost_rows old
    JOIN unnest($1::bytea[], $2::smallint[]) AS given (id, kind) ON old.id = given.id AND old.kind = given.kind
    ORDER BY old.id, old.kind FOR SHARE OF old";
/// Whole fences, without a lock.
pub(super) const SEE_FENCES: &str = "SELECT 1::smallint, key, record FROM fencepost_fences WHERE key = ANY ($1)";
/// Whole rows, without a lock.
pub(super) const SEE_ROWS: &str = "SELECT old.kind, old.id, old.record FROM fencepost_rows old
    JOIN unnest($1::bytea[], $2::smallint[]) AS given (id, kind) ON old.id = given.id AND old.kind = given.kind";
/// Whole fences, locked until the transaction ends.
pub(super) const TAKE_FENCES: &str = "SELECT 1::smallint, key, record FROM fencepost_fences
    WHERE key = ANY ($1) ORDER BY key FOR UPDATE";
/// Whole rows, locked until the transaction ends.
pub(super) const TAKE_ROWS: &str = "SELECT old.kind, old.id, old.record FROM fencepost_rows old
    JOIN unnest($1::bytea[], $2::smallint[]) AS given (id, kind) ON old.id = given.id AND old.kind = given.kind
    ORDER BY old.id, old.kind FOR UPDATE OF old";

/// Fences, and the time even where there are none.
pub(super) const LOAD_FENCES: &str = "SELECT 1::smallint, given.key, old.record, clock_timestamp()
    FROM unnest($1::bytea[]) AS given (key) LEFT JOIN fencepost_fences old ON old.key = given.key";
/// Rows of every kind in one snapshot.
pub(super) const LOAD_ALL: &str = "SELECT 1::smallint, given.key, old.record, clock_timestamp()
    FROM unnest($1::bytea[]) AS given (key) LEFT JOIN fencepost_fences old ON old.key = given.key
    UNION ALL SELECT given.kind, given.id, old.record, clock_timestamp()
    FROM unnest($2::bytea[], $3::smallint[]) AS given (id, kind)
    LEFT JOIN fencepost_rows old ON old.id = given.id AND old.kind = given.kind";

/// Fences that are due, from the first on.
pub(super) const DUE_FENCES: &str = "SELECT 1::smallint, key, record, clock_timestamp() FROM fencepost_fences
    WHERE due_at IS NOT NULL AND due_at <= $1 ORDER BY due_at, key LIMIT $2";
/// Fences that are due, after one of them.
pub(super) const DUE_FENCES_AFTER: &str = "SELECT 1::smallint, key, record, clock_timestamp() FROM fencepost_fences
    WHERE due_at IS NOT NULL AND due_at <= $1 AND (due_at, key) > ($3, $4) ORDER BY due_at, key LIMIT $2";
/// Rows of another kind that are due, from the first on.
pub(super) const DUE_ROWS: &str = "SELECT kind, id, record, clock_timestamp() FROM fencepost_rows
    WHERE due_at IS NOT NULL AND kind = $3 AND due_at <= $1 ORDER BY due_at, id LIMIT $2";
/// Rows of another kind that are due, after one of them.
pub(super) const DUE_ROWS_AFTER: &str = "SELECT kind, id, record, clock_timestamp() FROM fencepost_rows
    WHERE due_at IS NOT NULL AND kind = $3 AND due_at <= $1 AND (due_at, id) > ($4, $5) ORDER BY due_at, id LIMIT $2";
/// Fences in key order.
pub(super) const RANGE_FENCES: &str = "SELECT 1::smallint, key, record, clock_timestamp() FROM fencepost_fences
    WHERE key > $1 AND key <= $2 ORDER BY key LIMIT $3";
/// Rows of one kind in key order. Those of one prefix lie side by side, so a page of them is a range of the primary key.
pub(super) const RANGE_ROWS: &str = "SELECT kind, id, record, clock_timestamp() FROM fencepost_rows
    WHERE id > $1 AND id <= $2 AND kind = $4 ORDER BY id LIMIT $3";
/// The same for kinds of which there are few among many entries; they have an index of their own.
pub(super) const RANGE_FEW: &str = "SELECT kind, id, record, clock_timestamp() FROM fencepost_rows
    WHERE kind IN (6, 7, 10, 12) AND kind = $4 AND id > $1 AND id <= $2 ORDER BY id LIMIT $3";

/// The same for quarantine, of which there is little among many items; it has an index of its own, too.
pub(super) const RANGE_QUARANTINE: &str = "SELECT kind, id, record, clock_timestamp() FROM fencepost_rows
    WHERE kind = 17 AND id > $1 AND id <= $2 ORDER BY id LIMIT $3";

/// Drops a few rows past their expiry, by our time and by the database's. Locked rows are left for the next time.
pub(super) const SWEEPS: [&str; 3] = [
    "WITH past AS MATERIALIZED (
        SELECT key FROM fencepost_fences WHERE bucket = ANY ($1) AND state <> 'pending'
            AND expires_at <= least($2, now()) LIMIT $3 FOR UPDATE SKIP LOCKED
    ) DELETE FROM fencepost_fences old USING past WHERE old.key = past.key",
    "WITH past AS MATERIALIZED (
        SELECT key FROM fencepost_fences WHERE bucket = ANY ($1) AND state = 'pending'
            AND expires_at <= least($2, now()) LIMIT $3 FOR UPDATE SKIP LOCKED
    ) DELETE FROM fencepost_fences old USING past WHERE old.key = past.key",
    "WITH past AS MATERIALIZED (
        SELECT id, kind FROM fencepost_rows WHERE bucket = ANY ($1) AND expires_at IS NOT NULL
            AND expires_at <= least($2, now()) LIMIT $3 FOR UPDATE SKIP LOCKED
    ) DELETE FROM fencepost_rows old USING past WHERE old.id = past.id AND old.kind = past.kind",
];

/// The latest time floor of all nodes there ever were.
pub(super) const TIME_FLOOR: &str = "SELECT max(floor), clock_timestamp() FROM fencepost_nodes";

#[cfg(test)]
mod tests {
    use fencepost_kernel::{
        key::Kind,
        row::{Ids, KindSpec},
    };

    use super::*;

    fn list(of: impl Fn(&KindSpec) -> bool) -> String {
        let numbers = Kind::ALL.into_iter().filter(|kind| of(kind.spec())).map(|kind| (kind as u8).to_string());
        format!("kind IN ({})", numbers.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn kinds_in_statements_are_those_of_the_table_of_kinds() {
        assert!(LOCK_ROWS.contains(&list(|spec| spec.merged)), "rows that merges read are loaded whole");
        let few = list(|spec| spec.ids == Ids::FewRanges);
        assert!(RANGE_FEW.contains(&few), "{few}");
        // A new kind of few rows needs a migration that builds the index anew: without it a walk by kind reads every entry.
        assert!(include_str!("schema_lanes.sql").contains(&few), "{few}");
        let quarantine = format!("WHERE kind = {}", Kind::Quarantine as u8);
        assert!(RANGE_QUARANTINE.contains(&quarantine) && include_str!("schema_quarantine.sql").contains(&quarantine));
    }
}
