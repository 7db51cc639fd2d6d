-- Kind of a dead letter's error, to group the letters. The migration fills it for older letters: store/letter_kinds.py.
ALTER TABLE ackwise.dead ADD COLUMN kind text COLLATE "C" NOT NULL DEFAULT '';
-- Has every column by which lists of dead letters are filtered and counted.
CREATE INDEX dead_kind ON ackwise.dead (queue, kind, reason, dead_at) INCLUDE (id, grp_name, part);

-- Heartbeats of pipelines that run elsewhere, on Spark for example. `report` is JSON.
CREATE TABLE ackwise.pipeline (
  id text COLLATE "C" PRIMARY KEY, queue text COLLATE "C" NOT NULL, grp text COLLATE "C" NOT NULL,
  started_at bigint NOT NULL, seen_at bigint NOT NULL, report bytea NOT NULL) WITH (fillfactor = 70);
CREATE INDEX pipeline_seen ON ackwise.pipeline (seen_at, id);
