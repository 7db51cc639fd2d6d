-- Views for people and their tools: docs/reference/sql-views.md. No statement of Ackwise reads them.
-- `{instant us}`, `{uuid}`, `{lease_id}` and `{shift}` stand for expressions: views.py.
-- Instants are texts 'YYYY-MM-DD HH:MM:SS.ffffff' in UTC, so that they compare with CURRENT_TIMESTAMP.

-- name: ackwise_queues: queues with their counts
SELECT q.name AS queue, q.ns AS namespace, q.task, q.paused <> 0 AS paused, q.policy,
  (SELECT count(DISTINCT l.part) FROM lane AS l WHERE l.queue = q.id) AS partitions,
  (SELECT coalesce(sum(l.head - l.start), 0) FROM lane AS l WHERE l.queue = q.id) AS messages,
  (SELECT count(*) FROM scheduled AS s WHERE s.queue = q.id) AS scheduled,
  (SELECT count(*) FROM dead AS d WHERE d.queue = q.id) AS dead_letters,
  (SELECT count(*) FROM grp AS g WHERE g.queue = q.id) AS consumer_groups,
  (SELECT {instant t.us}
    FROM (SELECT min(l.start_at) AS us FROM lane AS l WHERE l.queue = q.id) AS t
    WHERE t.us < 4611686018427387904) AS oldest_message_at,
  {instant q.created_at} AS created_at
FROM queue AS q WHERE q.deleted_at IS NULL;

-- name: ackwise_groups: consumer groups with their counts
SELECT x.queue, x.consumer_group, x.acked, x.dead, x.skipped, x.expired, x.held, x.leased, x.unread,
  x.unread + x.held AS lag, x.leases, x.expired_leases, x.partitions,
  {instant x.settled_us} AS last_settled_at,
  {instant x.oldest_us} AS oldest_unfinished_at,
  {instant x.created_us} AS created_at
FROM (
  SELECT q.name AS queue, g.name AS consumer_group, g.created_at AS created_us, g.expired_leases,
    (SELECT coalesce(sum(c.acked), 0) FROM lane AS l JOIN cursor AS c ON c.lane = l.id AND c.grp = g.id
      WHERE l.queue = q.id) AS acked,
    (SELECT coalesce(sum(c.dead), 0) FROM lane AS l JOIN cursor AS c ON c.lane = l.id AND c.grp = g.id
      WHERE l.queue = q.id) AS dead,
    (SELECT coalesce(sum(c.skipped), 0) FROM lane AS l JOIN cursor AS c ON c.lane = l.id AND c.grp = g.id
      WHERE l.queue = q.id) AS skipped,
    (SELECT coalesce(sum(c.expired), 0) FROM lane AS l JOIN cursor AS c ON c.lane = l.id AND c.grp = g.id
      WHERE l.queue = q.id) AS expired,
    (SELECT coalesce(sum(c.held), 0) FROM lane AS l JOIN cursor AS c ON c.lane = l.id AND c.grp = g.id
      WHERE l.queue = q.id) AS held,
    (SELECT coalesce(sum(l.head - c.next), 0) FROM lane AS l JOIN cursor AS c ON c.lane = l.id AND c.grp = g.id
      WHERE l.queue = q.id) AS unread,
    (SELECT count(DISTINCT l.part) FROM lane AS l JOIN cursor AS c ON c.lane = l.id AND c.grp = g.id
      WHERE l.queue = q.id) AS partitions,
    (SELECT max(c.last_at) FROM lane AS l JOIN cursor AS c ON c.lane = l.id AND c.grp = g.id
      WHERE l.queue = q.id) AS settled_us,
    (SELECT min((
        SELECT s.created_at FROM segment AS s
        WHERE s.pos >= (c.lane << 40) + coalesce(
          (SELECT x.lo FROM span AS x WHERE x.lane = c.lane AND x.grp = c.grp ORDER BY x.hi LIMIT 1), c.next)
        ORDER BY s.pos LIMIT 1))
      FROM lane AS l JOIN cursor AS c ON c.lane = l.id AND c.grp = g.id
      WHERE l.queue = q.id AND (c.held > 0 OR c.next < l.head)) AS oldest_us,
    (SELECT count(*) FROM lease AS e WHERE e.grp = g.id AND e.ended_at IS NULL) AS leases,
    (SELECT coalesce(sum(s.hi - s.lo), 0) FROM lease AS e JOIN span AS s ON s.lease = e.no
      WHERE e.grp = g.id AND e.ended_at IS NULL) AS leased
  FROM queue AS q JOIN grp AS g ON g.queue = q.id WHERE q.deleted_at IS NULL) AS x;

