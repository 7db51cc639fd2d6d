-- The SQL views of views.sql are created after the last step.

-- Order of the dead letters for hooks: a later commit has a higher mark. Older letters have 0, so no hook reports them.
ALTER TABLE dead ADD COLUMN mark INTEGER NOT NULL DEFAULT 0;
CREATE INDEX dead_mark ON dead (queue, mark, id);
-- Hooks: readers of a queue's dead letters, with their place behind the last reported letter.
CREATE TABLE hook (
  queue INTEGER NOT NULL, name TEXT NOT NULL, url TEXT, payload INTEGER NOT NULL, mark INTEGER NOT NULL,
  letter INTEGER NOT NULL, owner TEXT, until INTEGER NOT NULL, failing_from INTEGER, failures INTEGER NOT NULL,
  next_at INTEGER NOT NULL, paused INTEGER NOT NULL, error TEXT NOT NULL, created_at INTEGER NOT NULL,
  PRIMARY KEY (queue, name)) WITHOUT ROWID;
