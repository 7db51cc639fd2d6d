-- name: cursors_for_lane: creates the cursors of all groups for a new lane, at its start
INSERT INTO cursor (lane, grp, part, prio, epoch, first, next, floor, held, acked, dead, skipped, expired, leased, exclusive)
SELECT :lane, id, :part, :prio, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM grp WHERE queue = :queue
ON CONFLICT DO NOTHING;

-- name: cursors_for_group: creates the cursors of a new group, at the start or the end of each lane
INSERT INTO cursor (lane, grp, part, prio, epoch, first, next, floor, held, acked, dead, skipped, expired, leased, exclusive,
  ready_at)
SELECT id, :grp, part, prio, 0, CASE WHEN :at_end = 1 THEN head ELSE start END,
  CASE WHEN :at_end = 1 THEN head ELSE start END, CASE WHEN :at_end = 1 THEN head ELSE start END,
  0, 0, 0, 0, 0, 0, 0, CASE WHEN :at_end = 1 OR head = start THEN NULL ELSE CAST(:ready_at AS bigint) END
FROM lane WHERE queue = :queue
ON CONFLICT DO NOTHING;

-- name: cursor_get: the cursor of a group in a lane
SELECT c.lane, c.grp, c.part, c.prio, c.epoch, c.first, c.next, c.held, c.acked, c.dead, c.skipped, c.expired,
  c.leased, c.exclusive, c.exclusive_owner, c.ready_at, l.head, l.start, c.floor,
  c.settled_at, c.last_seq, c.last_at, c.nacked, l.largest
FROM cursor AS c JOIN lane AS l ON l.id = c.lane WHERE c.lane = :lane AND c.grp = :grp;

-- name: cursors_of_part: cursors of a group in a partition, most urgent lane first
SELECT c.lane, c.grp, c.part, c.prio, c.epoch, c.first, c.next, c.held, c.acked, c.dead, c.skipped, c.expired,
  c.leased, c.exclusive, c.exclusive_owner, c.ready_at, l.head, l.start, c.floor,
  c.settled_at, c.last_seq, c.last_at, c.nacked, l.largest
FROM cursor AS c JOIN lane AS l ON l.id = c.lane WHERE c.part = :part AND c.grp = :grp ORDER BY c.prio;

-- name: cursors_beside: cursors of a group in the partition of a lane
SELECT c.lane, c.grp, c.part, c.prio, c.epoch, c.first, c.next, c.held, c.acked, c.dead, c.skipped, c.expired,
  c.leased, c.exclusive, c.exclusive_owner, c.ready_at, l.head, l.start, c.floor,
  c.settled_at, c.last_seq, c.last_at, c.nacked, l.largest
FROM cursor AS c JOIN lane AS l ON l.id = c.lane
WHERE c.part = (SELECT part FROM lane WHERE id = :lane) AND c.grp = :grp;

-- name: cursors_of_lane: cursors of all groups in a lane
SELECT c.lane, c.grp, c.part, c.prio, c.epoch, c.first, c.next, c.held, c.acked, c.dead, c.skipped, c.expired,
  c.leased, c.exclusive, c.exclusive_owner, c.ready_at, l.head, l.start, c.floor,
  c.settled_at, c.last_seq, c.last_at, c.nacked, l.largest
FROM cursor AS c JOIN lane AS l ON l.id = c.lane WHERE c.lane = :lane ORDER BY c.grp;

-- name: cursors_of_group: all cursors of a group
SELECT c.lane, c.grp, c.part, c.prio, c.epoch, c.first, c.next, c.held, c.acked, c.dead, c.skipped, c.expired,
  c.leased, c.exclusive, c.exclusive_owner, c.ready_at, l.head, l.start, c.floor,
  c.settled_at, c.last_seq, c.last_at, c.nacked, l.largest
FROM lane AS l JOIN cursor AS c ON c.lane = l.id AND c.grp = :grp
WHERE l.queue = (SELECT g.queue FROM grp AS g WHERE g.id = :grp) ORDER BY c.lane;

-- name: group_starts: where a group starts, and how often its cursors were moved, over all lanes
SELECT g.mode, g.from_at, (
  SELECT coalesce(sum(c.epoch), 0) FROM lane AS l JOIN cursor AS c ON c.lane = l.id AND c.grp = g.id
  WHERE l.queue = g.queue)
FROM grp AS g WHERE g.id = :grp;

-- name: cursor_update: updates all columns of a cursor
UPDATE cursor SET epoch = :epoch, first = :first, next = :next, floor = :floor, held = :held, acked = :acked, dead = :dead,
  skipped = :skipped, expired = :expired, leased = :leased, exclusive = :exclusive,
  exclusive_owner = :exclusive_owner, ready_at = :ready_at, settled_at = :settled_at,
  last_seq = :last_seq, last_at = :last_at, nacked = :nacked
WHERE lane = :lane AND grp = :grp;

-- name: cursor_wake: makes empty, free lanes claimable after a push
UPDATE cursor SET ready_at = :at
WHERE lane = :lane AND exclusive = 0 AND (ready_at IS NULL OR (:relaxed = 1 AND ready_at > :at));

