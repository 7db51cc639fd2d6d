ALTER TABLE cursor ADD COLUMN last_seq INTEGER;
ALTER TABLE cursor ADD COLUMN last_at INTEGER;
ALTER TABLE cursor ADD COLUMN nacked INTEGER NOT NULL DEFAULT 0;

CREATE TABLE dropped (
  lane INTEGER NOT NULL, grp INTEGER NOT NULL, lo INTEGER NOT NULL, hi INTEGER NOT NULL,
  PRIMARY KEY (lane, grp, hi)) WITHOUT ROWID;

-- No message of the lane is larger. Of older lanes only the largest segment is known, which says the same.
ALTER TABLE lane ADD COLUMN largest INTEGER NOT NULL DEFAULT 0;
UPDATE lane SET largest = coalesce((
  SELECT max(length(s.body)) FROM segment AS s
  WHERE s.pos >= lane.id << 40 AND s.pos < (lane.id + 1) << 40), 0);
