-- name: segment_insert: messages first..last of a lane in one row
INSERT INTO segment (pos, first, created_at, body) VALUES (:pos, :first, :created_at, :body);

-- name: segment_restore: one message of a pruned range, put back from a snapshot
INSERT INTO segment (pos, first, created_at, body) VALUES (:pos, :first, :created_at, :body) ON CONFLICT DO NOTHING;

-- name: segment_range: the segments that may hold seqs of [lo_pos, end_pos)
SELECT pos, first, created_at, body FROM segment WHERE pos >= :lo_pos AND pos < :end_pos ORDER BY pos LIMIT :limit;

-- name: segment_sizes: where segments begin and end, and how large they are
SELECT pos, first, length(body) FROM segment WHERE pos >= :lo_pos AND pos < :end_pos ORDER BY pos LIMIT :limit;

-- name: segment_at: the first segment at or after a place
SELECT pos, first, created_at FROM segment WHERE pos >= :lo_pos AND pos < :end_pos ORDER BY pos LIMIT 1;

-- name: segment_newer: the first segment made after an instant
SELECT first, created_at FROM segment
WHERE pos >= :lo_pos AND pos < :end_pos AND created_at > :cutoff ORDER BY pos LIMIT 1;

-- name: segments_first: whole segments below a bound, oldest first
SELECT pos, first, created_at, body FROM segment WHERE pos >= :lo_pos AND pos < :end_pos ORDER BY pos LIMIT :limit;

-- name: segment_delete: remove segments up to a place
DELETE FROM segment WHERE pos >= :lo_pos AND pos <= :hi_pos;

-- name: husk_insert: what dedupe still needs of a pruned segment
INSERT INTO husk (pos, first, created_at, queue, body) VALUES (:pos, :first, :created_at, :queue, :body)
ON CONFLICT DO NOTHING;

-- name: husk_at: the first husk at or after a place
SELECT pos, first, created_at, body FROM husk WHERE pos >= :lo_pos AND pos < :end_pos ORDER BY pos LIMIT 1;

-- name: husks_forget: husks whose dedupe window is over
DELETE FROM husk WHERE pos IN (
  SELECT pos FROM husk WHERE queue = :queue AND created_at <= :cutoff ORDER BY pos LIMIT :limit);

-- name: scheduled_insert: a message that waits outside its lane
INSERT INTO scheduled (queue, part, prio, due_at, created_at, body)
VALUES (:queue, :part, :prio, :due_at, :created_at, :body) RETURNING no;

-- name: scheduled_by_no: a message that still waits
SELECT no, queue, part, prio, due_at, created_at, body FROM scheduled WHERE no = :no;

-- name: scheduled_delete: it got its seq
DELETE FROM scheduled WHERE no = :no;

-- name: scheduled_next: when the next one is due
SELECT min(due_at) FROM scheduled;
