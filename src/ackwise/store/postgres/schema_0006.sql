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
