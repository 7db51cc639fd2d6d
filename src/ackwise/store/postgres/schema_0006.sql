ALTER TABLE ackwise.cursor ADD COLUMN last_seq bigint;
ALTER TABLE ackwise.cursor ADD COLUMN last_at bigint;
ALTER TABLE ackwise.cursor ADD COLUMN nacked bigint NOT NULL DEFAULT 0;

CREATE TABLE ackwise.dropped (
  lane bigint NOT NULL, grp bigint NOT NULL, lo bigint NOT NULL, hi bigint NOT NULL,
  PRIMARY KEY (lane, grp, hi));
