-- name: queue_by_name: a queue by name, unless it is deleted
SELECT id, name, ns, task, policy, paused, created_at FROM queue WHERE name = :name AND deleted_at IS NULL;

-- name: queue_by_id: a queue by id, unless it is deleted
SELECT id, name, ns, task, policy, paused, created_at FROM queue WHERE id = :id AND deleted_at IS NULL;

-- name: queues_page: existing queues after a name
SELECT id, name, ns, task, policy, paused, created_at FROM queue
WHERE deleted_at IS NULL AND name > :after ORDER BY name LIMIT :limit;

-- name: queues_of_ns: existing queues of a namespace after a name, optionally of one task
SELECT id, name, ns, task, policy, paused, created_at FROM queue
WHERE deleted_at IS NULL AND ns = :ns AND name > :after
  AND (CAST(:task AS text) IS NULL OR task = CAST(:task AS text))
ORDER BY name LIMIT :limit;

-- name: queues_of_task: existing queues of a task after a name
SELECT id, name, ns, task, policy, paused, created_at FROM queue
WHERE deleted_at IS NULL AND task = :task AND name > :after ORDER BY name LIMIT :limit;

-- name: unjoined_of_ns: queues of a namespace behind a name without a given group: those with messages, or all
SELECT q.id, q.name, q.ns, q.task, q.policy, q.paused, q.created_at FROM queue AS q
WHERE q.deleted_at IS NULL AND q.ns = :ns
  AND (CAST(:task AS text) IS NULL OR q.task = CAST(:task AS text)) AND q.name > :after
  AND (:all = 1 OR (SELECT min(l.start_at) FROM lane AS l WHERE l.queue = q.id) < 4611686018427387904)
  AND NOT EXISTS (SELECT 1 FROM grp AS g WHERE g.queue = q.id AND g.name = :grp)
ORDER BY q.name LIMIT :limit;

-- name: unjoined_of_task: queues of a task behind a name without a given group: those with messages, or all
SELECT q.id, q.name, q.ns, q.task, q.policy, q.paused, q.created_at FROM queue AS q
WHERE q.deleted_at IS NULL AND q.task = :task AND q.name > :after
  AND (:all = 1 OR (SELECT min(l.start_at) FROM lane AS l WHERE l.queue = q.id) < 4611686018427387904)
  AND NOT EXISTS (SELECT 1 FROM grp AS g WHERE g.queue = q.id AND g.name = :grp)
ORDER BY q.name LIMIT :limit;

-- name: astir_of_ns: queues of a namespace in which a group has ready or leased messages, longest ready first
SELECT q.id, q.name, q.ns, q.task, q.policy, q.paused, q.created_at,
  (SELECT min(c.ready_at) FROM cursor AS c WHERE c.grp = g.id AND c.ready_at IS NOT NULL) AS ready
FROM queue AS q CROSS JOIN grp AS g
WHERE q.deleted_at IS NULL AND q.ns = :ns
  AND (CAST(:task AS text) IS NULL OR q.task = CAST(:task AS text)) AND g.queue = q.id AND g.name = :grp
  AND (EXISTS (SELECT 1 FROM cursor AS c WHERE c.grp = g.id AND c.ready_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM lease AS e WHERE e.grp = g.id AND e.ended_at IS NULL))
ORDER BY ready NULLS LAST, q.id LIMIT :limit;

-- name: astir_behind_of_ns: queues of a namespace behind a name in which a group has ready or leased messages
SELECT q.id, q.name, q.ns, q.task, q.policy, q.paused, q.created_at FROM queue AS q CROSS JOIN grp AS g
WHERE q.deleted_at IS NULL AND q.ns = :ns
  AND (CAST(:task AS text) IS NULL OR q.task = CAST(:task AS text)) AND q.name > :after AND g.queue = q.id AND g.name = :grp
  AND (EXISTS (SELECT 1 FROM cursor AS c WHERE c.grp = g.id AND c.ready_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM lease AS e WHERE e.grp = g.id AND e.ended_at IS NULL))
ORDER BY q.name LIMIT :limit;

-- name: keyed_of_ns: queues of a namespace in which a group used a claim key
SELECT q.id, q.name, q.ns, q.task, q.policy, q.paused, q.created_at FROM queue AS q CROSS JOIN grp AS g
WHERE q.deleted_at IS NULL AND q.ns = :ns
  AND (CAST(:task AS text) IS NULL OR q.task = CAST(:task AS text)) AND g.queue = q.id AND g.name = :grp
  AND EXISTS (SELECT 1 FROM lease AS e WHERE e.grp = g.id AND e.key = :key)
ORDER BY q.name;

