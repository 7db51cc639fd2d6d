-- name: count_lanes: partitions, lanes, messages and oldest creation time of each given queue
SELECT queue, count(DISTINCT part), count(*), sum(head - start), min(CASE WHEN head > start THEN start_at END)
FROM lane WHERE queue IN (:ids) GROUP BY queue;

-- name: count_scheduled: scheduled messages of each given queue
SELECT queue, count(*) FROM scheduled WHERE queue IN (:ids) GROUP BY queue;

-- name: count_dead: dead letters of each given queue
SELECT queue, count(*) FROM dead WHERE queue IN (:ids) GROUP BY queue;

-- name: groups_of_queues: the groups of given queues
SELECT id, queue, name, policy, created_at FROM grp WHERE queue IN (:ids) ORDER BY queue, name;

-- name: count_groups: counts of given groups: sums over their lanes, partitions, unfinished partitions, last ack
SELECT c.grp, sum(c.acked), sum(c.dead), sum(c.skipped), sum(c.expired), sum(c.held), sum(l.head - c.next),
  count(DISTINCT l.part), count(DISTINCT CASE WHEN c.held > 0 OR c.next < l.head THEN l.part END), max(c.settled_at)
FROM grp AS g JOIN lane AS l ON l.queue = g.queue JOIN cursor AS c ON c.lane = l.id AND c.grp = g.id
WHERE g.id IN (:ids) GROUP BY c.grp;

-- name: count_subscriptions: where the subscriptions of given groups begin
SELECT id, mode, from_at FROM grp WHERE id IN (:ids);

-- name: count_holders: leases per owner in given groups
SELECT grp, owner, count(*) FROM lease WHERE grp IN (:ids) AND ended_at IS NULL GROUP BY grp, owner;

-- name: count_leased: leased messages of given groups
SELECT l.grp, sum(s.hi - s.lo) FROM lease AS l JOIN span AS s ON s.lease = l.no
WHERE l.grp IN (:ids) AND l.ended_at IS NULL GROUP BY l.grp;

-- name: count_oldest: creation time of the oldest unfinished message of each given group
SELECT c.grp, min((
  SELECT s.created_at FROM segment AS s
  WHERE s.pos >= (c.lane << 40) + coalesce(
    (SELECT x.lo FROM span AS x WHERE x.lane = c.lane AND x.grp = c.grp ORDER BY x.hi LIMIT 1), c.next)
  ORDER BY s.pos LIMIT 1))
FROM grp AS g JOIN lane AS l ON l.queue = g.queue JOIN cursor AS c ON c.lane = l.id AND c.grp = g.id
WHERE g.id IN (:ids) AND (c.held > 0 OR c.next < l.head) GROUP BY c.grp;

-- name: count_claimable: creation time of the oldest message that each given group can claim now
SELECT c.grp, min((
  SELECT s.created_at FROM segment AS s
  WHERE s.pos >= (c.lane << 40) + coalesce(
    (SELECT x.lo FROM span AS x WHERE x.lane = c.lane AND x.grp = c.grp AND x.lease IS NULL AND x.due_at <= :now
      ORDER BY x.due_at LIMIT 1), c.next)
  ORDER BY s.pos LIMIT 1))
FROM grp AS g JOIN lane AS l ON l.queue = g.queue JOIN cursor AS c ON c.lane = l.id AND c.grp = g.id
WHERE g.id IN (:ids) AND c.ready_at <= :now GROUP BY c.grp;

-- name: old_lanes: given queues with a lane whose oldest message was created at or before the cutoff
SELECT q.id FROM queue AS q
WHERE q.id IN (:ids) AND EXISTS (SELECT 1 FROM lane AS l WHERE l.queue = q.id AND l.start_at <= :cutoff);

-- name: old_husks: given queues with a husk created at or before the cutoff
SELECT q.id FROM queue AS q
WHERE q.id IN (:ids) AND EXISTS (SELECT 1 FROM husk AS h WHERE h.queue = q.id AND h.created_at <= :cutoff);
