-- Apart from the column: building an index reads the whole table, which may be read meanwhile, but not be written to.
SET LOCAL lock_timeout = '250ms';
CREATE INDEX IF NOT EXISTS fencepost_rows_due ON fencepost_rows (kind, due_at, id) WHERE due_at IS NOT NULL;
