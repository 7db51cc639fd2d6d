-- name: trace_insert: adds a trace
INSERT INTO trace (uuid, queue, part_uuid, txid, lane, seq, grp, event, data, worker, created_at)
VALUES (:uuid, :queue, :part_uuid, :txid, :lane, :seq, :grp, :event, :data, :worker, :created_at) RETURNING id;

-- name: trace_name_insert: adds a name of a trace
INSERT INTO trace_name (name, trace) VALUES (:name, :trace);

-- name: trace_count: traces of a message
SELECT count(*) FROM trace WHERE part_uuid = :part_uuid AND txid = :txid;

-- name: traces_of_message: traces of a message after a trace, oldest first
SELECT t.id, t.uuid, t.event, t.data, t.grp, t.worker, t.created_at, t.part_uuid, t.txid, p.name, q.name
FROM trace AS t LEFT JOIN part AS p ON p.uuid = t.part_uuid LEFT JOIN queue AS q ON q.id = p.queue
WHERE t.part_uuid = :part_uuid AND t.txid = :txid AND t.id > :after ORDER BY t.id LIMIT :limit;

-- name: traces_of_name: traces with a name before a trace, newest first
SELECT t.id, t.uuid, t.event, t.data, t.grp, t.worker, t.created_at, t.part_uuid, t.txid, p.name, q.name
FROM (SELECT trace FROM trace_name WHERE name = :name AND trace < :below ORDER BY trace DESC
  LIMIT :limit OFFSET :offset) AS n
JOIN trace AS t ON t.id = n.trace
LEFT JOIN part AS p ON p.uuid = t.part_uuid LEFT JOIN queue AS q ON q.id = p.queue
ORDER BY t.id DESC;

-- name: trace_names_of: names of given traces
SELECT trace, name FROM trace_name WHERE trace IN (:ids) ORDER BY trace, name;

-- name: trace_name_count: traces with a name
SELECT count(*) FROM trace_name WHERE name = :name;

-- name: trace_names_count: different names
SELECT count(DISTINCT name) FROM trace_name;

-- name: trace_names_page: names with their traces and messages, the name of the newest trace first
SELECT n.name, n.traces, (
    SELECT count(*) FROM (
      SELECT DISTINCT t.part_uuid, t.txid FROM trace_name AS o JOIN trace AS t ON t.id = o.trace
      WHERE o.name = n.name) AS messages),
  (SELECT t.created_at FROM trace AS t WHERE t.id = n.newest)
FROM (SELECT name, count(*) AS traces, max(trace) AS newest FROM trace_name GROUP BY name
  ORDER BY max(trace) DESC LIMIT :limit OFFSET :offset) AS n
ORDER BY n.newest DESC;

-- name: trace_prune: notes that retention removed messages with traces from a lane
INSERT INTO trace_pruned (lane, below)
SELECT CAST(:lane AS bigint), CAST(:below AS bigint)
WHERE EXISTS (SELECT 1 FROM trace WHERE lane = :lane AND seq < :below)
ON CONFLICT (lane) DO UPDATE SET below = excluded.below;

-- name: trace_pruned_next: some lanes with traces of removed messages
SELECT lane, below FROM trace_pruned ORDER BY lane LIMIT :limit;

-- name: trace_pruned_done: all traces of the removed messages of a lane are deleted
DELETE FROM trace_pruned WHERE lane = :lane AND below = :below;

-- name: traces_pruned: traces of removed messages of a lane
SELECT id FROM trace WHERE lane = :lane AND seq < :below ORDER BY seq LIMIT :limit;

-- name: traces_loose: old traces without a stored message
SELECT id FROM trace WHERE lane IS NULL AND created_at < :before ORDER BY created_at LIMIT :limit;

-- name: traces_surplus: the oldest traces below a floor
SELECT id FROM trace WHERE id <= :floor ORDER BY id LIMIT :limit;

-- name: trace_newest: the number of the newest trace
SELECT max(id) FROM trace;

-- name: trace_names_delete: deletes the names of given traces
DELETE FROM trace_name WHERE trace IN (:ids);

-- name: traces_delete: deletes given traces
DELETE FROM trace WHERE id IN (:ids);

-- name: traces_of_queue: some traces of a queue
SELECT id FROM trace WHERE queue = :queue LIMIT :limit;