-- name: astir_of_task: queues of a task in which a group has ready or leased messages, longest ready first
SELECT q.id, q.name, q.ns, q.task, q.policy, q.paused, q.created_at,
  (SELECT min(c.ready_at) FROM cursor AS c WHERE c.grp = g.id AND c.ready_at IS NOT NULL) AS ready
FROM queue AS q CROSS JOIN grp AS g
WHERE q.deleted_at IS NULL AND q.task = :task AND g.queue = q.id AND g.name = :grp
  AND (EXISTS (SELECT 1 FROM cursor AS c WHERE c.grp = g.id AND c.ready_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM lease AS e WHERE e.grp = g.id AND e.ended_at IS NULL))
ORDER BY ready NULLS LAST, q.id LIMIT :limit;

-- name: astir_behind_of_task: queues of a task behind a name in which a group has ready or leased messages
SELECT q.id, q.name, q.ns, q.task, q.policy, q.paused, q.created_at FROM queue AS q CROSS JOIN grp AS g
WHERE q.deleted_at IS NULL AND q.task = :task AND q.name > :after AND g.queue = q.id AND g.name = :grp
  AND (EXISTS (SELECT 1 FROM cursor AS c WHERE c.grp = g.id AND c.ready_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM lease AS e WHERE e.grp = g.id AND e.ended_at IS NULL))
ORDER BY q.name LIMIT :limit;

-- name: keyed_of_task: queues of a task in which a group used a claim key
SELECT q.id, q.name, q.ns, q.task, q.policy, q.paused, q.created_at FROM queue AS q CROSS JOIN grp AS g
WHERE q.deleted_at IS NULL AND q.task = :task AND g.queue = q.id AND g.name = :grp
  AND EXISTS (SELECT 1 FROM lease AS e WHERE e.grp = g.id AND e.key = :key)
ORDER BY q.name;

-- name: queues_noted: existing queues with notes of a protocol, after a name
SELECT id, name, ns, task, policy, paused, created_at FROM queue
WHERE deleted_at IS NULL AND json_extract(policy, '$.notes') IS NOT NULL AND name > :after ORDER BY name LIMIT :limit;

-- name: queues_after: existing queues after an id, in the order of their creation
SELECT id, name, ns, task, policy, paused, created_at FROM queue
WHERE deleted_at IS NULL AND id > :after ORDER BY id LIMIT :limit;

-- name: queues_max_wait: existing queues with a maximum wait, after an id
SELECT id, name, ns, task, policy, paused, created_at FROM queue
WHERE deleted_at IS NULL AND json_extract(policy, '$.max_wait_seconds') IS NOT NULL AND id > :after
ORDER BY id LIMIT :limit;

-- name: dedupe_windows: the shortest and the longest dedupe window of existing queues, and whether one uses the default
SELECT (SELECT min(json_extract(policy, '$.dedupe_seconds')) FROM queue WHERE deleted_at IS NULL),
  (SELECT max(json_extract(policy, '$.dedupe_seconds')) FROM queue WHERE deleted_at IS NULL),
  EXISTS (SELECT 1 FROM queue WHERE deleted_at IS NULL AND json_extract(policy, '$.dedupe_seconds') IS NULL);

-- name: groups_page: groups of existing queues, after a queue and a group
SELECT q.id, q.name, q.ns, q.task, q.policy, q.paused, q.created_at, g.id, g.queue, g.name, g.policy, g.created_at
FROM queue AS q JOIN grp AS g ON g.queue = q.id
WHERE q.deleted_at IS NULL AND q.name >= :queue AND (q.name > :queue OR g.name > :grp)
ORDER BY q.name, g.name LIMIT :limit;

-- name: groups_named: groups with one name, after a queue and a group
SELECT q.id, q.name, q.ns, q.task, q.policy, q.paused, q.created_at, g.id, g.queue, g.name, g.policy, g.created_at
FROM grp AS g JOIN queue AS q ON q.id = g.queue
WHERE g.name = :name AND q.deleted_at IS NULL AND q.name > :queue ORDER BY q.name LIMIT :limit;

-- name: group_names: distinct names of groups after a name
SELECT DISTINCT g.name FROM grp AS g JOIN queue AS q ON q.id = g.queue
WHERE q.deleted_at IS NULL AND g.name > :after ORDER BY g.name LIMIT :limit;

-- name: queue_insert: creates a queue; ids are never reused
INSERT INTO queue (name, ns, task, policy, paused, created_at)
VALUES (:name, :ns, :task, :policy, 0, :created_at)
ON CONFLICT DO NOTHING RETURNING id;

-- name: queue_update: sets policy, namespace and task of a queue
UPDATE queue SET policy = :policy, ns = :ns, task = :task WHERE id = :id;

-- name: queue_pause: pauses or resumes claims of a queue
UPDATE queue SET paused = :paused WHERE id = :id;

-- name: queue_bury: marks a queue as deleted and frees its name; the purge deletes its rows later
UPDATE queue SET deleted_at = :now WHERE id = :id;

