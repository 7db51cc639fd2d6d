-- name: purge_lane_next: a lane of a deleted queue
SELECT id FROM lane WHERE queue = :queue LIMIT 1;

-- name: purge_segments: some messages of a lane
DELETE FROM segment WHERE pos IN (
  SELECT pos FROM segment WHERE pos >= :lo_pos AND pos < :end_pos ORDER BY pos LIMIT :limit);

-- name: purge_husks: what dedupe kept of a lane
DELETE FROM husk WHERE pos IN (
  SELECT pos FROM husk WHERE pos >= :lo_pos AND pos < :end_pos ORDER BY pos LIMIT :limit);

-- name: purge_lane_spans: the spans of a lane
DELETE FROM span WHERE lane = :lane;

-- name: purge_lane_cursors: every group's place in a lane
DELETE FROM cursor WHERE lane = :lane;

-- name: purge_lane: the lane
DELETE FROM lane WHERE id = :lane;

-- name: purge_dead: some dead letters of a queue
DELETE FROM dead WHERE id IN (SELECT id FROM dead WHERE queue = :queue LIMIT :limit);

-- name: purge_scheduled: some scheduled messages of a queue
DELETE FROM scheduled WHERE no IN (SELECT no FROM scheduled WHERE queue = :queue LIMIT :limit);

-- name: purge_parts: the partitions of a queue
DELETE FROM part WHERE queue = :queue;

-- name: purge_groups: the groups of a queue
DELETE FROM grp WHERE queue = :queue;
