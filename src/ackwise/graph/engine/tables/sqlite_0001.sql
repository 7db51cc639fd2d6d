CREATE TABLE mew_state (
  id INTEGER PRIMARY KEY CHECK (id = 1), tick INTEGER NOT NULL, ticked INTEGER NOT NULL, ticked_at INTEGER,
  ontology INTEGER NOT NULL, watches INTEGER NOT NULL);
INSERT INTO mew_state VALUES (1, 0, 0, NULL, 0, 0);
CREATE TABLE mew_type (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, declared TEXT NOT NULL);

CREATE TABLE mew_entity (
  no INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, type INTEGER NOT NULL, attrs TEXT NOT NULL,
  tick INTEGER NOT NULL);
INSERT INTO mew_entity (id, type, attrs, tick) VALUES ('tick_state', 5, '{}', 0);
CREATE INDEX mew_entity_type ON mew_entity (type, no);
CREATE TABLE mew_end (
  edge INTEGER NOT NULL, slot INTEGER NOT NULL, node INTEGER NOT NULL, type INTEGER NOT NULL,
  PRIMARY KEY (edge, slot)) WITHOUT ROWID;
CREATE INDEX mew_end_node ON mew_end (node, type, slot, edge);
-- Index of attribute values. Texts are found by prefix.
CREATE TABLE mew_num (
  attr INTEGER NOT NULL, value REAL NOT NULL, entity INTEGER NOT NULL, PRIMARY KEY (attr, value, entity)) WITHOUT ROWID;
CREATE TABLE mew_txt (
  attr INTEGER NOT NULL, value TEXT NOT NULL, entity INTEGER NOT NULL, PRIMARY KEY (attr, value, entity)) WITHOUT ROWID;

CREATE TABLE mew_session (no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, instance TEXT NOT NULL, ended_at INTEGER);
CREATE INDEX mew_session_living ON mew_session (instance) WHERE ended_at IS NULL;
CREATE TABLE mew_watch (
  no INTEGER PRIMARY KEY, id TEXT NOT NULL, session INTEGER NOT NULL, pool INTEGER, status TEXT NOT NULL,
  spec TEXT NOT NULL, head INTEGER NOT NULL, sent INTEGER NOT NULL, delivered INTEGER NOT NULL, held INTEGER NOT NULL,
  last_event_at INTEGER,
  CHECK (status IN ('active', 'paused', 'cancelled')), CHECK (held >= 0 AND sent <= head));
CREATE INDEX mew_watch_session ON mew_watch (session, no);
CREATE INDEX mew_watch_pool ON mew_watch (pool) WHERE status <> 'cancelled';
CREATE INDEX mew_watch_standing ON mew_watch (no) WHERE status <> 'cancelled';
CREATE INDEX mew_watch_over ON mew_watch (last_event_at) WHERE status = 'cancelled';
CREATE TABLE mew_event (
  no INTEGER PRIMARY KEY AUTOINCREMENT, watch INTEGER NOT NULL, position INTEGER NOT NULL, kind TEXT NOT NULL,
  tick INTEGER NOT NULL, delivery_id TEXT, lease INTEGER, created_at INTEGER NOT NULL, body TEXT NOT NULL, UNIQUE (watch, position));

-- Pool of a consumer group: matching entities in the order of their delivery.
CREATE TABLE mew_pool (
  id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, spec TEXT NOT NULL, scanned INTEGER NOT NULL);
CREATE TABLE mew_item (
  pool INTEGER NOT NULL, entity INTEGER NOT NULL, held INTEGER NOT NULL, rank TEXT NOT NULL,
  PRIMARY KEY (pool, entity)) WITHOUT ROWID;
CREATE INDEX mew_item_next ON mew_item (pool, held, rank, entity);
CREATE INDEX mew_item_entity ON mew_item (entity, pool);
CREATE TABLE mew_delivery (
  entity INTEGER PRIMARY KEY, lease INTEGER, fails INTEGER NOT NULL, delivs INTEGER NOT NULL, watch INTEGER NOT NULL,
  due_at INTEGER NOT NULL, dead INTEGER NOT NULL, CHECK (fails <= delivs), CHECK (dead = 0 OR lease IS NULL));
CREATE INDEX mew_delivery_watch ON mew_delivery (watch, lease) WHERE lease IS NOT NULL;

CREATE VIEW mew_event_entity AS
SELECT -no AS no, 'event_' || no AS id, 2 AS type, tick,
  json_object('event_type', kind, 'tick', tick, 'delivery_id', delivery_id, 'created_at', created_at / 1000) AS attrs
FROM mew_event WHERE kind <> 'notice';
CREATE VIEW mew_event_edge AS
SELECT -no AS no, 'watch_event_' || no AS id, 21 AS type, tick, json_object('position', position) AS attrs
FROM mew_event WHERE kind <> 'notice';
CREATE VIEW mew_event_end AS
SELECT -no AS edge, 0 AS slot, watch AS node, 21 AS type FROM mew_event WHERE kind <> 'notice'
UNION ALL SELECT -no, 1, -no, 21 FROM mew_event WHERE kind <> 'notice';
