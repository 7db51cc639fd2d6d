-- name: dead_insert: inserts a dead letter; a message that dies again replaces its old record
INSERT INTO dead (uuid, queue, part, lane, seq, epoch, grp, grp_name, txid, reason, error, etype, fails, delivs, history,
  snapshot, born_at, dead_at, mark, kind)
VALUES (:uuid, :queue, :part, :lane, :seq, :epoch, :grp, :grp_name, :txid, :reason, :error, :etype, :fails, :delivs,
  :history, :snapshot, :born_at, :dead_at, :mark, :kind)
ON CONFLICT (lane, seq, grp) DO UPDATE SET uuid = excluded.uuid, epoch = excluded.epoch, reason = excluded.reason,
  error = excluded.error, etype = excluded.etype, fails = excluded.fails, delivs = excluded.delivs,
  history = excluded.history, snapshot = excluded.snapshot, dead_at = excluded.dead_at, mark = excluded.mark,
  kind = excluded.kind;

-- name: dead_by_uuid: one dead letter with its position
SELECT d.id, d.uuid, d.queue, d.part, d.lane, d.seq, d.epoch, d.grp, d.grp_name, d.snapshot, d.history, d.born_at,
  q.name, p.name, l.prio
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part JOIN lane AS l ON l.id = d.lane
WHERE d.uuid = :uuid AND q.deleted_at IS NULL;

-- name: dead_delete: deletes a dead letter after a redrive, replay or purge
DELETE FROM dead WHERE id = :id;

-- name: dead_oldest: dead letters of a queue that died up to an instant, oldest first, behind a place
SELECT id, dead_at, grp_name FROM dead
WHERE queue = :queue AND dead_at <= :until AND (dead_at, id) > (:dead_at, :id) ORDER BY dead_at, id LIMIT :limit;

-- name: dead_oldest_all: dead_oldest over all queues
SELECT id, dead_at, grp_name FROM dead
WHERE dead_at <= :until AND (dead_at, id) > (:dead_at, :id) ORDER BY dead_at, id LIMIT :limit;

-- name: dead_newest: ids and sizes of the dead letters of a queue, newest first, after a position
SELECT d.id, d.dead_at, length(d.snapshot) + length(d.history) + length(d.error)
FROM dead AS d
WHERE d.queue = :queue AND d.dead_at >= :after_at AND d.dead_at <= :before_at
  AND (d.dead_at < :last_at OR d.id < :last_id)
ORDER BY d.dead_at DESC, d.id DESC LIMIT :limit OFFSET :offset;

-- name: dead_newest_all: dead_newest over all queues
SELECT d.id, d.dead_at, length(d.snapshot) + length(d.history) + length(d.error)
FROM dead AS d JOIN queue AS q ON q.id = d.queue
WHERE q.deleted_at IS NULL AND d.dead_at >= :after_at AND d.dead_at <= :before_at
  AND (d.dead_at < :last_at OR d.id < :last_id)
ORDER BY d.dead_at DESC, d.id DESC LIMIT :limit OFFSET :offset;

-- `+dead_at` lets the databases read the index dead_kind alone: it has all columns of the filters.

-- name: dead_of_kind: dead_newest of the letters with one kind of error that match
SELECT d.id, d.dead_at, length(d.snapshot) + length(d.history) + length(d.error)
FROM (
  SELECT x.id FROM dead AS x
  WHERE x.queue = :queue AND x.kind = :kind
    AND (CAST(:grp AS text) IS NULL OR x.grp_name = CAST(:grp AS text))
    AND (CAST(:part AS bigint) IS NULL OR x.part = CAST(:part AS bigint))
    AND (CAST(:reason AS text) IS NULL OR x.reason = CAST(:reason AS text))
    AND +x.dead_at >= :after_at AND +x.dead_at <= :before_at AND (x.dead_at < :last_at OR x.id < :last_id)
  ORDER BY +x.dead_at DESC, x.id DESC LIMIT :limit OFFSET :offset) AS n
JOIN dead AS d ON d.id = n.id ORDER BY d.dead_at DESC, d.id DESC;

-- name: dead_matching: dead_newest of the letters that match
SELECT d.id, d.dead_at, length(d.snapshot) + length(d.history) + length(d.error)
FROM (
  SELECT x.id FROM dead AS x
  WHERE x.queue = :queue
    AND (CAST(:grp AS text) IS NULL OR x.grp_name = CAST(:grp AS text))
    AND (CAST(:part AS bigint) IS NULL OR x.part = CAST(:part AS bigint))
    AND (CAST(:reason AS text) IS NULL OR x.reason = CAST(:reason AS text))
    AND (CAST(:kind AS text) IS NULL OR x.kind = CAST(:kind AS text))
    AND +x.dead_at >= :after_at AND +x.dead_at <= :before_at AND (x.dead_at < :last_at OR x.id < :last_id)
  ORDER BY +x.dead_at DESC, x.id DESC LIMIT :limit OFFSET :offset) AS n
