-- Views for people and their tools: docs/reference/sql-views.md. No statement of Ackwise reads them.
-- Each view has a join: PostgreSQL would let its owner write through a view of a single table.

-- name: ackwise_queues: queues with their counts
SELECT q.name AS queue, q.ns AS namespace, q.task, q.paused <> 0 AS paused, q.policy::jsonb AS policy,
  (SELECT count(DISTINCT l.part) FROM ackwise.lane AS l WHERE l.queue = q.id) AS partitions,
  (SELECT coalesce(sum(l.head - l.start), 0)::bigint FROM ackwise.lane AS l WHERE l.queue = q.id) AS messages,
  (SELECT count(*) FROM ackwise.scheduled AS s WHERE s.queue = q.id) AS scheduled,
  (SELECT count(*) FROM ackwise.dead AS d WHERE d.queue = q.id) AS dead_letters,
  (SELECT count(*) FROM ackwise.grp AS g WHERE g.queue = q.id) AS consumer_groups,
  (SELECT ackwise.view_instant(min(l.start_at)) FROM ackwise.lane AS l
    WHERE l.queue = q.id AND l.start_at < 4611686018427387904) AS oldest_message_at,
  ackwise.view_instant(q.created_at) AS created_at
FROM ackwise.queue AS q CROSS JOIN (VALUES (1)) AS one (row) WHERE q.deleted_at IS NULL;

-- name: ackwise_groups: consumer groups with their counts
SELECT q.name AS queue, g.name AS consumer_group, c.acked, c.dead, c.skipped, c.expired, c.held,
  (SELECT coalesce(sum(s.hi - s.lo), 0)::bigint FROM ackwise.lease AS e JOIN ackwise.span AS s ON s.lease = e.no
    WHERE e.grp = g.id AND e.ended_at IS NULL) AS leased,
  c.unread, c.unread + c.held AS lag,
  (SELECT count(*) FROM ackwise.lease AS e WHERE e.grp = g.id AND e.ended_at IS NULL) AS leases,
  g.expired_leases, c.partitions, ackwise.view_instant(c.settled_at) AS last_settled_at,
  (SELECT ackwise.view_instant(min((
      SELECT s.created_at FROM ackwise.segment AS s
      WHERE s.pos >= (c.lane << 40) + coalesce(
        (SELECT x.lo FROM ackwise.span AS x WHERE x.lane = c.lane AND x.grp = c.grp ORDER BY x.hi LIMIT 1), c.next)
      ORDER BY s.pos LIMIT 1)))
    FROM ackwise.lane AS l JOIN ackwise.cursor AS c ON c.lane = l.id AND c.grp = g.id
    WHERE l.queue = q.id AND (c.held > 0 OR c.next < l.head)) AS oldest_unfinished_at,
  ackwise.view_instant(g.created_at) AS created_at
FROM ackwise.queue AS q JOIN ackwise.grp AS g ON g.queue = q.id CROSS JOIN LATERAL (
  SELECT coalesce(sum(c.acked), 0)::bigint AS acked, coalesce(sum(c.dead), 0)::bigint AS dead,
    coalesce(sum(c.skipped), 0)::bigint AS skipped, coalesce(sum(c.expired), 0)::bigint AS expired,
    coalesce(sum(c.held), 0)::bigint AS held, coalesce(sum(l.head - c.next), 0)::bigint AS unread,
    count(DISTINCT l.part) AS partitions, max(c.last_at) AS settled_at
  FROM ackwise.lane AS l JOIN ackwise.cursor AS c ON c.lane = l.id AND c.grp = g.id WHERE l.queue = q.id) AS c
WHERE q.deleted_at IS NULL;

-- name: ackwise_leases: leases that have not ended
SELECT ackwise.view_lease_id(e.no, e.tag) AS lease_id, q.name AS queue, g.name AS consumer_group, e.owner,
  e.key AS claim_key, e.exclusivity,
  (SELECT coalesce(sum((r.value ->> 2)::bigint - (r.value ->> 1)::bigint), 0)::bigint
    FROM jsonb_array_elements(e.granted::jsonb) AS r) AS granted,
  (SELECT coalesce(sum(s.hi - s.lo), 0)::bigint FROM ackwise.span AS s WHERE s.lease = e.no) AS held,
  ackwise.view_instant(e.made_at - (SELECT a.shift FROM ackwise.anchor AS a)) AS acquired_at,
  ackwise.view_instant(e.deadline - (SELECT a.shift FROM ackwise.anchor AS a)) AS expires_at
FROM ackwise.queue AS q JOIN ackwise.grp AS g ON g.queue = q.id JOIN ackwise.lease AS e ON e.grp = g.id
WHERE q.deleted_at IS NULL AND e.ended_at IS NULL;

-- name: ackwise_dead_letters: dead letters
SELECT d.uuid::uuid AS dead_letter_id, q.name AS queue, p.name AS "partition", p.uuid::uuid AS partition_id,
  d.grp_name AS consumer_group, l.prio AS priority, d.seq, ackwise.view_message_id(d.snapshot, 0) AS message_id,
  d.txid AS transaction_id, d.reason, d.error, d.etype AS error_type, d.fails AS failures, d.delivs AS deliveries,
  ackwise.view_instant(d.born_at) AS created_at, ackwise.view_instant(d.dead_at) AS dead_at
FROM ackwise.queue AS q JOIN ackwise.dead AS d ON d.queue = q.id JOIN ackwise.part AS p ON p.id = d.part
LEFT JOIN ackwise.lane AS l ON l.id = d.lane
WHERE q.deleted_at IS NULL;

