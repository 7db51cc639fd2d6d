-- Kind of a dead letter's error, to group the letters. The migration fills it for older letters: store/letter_kinds.py.
ALTER TABLE dead ADD COLUMN kind TEXT NOT NULL DEFAULT '';
-- Has every column by which lists of dead letters are filtered and counted.
CREATE INDEX dead_kind ON dead (queue, kind, reason, dead_at, grp_name, part);

-- Counts of a time range over all queues need the index alone.
DROP INDEX ledger_minute;
CREATE INDEX ledger_minute ON ledger (minute, outcome, n);

-- Heartbeats of pipelines that run elsewhere, on Spark for example. `report` is JSON.
CREATE TABLE pipeline (
  id TEXT PRIMARY KEY, queue TEXT NOT NULL, grp TEXT NOT NULL, started_at INTEGER NOT NULL, seen_at INTEGER NOT NULL,
  report BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX pipeline_seen ON pipeline (seen_at, id);
