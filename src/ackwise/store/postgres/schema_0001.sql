CREATE TABLE meta (key text COLLATE "C" PRIMARY KEY, value text NOT NULL);
CREATE TABLE instance (id text COLLATE "C" PRIMARY KEY, started_at bigint NOT NULL, heartbeat_at bigint NOT NULL);

CREATE TABLE queue (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text COLLATE "C" NOT NULL, ns text COLLATE "C" NOT NULL,
  task text COLLATE "C" NOT NULL, policy text NOT NULL, paused bigint NOT NULL, created_at bigint NOT NULL,
  deleted_at bigint);
CREATE UNIQUE INDEX queue_name ON queue (name) WHERE deleted_at IS NULL;
CREATE INDEX queue_buried ON queue (id) WHERE deleted_at IS NOT NULL;

-- A turn locks the partition's row before it changes the partition's lanes, cursors and spans.
CREATE TABLE part (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, uuid text COLLATE "C" NOT NULL UNIQUE, queue bigint NOT NULL,
  name text COLLATE "C" NOT NULL, UNIQUE (queue, name));

-- Rows that change with every turn leave room in their pages (fillfactor), so that most updates touch no index.
CREATE TABLE lane (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, part bigint NOT NULL, queue bigint NOT NULL, prio bigint NOT NULL,
  head bigint NOT NULL, start bigint NOT NULL, start_at bigint NOT NULL,
  UNIQUE (part, prio), CHECK (0 <= start AND start <= head))
  WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
CREATE INDEX lane_old ON lane (queue, start_at);

CREATE TABLE segment (pos bigint PRIMARY KEY, first bigint NOT NULL, created_at bigint NOT NULL, body bytea NOT NULL)
  WITH (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE segment ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE husk (
  pos bigint PRIMARY KEY, first bigint NOT NULL, created_at bigint NOT NULL, queue bigint NOT NULL, body bytea NOT NULL);
CREATE INDEX husk_old ON husk (queue, created_at);

CREATE TABLE scheduled (
  no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue bigint NOT NULL, part bigint NOT NULL, prio bigint NOT NULL,
  due_at bigint NOT NULL, created_at bigint NOT NULL, body bytea NOT NULL);
CREATE INDEX scheduled_due ON scheduled (due_at, no);
CREATE INDEX scheduled_queue ON scheduled (queue);

CREATE TABLE grp (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue bigint NOT NULL, name text COLLATE "C" NOT NULL,
  mode text NOT NULL, from_at bigint, policy text NOT NULL, created_at bigint NOT NULL, UNIQUE (queue, name));

CREATE TABLE cursor (
  lane bigint NOT NULL, grp bigint NOT NULL, part bigint NOT NULL, prio bigint NOT NULL, epoch bigint NOT NULL,
  first bigint NOT NULL, next bigint NOT NULL, floor bigint NOT NULL, held bigint NOT NULL, acked bigint NOT NULL, dead bigint NOT NULL,
  skipped bigint NOT NULL, expired bigint NOT NULL, leased bigint NOT NULL, exclusive bigint NOT NULL,
  exclusive_owner text COLLATE "C", ready_at bigint, PRIMARY KEY (lane, grp),
  CHECK (next - first = acked + dead + skipped + expired + held),
  CHECK (held >= 0 AND acked >= 0 AND dead >= 0 AND skipped >= 0 AND expired >= 0 AND leased >= 0 AND exclusive >= 0))
  WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
CREATE INDEX cursor_ready ON cursor (grp, prio, ready_at, lane, part) WHERE ready_at IS NOT NULL;
CREATE INDEX cursor_part ON cursor (part, grp);
CREATE INDEX cursor_owner ON cursor (grp, exclusive_owner) WHERE exclusive_owner IS NOT NULL;

CREATE TABLE span (
  lane bigint NOT NULL, grp bigint NOT NULL, hi bigint NOT NULL, lo bigint NOT NULL, lease bigint,
  fails bigint NOT NULL, delivs bigint NOT NULL, due_at bigint NOT NULL, last_owner text, probation bigint NOT NULL,
  history text NOT NULL, PRIMARY KEY (lane, grp, hi), CHECK (lo < hi))
  WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
CREATE INDEX span_lease ON span (lease, lane) WHERE lease IS NOT NULL;
CREATE INDEX span_due ON span (lane, grp, due_at) WHERE lease IS NULL;

-- A turn draws a number after it locked the partitions, so that a later grant of a message has a higher number.
CREATE SEQUENCE lease_no;
CREATE TABLE lease (
  no bigint PRIMARY KEY, tag bigint NOT NULL, queue bigint NOT NULL, grp bigint NOT NULL, owner text COLLATE "C" NOT NULL,
  instance text COLLATE "C" NOT NULL, exclusivity text NOT NULL, bulk bigint NOT NULL, deadline bigint NOT NULL,
  made_at bigint NOT NULL, granted text NOT NULL, key text COLLATE "C", fingerprint text, ended_at bigint, end_kind text,
  lost text)
  WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
CREATE INDEX lease_deadline ON lease (deadline) WHERE ended_at IS NULL;
CREATE INDEX lease_group ON lease (grp, exclusivity) WHERE ended_at IS NULL;
CREATE INDEX lease_ended ON lease (ended_at) WHERE ended_at IS NOT NULL;
CREATE UNIQUE INDEX lease_key ON lease (grp, key) WHERE key IS NOT NULL;

CREATE TABLE dead (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, uuid text COLLATE "C" NOT NULL UNIQUE, queue bigint NOT NULL,
  part bigint NOT NULL, lane bigint NOT NULL, seq bigint NOT NULL, epoch bigint NOT NULL, grp bigint NOT NULL,
  grp_name text COLLATE "C" NOT NULL, txid text NOT NULL, reason text COLLATE "C" NOT NULL, error text NOT NULL,
  etype text NOT NULL, fails bigint NOT NULL, delivs bigint NOT NULL, history text NOT NULL, snapshot bytea NOT NULL,
  born_at bigint NOT NULL, dead_at bigint NOT NULL, UNIQUE (lane, seq, grp));
CREATE INDEX dead_queue ON dead (queue, dead_at);

CREATE TABLE ledger (
  queue text COLLATE "C" NOT NULL, grp text COLLATE "C" NOT NULL, minute bigint NOT NULL, outcome text COLLATE "C" NOT NULL,
  instance text COLLATE "C" NOT NULL, n bigint NOT NULL, latency text NOT NULL,
  PRIMARY KEY (queue, grp, minute, outcome, instance)) WITH (fillfactor = 70);
CREATE INDEX ledger_minute ON ledger (minute);

CREATE TABLE dedupe (h bigint NOT NULL, pos bigint NOT NULL, at bigint NOT NULL)
  WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX dedupe_hash ON dedupe (h);
CREATE INDEX dedupe_age ON dedupe (at);
