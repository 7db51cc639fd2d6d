-- Turns of a group's members: when a member got its last turn, and since when it waits for an item.
ALTER TABLE ackwise.mew_watch ADD COLUMN served bigint NOT NULL DEFAULT 0;
ALTER TABLE ackwise.mew_watch ADD COLUMN waits_from bigint;
-- A watch that was cancelled before this version gets the time at the first sweep.
ALTER TABLE ackwise.mew_watch ADD COLUMN cancelled_at bigint;
ALTER TABLE ackwise.mew_item ADD COLUMN kept_for bigint;
ALTER TABLE ackwise.mew_item ADD COLUMN kept_until bigint;
DROP INDEX ackwise.mew_watch_pool;
CREATE INDEX mew_watch_pool ON ackwise.mew_watch (pool, served, no) WHERE status <> 'cancelled';
CREATE INDEX mew_watch_cancelled ON ackwise.mew_watch (cancelled_at) WHERE status = 'cancelled';