-- name: ackwise_leases: leases that have not ended
SELECT x.lease_id, x.queue, x.consumer_group, x.owner, x.claim_key, x.exclusivity, x.granted, x.held,
  {instant x.made_us} AS acquired_at,
  {instant x.deadline_us} AS expires_at
FROM (
  SELECT {lease_id} AS lease_id, q.name AS queue, g.name AS consumer_group, e.owner, e.key AS claim_key, e.exclusivity,
    (SELECT coalesce(sum(json_extract(r.value, '$[2]') - json_extract(r.value, '$[1]')), 0)
      FROM json_each(e.granted) AS r) AS granted,
    (SELECT coalesce(sum(s.hi - s.lo), 0) FROM span AS s WHERE s.lease = e.no) AS held,
    e.made_at - {shift} AS made_us,
    e.deadline - {shift} AS deadline_us
  FROM queue AS q JOIN grp AS g ON g.queue = q.id JOIN lease AS e ON e.grp = g.id
  WHERE q.deleted_at IS NULL AND e.ended_at IS NULL) AS x;

-- name: ackwise_dead_letters: dead letters
SELECT d.uuid AS dead_letter_id, q.name AS queue, p.name AS "partition", p.uuid AS partition_id,
  d.grp_name AS consumer_group, l.prio AS priority, d.seq,
  (SELECT {uuid} FROM (SELECT lower(hex(substr(d.snapshot, 21, 16))) AS h) AS t) AS message_id,
  d.txid AS transaction_id, d.reason, d.error, d.etype AS error_type, d.fails AS failures, d.delivs AS deliveries,
  {instant d.born_at} AS created_at,
  {instant d.dead_at} AS dead_at
FROM queue AS q JOIN dead AS d ON d.queue = q.id JOIN part AS p ON p.id = d.part LEFT JOIN lane AS l ON l.id = d.lane
WHERE q.deleted_at IS NULL;

-- name: dead_letter_queue: dead letters in Queen's columns
SELECT d.uuid AS id,
  (SELECT {uuid} FROM (SELECT lower(hex(substr(d.snapshot, 21, 16))) AS h) AS t) AS message_id,
  p.uuid AS partition_id, d.txid AS transaction_id, d.grp_name AS consumer_group, d.error AS error_message,
  d.fails AS retry_count,
  {instant d.born_at} AS original_created_at,
  {instant d.dead_at} AS moved_to_dlq_at,
  q.name AS queue_name, p.name AS partition_name
FROM queue AS q JOIN part AS p ON p.queue = q.id JOIN dead AS d ON d.part = p.id WHERE q.deleted_at IS NULL;

