-- name: maintenance_list: the switches
SELECT name, enabled FROM maintenance;

-- name: maintenance_set: turns a switch on or off
INSERT INTO maintenance (name, enabled, changed_at) VALUES (:name, :enabled, :now)
ON CONFLICT (name) DO UPDATE SET enabled = excluded.enabled, changed_at = excluded.changed_at;

-- name: spool_insert: keeps a push until the maintenance ends
INSERT INTO spool (messages, bytes, created_at, body) VALUES (:messages, :bytes, :created_at, :body);

-- name: spool_sizes: sizes of the oldest waiting pushes
SELECT no, messages, bytes FROM spool WHERE error IS NULL AND no > 0 ORDER BY no LIMIT :limit;

-- name: spool_get: a waiting push
SELECT created_at, body FROM spool WHERE no = :no;

-- name: spool_delete: deletes a push that is stored in its queue
DELETE FROM spool WHERE no = :no;

-- name: spool_fail: notes why a push was refused
UPDATE spool SET error = :error WHERE no = :no;

-- name: spool_retry: lets refused pushes wait again
UPDATE spool SET error = NULL WHERE no IN (SELECT no FROM spool WHERE error IS NOT NULL ORDER BY no LIMIT :limit);

-- name: spool_counts: messages and bytes of waiting and of refused pushes
SELECT (SELECT coalesce(sum(messages), 0) FROM spool WHERE error IS NULL),
  (SELECT coalesce(sum(messages), 0) FROM spool WHERE error IS NOT NULL),
  (SELECT coalesce(sum(bytes), 0) FROM spool WHERE error IS NOT NULL);
