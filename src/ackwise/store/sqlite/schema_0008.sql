-- Durations follow an anchored clock. The first process of a boot writes the row.
CREATE TABLE anchor (
  id INTEGER PRIMARY KEY CHECK (id = 1), boot TEXT NOT NULL, boottime INTEGER NOT NULL, anchored INTEGER NOT NULL,
  shift INTEGER NOT NULL, seen INTEGER NOT NULL);
