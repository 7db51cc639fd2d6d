ALTER TABLE ackwise.cursor ADD COLUMN last_seq bigint;
ALTER TABLE ackwise.cursor ADD COLUMN last_at bigint;
ALTER TABLE ackwise.cursor ADD COLUMN nacked bigint NOT NULL DEFAULT 0;

CREATE TABLE ackwise.dropped (
  lane bigint NOT NULL, grp bigint NOT NULL, lo bigint NOT NULL, hi bigint NOT NULL,
  PRIMARY KEY (lane, grp, hi));

-- Upper bound of message sizes in the lane. For older lanes it is the size of the largest segment.
ALTER TABLE ackwise.lane ADD COLUMN largest bigint NOT NULL DEFAULT 0;
UPDATE ackwise.lane SET largest = coalesce((
  SELECT max(length(s.body)) FROM ackwise.segment AS s
  WHERE s.pos >= lane.id << 40 AND s.pos < (lane.id + 1) << 40), 0);

-- Lists by namespace and by task are paged by name.
CREATE INDEX queue_ns ON ackwise.queue (ns, name) WHERE deleted_at IS NULL;
CREATE INDEX queue_task ON ackwise.queue (task, name) WHERE deleted_at IS NULL;
-- Sweeps and protocols read only the queues that have a rule, never all queues.
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