-- name: partition_consumers: progress of consumer groups per partition, in Queen's columns
SELECT x.partition_id, x.consumer_group,
  (SELECT {uuid} FROM (
    SELECT CASE WHEN m.explicit THEN lower(hex(substr(m.body, 21 + 16 * m.at, 16)))
      ELSE lower(hex(substr(m.body, 21, 8))) || printf('%x%015x',
        instr('123456789ABCDEF', substr(hex(substr(m.body, 29, 1)), 1, 1)) + ((m.low + m.at) >> 60),
        (m.low + m.at) & 0x0FFFFFFFFFFFFFFF) END AS h
    FROM (
      SELECT coalesce(s.body, h.body) AS body, x.last_seq - coalesce(s.first, h.first) AS at,
        substr(hex(substr(coalesce(s.body, h.body), 2, 1)), 2, 1) IN ('1', '3', '5', '7') AS explicit,
        (SELECT sum(instr('123456789ABCDEF', substr(hex(substr(coalesce(s.body, h.body), 29, 8)), 1 + n.value, 1))
          << (60 - 4 * n.value)) FROM json_each('[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]') AS n) AS low
      WHERE coalesce(s.first, h.first) IS NOT NULL) AS m) AS t) AS last_consumed_id,
  (SELECT {instant t.us}
    FROM (
      SELECT min(coalesce(s.created_at, h.created_at), 999 + 1000 * (
        SELECT sum(instr('123456789ABCDEF', substr(hex(substr(coalesce(s.body, h.body), 21 + CASE
            WHEN substr(hex(substr(coalesce(s.body, h.body), 2, 1)), 2, 1) IN ('1', '3', '5', '7')
            THEN 16 * (x.last_seq - coalesce(s.first, h.first)) ELSE 0 END, 6)), n.value, 1)) << (48 - 4 * n.value))
        FROM json_each('[1,2,3,4,5,6,7,8,9,10,11,12]') AS n)) AS us
      WHERE coalesce(s.first, h.first) IS NOT NULL) AS t) AS last_consumed_created_at,
  (SELECT {instant t.us}
    FROM (SELECT max(c.last_at) AS us FROM cursor AS c WHERE c.part = x.part AND c.grp = x.grp) AS t) AS last_consumed_at,
  (SELECT coalesce(sum(c.acked + c.nacked), 0) FROM cursor AS c WHERE c.part = x.part AND c.grp = x.grp)
    AS total_messages_consumed,
  (SELECT {instant t.us}
    FROM (SELECT e.made_at - {shift} AS us) AS t) AS lease_acquired_at,
  (SELECT {instant t.us}
    FROM (SELECT e.deadline - {shift} AS us) AS t) AS lease_expires_at,
  CASE WHEN e.no IS NOT NULL THEN {lease_id} END AS worker_id,
  (SELECT coalesce(sum(json_extract(r.value, '$[2]') - json_extract(r.value, '$[1]')), 0) FROM json_each(e.granted) AS r
    JOIN lane AS l ON l.id = json_extract(r.value, '$[0]') WHERE l.part = x.part) AS batch_size,
  (SELECT coalesce(sum(json_extract(r.value, '$[2]') - json_extract(r.value, '$[1]')), 0) FROM json_each(e.granted) AS r
    JOIN lane AS l ON l.id = json_extract(r.value, '$[0]') WHERE l.part = x.part)
    - (SELECT coalesce(sum(n.hi - n.lo), 0) FROM span AS n JOIN lane AS l ON l.id = n.lane
      WHERE n.lease = e.no AND l.part = x.part) AS acked_count,
  x.queue_name, x.partition_name
FROM (
  SELECT p.uuid AS partition_id, g.name AS consumer_group, q.name AS queue_name, p.name AS partition_name,
    p.id AS part, g.id AS grp,
    (SELECT c.lane FROM cursor AS c WHERE c.part = p.id AND c.grp = g.id AND c.last_seq IS NOT NULL
      ORDER BY c.last_at DESC, c.lane LIMIT 1) AS last_lane,
    (SELECT c.last_seq FROM cursor AS c WHERE c.part = p.id AND c.grp = g.id AND c.last_seq IS NOT NULL
      ORDER BY c.last_at DESC, c.lane LIMIT 1) AS last_seq,
    (SELECT max(n.lease) FROM cursor AS c JOIN span AS n ON n.lane = c.lane AND n.grp = c.grp
      WHERE c.part = p.id AND c.grp = g.id AND c.leased > 0) AS lease
  FROM queue AS q JOIN part AS p ON p.queue = q.id JOIN grp AS g ON g.queue = q.id
  WHERE q.deleted_at IS NULL AND EXISTS (SELECT 1 FROM cursor AS c WHERE c.part = p.id AND c.grp = g.id)) AS x
LEFT JOIN lease AS e ON e.no = x.lease AND e.ended_at IS NULL
LEFT JOIN segment AS s ON s.first <= x.last_seq AND s.pos = (
  SELECT n.pos FROM segment AS n
  WHERE n.pos >= (x.last_lane << 40) + x.last_seq AND n.pos < (x.last_lane + 1) << 40 ORDER BY n.pos LIMIT 1)
LEFT JOIN husk AS h ON s.pos IS NULL AND h.first <= x.last_seq AND h.pos = (
  SELECT n.pos FROM husk AS n
  WHERE n.pos >= (x.last_lane << 40) + x.last_seq AND n.pos < (x.last_lane + 1) << 40 ORDER BY n.pos LIMIT 1);
