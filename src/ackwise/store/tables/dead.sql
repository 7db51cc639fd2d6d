-- name: dead_insert: a dead letter; one that died again replaces its old record
INSERT INTO dead (uuid, queue, part, lane, seq, epoch, grp, grp_name, txid, reason, error, etype, fails, delivs, history,
  snapshot, born_at, dead_at)
VALUES (:uuid, :queue, :part, :lane, :seq, :epoch, :grp, :grp_name, :txid, :reason, :error, :etype, :fails, :delivs,
  :history, :snapshot, :born_at, :dead_at)
ON CONFLICT (lane, seq, grp) DO UPDATE SET uuid = excluded.uuid, epoch = excluded.epoch, reason = excluded.reason,
  error = excluded.error, etype = excluded.etype, fails = excluded.fails, delivs = excluded.delivs,
  history = excluded.history, snapshot = excluded.snapshot, dead_at = excluded.dead_at;

-- name: dead_by_uuid: one dead letter with its place
SELECT d.id, d.uuid, d.queue, d.part, d.lane, d.seq, d.epoch, d.grp, d.grp_name, d.snapshot, d.history, d.born_at,
  q.name, p.name, l.prio
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part JOIN lane AS l ON l.id = d.lane
WHERE d.uuid = :uuid AND q.deleted_at IS NULL;

-- name: dead_delete: redriven, replayed or purged
DELETE FROM dead WHERE id = :id;

-- name: dead_purge: all of a queue, or of one group in it
DELETE FROM dead WHERE (CAST(:queue AS bigint) IS NULL OR queue = CAST(:queue AS bigint))
  AND (CAST(:grp AS text) IS NULL OR grp_name = CAST(:grp AS text));

-- name: dead_sizes: which dead letters of a queue match, newest first, behind a place, and how large they are
SELECT d.id, d.dead_at, length(d.snapshot) + length(d.history) + length(d.error)
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE d.queue = :queue AND q.deleted_at IS NULL
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS text) IS NULL OR p.name = CAST(:part AS text))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND d.dead_at >= :after_at AND d.dead_at <= :before_at
  AND (d.dead_at < :last_at OR d.id < :last_id)
ORDER BY d.dead_at DESC, d.id DESC LIMIT :limit OFFSET :offset;

-- name: dead_sizes_all: the same over all queues
SELECT d.id, d.dead_at, length(d.snapshot) + length(d.history) + length(d.error)
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE q.deleted_at IS NULL
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS text) IS NULL OR p.name = CAST(:part AS text))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND d.dead_at >= :after_at AND d.dead_at <= :before_at
  AND (d.dead_at < :last_at OR d.id < :last_id)
ORDER BY d.dead_at DESC, d.id DESC LIMIT :limit OFFSET :offset;

-- name: dead_list: dead letters of a queue that match, newest first, behind a place
SELECT d.uuid, q.name, p.name, p.uuid, d.grp_name, d.lane, d.seq, d.txid, d.reason, d.error, d.etype, d.fails,
  d.delivs, d.history, d.snapshot, d.born_at, d.dead_at
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE d.queue = :queue AND q.deleted_at IS NULL
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS text) IS NULL OR p.name = CAST(:part AS text))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND d.dead_at >= :after_at AND d.dead_at <= :before_at
  AND (d.dead_at < :last_at OR d.id < :last_id)
ORDER BY d.dead_at DESC, d.id DESC LIMIT :limit OFFSET :offset;

-- name: dead_list_all: the same over all queues
SELECT d.uuid, q.name, p.name, p.uuid, d.grp_name, d.lane, d.seq, d.txid, d.reason, d.error, d.etype, d.fails,
  d.delivs, d.history, d.snapshot, d.born_at, d.dead_at
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE q.deleted_at IS NULL
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS text) IS NULL OR p.name = CAST(:part AS text))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND d.dead_at >= :after_at AND d.dead_at <= :before_at
  AND (d.dead_at < :last_at OR d.id < :last_id)
ORDER BY d.dead_at DESC, d.id DESC LIMIT :limit OFFSET :offset;

-- name: dead_get: a dead letter as it is shown
SELECT d.uuid, q.name, p.name, p.uuid, d.grp_name, d.lane, d.seq, d.txid, d.reason, d.error, d.etype, d.fails,
  d.delivs, d.history, d.snapshot, d.born_at, d.dead_at
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE d.id = :id;

-- name: dead_with: a dead letter that matches, by its uuid
SELECT d.id, d.dead_at, length(d.snapshot)
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE d.uuid = :uuid AND q.deleted_at IS NULL
  AND (CAST(:queue AS bigint) IS NULL OR d.queue = CAST(:queue AS bigint))
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS text) IS NULL OR p.name = CAST(:part AS text))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND d.dead_at >= :after_at AND d.dead_at <= :before_at;

-- name: dead_count: how many dead letters of a queue match
SELECT count(*)
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE d.queue = :queue AND q.deleted_at IS NULL
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS text) IS NULL OR p.name = CAST(:part AS text))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND d.dead_at >= :after_at AND d.dead_at <= :before_at;

-- name: dead_count_all: the same over all queues
SELECT count(*)
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE q.deleted_at IS NULL
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS text) IS NULL OR p.name = CAST(:part AS text))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND d.dead_at >= :after_at AND d.dead_at <= :before_at;

-- name: dead_in_range: seqs of a lane that are dead for a group since its last seek
SELECT seq FROM dead WHERE lane = :lane AND grp = :grp AND epoch = :epoch AND seq >= :lo AND seq < :hi;

-- name: dead_any: whether something of a range is dead for a group, since its last seek
SELECT 1 FROM dead AS d JOIN cursor AS c ON c.lane = d.lane AND c.grp = d.grp AND c.epoch = d.epoch
WHERE d.lane = :lane AND d.grp = :grp AND d.seq >= :lo AND d.seq < :hi LIMIT 1;

-- name: dead_of_message: the dead letters of a transaction id in a partition, newest first
SELECT d.uuid, q.name, p.name, p.uuid, d.grp_name, d.lane, d.seq, d.txid, d.reason, d.error, d.etype, d.fails,
  d.delivs, d.history, d.snapshot, d.born_at, d.dead_at
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE d.part = :part AND d.txid = :txid AND q.deleted_at IS NULL ORDER BY d.dead_at DESC, d.id DESC;
