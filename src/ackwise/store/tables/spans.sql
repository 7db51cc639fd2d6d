-- name: span_insert: inserts a span
INSERT INTO span (lane, grp, hi, lo, lease, fails, delivs, due_at, probation, history)
VALUES (:lane, :grp, :hi, :lo, :lease, :fails, :delivs, :due_at, :probation, :history);

-- name: span_update: updates all columns of a span except its end
UPDATE span SET lo = :lo, lease = :lease, fails = :fails, delivs = :delivs, due_at = :due_at,
  probation = :probation, history = :history
WHERE lane = :lane AND grp = :grp AND hi = :hi;

-- name: span_delete: deletes a settled span
DELETE FROM span WHERE lane = :lane AND grp = :grp AND hi = :hi;

-- name: spans_in_order: spans of a group in a lane from a seq on, with their holders
SELECT s.lane, s.grp, s.lo, s.hi, s.lease, s.fails, s.delivs, s.due_at, s.probation, s.history, l.owner
FROM span AS s LEFT JOIN lease AS l ON l.no = s.lease
WHERE s.lane = :lane AND s.grp = :grp AND s.hi > :after ORDER BY s.hi LIMIT :limit;

-- name: spans_due: returned spans whose delay is over, lowest seq first
SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, probation, history, NULL
FROM span WHERE lane = :lane AND grp = :grp AND lease IS NULL AND due_at <= :now ORDER BY hi LIMIT :limit;

-- name: spans_returned: spans that came back from a delivery and are due, the newest first, from a place on
SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, probation, history, NULL
FROM span WHERE lane = :lane AND grp = :grp AND lease IS NULL AND due_at > 0 AND due_at <= :due_at
AND (due_at < :due_at OR hi < :hi)
ORDER BY due_at DESC, hi DESC LIMIT :limit;

-- name: spans_due_after: due spans without a lease that end after a seq, lowest seq first
SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, probation, history, NULL
FROM span WHERE lane = :lane AND grp = :grp AND lease IS NULL AND due_at <= :now AND hi > :after
ORDER BY hi LIMIT :limit;

-- name: span_due_later: when the next span without a lease becomes due
SELECT min(due_at) FROM span WHERE lane = :lane AND grp = :grp AND lease IS NULL AND due_at > :now;

-- name: spans_bypassed: bypassed spans that begin below a seq
SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, probation, history, NULL
FROM span WHERE lane = :lane AND grp = :grp AND lease IS NULL AND due_at = 0 AND lo < :below ORDER BY hi;

-- name: span_next_due: when the next returned span is due
SELECT min(due_at) FROM span WHERE lane = :lane AND grp = :grp AND lease IS NULL;

-- name: span_first: the span with the lowest seq
SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, probation, history, NULL
FROM span WHERE lane = :lane AND grp = :grp ORDER BY hi LIMIT 1;

-- name: spans_inside: spans that end in (lo, hi]
SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, probation, history, NULL
FROM span WHERE lane = :lane AND grp = :grp AND hi > :lo AND hi <= :hi ORDER BY hi;

-- name: span_across: the first span that ends after a seq
SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, probation, history, NULL
FROM span WHERE lane = :lane AND grp = :grp AND hi > :hi ORDER BY hi LIMIT 1;

-- name: spans_of_lease: all spans of a lease
SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, probation, history, NULL
FROM span WHERE lease = :lease ORDER BY lane, hi;

-- name: spans_held: the spans of a lease, if it is live
SELECT s.lane, s.lo, s.hi, s.fails, s.delivs FROM lease AS l JOIN span AS s ON s.lease = l.no
WHERE l.no = :lease AND l.tag = :tag AND l.ended_at IS NULL AND l.deadline > :now ORDER BY s.lane, s.hi;

-- name: span_held_in_lane: whether a lease holds a span in a lane
SELECT 1 FROM span WHERE lease = :lease AND lane = :lane LIMIT 1;

-- name: span_held: whether a lease holds a span
SELECT 1 FROM span WHERE lease = :lease LIMIT 1;

-- name: spans_of_cursor: all spans of a group in a lane
SELECT lane, grp, lo, hi, lease, fails, delivs, due_at, probation, history, NULL
FROM span WHERE lane = :lane AND grp = :grp ORDER BY hi;

-- name: spans_delete_cursor: deletes all spans of a group in a lane
DELETE FROM span WHERE lane = :lane AND grp = :grp;

-- name: spans_delete_group: deletes all spans of a group
DELETE FROM span WHERE grp = :grp
  AND lane IN (SELECT l.id FROM lane AS l JOIN grp AS g ON g.queue = l.queue WHERE g.id = :grp);

-- name: span_lowest: the lowest seq of a lane that a group holds
SELECT min(lo) FROM span WHERE lane = :lane;

-- name: span_lowest_read: the lowest seq of a lane that a group holds, without bypassed messages
SELECT min(lo) FROM span WHERE lane = :lane AND (lease IS NOT NULL OR due_at > 0);

-- name: span_look: the span that ends after a seq, with its deadline and its holder
SELECT s.lo, s.fails, s.delivs, l.deadline, s.history, l.no, l.tag, l.owner, s.due_at, l.made_at
FROM span AS s LEFT JOIN lease AS l ON l.no = s.lease
WHERE s.lane = :lane AND s.grp = :grp AND s.hi > :seq ORDER BY s.hi LIMIT 1;

-- name: spans_leased: messages per lease and lane of a group
SELECT s.lease, s.lane, sum(s.hi - s.lo) FROM lease AS l JOIN span AS s ON s.lease = l.no
WHERE l.grp = :grp AND l.ended_at IS NULL GROUP BY s.lease, s.lane;

-- name: dropped_insert: inserts a range that died for a group of a queue without dead letters
INSERT INTO dropped (lane, grp, lo, hi) VALUES (:lane, :grp, :lo, :hi) ON CONFLICT DO NOTHING;

-- name: dropped_inside: dropped ranges of a group that overlap [lo, hi)
SELECT lo, hi FROM dropped WHERE lane = :lane AND grp = :grp AND hi > :lo AND hi <= :hi
UNION ALL
SELECT lo, hi FROM (
  SELECT lo, hi FROM dropped WHERE lane = :lane AND grp = :grp AND hi > :hi ORDER BY hi LIMIT 1) AS across
WHERE lo < :hi;

-- name: dropped_forget_cursor: deletes the dropped ranges of a group in a lane
DELETE FROM dropped WHERE lane = :lane AND grp = :grp;

-- name: dropped_forget_group: deletes all dropped ranges of a group
DELETE FROM dropped WHERE grp = :grp
  AND lane IN (SELECT l.id FROM lane AS l JOIN grp AS g ON g.queue = l.queue WHERE g.id = :grp);

-- name: dropped_forget_lane: deletes the dropped ranges of all groups below a seq of a lane
DELETE FROM dropped WHERE lane = :lane AND hi <= :below;