JOIN dead AS d ON d.id = n.id ORDER BY d.dead_at DESC, d.id DESC;

-- name: dead_matching_all: dead_matching over all queues
SELECT d.id, d.dead_at, length(d.snapshot) + length(d.history) + length(d.error)
FROM (
  SELECT x.id FROM dead AS x
  WHERE x.queue IN (SELECT id FROM queue WHERE deleted_at IS NULL)
    AND (CAST(:grp AS text) IS NULL OR x.grp_name = CAST(:grp AS text))
    AND (CAST(:part AS text) IS NULL
      OR (SELECT p.name FROM part AS p WHERE p.id = x.part) = CAST(:part AS text))
    AND (CAST(:reason AS text) IS NULL OR x.reason = CAST(:reason AS text))
    AND (CAST(:kind AS text) IS NULL OR x.kind = CAST(:kind AS text))
    AND +x.dead_at >= :after_at AND +x.dead_at <= :before_at AND (x.dead_at < :last_at OR x.id < :last_id)
  ORDER BY +x.dead_at DESC, x.id DESC LIMIT :limit OFFSET :offset) AS n
JOIN dead AS d ON d.id = n.id ORDER BY d.dead_at DESC, d.id DESC;

-- name: dead_count: how many dead letters of a queue match
SELECT count(*) FROM dead AS d
WHERE d.queue = :queue
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS bigint) IS NULL OR d.part = CAST(:part AS bigint))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND (CAST(:kind AS text) IS NULL OR d.kind = CAST(:kind AS text))
  AND +d.dead_at >= :after_at AND +d.dead_at <= :before_at;

-- name: dead_count_of_kind: how many dead letters of a queue with one kind of error match
SELECT count(*) FROM dead AS d
WHERE d.queue = :queue AND d.kind = :kind
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS bigint) IS NULL OR d.part = CAST(:part AS bigint))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND +d.dead_at >= :after_at AND +d.dead_at <= :before_at;

-- name: dead_count_all: dead_count over all queues
SELECT count(*) FROM dead AS d
WHERE d.queue IN (SELECT id FROM queue WHERE deleted_at IS NULL)
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS text) IS NULL
    OR (SELECT p.name FROM part AS p WHERE p.id = d.part) = CAST(:part AS text))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND (CAST(:kind AS text) IS NULL OR d.kind = CAST(:kind AS text))
  AND +d.dead_at >= :after_at AND +d.dead_at <= :before_at;

-- name: dead_kinds: dead letters of a queue counted by the kind of their errors, most letters first, after a row
SELECT k.queue, k.kind, k.n, k.first_at, k.last_at, k.reasons, e.uuid, e.error, e.etype
FROM (
  SELECT q.name AS queue, r.kind, sum(r.n) AS n, min(r.first_at) AS first_at, max(r.last_at) AS last_at,
    string_agg(r.reason || ' ' || r.n, ',') AS reasons, max(r.newest) AS newest
  FROM (
    SELECT d.queue, d.kind, d.reason, count(*) AS n, min(d.dead_at) AS first_at, max(d.dead_at) AS last_at,
      max(d.id) AS newest
    FROM dead AS d
    WHERE d.queue = :queue
      AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
      AND (CAST(:part AS bigint) IS NULL OR d.part = CAST(:part AS bigint))
      AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
      AND +d.dead_at >= :after_at AND +d.dead_at <= :before_at
    GROUP BY d.queue, d.kind, d.reason) AS r
  JOIN queue AS q ON q.id = r.queue
  GROUP BY q.name, r.kind
  HAVING CAST(:paged AS bigint) = 0 OR sum(r.n) < :last_n
    OR (sum(r.n) = :last_n AND (q.name, r.kind) > (CAST(:last_queue AS text), CAST(:last_kind AS text)))
  ORDER BY n DESC, q.name, r.kind LIMIT :limit) AS k
JOIN dead AS e ON e.id = k.newest ORDER BY k.n DESC, k.queue, k.kind;

-- name: dead_kinds_all: dead_kinds over all queues
SELECT k.queue, k.kind, k.n, k.first_at, k.last_at, k.reasons, e.uuid, e.error, e.etype
FROM (
  SELECT q.name AS queue, r.kind, sum(r.n) AS n, min(r.first_at) AS first_at, max(r.last_at) AS last_at,
    string_agg(r.reason || ' ' || r.n, ',') AS reasons, max(r.newest) AS newest
  FROM (
    SELECT d.queue, d.kind, d.reason, count(*) AS n, min(d.dead_at) AS first_at, max(d.dead_at) AS last_at,
      max(d.id) AS newest
    FROM dead AS d
    WHERE d.queue IN (SELECT id FROM queue WHERE deleted_at IS NULL)
      AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
      AND (CAST(:part AS text) IS NULL
        OR (SELECT p.name FROM part AS p WHERE p.id = d.part) = CAST(:part AS text))
      AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
      AND +d.dead_at >= :after_at AND +d.dead_at <= :before_at
    GROUP BY d.queue, d.kind, d.reason) AS r
  JOIN queue AS q ON q.id = r.queue
  GROUP BY q.name, r.kind
  HAVING CAST(:paged AS bigint) = 0 OR sum(r.n) < :last_n
    OR (sum(r.n) = :last_n AND (q.name, r.kind) > (CAST(:last_queue AS text), CAST(:last_kind AS text)))
  ORDER BY n DESC, q.name, r.kind LIMIT :limit) AS k
