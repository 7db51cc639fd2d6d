CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE instance (id TEXT PRIMARY KEY, started_at INTEGER NOT NULL, heartbeat_at INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE queue (
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, ns TEXT NOT NULL, task TEXT NOT NULL, policy TEXT NOT NULL,
  paused INTEGER NOT NULL, created_at INTEGER NOT NULL, deleted_at INTEGER);
CREATE UNIQUE INDEX queue_name ON queue (name) WHERE deleted_at IS NULL;
CREATE INDEX queue_buried ON queue (id) WHERE deleted_at IS NOT NULL;

CREATE TABLE part (
  id INTEGER PRIMARY KEY AUTOINCREMENT, uuid TEXT NOT NULL UNIQUE, queue INTEGER NOT NULL, name TEXT NOT NULL,
  UNIQUE (queue, name));

CREATE TABLE lane (
  id INTEGER PRIMARY KEY AUTOINCREMENT, part INTEGER NOT NULL, queue INTEGER NOT NULL, prio INTEGER NOT NULL,
  head INTEGER NOT NULL, start INTEGER NOT NULL, start_at INTEGER NOT NULL,
  UNIQUE (part, prio), CHECK (0 <= start AND start <= head));
CREATE INDEX lane_old ON lane (queue, start_at);

CREATE TABLE segment (pos INTEGER PRIMARY KEY, first INTEGER NOT NULL, created_at INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE husk (
  pos INTEGER PRIMARY KEY, first INTEGER NOT NULL, created_at INTEGER NOT NULL, queue INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX husk_old ON husk (queue, created_at);

CREATE TABLE scheduled (
  no INTEGER PRIMARY KEY AUTOINCREMENT, queue INTEGER NOT NULL, part INTEGER NOT NULL, prio INTEGER NOT NULL,
  due_at INTEGER NOT NULL, created_at INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX scheduled_due ON scheduled (due_at, no);
CREATE INDEX scheduled_queue ON scheduled (queue);

CREATE TABLE grp (
  id INTEGER PRIMARY KEY AUTOINCREMENT, queue INTEGER NOT NULL, name TEXT NOT NULL, mode TEXT NOT NULL, from_at INTEGER,
  policy TEXT NOT NULL, created_at INTEGER NOT NULL, UNIQUE (queue, name));

CREATE TABLE cursor (
  lane INTEGER NOT NULL, grp INTEGER NOT NULL, part INTEGER NOT NULL, prio INTEGER NOT NULL, epoch INTEGER NOT NULL,
  first INTEGER NOT NULL, next INTEGER NOT NULL, floor INTEGER NOT NULL, held INTEGER NOT NULL, acked INTEGER NOT NULL, dead INTEGER NOT NULL,
  skipped INTEGER NOT NULL, expired INTEGER NOT NULL, leased INTEGER NOT NULL, exclusive INTEGER NOT NULL,
  exclusive_owner TEXT, ready_at INTEGER, PRIMARY KEY (lane, grp),
  CHECK (next - first = acked + dead + skipped + expired + held),
  CHECK (held >= 0 AND acked >= 0 AND dead >= 0 AND skipped >= 0 AND expired >= 0 AND leased >= 0 AND exclusive >= 0)
) WITHOUT ROWID;
CREATE INDEX cursor_ready ON cursor (grp, prio, ready_at, lane, part) WHERE ready_at IS NOT NULL;
CREATE INDEX cursor_part ON cursor (part, grp);
CREATE INDEX cursor_owner ON cursor (grp, exclusive_owner) WHERE exclusive_owner IS NOT NULL;

CREATE TABLE span (
  lane INTEGER NOT NULL, grp INTEGER NOT NULL, hi INTEGER NOT NULL, lo INTEGER NOT NULL, lease INTEGER,
  fails INTEGER NOT NULL, delivs INTEGER NOT NULL, due_at INTEGER NOT NULL, last_owner TEXT, probation INTEGER NOT NULL,
  history TEXT NOT NULL, PRIMARY KEY (lane, grp, hi), CHECK (lo < hi)) WITHOUT ROWID;
CREATE INDEX span_lease ON span (lease, lane) WHERE lease IS NOT NULL;
CREATE INDEX span_due ON span (lane, grp, due_at) WHERE lease IS NULL;

CREATE TABLE lease (
  no INTEGER PRIMARY KEY, tag INTEGER NOT NULL, queue INTEGER NOT NULL, grp INTEGER NOT NULL, owner TEXT NOT NULL,
  instance TEXT NOT NULL, exclusivity TEXT NOT NULL, bulk INTEGER NOT NULL, deadline INTEGER NOT NULL,
  made_at INTEGER NOT NULL, granted TEXT NOT NULL, key TEXT, fingerprint TEXT, ended_at INTEGER, end_kind TEXT, lost TEXT);
CREATE INDEX lease_deadline ON lease (deadline) WHERE ended_at IS NULL;
CREATE INDEX lease_group ON lease (grp, exclusivity) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX lease_key ON lease (grp, key) WHERE key IS NOT NULL;

CREATE TABLE dead (
  id INTEGER PRIMARY KEY AUTOINCREMENT, uuid TEXT NOT NULL UNIQUE, queue INTEGER NOT NULL, part INTEGER NOT NULL,
  lane INTEGER NOT NULL, seq INTEGER NOT NULL, epoch INTEGER NOT NULL, grp INTEGER NOT NULL, grp_name TEXT NOT NULL,
  txid TEXT NOT NULL, reason TEXT NOT NULL, error TEXT NOT NULL, etype TEXT NOT NULL, fails INTEGER NOT NULL,
  delivs INTEGER NOT NULL, history TEXT NOT NULL, snapshot BLOB NOT NULL, born_at INTEGER NOT NULL,
  dead_at INTEGER NOT NULL, UNIQUE (lane, seq, grp));
CREATE INDEX dead_queue ON dead (queue, dead_at);

CREATE TABLE ledger (
  queue TEXT NOT NULL, grp TEXT NOT NULL, minute INTEGER NOT NULL, outcome TEXT NOT NULL, instance TEXT NOT NULL,
  n INTEGER NOT NULL, latency TEXT NOT NULL, PRIMARY KEY (queue, grp, minute, outcome, instance)) WITHOUT ROWID;
CREATE INDEX ledger_minute ON ledger (minute);

CREATE TABLE dedupe_fresh (no INTEGER PRIMARY KEY, keys BLOB NOT NULL, runs BLOB NOT NULL);
CREATE TABLE dedupe_gen (gen INTEGER PRIMARY KEY, from_at INTEGER NOT NULL, to_at INTEGER NOT NULL, n INTEGER NOT NULL);
CREATE TABLE dedupe_block (
  shelf INTEGER NOT NULL, bucket INTEGER NOT NULL, gen INTEGER NOT NULL, keys BLOB NOT NULL,
  PRIMARY KEY (shelf, bucket, gen)) WITHOUT ROWID;
CREATE TABLE dedupe_filter (shelf INTEGER PRIMARY KEY, bits BLOB NOT NULL);
