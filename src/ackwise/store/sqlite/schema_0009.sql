-- Notes that consumers attach to messages. `lane` and `seq` are NULL if no stored message was known.
CREATE TABLE trace (
  id INTEGER PRIMARY KEY AUTOINCREMENT, uuid TEXT NOT NULL, queue INTEGER, part_uuid TEXT NOT NULL, txid TEXT NOT NULL,
  lane INTEGER, seq INTEGER, grp TEXT NOT NULL, event TEXT NOT NULL, data TEXT NOT NULL, worker TEXT NOT NULL,
  created_at INTEGER NOT NULL);
CREATE INDEX trace_message ON trace (part_uuid, txid, id);
CREATE INDEX trace_place ON trace (lane, seq) WHERE lane IS NOT NULL;
CREATE INDEX trace_queue ON trace (queue) WHERE queue IS NOT NULL;
CREATE INDEX trace_loose ON trace (created_at) WHERE lane IS NULL;
CREATE TABLE trace_name (name TEXT NOT NULL, trace INTEGER NOT NULL, PRIMARY KEY (name, trace)) WITHOUT ROWID;
CREATE INDEX trace_name_trace ON trace_name (trace);
-- Lanes whose traces below a seq are to be deleted, because retention removed the messages.
CREATE TABLE trace_pruned (lane INTEGER PRIMARY KEY, below INTEGER NOT NULL);

-- Maintenance: the switches, and pushes that wait for the end of the maintenance.
CREATE TABLE maintenance (name TEXT PRIMARY KEY, enabled INTEGER NOT NULL, changed_at INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE spool (
  no INTEGER PRIMARY KEY AUTOINCREMENT, messages INTEGER NOT NULL, bytes INTEGER NOT NULL, error TEXT,
  created_at INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX spool_waiting ON spool (no, messages, bytes) WHERE error IS NULL;
CREATE INDEX spool_failed ON spool (no, messages, bytes) WHERE error IS NOT NULL;
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
