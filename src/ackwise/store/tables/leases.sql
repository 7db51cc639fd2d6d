-- name: lease_last: the highest lease number; the tombstone with that number is never deleted
SELECT max(no) FROM lease;

-- name: lease_next: the next lease number
SELECT max(coalesce(max(no), 0), :after) + 1 FROM lease;

-- name: lease_insert: inserts the lease of a claim
INSERT INTO lease (no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  yields)
VALUES (:no, :tag, :queue, :grp, :owner, :instance, :exclusivity, :bulk, :deadline, :made_at, :granted, :key, :fingerprint,
  :yields);

-- name: lease_by_no: a lease, live or ended
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE no = :no;

-- name: lease_by_key: the lease of a claim key
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE grp = :grp AND key = :key;

-- name: lease_end: ends a lease; its row stays as a tombstone
UPDATE lease SET ended_at = :ended_at, end_kind = :end_kind, lost = :lost, returned = :returned, dropped = :dropped
WHERE no = :no;

-- name: lease_lives_on: updates a lease that lost messages: settled, returned or dropped
UPDATE lease SET lost = :lost, returned = :returned, dropped = :dropped WHERE no = :no;

-- name: lease_deadline: extends a lease
UPDATE lease SET deadline = :deadline WHERE no = :no;

-- name: lease_unkey: removes the claim key, which now belongs to a newer lease
UPDATE lease SET key = NULL WHERE no = :no;

-- name: leases_of_group: live leases of a group
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE grp = :grp AND ended_at IS NULL;

-- name: leases_expired_in_group: leases of a group past their deadline that are not ended
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE grp = :grp AND ended_at IS NULL AND deadline <= :now ORDER BY deadline LIMIT :limit;

-- name: leases_free: given leases that no other turn works on; the writer of a file is alone
SELECT no FROM lease WHERE no IN (:ids);

-- name: leases_count_expired: adds one expired lease to the count of a group
UPDATE grp SET expired_leases = expired_leases + 1 WHERE id = :grp;

-- name: leases_expired_ever: number of expired leases of a group
SELECT expired_leases FROM grp WHERE id = :grp;

-- name: leases_of_connections: leases of connections to one broker
SELECT no FROM lease
WHERE ended_at IS NULL AND instance = :instance
  AND substr(owner, 1, length(CAST(:prefix AS text))) = CAST(:prefix AS text) ORDER BY no;

-- name: lease_other: the lease of another owner in a group with the latest deadline
SELECT no, deadline FROM lease
WHERE grp = :grp AND ended_at IS NULL AND deadline > :now AND owner <> :owner ORDER BY deadline DESC LIMIT 1;

-- name: lease_whole_queue: the lease that excludes other owners from the queue
SELECT no, deadline, owner FROM lease
WHERE grp = :grp AND ended_at IS NULL AND exclusivity = 'queue' AND deadline > :now AND owner <> :owner
ORDER BY deadline DESC LIMIT 1;

-- name: lease_any_whole_queue: whether a lease of a group excludes other owners from the whole queue
SELECT 1 FROM lease WHERE grp = :grp AND ended_at IS NULL AND exclusivity = 'queue' LIMIT 1;

-- name: lease_owner_in_lane: another owner that holds messages in a lane
SELECT l.owner FROM span AS s JOIN lease AS l ON l.no = s.lease
WHERE s.lane = :lane AND s.grp = :grp AND s.lease IS NOT NULL AND l.owner <> :owner LIMIT 1;

-- name: leases_next_deadline: the nearest deadline in a group
SELECT min(deadline) FROM lease WHERE grp = :grp AND ended_at IS NULL;

-- name: lease_next_deadline: the nearest deadline of all leases
SELECT min(deadline) FROM lease WHERE ended_at IS NULL;

-- name: leases_list: leases with their held messages, newest first, below a number
SELECT l.no, l.tag, q.name, g.name, l.owner, l.key, l.made_at, l.deadline, l.ended_at, l.end_kind, l.granted,
  (SELECT sum(s.hi - s.lo) FROM span AS s WHERE s.lease = l.no)
FROM lease AS l JOIN queue AS q ON q.id = l.queue JOIN grp AS g ON g.id = l.grp
WHERE l.no < :below
  AND (CAST(:queue AS text) IS NULL OR q.name = CAST(:queue AS text))
  AND (CAST(:grp AS text) IS NULL OR g.name = CAST(:grp AS text))
  AND (CAST(:instance AS text) IS NULL OR l.instance = CAST(:instance AS text))
  AND (CAST(:key_prefix AS text) IS NULL
    OR substr(l.key, 1, length(CAST(:key_prefix AS text))) = CAST(:key_prefix AS text))
ORDER BY l.no DESC LIMIT :limit;

