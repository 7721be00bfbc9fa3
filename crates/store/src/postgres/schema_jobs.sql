-- Jobs came (20; 21: their uploads, 22: their results). A view only, as for items.
CREATE OR REPLACE VIEW fencepost_jobs AS
SELECT about ->> 'job_id' AS job_id, about ->> 'tenant' AS tenant, about ->> 'collection' AS collection,
    about ->> 'status' AS status, (about ->> 'dry_run')::boolean AS dry_run, about ->> 'by' AS sent_by,
    about ->> 'correlation_id' AS correlation_id, (about ->> 'total')::numeric AS total, (about ->> 'done')::numeric AS done,
    (about ->> 'accepted')::numeric AS accepted, (about ->> 'replay')::numeric AS replay,
    (about ->> 'quarantined')::numeric AS quarantined, (about ->> 'rejected')::numeric AS rejected,
    to_timestamp((about ->> 'created_at_ms')::double precision / 1000) AS created_at,
    to_timestamp((about ->> 'ended_at_ms')::double precision / 1000) AS ended_at
FROM fencepost_rows WHERE kind = 20 AND about ->> 'status' <> 'UPLOADING';
