-- name: ledger_get: count of one outcome in one minute by this broker
SELECT n, latency FROM ledger
WHERE queue = :queue AND grp = :grp AND minute = :minute AND outcome = :outcome AND instance = :instance;

-- name: ledger_put: writes a count and its latency sketch
INSERT INTO ledger (queue, grp, minute, outcome, instance, n, latency)
VALUES (:queue, :grp, :minute, :outcome, :instance, :n, :latency)
ON CONFLICT (queue, grp, minute, outcome, instance) DO UPDATE SET n = excluded.n, latency = excluded.latency;

-- name: ledger_list: minutes of a queue and group after a row, oldest first
SELECT queue, grp, minute, outcome, n, latency FROM ledger
WHERE (CAST(:queue AS text) IS NULL OR queue = CAST(:queue AS text))
  AND (CAST(:grp AS text) IS NULL OR grp = CAST(:grp AS text))
  AND minute >= :after AND minute <= :before
  AND (minute > :last_minute OR (queue, grp, outcome) > (:last_queue, :last_grp, :last_outcome))
ORDER BY minute, queue, grp, outcome LIMIT :limit;

-- name: ledger_totals: counts by time bucket and outcome
SELECT minute / :size, outcome, sum(n) FROM ledger
WHERE (CAST(:queue AS text) IS NULL OR queue = CAST(:queue AS text)) AND minute >= :after AND minute <= :before
  AND (CAST(:ns AS text) IS NULL OR queue IN (SELECT name FROM queue WHERE ns = CAST(:ns AS text) AND deleted_at IS NULL))
  AND (CAST(:task AS text) IS NULL
    OR queue IN (SELECT name FROM queue WHERE task = CAST(:task AS text) AND deleted_at IS NULL))
GROUP BY minute / :size, outcome ORDER BY 1, 2;

-- name: ledger_series: counts by time bucket and outcome, over all queues
-- The inner sums follow an index, so that the outer ones sort few rows.
SELECT (m.minute - :first) / :size, m.outcome, sum(m.n)
FROM (
  SELECT minute, outcome, sum(n) AS n FROM ledger WHERE minute >= :first AND minute < :last
    AND (CAST(:grp AS text) IS NULL OR grp = CAST(:grp AS text))
  GROUP BY minute, outcome) AS m
GROUP BY 1, m.outcome ORDER BY 1, m.outcome;

-- name: ledger_series_of_queue: counts of a queue by time bucket and outcome
SELECT (minute - :first) / :size, outcome, sum(n) FROM ledger
WHERE queue = :queue AND minute >= :first AND minute < :last
  AND (CAST(:grp AS text) IS NULL OR grp = CAST(:grp AS text))
GROUP BY 1, outcome ORDER BY 1, outcome;

-- name: ledger_sums: counts of some minutes by queue and outcome, of queues after a name
SELECT queue, outcome, sum(n) FROM ledger
WHERE queue IN (
    SELECT DISTINCT queue FROM ledger
    WHERE (CAST(:queue AS text) IS NULL OR queue = CAST(:queue AS text)) AND queue > :last_queue
      AND minute >= :after AND minute <= :before
      AND (CAST(:ns AS text) IS NULL
        OR queue IN (SELECT name FROM queue WHERE ns = CAST(:ns AS text) AND deleted_at IS NULL))
      AND (CAST(:task AS text) IS NULL
        OR queue IN (SELECT name FROM queue WHERE task = CAST(:task AS text) AND deleted_at IS NULL))
    ORDER BY queue LIMIT :limit)
  AND minute >= :after AND minute <= :before
GROUP BY queue, outcome ORDER BY queue, outcome;

-- name: ledger_forget: deletes old minutes
DELETE FROM ledger WHERE (queue, grp, minute, outcome, instance) IN (
  SELECT queue, grp, minute, outcome, instance FROM ledger WHERE minute < :before ORDER BY minute LIMIT :limit);

-- name: meta_get: a value of the meta table
SELECT value FROM meta WHERE key = :key;

-- name: meta_extensions: keys of the schema versions of extensions
SELECT key FROM meta WHERE substr(key, 1, 7) = 'schema:';

-- name: instance_beat: records the heartbeat of a broker
INSERT INTO instance (id, started_at, heartbeat_at) VALUES (:id, :now, :now)
ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at;

-- name: instance_get: the last heartbeat of a broker
SELECT started_at, heartbeat_at FROM instance WHERE id = :id;

-- name: instances_other: all other brokers with their last heartbeats
SELECT id, heartbeat_at FROM instance WHERE id <> :id ORDER BY id;

-- name: instance_delete: deletes a dead broker
DELETE FROM instance WHERE id = :id;

-- name: instance_forget: deletes brokers without heartbeats for a long time
DELETE FROM instance WHERE heartbeat_at < :before;