-- name: queues_buried: deleted queues that still have rows
SELECT id FROM queue WHERE deleted_at IS NOT NULL ORDER BY id LIMIT :limit;

-- name: queue_remove: deletes the row of a purged queue
DELETE FROM queue WHERE id = :id;

-- name: part_by_name: a partition of a queue
SELECT id, uuid FROM part WHERE queue = :queue AND name = :name;

-- name: part_at: the partition of a queue that follows a name at a given distance
SELECT name FROM part WHERE queue = :queue AND name > :after ORDER BY name LIMIT 1 OFFSET :offset;

-- name: lane_of_part: a partition's lane of one priority
SELECT id, head FROM lane WHERE part = :part AND prio = :prio;

-- name: part_by_uuid: a partition of an existing queue by uuid
SELECT p.id, p.queue, p.name FROM part AS p JOIN queue AS q ON q.id = p.queue
WHERE p.uuid = :uuid AND q.deleted_at IS NULL;

-- name: part_insert: creates a partition unless it exists
INSERT INTO part (uuid, queue, name) VALUES (:uuid, :queue, :name) ON CONFLICT DO NOTHING;

-- name: lane_insert: creates a lane unless it exists
INSERT INTO lane (part, queue, prio, head, start, start_at) VALUES (:part, :queue, :prio, 0, 0, :start_at)
ON CONFLICT DO NOTHING RETURNING id;

-- name: lane_by_id: a lane
SELECT id, part, queue, prio, head, start FROM lane WHERE id = :id;

-- name: lanes_of_queue: every lane of a queue
SELECT l.id, l.part, l.queue, l.prio, l.head, l.start, p.uuid, p.name FROM lane AS l JOIN part AS p ON p.id = l.part
WHERE l.queue = :queue ORDER BY l.id;

-- name: lanes_filled: lanes of a queue that hold messages, from a lane on
SELECT l.id, l.part, l.queue, l.prio, l.head, l.start, p.uuid, p.name FROM lane AS l JOIN part AS p ON p.id = l.part
WHERE l.queue = :queue AND l.id >= :lane AND l.head > l.start ORDER BY l.id LIMIT :limit;

-- name: lanes_filled_of_part: lanes of a partition that hold messages, from a lane on
SELECT l.id, l.part, l.queue, l.prio, l.head, l.start, p.uuid, p.name FROM lane AS l JOIN part AS p ON p.id = l.part
WHERE l.part = :part AND l.id >= :lane AND l.head > l.start ORDER BY l.id LIMIT :limit;

-- name: lanes_written: lanes with messages, the lane with the newest message first
SELECT * FROM (
  SELECT l.id, l.part, l.queue, l.prio, l.head, l.start, p.uuid, p.name, (
    SELECT s.created_at FROM segment AS s WHERE s.pos >= l.id << 40 AND s.pos < (l.id + 1) << 40
    ORDER BY s.pos DESC LIMIT 1) AS newest
  FROM lane AS l JOIN part AS p ON p.id = l.part JOIN queue AS q ON q.id = l.queue
  WHERE q.deleted_at IS NULL AND l.head > l.start
    AND (CAST(:queue AS text) IS NULL OR q.name = CAST(:queue AS text))
    AND (CAST(:part AS text) IS NULL OR p.name = CAST(:part AS text))
    AND (CAST(:ns AS text) IS NULL OR q.ns = CAST(:ns AS text))
    AND (CAST(:task AS text) IS NULL OR q.task = CAST(:task AS text))) AS written
WHERE newest >= :after_at ORDER BY newest DESC, id DESC LIMIT :limit;

-- name: lanes_newest: lanes of a queue with messages of a time range, the lane with the newest message first
SELECT id, part, queue, prio, head, start, uuid, name, top, newest FROM (
  SELECT l.id, l.part, l.queue, l.prio, l.head, l.start, p.uuid, p.name, l.head AS top,
    (SELECT s.created_at FROM segment AS s WHERE s.pos = (l.id << 40) + l.head - 1) AS newest
  FROM lane AS l JOIN part AS p ON p.id = l.part
  WHERE l.queue = :queue AND l.head > l.start AND l.start_at <= :before_at
    AND (CAST(:part AS bigint) IS NULL OR l.part = CAST(:part AS bigint))) AS stored
WHERE newest >= :after_at ORDER BY newest DESC, id DESC LIMIT :limit;

