-- name: lock_queue: nobody else makes lanes or groups of a living queue
SELECT id FROM queue WHERE id = ANY(CAST(:queues AS bigint[])) AND deleted_at IS NULL ORDER BY id FOR NO KEY UPDATE;

-- name: lock_parts: own partitions, waiting for whoever has them; always in this order, so that nobody waits in a ring
SELECT id FROM part WHERE id = ANY(CAST(:parts AS bigint[])) ORDER BY id FOR UPDATE;

-- name: lock_parts_free: own those partitions that nobody else has
SELECT id FROM part WHERE id = ANY(CAST(:parts AS bigint[])) ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: lock_parts_of_queue: own every partition of a queue
SELECT id FROM part WHERE queue = :queue ORDER BY id FOR UPDATE;

-- name: lock_group_shared: claims of a group run beside each other; advisory, so that a claim writes no row for it
SELECT pg_advisory_xact_lock_shared(:key);

-- name: lock_group_alone: nobody else claims in the group
SELECT pg_advisory_xact_lock(:key);

-- name: lock_timeout: how long this transaction waits for each lock
SELECT set_config('lock_timeout', :timeout, true);

-- name: footprint: the partitions that commands will touch; no lane, or no partition, where one has to be made
SELECT w.n, q.id, p.id, l.id
FROM unnest(CAST(:queues AS text[]), CAST(:names AS text[]), CAST(:prios AS bigint[]))
  WITH ORDINALITY AS w (queue, name, prio, n)
JOIN queue AS q ON q.name = w.queue AND q.deleted_at IS NULL
LEFT JOIN part AS p ON p.queue = q.id AND p.name = w.name
LEFT JOIN lane AS l ON l.part = p.id AND l.prio = w.prio;

-- name: footprint_heads: the lanes of owned partitions and where they end
SELECT p.queue, p.name, p.id, p.uuid, l.prio, l.id, l.head
FROM part AS p JOIN lane AS l ON l.part = p.id WHERE p.id = ANY(CAST(:parts AS bigint[]));

-- name: footprint_groups: the groups in which commands will claim; no group where one has to be made
SELECT q.id, q.name, q.policy, w.name, g.id
FROM unnest(CAST(:queues AS text[]), CAST(:names AS text[])) AS w (queue, name)
JOIN queue AS q ON q.name = w.queue AND q.deleted_at IS NULL
LEFT JOIN grp AS g ON g.queue = q.id AND g.name = w.name;

-- name: footprint_queues: living queues by name
SELECT id FROM queue WHERE name = ANY(CAST(:names AS text[])) AND deleted_at IS NULL;

-- name: footprint_queue_parts: every partition of queues
SELECT p.id FROM queue AS q JOIN part AS p ON p.queue = q.id
WHERE q.name = ANY(CAST(:names AS text[])) AND q.deleted_at IS NULL;

-- name: footprint_dead: the partitions of dead letters
SELECT DISTINCT part FROM dead WHERE uuid = ANY(CAST(:uuids AS text[]));

-- name: footprint_lanes: the partitions of lanes
SELECT id, part FROM lane WHERE id = ANY(CAST(:lanes AS bigint[]));

-- name: footprint_leases: the partitions in which leases hold something
SELECT DISTINCT l.part FROM span AS s JOIN lane AS l ON l.id = s.lane WHERE s.lease = ANY(CAST(:leases AS bigint[]));

-- name: footprint_keys: the leases of claims that were made under keys
SELECT l.no FROM unnest(CAST(:queues AS text[]), CAST(:groups AS text[]), CAST(:keys AS text[])) AS w (queue, grp, key)
JOIN queue AS q ON q.name = w.queue AND q.deleted_at IS NULL
JOIN grp AS g ON g.queue = q.id AND g.name = w.grp
JOIN lease AS l ON l.grp = g.id AND l.key = w.key;

-- name: footprint_parts: partitions by their uuid
SELECT id FROM part WHERE uuid = ANY(CAST(:uuids AS text[]));

-- name: leases_lock: own leases, but not bulk ones of which pieces are settled: their partitions are enough
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease
WHERE no = ANY(CAST(:leases AS bigint[])) AND (bulk = 0 OR no <> ALL(CAST(:pieces AS bigint[])))
ORDER BY no FOR UPDATE;

-- name: leases_read: leases that are not owned
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE no = ANY(CAST(:leases AS bigint[]));

-- name: lease_by_no: a lease, living or not; owned from now on, because two turns may settle parts of it
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE no = :no FOR UPDATE;

-- name: lease_of_claim: the claim that used this key; owned from now on
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE grp = :grp AND key = :key FOR UPDATE;

-- name: instance_lives: said once by a broker, and true until its connection ends
SELECT pg_advisory_lock(CAST(:key AS bigint));

