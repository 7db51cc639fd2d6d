-- No message of the lane is larger. Of older lanes only the largest segment is known, which says the same.
ALTER TABLE ackwise.lane ADD COLUMN largest bigint NOT NULL DEFAULT 0;
UPDATE ackwise.lane SET largest = coalesce((
  SELECT max(length(s.body)) FROM ackwise.segment AS s
  WHERE s.pos >= lane.id << 40 AND s.pos < (lane.id + 1) << 40), 0);
