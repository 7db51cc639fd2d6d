-- name: segment_insert: messages first..last of a lane in one row
INSERT INTO segment (pos, first, created_at, body) VALUES (:pos, :first, :created_at, :body);

-- name: segment_restore: restores one message of a pruned range from a snapshot
INSERT INTO segment (pos, first, created_at, body) VALUES (:pos, :first, :created_at, :body) ON CONFLICT DO NOTHING;

-- name: segment_range: segments that may contain positions of [lo_pos, end_pos)
SELECT pos, first, created_at, body FROM segment WHERE pos >= :lo_pos AND pos < :end_pos ORDER BY pos LIMIT :limit;

-- name: segment_sizes: first and last positions of segments, with their sizes
SELECT pos, first, length(body) FROM segment WHERE pos >= :lo_pos AND pos < :end_pos ORDER BY pos LIMIT :limit;

-- name: segment_places: positions and times of segments before a position, newest first
SELECT pos, first, created_at FROM segment WHERE pos >= :lo_pos AND pos < :end_pos ORDER BY pos DESC LIMIT :limit;

-- name: segment_at: the first segment at or after a position
SELECT pos, first, created_at FROM segment WHERE pos >= :lo_pos AND pos < :end_pos ORDER BY pos LIMIT 1;

-- name: segment_newer: the first segment created after an instant
SELECT first, created_at FROM segment
WHERE pos >= :lo_pos AND pos < :end_pos AND created_at > :cutoff ORDER BY pos LIMIT 1;

-- name: segments_first: whole segments below a bound, oldest first
SELECT pos, first, created_at, body FROM segment WHERE pos >= :lo_pos AND pos < :end_pos ORDER BY pos LIMIT :limit;

-- name: segment_delete: deletes segments up to a position
DELETE FROM segment WHERE pos >= :lo_pos AND pos <= :hi_pos;

-- name: husk_insert: inserts a husk: the part of a pruned segment that dedupe needs
INSERT INTO husk (pos, first, created_at, queue, body) VALUES (:pos, :first, :created_at, :queue, :body)
ON CONFLICT DO NOTHING;

-- name: husk_at: the first husk at or after a position
SELECT pos, first, created_at, body FROM husk WHERE pos >= :lo_pos AND pos < :end_pos ORDER BY pos LIMIT 1;

-- name: husks_forget: deletes husks whose dedupe window is over
DELETE FROM husk WHERE pos IN (
  SELECT pos FROM husk WHERE queue = :queue AND created_at <= :cutoff ORDER BY pos LIMIT :limit);

-- name: scheduled_insert: inserts a scheduled message; it has no seq yet
INSERT INTO scheduled (queue, part, prio, due_at, created_at, body)
VALUES (:queue, :part, :prio, :due_at, :created_at, :body) RETURNING no;

-- name: scheduled_by_no: a scheduled message that is not promoted yet
SELECT no, queue, part, prio, due_at, created_at, body FROM scheduled WHERE no = :no;

-- name: scheduled_newest: scheduled messages of a queue below a number, the one pushed last first
SELECT d.no, d.prio, d.due_at, d.created_at, p.uuid, p.name
FROM (
  SELECT no FROM scheduled
  WHERE queue = :queue AND no < :below AND (CAST(:part AS bigint) IS NULL OR part = CAST(:part AS bigint))
  ORDER BY no DESC LIMIT :limit) AS n
JOIN scheduled AS d ON d.no = n.no JOIN part AS p ON p.id = d.part ORDER BY d.no DESC;

-- name: scheduled_delete: deletes a promoted message
DELETE FROM scheduled WHERE no = :no;

-- name: scheduled_next: when the next scheduled message is due
SELECT min(due_at) FROM scheduled;
