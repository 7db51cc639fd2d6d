-- name: pipeline_put: the newest report of a pipeline
INSERT INTO pipeline (id, queue, grp, started_at, seen_at, report)
VALUES (:id, :queue, :grp, :started_at, :seen_at, :report)
ON CONFLICT (id) DO UPDATE SET queue = excluded.queue, grp = excluded.grp, started_at = excluded.started_at,
  seen_at = excluded.seen_at, report = excluded.report;

-- name: pipelines_page: pipelines before an instant and an id, the newest report first
SELECT id, queue, grp, seen_at, report FROM pipeline
WHERE (CAST(:queue AS text) IS NULL OR queue = CAST(:queue AS text)) AND (seen_at, id) < (:seen_at, :id)
ORDER BY seen_at DESC, id DESC LIMIT :limit;

-- name: pipelines_old: deletes pipelines without a report since an instant
DELETE FROM pipeline WHERE id IN (SELECT id FROM pipeline WHERE seen_at < :before ORDER BY seen_at, id LIMIT :limit);

-- name: pipelines_surplus: deletes the pipelines with the oldest reports
DELETE FROM pipeline WHERE id IN (SELECT id FROM pipeline ORDER BY seen_at DESC, id DESC LIMIT :limit OFFSET :most);
