-- Lanes came: routes (6), lanes (7), dead letters (10) and words between nodes (12) are few among many entries, and are
-- walked by kind. The primary key begins with the id, so a walk by it would pass every entry there is.
CREATE INDEX IF NOT EXISTS fencepost_rows_few ON fencepost_rows (kind, id) WHERE kind IN (6, 7, 10, 12);
