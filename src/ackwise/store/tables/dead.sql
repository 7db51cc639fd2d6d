-- name: dead_insert: inserts a dead letter; a message that dies again replaces its old record
INSERT INTO dead (uuid, queue, part, lane, seq, epoch, grp, grp_name, txid, reason, error, etype, fails, delivs, history,
  snapshot, born_at, dead_at, mark)
VALUES (:uuid, :queue, :part, :lane, :seq, :epoch, :grp, :grp_name, :txid, :reason, :error, :etype, :fails, :delivs,
  :history, :snapshot, :born_at, :dead_at, :mark)
ON CONFLICT (lane, seq, grp) DO UPDATE SET uuid = excluded.uuid, epoch = excluded.epoch, reason = excluded.reason,
  error = excluded.error, etype = excluded.etype, fails = excluded.fails, delivs = excluded.delivs,
  history = excluded.history, snapshot = excluded.snapshot, dead_at = excluded.dead_at, mark = excluded.mark;

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

-- name: dead_sizes: ids and sizes of the dead letters of a queue that match, newest first, after a position
SELECT d.id, d.dead_at, length(d.snapshot) + length(d.history) + length(d.error)
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE d.queue = :queue AND q.deleted_at IS NULL
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS text) IS NULL OR p.name = CAST(:part AS text))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND d.dead_at >= :after_at AND d.dead_at <= :before_at
  AND (d.dead_at < :last_at OR d.id < :last_id)
ORDER BY d.dead_at DESC, d.id DESC LIMIT :limit OFFSET :offset;

-- name: dead_sizes_all: dead_sizes over all queues
SELECT d.id, d.dead_at, length(d.snapshot) + length(d.history) + length(d.error)
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE q.deleted_at IS NULL
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS text) IS NULL OR p.name = CAST(:part AS text))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND d.dead_at >= :after_at AND d.dead_at <= :before_at
  AND (d.dead_at < :last_at OR d.id < :last_id)
ORDER BY d.dead_at DESC, d.id DESC LIMIT :limit OFFSET :offset;

-- name: dead_list: dead letters of a queue that match, newest first, after a position
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

-- name: dead_list_all: dead_list over all queues
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

-- name: dead_get: a dead letter with the columns that lists show
SELECT d.uuid, q.name, p.name, p.uuid, d.grp_name, d.lane, d.seq, d.txid, d.reason, d.error, d.etype, d.fails,
  d.delivs, d.history, d.snapshot, d.born_at, d.dead_at
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
  AND d.dead_at >= :after_at AND d.dead_at <= :before_at;

-- name: dead_count: how many dead letters of a queue match
SELECT count(*)
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE d.queue = :queue AND q.deleted_at IS NULL
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS text) IS NULL OR p.name = CAST(:part AS text))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND d.dead_at >= :after_at AND d.dead_at <= :before_at;

-- name: dead_count_all: dead_count over all queues
SELECT count(*)
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE q.deleted_at IS NULL
  AND (CAST(:grp AS text) IS NULL OR d.grp_name = CAST(:grp AS text))
  AND (CAST(:part AS text) IS NULL OR p.name = CAST(:part AS text))
  AND (CAST(:reason AS text) IS NULL OR d.reason = CAST(:reason AS text))
  AND d.dead_at >= :after_at AND d.dead_at <= :before_at;

-- name: dead_in_range: seqs of a lane that died for a group since its last seek
SELECT seq FROM dead WHERE lane = :lane AND grp = :grp AND epoch = :epoch AND seq >= :lo AND seq < :hi;

-- name: dead_any: whether a message of a range died for a group since its last seek
SELECT 1 FROM dead AS d JOIN cursor AS c ON c.lane = d.lane AND c.grp = d.grp AND c.epoch = d.epoch
WHERE d.lane = :lane AND d.grp = :grp AND d.seq >= :lo AND d.seq < :hi LIMIT 1;

-- name: dead_of_message: the dead letters of a transaction id in a partition, newest first
SELECT d.uuid, q.name, p.name, p.uuid, d.grp_name, d.lane, d.seq, d.txid, d.reason, d.error, d.etype, d.fails,
  d.delivs, d.history, d.snapshot, d.born_at, d.dead_at
FROM dead AS d JOIN queue AS q ON q.id = d.queue JOIN part AS p ON p.id = d.part
WHERE d.part = :part AND d.txid = :txid AND q.deleted_at IS NULL ORDER BY d.dead_at DESC, d.id DESC;
