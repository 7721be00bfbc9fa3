-- Quarantine of one tenant lies among all of its items: a list of it would pass over each of them. As with the index of what is
-- due, the table may be read meanwhile, but not be written to.
SET LOCAL lock_timeout = '250ms';
CREATE INDEX IF NOT EXISTS fencepost_rows_quarantine ON fencepost_rows (id) WHERE kind = 17;
