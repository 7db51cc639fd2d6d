CREATE TABLE ackwise.mew_state (
  id bigint PRIMARY KEY CHECK (id = 1), tick bigint NOT NULL, ticked bigint NOT NULL, ticked_at bigint,
  ontology bigint NOT NULL, watches bigint NOT NULL) WITH (fillfactor = 50);
INSERT INTO ackwise.mew_state VALUES (1, 0, 0, NULL, 0, 0);
CREATE TABLE ackwise.mew_type (id bigint PRIMARY KEY, name text COLLATE "C" NOT NULL UNIQUE, declared text NOT NULL);

CREATE TABLE ackwise.mew_entity (
  no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE, type bigint NOT NULL,
  attrs text NOT NULL, tick bigint NOT NULL);
INSERT INTO ackwise.mew_entity (id, type, attrs, tick) VALUES ('tick_state', 5, '{}', 0);
CREATE INDEX mew_entity_type ON ackwise.mew_entity (type, no);
CREATE TABLE ackwise.mew_end (
  edge bigint NOT NULL, slot bigint NOT NULL, node bigint NOT NULL, type bigint NOT NULL, PRIMARY KEY (edge, slot));
CREATE INDEX mew_end_node ON ackwise.mew_end (node, type, slot, edge);
-- Index of attribute values. Texts are found by prefix.
CREATE TABLE ackwise.mew_num (
  attr bigint NOT NULL, value double precision NOT NULL, entity bigint NOT NULL, PRIMARY KEY (attr, value, entity));
CREATE TABLE ackwise.mew_txt (
  attr bigint NOT NULL, value text COLLATE "C" NOT NULL, entity bigint NOT NULL, PRIMARY KEY (attr, value, entity));

CREATE TABLE ackwise.mew_session (
  no bigint PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE, instance text COLLATE "C" NOT NULL, ended_at bigint);
CREATE INDEX mew_session_living ON ackwise.mew_session (instance) WHERE ended_at IS NULL;
CREATE TABLE ackwise.mew_watch (
  no bigint PRIMARY KEY, id text NOT NULL, session bigint NOT NULL, pool bigint, status text NOT NULL,
  spec text NOT NULL, head bigint NOT NULL, sent bigint NOT NULL, delivered bigint NOT NULL, held bigint NOT NULL,
  last_event_at bigint,
  CHECK (status IN ('active', 'paused', 'cancelled')), CHECK (held >= 0 AND sent <= head)) WITH (fillfactor = 50);
CREATE INDEX mew_watch_session ON ackwise.mew_watch (session, no);
CREATE INDEX mew_watch_pool ON ackwise.mew_watch (pool) WHERE status <> 'cancelled';
CREATE INDEX mew_watch_standing ON ackwise.mew_watch (no) WHERE status <> 'cancelled';
CREATE INDEX mew_watch_over ON ackwise.mew_watch (last_event_at) WHERE status = 'cancelled';
CREATE TABLE ackwise.mew_event (
  no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, watch bigint NOT NULL, position bigint NOT NULL, kind text NOT NULL,
  tick bigint NOT NULL, delivery_id text COLLATE "C", lease bigint, created_at bigint NOT NULL, body text NOT NULL,
  UNIQUE (watch, position));

-- Pool of a consumer group: matching entities in the order of their delivery.
CREATE TABLE ackwise.mew_pool (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text COLLATE "C" NOT NULL UNIQUE, spec text NOT NULL,
  scanned bigint NOT NULL);
CREATE TABLE ackwise.mew_item (
  pool bigint NOT NULL, entity bigint NOT NULL, held bigint NOT NULL, rank text COLLATE "C" NOT NULL,
  PRIMARY KEY (pool, entity));
CREATE INDEX mew_item_next ON ackwise.mew_item (pool, held, rank, entity);
CREATE INDEX mew_item_entity ON ackwise.mew_item (entity, pool);
CREATE TABLE ackwise.mew_delivery (
  entity bigint PRIMARY KEY, lease bigint, fails bigint NOT NULL, delivs bigint NOT NULL, watch bigint NOT NULL,
  due_at bigint NOT NULL, dead bigint NOT NULL, CHECK (fails <= delivs), CHECK (dead = 0 OR lease IS NULL));
CREATE INDEX mew_delivery_watch ON ackwise.mew_delivery (watch, lease) WHERE lease IS NOT NULL;

CREATE VIEW ackwise.mew_event_entity AS
SELECT -no AS no, 'event_' || no AS id, 2 AS type, tick,
  json_build_object('event_type', kind, 'tick', tick, 'delivery_id', delivery_id, 'created_at', created_at / 1000)::text
    AS attrs
FROM ackwise.mew_event WHERE kind <> 'notice';
CREATE VIEW ackwise.mew_event_edge AS
SELECT -no AS no, 'watch_event_' || no AS id, 21 AS type, tick, json_build_object('position', position)::text AS attrs
FROM ackwise.mew_event WHERE kind <> 'notice';
CREATE VIEW ackwise.mew_event_end AS
SELECT -no AS edge, 0 AS slot, watch AS node, 21 AS type FROM ackwise.mew_event WHERE kind <> 'notice'
UNION ALL SELECT -no, 1, -no, 21 FROM ackwise.mew_event WHERE kind <> 'notice';
