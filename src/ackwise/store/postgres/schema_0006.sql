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

-- Lists by namespace and by task are read in pages, in the order of names.
CREATE INDEX queue_ns ON ackwise.queue (ns, name) WHERE deleted_at IS NULL;
CREATE INDEX queue_task ON ackwise.queue (task, name) WHERE deleted_at IS NULL;
-- Sweeps and dialects look at the queues that have a rule, never at all of them.
CREATE INDEX queue_max_wait ON ackwise.queue (id)
  WHERE deleted_at IS NULL AND (policy::jsonb ->> 'max_wait_seconds') IS NOT NULL;
CREATE INDEX queue_noted ON ackwise.queue (name) WHERE deleted_at IS NULL AND (policy::jsonb ->> 'notes') IS NOT NULL;
CREATE INDEX queue_dedupe ON ackwise.queue (((policy::jsonb ->> 'dedupe_seconds')::double precision))
  WHERE deleted_at IS NULL;
CREATE INDEX lane_queue ON ackwise.lane (queue, id);
DROP INDEX ackwise.scheduled_queue;
CREATE INDEX scheduled_queue ON ackwise.scheduled (queue, part);
CREATE INDEX grp_name ON ackwise.grp (name, queue);
CREATE INDEX dead_time ON ackwise.dead (dead_at, id);
