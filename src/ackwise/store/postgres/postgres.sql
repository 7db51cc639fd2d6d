-- name: lock_queue: locks queues: other turns create no lanes or groups in them
SELECT id FROM queue WHERE id = ANY(CAST(:queues AS bigint[])) AND deleted_at IS NULL ORDER BY id FOR NO KEY UPDATE;

-- name: lock_parts: locks partitions, in the order of their ids to prevent deadlocks; waits for other turns
SELECT id FROM part WHERE id = ANY(CAST(:parts AS bigint[])) ORDER BY id FOR UPDATE;

-- name: lock_parts_free: locks those partitions that no other turn holds
SELECT id FROM part WHERE id = ANY(CAST(:parts AS bigint[])) ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: lock_parts_of_queue: locks all partitions of a queue
SELECT id FROM part WHERE queue = :queue ORDER BY id FOR UPDATE;

-- name: lock_group_shared: locks a group for claims, which run in parallel; advisory, so that no row is written
SELECT pg_advisory_xact_lock_shared(:key);

-- name: lock_group_alone: locks a group exclusively against other claims
SELECT pg_advisory_xact_lock(:key);

-- name: store_bytes: size of the database
SELECT pg_database_size(current_database());

-- name: lock_timeout: sets the lock timeout of this transaction
SELECT set_config('lock_timeout', :timeout, true);

-- name: footprint: partitions and lanes of commands; NULL for those that do not exist
SELECT w.n, q.id, p.id, l.id
FROM unnest(CAST(:queues AS text[]), CAST(:names AS text[]), CAST(:prios AS bigint[]))
  WITH ORDINALITY AS w (queue, name, prio, n)
JOIN queue AS q ON q.name = w.queue AND q.deleted_at IS NULL
LEFT JOIN part AS p ON p.queue = q.id AND p.name = w.name
LEFT JOIN lane AS l ON l.part = p.id AND l.prio = w.prio;

-- name: footprint_heads: lanes of locked partitions with their heads
SELECT p.queue, p.name, p.id, p.uuid, l.prio, l.id, l.head
FROM part AS p JOIN lane AS l ON l.part = p.id WHERE p.id = ANY(CAST(:parts AS bigint[]));

-- name: footprint_groups: groups of claims; NULL for those that do not exist
SELECT q.id, q.name, q.policy, w.name, g.id
FROM unnest(CAST(:queues AS text[]), CAST(:names AS text[])) AS w (queue, name)
JOIN queue AS q ON q.name = w.queue AND q.deleted_at IS NULL
LEFT JOIN grp AS g ON g.queue = q.id AND g.name = w.name;

-- name: footprint_queues: existing queues by name
SELECT id FROM queue WHERE name = ANY(CAST(:names AS text[])) AND deleted_at IS NULL;

-- name: footprint_queue_parts: all partitions of queues
SELECT p.id FROM queue AS q JOIN part AS p ON p.queue = q.id
WHERE q.name = ANY(CAST(:names AS text[])) AND q.deleted_at IS NULL;

-- name: footprint_dead: the partitions of dead letters
SELECT DISTINCT part FROM dead WHERE uuid = ANY(CAST(:uuids AS text[]));

-- name: footprint_lanes: the partitions of lanes
SELECT id, part FROM lane WHERE id = ANY(CAST(:lanes AS bigint[]));

-- name: footprint_leases: partitions in which leases hold messages
SELECT DISTINCT l.part FROM span AS s JOIN lane AS l ON l.id = s.lane WHERE s.lease = ANY(CAST(:leases AS bigint[]));

-- name: footprint_keys: leases of claim keys
SELECT l.no FROM unnest(CAST(:queues AS text[]), CAST(:groups AS text[]), CAST(:keys AS text[])) AS w (queue, grp, key)
JOIN queue AS q ON q.name = w.queue AND q.deleted_at IS NULL
JOIN grp AS g ON g.queue = q.id AND g.name = w.grp
JOIN lease AS l ON l.grp = g.id AND l.key = w.key;

-- name: footprint_parts: partitions by their uuid
SELECT id FROM part WHERE uuid = ANY(CAST(:uuids AS text[]));

-- name: leases_lock: locks leases, except bulk leases that are settled in part: the locks on their partitions suffice
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease
WHERE no = ANY(CAST(:leases AS bigint[])) AND (bulk = 0 OR no <> ALL(CAST(:pieces AS bigint[])))
ORDER BY no FOR UPDATE;

