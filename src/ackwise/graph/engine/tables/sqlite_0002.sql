-- Turns of a group's members: when a member got its last turn, and since when it waits for an item.
ALTER TABLE mew_watch ADD COLUMN served INTEGER NOT NULL DEFAULT 0;
ALTER TABLE mew_watch ADD COLUMN waits_from INTEGER;
-- A watch that was cancelled before this version gets the time at the first sweep.
ALTER TABLE mew_watch ADD COLUMN cancelled_at INTEGER;
ALTER TABLE mew_item ADD COLUMN kept_for INTEGER;
ALTER TABLE mew_item ADD COLUMN kept_until INTEGER;
DROP INDEX mew_watch_pool;
CREATE INDEX mew_watch_pool ON mew_watch (pool, served, no) WHERE status <> 'cancelled';
CREATE INDEX mew_watch_cancelled ON mew_watch (cancelled_at) WHERE status = 'cancelled';