-- name: instance_silent: whether no connection of a broker is there
SELECT pg_try_advisory_xact_lock(CAST(:key AS bigint));

-- name: lease_next: a number above every other
SELECT nextval('lease_no');

-- name: scheduled_due: messages whose time has come and that no other broker is promoting
SELECT no, queue, part, prio, due_at, created_at, body FROM scheduled
WHERE due_at <= :now ORDER BY due_at, no LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: leases_parts: the partitions in which each of these leases holds something
SELECT DISTINCT s.lease, l.part FROM span AS s JOIN lane AS l ON l.id = s.lane WHERE s.lease = ANY(CAST(:leases AS bigint[]));

-- name: leases_expired: leases that ran out and were not ended; not locked, because partitions are locked first
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE ended_at IS NULL AND queue <> 0 AND deadline <= :now ORDER BY deadline LIMIT :limit;

-- name: leases_expired_lock: those of them that are still so and that no other turn has
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE no = ANY(CAST(:leases AS bigint[])) AND ended_at IS NULL AND deadline <= :now
ORDER BY deadline FOR UPDATE SKIP LOCKED;

-- name: leases_forget: old tombstones, but never the newest number
DELETE FROM lease WHERE no IN (
  (SELECT no FROM lease WHERE ended_at IS NOT NULL AND ended_at <= :cutoff AND no < :below
   ORDER BY ended_at LIMIT :limit)
  UNION ALL
  (SELECT no FROM lease WHERE ended_at IS NOT NULL AND no < :floor ORDER BY no LIMIT :limit));

-- name: dedupe_find: where transaction ids with these hashes were used
-- Looked up one by one: until PostgreSQL has counted the table it expects every row to match, and would read them all.
SELECT k.h, d.pos, d.at FROM unnest(CAST(:hashes AS bigint[])) AS k (h)
CROSS JOIN LATERAL (SELECT pos, at FROM dedupe WHERE dedupe.h = k.h OFFSET 0) AS d;

-- name: dedupe_add: the keys of this turn's pushes
INSERT INTO dedupe (h, pos, at)
SELECT h, pos, :now FROM unnest(CAST(:hashes AS bigint[]), CAST(:places AS bigint[])) AS k (h, pos);

-- name: dedupe_forget: some keys that are out of every window
DELETE FROM dedupe WHERE ctid = ANY(ARRAY(SELECT ctid FROM dedupe WHERE at <= :before ORDER BY at LIMIT :limit));

-- name: clock: the database's clock in microseconds
SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint);

-- name: cursors_ready_prio: the same among one priority
SELECT lane, part, prio, ready_at FROM cursor
WHERE grp = :grp AND prio = :prio AND ready_at IS NOT NULL AND ready_at <= CAST(:now AS bigint) + 1000000
ORDER BY ready_at, lane LIMIT :limit OFFSET :skip;

-- name: cursors_ready: claimable lanes; another broker's turn may be a moment ahead, and what is not due is not taken
SELECT lane, part, prio, ready_at FROM cursor
WHERE grp = :grp AND ready_at IS NOT NULL AND ready_at <= CAST(:now AS bigint) + 1000000
ORDER BY prio, ready_at, lane LIMIT :limit OFFSET :skip;

-- name: queues_buried: deleted queues whose rows are still there and that no other broker is purging
SELECT id FROM queue WHERE deleted_at IS NOT NULL ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: queues_noted: living queues with notes of a dialect, behind a name
SELECT id, name, ns, task, policy, paused, created_at FROM queue
WHERE deleted_at IS NULL AND (policy::jsonb ->> 'notes') IS NOT NULL AND name > :after ORDER BY name LIMIT :limit;

-- name: queues_max_wait: living queues whose messages may wait only so long, behind an id
SELECT id, name, ns, task, policy, paused, created_at FROM queue
WHERE deleted_at IS NULL AND (policy::jsonb ->> 'max_wait_seconds') IS NOT NULL AND id > :after
ORDER BY id LIMIT :limit;

-- name: dedupe_windows: the shortest and the longest window that a living queue sets, and whether one has the default
SELECT
  (SELECT min((policy::jsonb ->> 'dedupe_seconds')::double precision) FROM queue WHERE deleted_at IS NULL),
  (SELECT max((policy::jsonb ->> 'dedupe_seconds')::double precision) FROM queue WHERE deleted_at IS NULL),
  EXISTS (SELECT 1 FROM queue
    WHERE deleted_at IS NULL AND (policy::jsonb ->> 'dedupe_seconds')::double precision IS NULL);

-- name: lock_graph: the graph is changed by one turn at a time
SELECT id FROM mew_state WHERE id = 1 FOR UPDATE;