-- name: leases_read: leases without locks
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE no = ANY(CAST(:leases AS bigint[]));

-- name: lease_by_no: locks a lease, live or ended, because two turns may settle parts of it
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE no = :no FOR UPDATE;

-- name: lease_of_claim: locks the lease of a claim key
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE grp = :grp AND key = :key FOR UPDATE;

-- name: instance_lives: takes the lock that marks a broker as alive until its connection ends
SELECT pg_advisory_lock(CAST(:key AS bigint));

-- name: instance_silent: whether no connection holds the lock of a broker
SELECT pg_try_advisory_xact_lock(CAST(:key AS bigint));

-- name: lease_next: the next lease number
SELECT nextval('lease_no');

-- name: scheduled_due: due messages that no other broker promotes now
SELECT no, queue, part, prio, due_at, created_at, body FROM scheduled
WHERE due_at <= :now ORDER BY due_at, no LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: leases_parts: partitions in which each lease holds messages
SELECT DISTINCT s.lease, l.part FROM span AS s JOIN lane AS l ON l.id = s.lane WHERE s.lease = ANY(CAST(:leases AS bigint[]));

-- name: leases_expired: leases past their deadline that are not ended; no lock, because partitions are locked first
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE ended_at IS NULL AND queue <> 0 AND deadline <= :now ORDER BY deadline LIMIT :limit;

-- name: leases_expired_lock: locks those leases that are still expired and that no other turn holds
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE no = ANY(CAST(:leases AS bigint[])) AND ended_at IS NULL AND deadline <= :now
ORDER BY deadline FOR UPDATE SKIP LOCKED;

-- name: leases_free: locks those of given leases that no other turn holds
SELECT no FROM lease WHERE no IN (:ids) ORDER BY no FOR UPDATE SKIP LOCKED;

-- name: leases_forget: deletes old tombstones, except the highest number
DELETE FROM lease WHERE no IN (
  (SELECT no FROM lease WHERE ended_at IS NOT NULL AND ended_at <= :cutoff AND no < :below
   ORDER BY ended_at LIMIT :limit)
  UNION ALL
  (SELECT no FROM lease WHERE ended_at IS NOT NULL AND no < :floor ORDER BY no LIMIT :limit));

-- name: dedupe_find: positions at which transaction ids with these hashes were used
-- One look-up per hash: until PostgreSQL has analyzed the table, it would plan to read all rows.
SELECT k.h, d.pos, d.at FROM unnest(CAST(:hashes AS bigint[])) AS k (h)
CROSS JOIN LATERAL (SELECT pos, at FROM dedupe WHERE dedupe.h = k.h OFFSET 0) AS d;

-- name: dedupe_add: inserts the keys of the turn's pushes
INSERT INTO dedupe (h, pos, at)
SELECT h, pos, :now FROM unnest(CAST(:hashes AS bigint[]), CAST(:places AS bigint[])) AS k (h, pos);

-- name: dedupe_forget: deletes some keys outside all dedupe windows
DELETE FROM dedupe WHERE ctid = ANY(ARRAY(SELECT ctid FROM dedupe WHERE at <= :before ORDER BY at LIMIT :limit));

-- name: clock: the database's clock in microseconds, what the anchored clock adds, and how many steps were corrected
SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint), shift, steps FROM anchor WHERE id = 1;

-- name: anchor_step: corrects a step of the database's clock, unless another broker corrected it first
UPDATE anchor SET shift = :shift, steps = steps + 1 WHERE id = 1 AND steps = :steps;

-- name: instances_since: the last heartbeat of other brokers that were there at an instant
SELECT max(heartbeat_at) FROM instance WHERE id <> :id AND started_at <= :at;

-- name: instances_last: the last heartbeat of any broker
SELECT max(heartbeat_at) FROM instance;

-- name: cursors_ready_prio: claimable lanes of one priority; see cursors_ready
SELECT lane, part, prio, ready_at FROM cursor
WHERE grp = :grp AND prio = :prio AND ready_at IS NOT NULL AND ready_at <= CAST(:now AS bigint) + 1000000
ORDER BY ready_at, lane LIMIT :limit OFFSET :skip;