JOIN dead AS e ON e.id = k.newest ORDER BY k.n DESC, k.queue, k.kind;

-- name: dead_series: dead letters of a queue counted by time bucket and reason
SELECT (d.dead_at - :first) / :step, d.reason, count(*) FROM dead AS d
WHERE d.queue = :queue
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS bigint) IS NULL OR d.part = CAST(:part AS bigint))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND (CAST(:kind AS text) IS NULL OR d.kind = CAST(:kind AS text))
  AND +d.dead_at >= :after_at AND +d.dead_at <= :before_at
GROUP BY 1, d.reason ORDER BY 1, d.reason;

-- name: dead_series_of_kind: dead_series of one kind of error
SELECT (d.dead_at - :first) / :step, d.reason, count(*) FROM dead AS d
WHERE d.queue = :queue AND d.kind = :kind
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS bigint) IS NULL OR d.part = CAST(:part AS bigint))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND +d.dead_at >= :after_at AND +d.dead_at <= :before_at
GROUP BY 1, d.reason ORDER BY 1, d.reason;

-- name: dead_series_all: dead_series over all queues
SELECT (d.dead_at - :first) / :step, d.reason, count(*) FROM dead AS d
WHERE d.queue IN (SELECT id FROM queue WHERE deleted_at IS NULL)
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS text) IS NULL
    OR (SELECT p.name FROM part AS p WHERE p.id = d.part) = CAST(:part AS text))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND (CAST(:kind AS text) IS NULL OR d.kind = CAST(:kind AS text))
  AND +d.dead_at >= :after_at AND +d.dead_at <= :before_at
GROUP BY 1, d.reason ORDER BY 1, d.reason;

-- name: dead_of_ids: given dead letters with the columns that lists show, newest first
SELECT d.uuid, q.name, p.name, p.uuid, d.grp_name, d.lane, d.seq, d.txid, d.reason, d.error, d.etype, d.fails,
  d.delivs, d.history, d.snapshot, d.born_at, d.dead_at, d.kind
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE d.id IN (:ids) ORDER BY d.dead_at DESC, d.id DESC;

-- name: dead_get: a dead letter with the columns that lists show
SELECT d.uuid, q.name, p.name, p.uuid, d.grp_name, d.lane, d.seq, d.txid, d.reason, d.error, d.etype, d.fails,
  d.delivs, d.history, d.snapshot, d.born_at, d.dead_at, d.kind
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE d.id = :id;

-- name: dead_with: a dead letter by its uuid, if it matches
SELECT d.id, d.dead_at, length(d.snapshot)
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE d.uuid = :uuid AND q.deleted_at IS NULL
  AND (CAST(:queue AS bigint) IS NULL OR d.queue = CAST(:queue AS bigint))
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS text) IS NULL OR p.name = CAST(:part AS text))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND (CAST(:kind AS text) IS NULL OR d.kind = CAST(:kind AS text))
  AND d.dead_at >= :after_at AND d.dead_at <= :before_at;

-- name: dead_in_range: seqs of a lane that died for a group since its last seek
SELECT seq FROM dead WHERE lane = :lane AND grp = :grp AND epoch = :epoch AND seq >= :lo AND seq < :hi;

-- name: dead_any: whether a message of a range died for a group since its last seek
SELECT 1 FROM dead AS d JOIN cursor AS c ON c.lane = d.lane AND c.grp = d.grp AND c.epoch = d.epoch
WHERE d.lane = :lane AND d.grp = :grp AND d.seq >= :lo AND d.seq < :hi LIMIT 1;

-- name: dead_of_message: the dead letters of a transaction id in a partition, newest first
SELECT d.uuid, q.name, p.name, p.uuid, d.grp_name, d.lane, d.seq, d.txid, d.reason, d.error, d.etype, d.fails,
  d.delivs, d.history, d.snapshot, d.born_at, d.dead_at, d.kind
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE d.part = :part AND d.txid = :txid AND q.deleted_at IS NULL ORDER BY d.dead_at DESC, d.id DESC;

-- name: dead_of_place: the dead letters of a message by its lane and seq, newest first
SELECT d.uuid, q.name, p.name, p.uuid, d.grp_name, d.lane, d.seq, d.txid, d.reason, d.error, d.etype, d.fails,
  d.delivs, d.history, d.snapshot, d.born_at, d.dead_at, d.kind
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE d.lane = :lane AND d.seq = :seq AND q.deleted_at IS NULL ORDER BY d.dead_at DESC, d.id DESC;
