-- name: pipeline_get: when a pipeline started, and its last report
SELECT started_at, report FROM pipeline WHERE id = :id;

-- name: pipeline_count: number of pipelines
SELECT count(*) FROM pipeline;

-- name: pipeline_put: writes the newest report of a pipeline
INSERT INTO pipeline (id, queue, grp, started_at, seen_at, report)
VALUES (:id, :queue, :grp, :started_at, :seen_at, :report)
ON CONFLICT (id) DO UPDATE SET queue = excluded.queue, grp = excluded.grp, started_at = excluded.started_at,
  seen_at = excluded.seen_at, report = excluded.report;

-- name: pipelines_page: pipelines by id, after an id
SELECT id, queue, grp, started_at, seen_at, report FROM pipeline
WHERE id > :after
  AND (CAST(:queue AS text) IS NULL OR queue = CAST(:queue AS text))
  AND (CAST(:grp AS text) IS NULL OR grp = CAST(:grp AS text))
ORDER BY id LIMIT :limit;

-- name: pipelines_forget: deletes pipelines without a report since an instant
DELETE FROM pipeline WHERE id IN (SELECT id FROM pipeline WHERE seen_at < :before ORDER BY seen_at LIMIT :limit);