-- name: cursors_ready: claimable lanes; another turn may have changed them, so the claim checks again what is due
SELECT lane, part, prio, ready_at FROM cursor
WHERE grp = :grp AND ready_at IS NOT NULL AND ready_at <= CAST(:now AS bigint) + 1000000
ORDER BY prio, ready_at, lane LIMIT :limit OFFSET :skip;

-- name: queues_buried: deleted queues that still have rows and that no other broker purges now
SELECT id FROM queue WHERE deleted_at IS NOT NULL ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: queues_noted: existing queues with notes of a protocol, after a name
SELECT id, name, ns, task, policy, paused, created_at FROM queue
WHERE deleted_at IS NULL AND (policy::jsonb ->> 'notes') IS NOT NULL AND name > :after ORDER BY name LIMIT :limit;

-- name: queues_max_wait: existing queues with a maximum wait, after an id
SELECT id, name, ns, task, policy, paused, created_at FROM queue
WHERE deleted_at IS NULL AND (policy::jsonb ->> 'max_wait_seconds') IS NOT NULL AND id > :after
ORDER BY id LIMIT :limit;

-- name: dedupe_windows: the shortest and the longest dedupe window of existing queues, and whether one uses the default
SELECT
  (SELECT min((policy::jsonb ->> 'dedupe_seconds')::double precision) FROM queue WHERE deleted_at IS NULL),
  (SELECT max((policy::jsonb ->> 'dedupe_seconds')::double precision) FROM queue WHERE deleted_at IS NULL),
  EXISTS (SELECT 1 FROM queue
    WHERE deleted_at IS NULL AND (policy::jsonb ->> 'dedupe_seconds')::double precision IS NULL);

-- name: spool_lock: lets one broker at a time replay the spool; does not wait
SELECT CASE WHEN pg_try_advisory_xact_lock(4702394921427238913) THEN 1 ELSE 0 END;

-- name: database_stats: statistics of the database as JSON, from the pg_stat views
SELECT CAST(json_build_object(
  'database', (SELECT json_build_object(
      'name', datname, 'size', pg_database_size(datid), 'connections', numbackends, 'commits', xact_commit,
      'rollbacks', xact_rollback, 'deadlocks', deadlocks, 'tempFiles', temp_files, 'tempBytes', temp_bytes)
    FROM pg_stat_database WHERE datname = current_database()),
  'databaseCache', (SELECT json_build_object(
      'blocksRead', blks_read, 'blocksHit', blks_hit,
      'hitRatio', CASE WHEN blks_hit + blks_read > 0 THEN round(100.0 * blks_hit / (blks_hit + blks_read), 2) END)
    FROM pg_stat_database WHERE datname = current_database()),
  'tableCache', (SELECT coalesce(json_agg(json_build_object(
      'table', relname, 'blocksRead', heap_blks_read, 'blocksHit', heap_blks_hit,
      'hitRatio', CASE WHEN heap_blks_hit + heap_blks_read > 0
        THEN round(100.0 * heap_blks_hit / (heap_blks_hit + heap_blks_read), 2) END) ORDER BY relname), '[]')
    FROM pg_statio_user_tables WHERE schemaname = 'ackwise'),
  'indexCache', (SELECT coalesce(json_agg(json_build_object(
      'table', relname, 'index', indexrelname, 'blocksRead', idx_blks_read, 'blocksHit', idx_blks_hit,
      'hitRatio', CASE WHEN idx_blks_hit + idx_blks_read > 0
        THEN round(100.0 * idx_blks_hit / (idx_blks_hit + idx_blks_read), 2) END) ORDER BY indexrelname), '[]')
    FROM pg_statio_user_indexes WHERE schemaname = 'ackwise'),
  'cacheSummary', (SELECT json_build_object(
      'tableBlocksRead', sum(heap_blks_read), 'tableBlocksHit', sum(heap_blks_hit),
      'indexBlocksRead', sum(idx_blks_read), 'indexBlocksHit', sum(idx_blks_hit))
    FROM pg_statio_user_tables WHERE schemaname = 'ackwise'),
  'deadTuples', (SELECT coalesce(json_agg(json_build_object(
      'table', relname, 'live', n_live_tup, 'dead', n_dead_tup, 'lastAutovacuum', last_autovacuum,
      'lastAutoanalyze', last_autoanalyze) ORDER BY n_dead_tup DESC, relname), '[]')
    FROM pg_stat_user_tables WHERE schemaname = 'ackwise'),
  'hotUpdates', (SELECT coalesce(json_agg(json_build_object(
      'table', relname, 'updates', n_tup_upd, 'hotUpdates', n_tup_hot_upd) ORDER BY n_tup_upd DESC, relname), '[]')
    FROM pg_stat_user_tables WHERE schemaname = 'ackwise'),
  'activeQueries', (SELECT coalesce(json_agg(json_build_object(
      'pid', pid, 'state', state, 'waitEventType', wait_event_type, 'waitEvent', wait_event,
      'seconds', round(CAST(extract(epoch FROM clock_timestamp() - query_start) AS numeric), 3)) ORDER BY query_start), '[]')
    FROM (SELECT * FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid()
      ORDER BY query_start LIMIT 50) AS active),
  'autovacuumStatus', (SELECT coalesce(json_agg(json_build_object(
      'pid', pid, 'table', CAST(CAST(relid AS regclass) AS text), 'phase', phase)), '[]')
    FROM pg_stat_progress_vacuum WHERE datname = current_database()),
  'bufferConfig', (SELECT json_object_agg(name, current_setting(name))
    FROM unnest(ARRAY['shared_buffers', 'effective_cache_size', 'work_mem', 'maintenance_work_mem', 'max_connections',
      'wal_buffers', 'synchronous_commit']) AS settings (name)),
  'tableSizes', (SELECT coalesce(json_agg(json_build_object(
      'table', relname, 'bytes', pg_relation_size(relid), 'totalBytes', pg_total_relation_size(relid))
      ORDER BY pg_total_relation_size(relid) DESC, relname), '[]')
    FROM pg_stat_user_tables WHERE schemaname = 'ackwise')
) AS text);
-- name: dead_insert: inserts a dead letter; a message that dies again replaces its old record
INSERT INTO dead (uuid, queue, part, lane, seq, epoch, grp, grp_name, txid, reason, error, etype, fails, delivs, history,
  snapshot, born_at, dead_at, mark, kind)
