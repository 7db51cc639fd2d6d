ALTER TABLE ackwise.cursor ADD COLUMN last_seq bigint;
ALTER TABLE ackwise.cursor ADD COLUMN last_at bigint;
ALTER TABLE ackwise.cursor ADD COLUMN nacked bigint NOT NULL DEFAULT 0;

CREATE TABLE ackwise.dropped (
  lane bigint NOT NULL, grp bigint NOT NULL, lo bigint NOT NULL, hi bigint NOT NULL,
  PRIMARY KEY (lane, grp, hi));

-- No message of the lane is larger. Of older lanes only the largest segment is known, which says the same.
ALTER TABLE ackwise.lane ADD COLUMN largest bigint NOT NULL DEFAULT 0;
UPDATE ackwise.lane SET largest = coalesce((
  SELECT max(length(s.body)) FROM ackwise.segment AS s
  WHERE s.pos >= lane.id << 40 AND s.pos < (lane.id + 1) << 40), 0);
