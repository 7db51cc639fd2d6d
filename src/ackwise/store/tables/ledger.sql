-- name: ledger_get: one minute of one outcome, as this instance counted it
SELECT n, latency FROM ledger
WHERE queue = :queue AND grp = :grp AND minute = :minute AND outcome = :outcome AND instance = :instance;

-- name: ledger_put: the new count and sketch
INSERT INTO ledger (queue, grp, minute, outcome, instance, n, latency)
VALUES (:queue, :grp, :minute, :outcome, :instance, :n, :latency)
ON CONFLICT (queue, grp, minute, outcome, instance) DO UPDATE SET n = excluded.n, latency = excluded.latency;

-- name: ledger_list: minutes of a queue and group behind a row, oldest first
SELECT queue, grp, minute, outcome, n, latency FROM ledger
WHERE (CAST(:queue AS text) IS NULL OR queue = CAST(:queue AS text))
  AND (CAST(:grp AS text) IS NULL OR grp = CAST(:grp AS text))
  AND minute >= :after AND minute <= :before
  AND (minute > :last_minute OR (queue, grp, outcome) > (:last_queue, :last_grp, :last_outcome))
ORDER BY minute, queue, grp, outcome LIMIT :limit;

-- name: ledger_forget: minutes too old to matter
DELETE FROM ledger WHERE (queue, grp, minute, outcome, instance) IN (
  SELECT queue, grp, minute, outcome, instance FROM ledger WHERE minute < :before ORDER BY minute LIMIT :limit);

-- name: meta_get: a fact about the database
SELECT value FROM meta WHERE key = :key;

-- name: instance_beat: a broker is alive
INSERT INTO instance (id, started_at, heartbeat_at) VALUES (:id, :now, :now)
ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at;

-- name: instance_get: a broker that was heard of
SELECT started_at, heartbeat_at FROM instance WHERE id = :id;

-- name: instances_other: every other broker, and when it was last heard of
SELECT id, heartbeat_at FROM instance WHERE id <> :id ORDER BY id;

-- name: instance_delete: a broker that is dead; while sessions of it may come back it is remembered since when
DELETE FROM instance WHERE id = :id AND NOT EXISTS (
  SELECT 1 FROM mew_session AS s WHERE s.instance = :id AND s.ended_at IS NULL);

-- name: instance_forget: brokers not heard of for long
DELETE FROM instance WHERE heartbeat_at < :before;
