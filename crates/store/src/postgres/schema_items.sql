-- Items came (15: with the present version, 16: replaced versions, 17: in quarantine). Views only: no table changes, and nodes
-- of an older release neither wait nor notice. The content is a JSON string in `about`, so that a commit takes every item;
-- as `json` it keeps its text, also where `jsonb` would refuse it. NUL shows as U+FFFD.
CREATE OR REPLACE VIEW fencepost_items AS
SELECT id, about ->> 'tenant' AS tenant, about ->> 'collection' AS collection, about ->> 'source_id' AS source_id,
    about ->> 'version' AS version, about ->> 'status' AS status, about ->> 'internal_id' AS internal_id,
    to_timestamp((about ->> 'accepted_at_ms')::double precision / 1000) AS accepted_at, about ->> 'by' AS accepted_by,
    about ->> 'correlation_id' AS correlation_id, (about ->> 'item_text')::json AS item
FROM fencepost_rows WHERE kind = 15 AND about ->> 'status' IS NOT NULL;

CREATE OR REPLACE VIEW fencepost_item_versions AS
SELECT id, about ->> 'tenant' AS tenant, about ->> 'collection' AS collection, about ->> 'source_id' AS source_id,
    (about ->> 'seq')::bigint AS seq, about ->> 'version' AS version, about ->> 'internal_id' AS internal_id,
    to_timestamp((about ->> 'accepted_at_ms')::double precision / 1000) AS accepted_at, about ->> 'by' AS accepted_by,
    about ->> 'correlation_id' AS correlation_id,
    to_timestamp((about ->> 'replaced_at_ms')::double precision / 1000) AS replaced_at, (about ->> 'item_text')::json AS item
FROM fencepost_rows WHERE kind = 16;

CREATE OR REPLACE VIEW fencepost_quarantine AS
SELECT id, about ->> 'tenant' AS tenant, about ->> 'collection' AS collection, about ->> 'source_id' AS source_id,
    about ->> 'quarantine_id' AS quarantine_id, about ->> 'version' AS version, about ->> 'status' AS status,
    about ->> 'resolution' AS resolution, about -> 'unresolved' AS unresolved,
    to_timestamp((about ->> 'opened_at_ms')::double precision / 1000) AS opened_at,
    to_timestamp((about ->> 'resolved_at_ms')::double precision / 1000) AS resolved_at, about ->> 'by' AS sent_by,
    about ->> 'correlation_id' AS correlation_id, about ->> 'internal_id' AS internal_id,
    (about ->> 'item_text')::json AS item
FROM fencepost_rows WHERE kind = 17;
