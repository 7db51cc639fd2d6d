ALTER TABLE cursor ADD COLUMN last_seq INTEGER;
ALTER TABLE cursor ADD COLUMN last_at INTEGER;
ALTER TABLE cursor ADD COLUMN nacked INTEGER NOT NULL DEFAULT 0;

CREATE TABLE dropped (
  lane INTEGER NOT NULL, grp INTEGER NOT NULL, lo INTEGER NOT NULL, hi INTEGER NOT NULL,
  PRIMARY KEY (lane, grp, hi)) WITHOUT ROWID;

-- Upper bound of message sizes in the lane. For older lanes it is the size of the largest segment.
ALTER TABLE lane ADD COLUMN largest INTEGER NOT NULL DEFAULT 0;
UPDATE lane SET largest = coalesce((
  SELECT max(length(s.body)) FROM segment AS s
  WHERE s.pos >= lane.id << 40 AND s.pos < (lane.id + 1) << 40), 0);

-- Lists by namespace and by task are paged by name.
CREATE INDEX queue_ns ON queue (ns, name) WHERE deleted_at IS NULL;
CREATE INDEX queue_task ON queue (task, name) WHERE deleted_at IS NULL;
-- Sweeps and protocols read only the queues that have a rule, never all queues.
CREATE INDEX queue_max_wait ON queue (id)
  WHERE deleted_at IS NULL AND json_extract(policy, '$.max_wait_seconds') IS NOT NULL;
CREATE INDEX queue_noted ON queue (name) WHERE deleted_at IS NULL AND json_extract(policy, '$.notes') IS NOT NULL;
CREATE INDEX queue_dedupe ON queue (json_extract(policy, '$.dedupe_seconds')) WHERE deleted_at IS NULL;
CREATE INDEX lane_queue ON lane (queue, id);
DROP INDEX scheduled_queue;
CREATE INDEX scheduled_queue ON scheduled (queue, part);
CREATE INDEX grp_name ON grp (name, queue);
CREATE INDEX dead_time ON dead (dead_at, id);
