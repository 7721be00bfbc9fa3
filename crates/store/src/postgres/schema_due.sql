-- Rows that somebody should look at at some time. Nodes of an older release write no such rows, and leave this empty.
-- Changing the table stops everybody for a moment, and waits for whoever has written to it: if that takes long, the others
-- must go on meanwhile, and the change is tried again.
SET LOCAL lock_timeout = '250ms';
ALTER TABLE fencepost_rows ADD COLUMN IF NOT EXISTS due_at timestamptz;