-- name: ackwise_messages: stored messages, unpacked from their segments
SELECT q.name AS queue, p.name AS "partition", p.uuid::uuid AS partition_id, l.prio AS priority, m.seq, m.message_id,
  m.transaction_id, coalesce(ackwise.view_json(m.extras) ->> 'content_type', 'application/json') AS content_type,
  coalesce(ackwise.view_json(m.extras) -> 'headers', '{}') AS headers, m.payload,
  CASE WHEN coalesce(ackwise.view_json(m.extras) ->> 'content_type', 'application/json') = 'application/json'
    THEN ackwise.view_json(m.payload) END AS data,
  ackwise.view_created_at(m.message_id, s.created_at) AS created_at
FROM ackwise.queue AS q JOIN ackwise.lane AS l ON l.queue = q.id JOIN ackwise.part AS p ON p.id = l.part
JOIN ackwise.segment AS s ON s.pos >= (l.id << 40) + l.start AND s.pos < (l.id + 1) << 40
CROSS JOIN LATERAL ackwise.view_segment(s.body, s.first) AS m
WHERE q.deleted_at IS NULL AND m.seq >= l.start;

-- name: dead_letter_queue: dead letters in Queen's columns
SELECT d.uuid::uuid AS id, ackwise.view_message_id(d.snapshot, 0) AS message_id, p.uuid::uuid AS partition_id,
  d.txid AS transaction_id, d.grp_name AS consumer_group, d.error AS error_message, d.fails AS retry_count,
  ackwise.view_instant(d.born_at) AS original_created_at, ackwise.view_instant(d.dead_at) AS moved_to_dlq_at,
  q.name AS queue_name, p.name AS partition_name
FROM ackwise.queue AS q JOIN ackwise.part AS p ON p.queue = q.id JOIN ackwise.dead AS d ON d.part = p.id
WHERE q.deleted_at IS NULL;

-- name: partition_consumers: progress of consumer groups per partition, in Queen's columns
SELECT p.uuid::uuid AS partition_id, g.name AS consumer_group,
  ackwise.view_message_id(m.body, (last.last_seq - m.first)::int) AS last_consumed_id,
  ackwise.view_created_at(ackwise.view_message_id(m.body, (last.last_seq - m.first)::int), m.created_at)
    AS last_consumed_created_at,
  ackwise.view_instant(c.last_at) AS last_consumed_at, c.consumed AS total_messages_consumed,
  ackwise.view_instant(e.made_at - (SELECT a.shift FROM ackwise.anchor AS a)) AS lease_acquired_at,
  ackwise.view_instant(e.deadline - (SELECT a.shift FROM ackwise.anchor AS a)) AS lease_expires_at,
  ackwise.view_lease_id(e.no, e.tag) AS worker_id, granted.count AS batch_size,
  granted.count - (SELECT coalesce(sum(s.hi - s.lo), 0)::bigint FROM ackwise.span AS s
    JOIN ackwise.lane AS l ON l.id = s.lane WHERE s.lease = e.no AND l.part = p.id) AS acked_count,
  q.name AS queue_name, p.name AS partition_name
FROM ackwise.queue AS q JOIN ackwise.part AS p ON p.queue = q.id JOIN ackwise.grp AS g ON g.queue = q.id
JOIN LATERAL (
  SELECT count(*) AS lanes, sum(c.acked + c.nacked)::bigint AS consumed, max(c.last_at) AS last_at
  FROM ackwise.cursor AS c WHERE c.part = p.id AND c.grp = g.id) AS c ON c.lanes > 0
LEFT JOIN LATERAL (
  SELECT c.lane, c.last_seq FROM ackwise.cursor AS c
  WHERE c.part = p.id AND c.grp = g.id AND c.last_seq IS NOT NULL ORDER BY c.last_at DESC, c.lane LIMIT 1) AS last ON true
LEFT JOIN LATERAL (
  SELECT n.first, n.created_at, n.body FROM (
    (SELECT 0 AS pruned, s.first, s.created_at, s.body FROM ackwise.segment AS s
      WHERE s.pos >= (last.lane << 40) + last.last_seq AND s.pos < (last.lane + 1) << 40 ORDER BY s.pos LIMIT 1)
    UNION ALL
    (SELECT 1, h.first, h.created_at, h.body FROM ackwise.husk AS h
      WHERE h.pos >= (last.lane << 40) + last.last_seq AND h.pos < (last.lane + 1) << 40 ORDER BY h.pos LIMIT 1)) AS n
  WHERE n.first <= last.last_seq ORDER BY n.pruned LIMIT 1) AS m ON true
LEFT JOIN LATERAL (
  SELECT max(s.lease) AS no FROM ackwise.cursor AS c JOIN ackwise.span AS s ON s.lane = c.lane AND s.grp = c.grp
  WHERE c.part = p.id AND c.grp = g.id AND c.leased > 0) AS held ON true
LEFT JOIN ackwise.lease AS e ON e.no = held.no AND e.ended_at IS NULL
CROSS JOIN LATERAL (
  SELECT coalesce(sum((r.value ->> 2)::bigint - (r.value ->> 1)::bigint), 0)::bigint AS count
  FROM jsonb_array_elements(e.granted::jsonb) AS r JOIN ackwise.lane AS l ON l.id = (r.value ->> 0)::bigint
  WHERE l.part = p.id) AS granted
WHERE q.deleted_at IS NULL;