-- name: cursors_ready: claimable lanes, most urgent and longest waiting first
SELECT lane, part, prio, ready_at FROM cursor
WHERE grp = :grp AND ready_at IS NOT NULL AND ready_at <= :now
ORDER BY prio, ready_at, lane LIMIT :limit OFFSET :skip;

-- name: cursors_ready_after: claimable lanes behind a place, most urgent and longest waiting first
SELECT c.lane, c.grp, c.part, c.prio, c.epoch, c.first, c.next, c.held, c.acked, c.dead, c.skipped, c.expired,
  c.leased, c.exclusive, c.exclusive_owner, c.ready_at, l.head, l.start, c.floor,
  c.settled_at, c.last_seq, c.last_at, c.nacked, l.largest
FROM cursor AS c JOIN lane AS l ON l.id = c.lane
WHERE c.grp = :grp AND c.ready_at IS NOT NULL AND c.ready_at <= :now
  AND (c.prio, c.ready_at, c.lane) > (:prio, :ready_at, :lane)
ORDER BY c.prio, c.ready_at, c.lane LIMIT :limit;

-- name: cursors_ready_prio: claimable lanes of one priority, longest waiting first
SELECT lane, part, prio, ready_at FROM cursor
WHERE grp = :grp AND prio = :prio AND ready_at IS NOT NULL AND ready_at <= :now
ORDER BY ready_at, lane LIMIT :limit OFFSET :skip;

-- name: cursors_next_due: when the next lane becomes claimable
SELECT min(ready_at) FROM cursor WHERE grp = :grp AND ready_at IS NOT NULL AND ready_at > :now;

-- name: cursors_look_again: makes all lanes with messages claimable after a change of policy, so that claims check them
UPDATE cursor SET ready_at = :now
WHERE exclusive = 0 AND lane IN (SELECT id FROM lane WHERE queue = :queue)
  AND (held > 0 OR next < (SELECT l.head FROM lane AS l WHERE l.id = cursor.lane));

-- name: cursors_owned: lanes that an owner holds exclusively
SELECT lane, part, prio, ready_at FROM cursor
WHERE grp = :grp AND exclusive_owner = :owner ORDER BY prio, lane;

-- name: cursors_next_ready: when the next lane of a group becomes claimable
SELECT min(ready_at) FROM cursor WHERE grp = :grp AND ready_at IS NOT NULL;

-- name: cursors_delete: deletes all cursors of a group
DELETE FROM cursor WHERE grp = :grp
  AND lane IN (SELECT l.id FROM lane AS l JOIN grp AS g ON g.queue = l.queue WHERE g.id = :grp);

-- name: cursor_exclusive: whether another owner holds a lane of a group exclusively
SELECT 1 FROM cursor WHERE grp = :grp AND exclusive_owner IS NOT NULL AND exclusive_owner <> :owner LIMIT 1;

-- name: places_of_group: per lane of a page of partitions: first unfinished seq of a group, and its creation time
SELECT p.id, p.name, p.uuid, l.id, l.head, c.first, c.next, c.held, c.acked, c.dead, c.skipped, c.expired, c.settled_at,
  c.last_seq, c.last_at, c.nacked,
  coalesce((SELECT x.lo FROM span AS x WHERE x.lane = c.lane AND x.grp = c.grp ORDER BY x.hi LIMIT 1), c.next),
  CASE WHEN c.held > 0 OR c.next < l.head THEN (
    SELECT s.created_at FROM segment AS s
    WHERE s.pos >= (c.lane << 40) + coalesce(
      (SELECT x.lo FROM span AS x WHERE x.lane = c.lane AND x.grp = c.grp ORDER BY x.hi LIMIT 1), c.next)
    ORDER BY s.pos LIMIT 1) END
FROM part AS p JOIN lane AS l ON l.part = p.id JOIN cursor AS c ON c.lane = l.id AND c.grp = :grp
WHERE p.queue = :queue AND p.id IN (
  SELECT x.id FROM part AS x WHERE x.queue = :queue AND x.name > :after ORDER BY x.name LIMIT :limit)
ORDER BY p.name, l.prio;

-- name: lanes_settled: per lane of a queue with groups: the seq below which all groups have finished
SELECT l.id, min(coalesce(
  (SELECT x.lo FROM span AS x WHERE x.lane = c.lane AND x.grp = c.grp ORDER BY x.hi LIMIT 1), c.next))
FROM lane AS l JOIN cursor AS c ON c.lane = l.id WHERE l.queue = :queue GROUP BY l.id;

-- name: partition_lanes: lanes of a page of partitions with the age of their messages and the progress of a group
SELECT p.id, p.name, p.uuid, l.id, l.head, l.start, l.start_at,
  (SELECT s.created_at FROM segment AS s WHERE s.pos = (l.id << 40) + l.head - 1), c.next, c.held, c.dead,
  (SELECT count(*) FROM scheduled AS s WHERE s.queue = p.queue AND s.part = p.id),
  (SELECT count(*) FROM dead AS d WHERE d.part = p.id)
FROM part AS p LEFT JOIN lane AS l ON l.part = p.id LEFT JOIN cursor AS c ON c.lane = l.id AND c.grp = :grp
WHERE p.id IN (SELECT x.id FROM part AS x WHERE x.queue = :queue AND x.name > :after ORDER BY x.name LIMIT :limit)
ORDER BY p.name, l.prio;