-- name: lease_shown: a lease with its held messages
SELECT l.no, l.tag, q.name, g.name, l.owner, l.key, l.made_at, l.deadline, l.ended_at, l.end_kind, l.granted,
  (SELECT sum(s.hi - s.lo) FROM span AS s WHERE s.lease = l.no)
FROM lease AS l JOIN queue AS q ON q.id = l.queue JOIN grp AS g ON g.id = l.grp
WHERE l.no = :no AND l.tag = :tag;

-- name: leases_living: live leases with their held messages, newest first, below a number
SELECT l.no, l.tag, q.name, g.name, l.owner, l.key, l.made_at, l.deadline, l.ended_at, l.end_kind, l.granted,
  (SELECT sum(s.hi - s.lo) FROM span AS s WHERE s.lease = l.no)
FROM lease AS l JOIN queue AS q ON q.id = l.queue JOIN grp AS g ON g.id = l.grp
WHERE l.ended_at IS NULL AND l.deadline > 0 AND l.no < :below
  AND (CAST(:queue AS text) IS NULL OR q.name = CAST(:queue AS text))
  AND (CAST(:grp AS text) IS NULL OR g.name = CAST(:grp AS text))
  AND (CAST(:instance AS text) IS NULL OR l.instance = CAST(:instance AS text))
  AND (CAST(:key_prefix AS text) IS NULL
    OR substr(l.key, 1, length(CAST(:key_prefix AS text))) = CAST(:key_prefix AS text))
ORDER BY l.no DESC LIMIT :limit;

-- name: leases_oldest: live leases with their held messages, oldest first, behind an instant and a number
SELECT l.no, l.tag, l.queue, l.grp, l.owner, l.key, l.made_at, l.deadline, l.ended_at, l.end_kind, l.granted,
  (SELECT sum(s.hi - s.lo) FROM span AS s WHERE s.lease = l.no)
FROM (
  SELECT l.no, l.tag, q.name AS queue, g.name AS grp, l.owner, l.key, l.made_at, l.deadline, l.ended_at, l.end_kind,
    l.granted
  FROM lease AS l JOIN queue AS q ON q.id = l.queue JOIN grp AS g ON g.id = l.grp
  WHERE l.ended_at IS NULL AND l.deadline > :now AND (l.made_at, l.no) > (:made_at, :no)
    AND (CAST(:queue AS text) IS NULL OR q.name = CAST(:queue AS text))
  ORDER BY l.made_at, l.no LIMIT :limit) AS l
ORDER BY l.made_at, l.no;

-- name: consumers_list: owners of live leases, and of ended leases among the newest, behind a queue, group and owner
SELECT c.queue, c.grp, c.consumer, sum(c.live), coalesce(sum(c.held), 0), sum(c.recent), max(c.made_at), max(c.deadline)
FROM (
  SELECT q.name AS queue, g.name AS grp,
    CASE WHEN substr(l.owner, 1, 6) = 'lease-' AND ltrim(substr(l.owner, 7), '0123456789') = '' THEN ''
      ELSE l.owner END AS consumer,
    l.live, l.held, CASE WHEN l.made_at > :since THEN 1 ELSE 0 END AS recent, l.made_at, l.deadline
  FROM (
    SELECT queue, grp, owner, made_at, deadline, 1 AS live,
      (SELECT sum(s.hi - s.lo) FROM span AS s WHERE s.lease = lease.no) AS held
    FROM lease WHERE ended_at IS NULL AND deadline > :now
    UNION ALL
    SELECT queue, grp, owner, made_at, NULL, 0, 0
    FROM (
      SELECT queue, grp, owner, made_at, deadline, ended_at FROM lease ORDER BY no DESC LIMIT :newest) AS newest
    WHERE made_at > :since AND (ended_at IS NOT NULL OR deadline <= :now)) AS l
  JOIN queue AS q ON q.id = l.queue JOIN grp AS g ON g.id = l.grp
  WHERE q.deleted_at IS NULL
    AND (CAST(:queue AS text) IS NULL OR q.name = CAST(:queue AS text))
    AND (CAST(:grp AS text) IS NULL OR g.name = CAST(:grp AS text))) AS c
WHERE :paged = 0 OR (c.queue, c.grp, c.consumer) > (:last_queue, :last_grp, :last_consumer)
GROUP BY c.queue, c.grp, c.consumer ORDER BY c.queue, c.grp, c.consumer LIMIT :limit;

-- name: audit_leases: ended leases of existing groups that still hold spans
SELECT l.no, count(*) FROM span AS s JOIN lease AS l ON l.no = s.lease JOIN grp AS g ON g.id = s.grp
JOIN queue AS q ON q.id = g.queue
WHERE l.ended_at IS NOT NULL AND q.deleted_at IS NULL GROUP BY l.no;
