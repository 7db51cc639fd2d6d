-- name: purge_lane_next: one lane of a deleted queue
SELECT id, part FROM lane WHERE queue = :queue ORDER BY id LIMIT 1;

-- name: purge_queue_lanes: lanes of a queue from a lane on, and how many groups hold messages of each
SELECT l.id, l.part, l.queue, l.prio, l.head, l.start,
  (SELECT count(*) FROM cursor AS c WHERE c.lane = l.id AND c.held > 0)
FROM lane AS l WHERE l.queue = :queue AND l.id >= :lane ORDER BY l.id LIMIT :limit;

-- name: purge_scheduled_until: deletes some scheduled messages of a queue that were pushed up to an instant
DELETE FROM scheduled WHERE no IN (
  SELECT no FROM scheduled WHERE queue = :queue AND created_at <= :until LIMIT :limit);

-- name: purge_segments: deletes some segments of a lane
DELETE FROM segment WHERE pos IN (
  SELECT pos FROM segment WHERE pos >= :lo_pos AND pos < :end_pos ORDER BY pos LIMIT :limit);

-- name: purge_husks: deletes some husks of a lane
DELETE FROM husk WHERE pos IN (
  SELECT pos FROM husk WHERE pos >= :lo_pos AND pos < :end_pos ORDER BY pos LIMIT :limit);

-- name: purge_spans: deletes some spans of a lane
DELETE FROM span WHERE (lane, grp, hi) IN (
  SELECT lane, grp, hi FROM span WHERE lane = :lane ORDER BY lane, grp, hi LIMIT :limit);

-- name: purge_dropped: deletes some dropped ranges of a lane
DELETE FROM dropped WHERE (lane, grp, hi) IN (
  SELECT lane, grp, hi FROM dropped WHERE lane = :lane ORDER BY lane, grp, hi LIMIT :limit);

-- name: purge_cursors: deletes the cursors of a lane
DELETE FROM cursor WHERE lane = :lane;

-- name: purge_lane: deletes a lane
DELETE FROM lane WHERE id = :lane;

-- name: purge_parts_next: some partitions of a deleted queue
SELECT id FROM part WHERE queue = :queue ORDER BY name LIMIT :limit;

-- name: purge_part: deletes a partition
DELETE FROM part WHERE id = :part;

-- name: purge_dead: deletes some dead letters of a queue
DELETE FROM dead WHERE id IN (SELECT id FROM dead WHERE queue = :queue LIMIT :limit);

-- name: purge_scheduled: deletes some scheduled messages of a queue
DELETE FROM scheduled WHERE no IN (SELECT no FROM scheduled WHERE queue = :queue LIMIT :limit);

-- name: purge_groups: deletes some groups of a queue
DELETE FROM grp WHERE id IN (SELECT id FROM grp WHERE queue = :queue LIMIT :limit);
