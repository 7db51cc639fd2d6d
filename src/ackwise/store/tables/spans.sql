-- name: span_insert: a new span
INSERT INTO span (lane, grp, hi, lo, lease, fails, delivs, due_at, last_owner, probation, history)
VALUES (:lane, :grp, :hi, :lo, :lease, :fails, :delivs, :due_at, :last_owner, :probation, :history);

-- name: span_update: the same end, everything else anew
UPDATE span SET lo = :lo, lease = :lease, fails = :fails, delivs = :delivs, due_at = :due_at,
  last_owner = :last_owner, probation = :probation, history = :history
WHERE lane = :lane AND grp = :grp AND hi = :hi;

-- name: span_delete: settled
DELETE FROM span WHERE lane = :lane AND grp = :grp AND hi = :hi;

-- name: spans_in_order: a group's spans in a lane from a place on, with who holds them
SELECT s.lane, s.grp, s.lo, s.hi, s.lease, s.fails, s.delivs, s.due_at, s.last_owner, s.probation, s.history, l.owner
FROM span AS s LEFT JOIN lease AS l ON l.no = s.lease
WHERE s.lane = :lane AND s.grp = :grp AND s.hi > :after ORDER BY s.hi LIMIT :limit;

-- name: spans_due: returned spans whose wait is over, front of the lane first
SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, last_owner, probation, history, NULL
FROM span WHERE lane = :lane AND grp = :grp AND lease IS NULL AND due_at <= :now ORDER BY hi LIMIT :limit;

-- name: span_next_due: when the next returned span may go out again
SELECT min(due_at) FROM span WHERE lane = :lane AND grp = :grp AND lease IS NULL;

-- name: span_first: the span nearest the front
SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, last_owner, probation, history, NULL
FROM span WHERE lane = :lane AND grp = :grp ORDER BY hi LIMIT 1;

-- name: spans_inside: spans that end in (lo, hi]
SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, last_owner, probation, history, NULL
FROM span WHERE lane = :lane AND grp = :grp AND hi > :lo AND hi <= :hi ORDER BY hi;

-- name: span_across: the first span that ends after a place
SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, last_owner, probation, history, NULL
FROM span WHERE lane = :lane AND grp = :grp AND hi > :hi ORDER BY hi LIMIT 1;

-- name: spans_of_lease: everything a lease holds
SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, last_owner, probation, history, NULL
FROM span WHERE lease = :lease ORDER BY lane, hi;

-- name: spans_held: what a lease holds, if it is live
SELECT s.lane, s.lo, s.hi, s.fails, s.delivs FROM lease AS l JOIN span AS s ON s.lease = l.no
WHERE l.no = :lease AND l.tag = :tag AND l.ended_at IS NULL AND l.deadline > :now ORDER BY s.lane, s.hi;

-- name: span_held_in_lane: whether a lease still holds something in a lane
SELECT 1 FROM span WHERE lease = :lease AND lane = :lane LIMIT 1;

-- name: span_held: whether a lease still holds anything
SELECT 1 FROM span WHERE lease = :lease LIMIT 1;

-- name: spans_of_cursor: all spans of a group in a lane
SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, last_owner, probation, history, NULL
FROM span WHERE lane = :lane AND grp = :grp ORDER BY hi;

-- name: spans_delete_cursor: forget all spans of a group in a lane
DELETE FROM span WHERE lane = :lane AND grp = :grp;

-- name: span_lowest: the lowest place any group still holds in a lane
SELECT min(lo) FROM span WHERE lane = :lane;

-- name: span_look: the span that ends after a place, and until when it is held
SELECT s.lo, s.fails, s.delivs, l.deadline, s.history FROM span AS s LEFT JOIN lease AS l ON l.no = s.lease
WHERE s.lane = :lane AND s.grp = :grp AND s.hi > :seq ORDER BY s.hi LIMIT 1;

-- name: spans_leased: how much each lease of a group holds in each lane
SELECT s.lease, s.lane, sum(s.hi - s.lo) FROM lease AS l JOIN span AS s ON s.lease = l.no
WHERE l.grp = :grp AND l.ended_at IS NULL GROUP BY s.lease, s.lane;

-- name: dropped_insert: messages that died for a group of a queue that keeps no dead letters
INSERT INTO dropped (lane, grp, lo, hi) VALUES (:lane, :grp, :lo, :hi) ON CONFLICT DO NOTHING;

-- name: dropped_inside: dropped ranges of a group that [lo, hi) touches
SELECT lo, hi FROM dropped WHERE lane = :lane AND grp = :grp AND hi > :lo AND hi <= :hi
UNION ALL
SELECT lo, hi FROM (
  SELECT lo, hi FROM dropped WHERE lane = :lane AND grp = :grp AND hi > :hi ORDER BY hi LIMIT 1) AS across
WHERE lo < :hi;

-- name: dropped_forget_cursor: what a group dropped in a lane
DELETE FROM dropped WHERE lane = :lane AND grp = :grp;

-- name: dropped_forget_lane: what every group dropped below a place of a lane
DELETE FROM dropped WHERE lane = :lane AND hi <= :below;