VALUES (:uuid, :queue, :part, :lane, :seq, :epoch, :grp, :grp_name, :txid, :reason, :error, :etype, :fails, :delivs,
  :history, :snapshot, :born_at, :dead_at, CAST(CAST(pg_current_xact_id() AS text) AS bigint), :kind)
ON CONFLICT (lane, seq, grp) DO UPDATE SET uuid = excluded.uuid, epoch = excluded.epoch, reason = excluded.reason,
  error = excluded.error, etype = excluded.etype, fails = excluded.fails, delivs = excluded.delivs,
  history = excluded.history, snapshot = excluded.snapshot, dead_at = excluded.dead_at, mark = excluded.mark,
  kind = excluded.kind;

-- name: hook_start: the place behind all dead letters of ended transactions
SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint) - 1, coalesce(max(id), 0) FROM dead;

-- name: hook_put: creates a hook, or changes it and ends its failure; its place stays
INSERT INTO hook (queue, name, url, payload, mark, letter, until, failures, next_at, paused, error, created_at, since)
VALUES (:queue, :name, :url, :payload, :mark, :letter, 0, 0, 0, 0, '', :created_at, pg_current_snapshot())
ON CONFLICT (queue, name) DO UPDATE SET url = excluded.url, payload = excluded.payload, failing_from = NULL, failures = 0,
  next_at = 0, paused = 0, error = '';

-- name: hook_reset: sets the place of a hook, on a server that did not give out the numbers in its snapshot
UPDATE hook SET mark = :mark, letter = :letter, since = NULL WHERE queue = :queue AND name = :name;

-- name: hook_letters: dead letters behind a place, in the order of their marks, with their sizes
SELECT d.id, d.mark, length(d.snapshot) + length(d.history) + length(d.error)
FROM hook AS h JOIN dead AS d ON d.queue = h.queue
WHERE h.queue = :queue AND h.name = :name AND (d.mark, d.id) > (:mark, :letter) AND d.mark < :horizon
  AND (h.since IS NULL OR NOT pg_visible_in_snapshot(CAST(CAST(d.mark AS text) AS xid8), h.since))
ORDER BY d.mark, d.id LIMIT :limit;

-- name: hook_horizon: the mark below which no dead letter will appear
SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint);