-- name: lanes_newest_in_state: lanes_newest of lanes that may have messages in a state for a group, all below `top`
SELECT id, part, queue, prio, head, start, uuid, name, top, newest FROM (
  SELECT id, part, queue, prio, head, start, uuid, name, top, (
    SELECT s.created_at FROM segment AS s
    WHERE s.pos >= (reached.id << 40) + reached.top - 1 AND s.pos < (reached.id + 1) << 40
    ORDER BY s.pos LIMIT 1) AS newest
  FROM (
    SELECT l.id, l.part, l.queue, l.prio, l.head, l.start, p.uuid, p.name, CASE
        WHEN CAST(:state AS text) = 'skipped' THEN c.first
        WHEN CAST(:state AS text) = 'ready' AND c.next < l.head THEN l.head ELSE c.next END AS top
    FROM lane AS l JOIN part AS p ON p.id = l.part JOIN cursor AS c ON c.lane = l.id AND c.grp = :grp
    WHERE l.queue = :queue AND l.head > l.start AND l.start_at <= :before_at
      AND (CAST(:part AS bigint) IS NULL OR l.part = CAST(:part AS bigint))
      AND CASE CAST(:state AS text)
        WHEN 'ready' THEN c.next < l.head OR c.held > 0 WHEN 'leased' THEN c.leased > 0 WHEN 'waiting' THEN c.held > 0
        WHEN 'acked' THEN c.acked > 0 WHEN 'dead' THEN c.dead > 0 WHEN 'dropped' THEN c.expired > 0
        ELSE c.first > l.start END) AS reached
  WHERE top > start) AS stored
WHERE newest >= :after_at ORDER BY newest DESC, id DESC LIMIT :limit;

-- name: lanes_newer: lanes of a queue whose newest message was stored after an instant
SELECT l.id, l.start, l.head FROM lane AS l WHERE l.queue = :queue AND l.head > l.start
  AND (SELECT s.created_at FROM segment AS s WHERE s.pos = (l.id << 40) + l.head - 1) > :after
ORDER BY l.id;

-- name: lanes_of_part: the lanes of a partition
SELECT id, part, queue, prio, head, start FROM lane WHERE part = :part ORDER BY prio;

-- name: lane_advance: moves the head of a lane: all seqs below it exist
UPDATE lane SET head = :head, start_at = CASE WHEN head = start THEN :now ELSE start_at END,
  largest = CASE WHEN largest < :largest THEN :largest ELSE largest END
WHERE id = :id;

-- name: lane_pruned: moves the start of a lane after pruning; `start_at` is far in the future while the lane is empty
UPDATE lane SET start = :start, start_at = :start_at,
  largest = CASE WHEN :start_at >= 4611686018427387904 THEN 0 ELSE largest END
WHERE id = :id;

-- name: lane_restored: notes that a message before the start of the lane was restored; retention will prune it again
UPDATE lane SET start_at = CASE WHEN start_at > :born_at THEN :born_at ELSE start_at END,
  largest = CASE WHEN largest < :largest THEN :largest ELSE largest END
WHERE id = :id;

-- name: lanes_unfinished: lanes with messages up to the cutoff in which a group has unfinished messages
SELECT id, part, queue, prio, head, start FROM lane
WHERE queue = :queue AND start_at <= :cutoff AND id > :after
  AND EXISTS (SELECT 1 FROM cursor AS c WHERE c.lane = lane.id AND (c.held > 0 OR c.next < lane.head))
ORDER BY id LIMIT :limit;

-- name: lanes_with_old: lanes whose oldest message was created at or before the cutoff
SELECT id, part, queue, prio, head, start FROM lane
WHERE queue = :queue AND start_at <= :cutoff AND id > :after
ORDER BY id LIMIT :limit;

-- name: group_by_name: a group of a queue
SELECT id, queue, name, policy, created_at FROM grp WHERE queue = :queue AND name = :name;

-- name: group_by_id: a group of an existing queue, with that queue
SELECT g.id, g.queue, g.name, g.policy, g.created_at, q.id, q.name, q.ns, q.task, q.policy, q.paused, q.created_at
FROM grp AS g JOIN queue AS q ON q.id = g.queue
WHERE g.id = :id AND q.deleted_at IS NULL;

-- name: groups_of_queue: the groups of a queue
SELECT id, queue, name, policy, created_at FROM grp WHERE queue = :queue ORDER BY name;

-- name: group_insert: creates a group unless it exists
INSERT INTO grp (queue, name, mode, from_at, policy, created_at)
VALUES (:queue, :name, :mode, :from_at, :policy, :created_at) ON CONFLICT DO NOTHING RETURNING id;

-- name: group_policy: sets the policy of a group, which overrides the queue's
UPDATE grp SET policy = :policy WHERE id = :id;

-- name: group_start: sets where the group's subscription begins
UPDATE grp SET mode = :mode, from_at = :from_at WHERE id = :id;

-- name: group_delete: deletes the row of a group
DELETE FROM grp WHERE id = :id;

-- name: part_by_id: id, name and uuid of a partition
SELECT id, name, uuid FROM part WHERE id = :id;
