-- Not every node that serves clients drives lanes: one without a key for their secrets does not, and is nobody's heir.
-- Nodes of an older release say nothing of it, and do.
ALTER TABLE fencepost_nodes ADD COLUMN IF NOT EXISTS drives boolean NOT NULL DEFAULT true;
