-- name: mew_state: the clock of the graph, and which ontology and watches it has
SELECT tick, ticked, ticked_at, ontology, watches FROM mew_state WHERE id = 1;

-- name: mew_tick: a commit or a TICK moved the logical time
UPDATE mew_state SET tick = :tick WHERE id = 1;

-- name: mew_ticked: a TICK was asked for
UPDATE mew_state SET tick = :tick, ticked = :tick, ticked_at = :now WHERE id = 1;

-- name: mew_ontology_changed: whoever remembers the types reads them again
UPDATE mew_state SET ontology = :version WHERE id = 1;

-- name: mew_watches_changed: whoever remembers the watches reads them again
UPDATE mew_state SET watches = :version WHERE id = 1;

-- name: mew_types: everything users declared
SELECT id, declared FROM mew_type ORDER BY id;

-- name: mew_counts: how many entities there are of each type
SELECT type, count(*) FROM mew_entity GROUP BY type ORDER BY type;

-- name: mew_type_insert: a declaration
INSERT INTO mew_type (id, name, declared) VALUES (:id, :name, :declared);

-- name: mew_entity_insert: a node or an edge
INSERT INTO mew_entity (id, type, attrs, tick) VALUES (:id, :type, :attrs, :tick) RETURNING no;

-- name: mew_entity_update: attributes were set
UPDATE mew_entity SET attrs = :attrs, tick = :tick WHERE no = :no;

-- name: mew_entity_delete: killed or unlinked
DELETE FROM mew_entity WHERE no = :no;

-- name: mew_entity_by_id: an entity by its literal id
SELECT no, id, type, attrs, tick FROM mew_entity WHERE id = :id;

-- name: mew_entity_by_no: an entity
SELECT no, id, type, attrs, tick FROM mew_entity WHERE no = :no;

-- name: mew_entity_last: the newest number there is
SELECT max(no) FROM mew_entity;

-- name: mew_end_insert: one end of an edge
INSERT INTO mew_end (edge, slot, node, type) VALUES (:edge, :slot, :node, :type);

-- name: mew_ends_of_edge: what an edge joins
SELECT e.node, n.id FROM mew_end AS e JOIN mew_entity AS n ON n.no = e.node WHERE e.edge = :edge ORDER BY e.slot;

-- name: mew_edges_of_node: edges that have a node at an end
SELECT edge, slot, type FROM mew_end WHERE node = :node ORDER BY edge, slot;

-- name: mew_edges_in_slot: how many edges of a type a node has in a slot
SELECT count(*) FROM mew_end WHERE node = :node AND type = :type AND slot = :slot;

-- name: mew_edges_out: where edges of a type lead from a node
SELECT o.node FROM mew_end AS s JOIN mew_end AS o ON o.edge = s.edge AND o.slot = 1
WHERE s.node = :node AND s.type = :type AND s.slot = 0;

-- name: mew_ends_delete: an edge is gone
DELETE FROM mew_end WHERE edge = :edge;

-- name: mew_num_insert: find an entity by a number
INSERT INTO mew_num (attr, value, entity) VALUES (:attr, :value, :entity);

-- name: mew_txt_insert: find an entity by a text
INSERT INTO mew_txt (attr, value, entity) VALUES (:attr, :value, :entity);

-- name: mew_num_delete: no longer to be found by it
DELETE FROM mew_num WHERE attr = :attr AND value = :value AND entity = :entity;

-- name: mew_txt_delete: no longer to be found by it
DELETE FROM mew_txt WHERE attr = :attr AND value = :value AND entity = :entity;

-- name: mew_num_with: entities that have this number
SELECT n.no, n.id, n.type, n.attrs, n.tick FROM mew_num AS v JOIN mew_entity AS n ON n.no = v.entity
WHERE v.attr = :attr AND v.value = :value LIMIT 100;

-- name: mew_txt_with: entities that have a text with this beginning
SELECT n.no, n.id, n.type, n.attrs, n.tick FROM mew_txt AS v JOIN mew_entity AS n ON n.no = v.entity
WHERE v.attr = :attr AND v.value = :value LIMIT 1000;

-- name: mew_session_insert: a connection has come
INSERT INTO mew_session (no, id, instance) VALUES (:no, :id, :instance);

-- name: mew_session_by_id: a session
SELECT no, id, instance, ended_at FROM mew_session WHERE id = :id;

-- name: mew_session_adopt: a session is with this broker from now on
UPDATE mew_session SET instance = :instance, ended_at = NULL WHERE no = :no;

-- name: mew_session_end: a connection has gone
UPDATE mew_session SET ended_at = :now WHERE no = :no;

-- name: mew_session_delete: it left nothing behind
DELETE FROM mew_session WHERE no = :no;

-- name: mew_watch_any: whether a session ever had a watch
SELECT 1 FROM mew_watch WHERE session = :session LIMIT 1;

-- name: mew_sessions_orphaned: sessions of brokers that have not been heard of
SELECT s.no, s.id FROM mew_session AS s LEFT JOIN instance AS i ON i.id = s.instance
WHERE s.ended_at IS NULL AND s.instance <> :own AND (i.heartbeat_at IS NULL OR i.heartbeat_at < :before)
ORDER BY s.no LIMIT :limit;

-- name: mew_watch_insert: a standing query
INSERT INTO mew_watch (no, id, session, pool, status, spec, head, sent, delivered, held)
VALUES (:no, :id, :session, :pool, 'active', :spec, 0, 0, 0, 0);

-- name: mew_watch_get: a watch
SELECT no, id, session, pool, status, spec, head, sent, delivered, held, last_event_at
FROM mew_watch WHERE no = :no;

-- name: mew_watches_standing: everything that is not cancelled
SELECT no, id, session, pool, status, spec, head, sent, delivered, held, last_event_at
FROM mew_watch WHERE status <> 'cancelled' ORDER BY no;

-- name: mew_watches_of_session: a session's watches that stand, or have something left to say
SELECT no, id, session, pool, status, spec, head, sent, delivered, held, last_event_at
FROM mew_watch WHERE session = :session AND (status <> 'cancelled' OR sent < head) ORDER BY no;

-- name: mew_watches_of_pool: the members of a group
SELECT no, id, session, pool, status, spec, head, sent, delivered, held, last_event_at
FROM mew_watch WHERE pool = :pool AND status <> 'cancelled' ORDER BY no;

-- name: mew_watch_pool_left: whether a pool has another member
SELECT 1 FROM mew_watch WHERE pool = :pool AND status <> 'cancelled' LIMIT 1;

-- name: mew_watch_others: whether another member of a pool could take something
SELECT 1 FROM mew_watch WHERE pool = :pool AND no <> :no AND status = 'active' LIMIT 1;

-- name: mew_watches_count: how many watches stand
SELECT count(*) FROM mew_watch WHERE status <> 'cancelled';

-- name: mew_watch_status: paused, resumed or cancelled
UPDATE mew_watch SET status = :status WHERE no = :no;

-- name: mew_watch_spec: altered
UPDATE mew_watch SET spec = :spec WHERE no = :no;

-- name: mew_watch_count: events came, went out or were settled
UPDATE mew_watch SET head = :head, sent = :sent, delivered = :delivered, held = :held, last_event_at = :last_event_at
WHERE no = :no;

-- name: mew_watch_emptied: nothing is left to be sent
UPDATE mew_watch SET sent = head WHERE no = :no;

-- name: mew_watch_settled: one delivery less is outstanding
UPDATE mew_watch SET held = held - 1 WHERE no = :no AND held > 0;

-- name: mew_event_insert: an event of a watch
INSERT INTO mew_event (watch, position, kind, tick, delivery_id, lease, created_at, body)
VALUES (:watch, :position, :kind, :tick, :delivery_id, :lease, :created_at, :body);

-- name: mew_events_next: what a watch has not been sent yet
SELECT position, kind, tick, delivery_id, body FROM mew_event
WHERE watch = :watch AND position > :sent AND (tick <= :tick OR kind = 'initial') AND kind <> 'consumed' ORDER BY position LIMIT :limit;

-- name: mew_events_prune: what is older than the buffer, unless it waits to be settled
DELETE FROM mew_event WHERE watch = :watch AND position <= :upto AND (lease IS NULL OR NOT EXISTS (
  SELECT 1 FROM mew_delivery AS d WHERE d.watch = mew_event.watch AND d.lease = mew_event.lease));

-- name: mew_watches_over: watches that were cancelled long ago and still have events
SELECT no FROM mew_watch WHERE status = 'cancelled' AND last_event_at < :before LIMIT :limit;

-- name: mew_events_expire: the events of a watch that was cancelled long ago
DELETE FROM mew_event WHERE watch = :watch;

-- name: mew_watch_quiet: nothing is left of its events
UPDATE mew_watch SET last_event_at = NULL WHERE no = :no;

-- name: mew_events_forget: the buffer of a cancelled watch
DELETE FROM mew_event WHERE watch = :watch AND position > :sent AND kind <> 'notice';

-- name: mew_pool_insert: a group begins
INSERT INTO mew_pool (key, spec, scanned) VALUES (:key, :spec, :scanned) RETURNING id;

-- name: mew_pool_by_key: a group's pool
SELECT id, key, spec, scanned FROM mew_pool WHERE key = :key;

-- name: mew_pool_get: a pool
SELECT id, key, spec, scanned FROM mew_pool WHERE id = :id;

-- name: mew_pools: every pool
SELECT id, key, spec, scanned FROM mew_pool ORDER BY id;

-- name: mew_pool_scanned: how far the graph was looked through for it
UPDATE mew_pool SET scanned = :scanned WHERE id = :id;

-- name: mew_pool_delete: nobody is left in it
DELETE FROM mew_pool WHERE id = :id;

-- name: mew_items_delete: nobody is left in the pool
DELETE FROM mew_item WHERE pool = :pool;

-- name: mew_item_put: an entity matches
INSERT INTO mew_item (pool, entity, held, rank) VALUES (:pool, :entity, :held, :rank)
ON CONFLICT (pool, entity) DO UPDATE SET held = excluded.held, rank = excluded.rank;

-- name: mew_item_get: whether an entity is in a pool
SELECT held, rank FROM mew_item WHERE pool = :pool AND entity = :entity;

-- name: mew_item_delete: an entity no longer matches
DELETE FROM mew_item WHERE pool = :pool AND entity = :entity;

-- name: mew_items_gone: an entity is in no pool any more
DELETE FROM mew_item WHERE entity = :entity;

-- name: mew_items_next: what may be handed out, in order
SELECT i.entity, i.rank, d.fails, d.delivs, d.watch, d.due_at FROM mew_item AS i
LEFT JOIN mew_delivery AS d ON d.entity = i.entity
WHERE i.pool = :pool AND i.held = 0 AND (i.rank > :rank OR (i.rank = :rank AND i.entity > :entity))
ORDER BY i.rank, i.entity LIMIT :limit;

-- name: mew_items_hold: an entity may not be handed out now
UPDATE mew_item SET held = 1 WHERE entity = :entity;

-- name: mew_items_free: an entity may be handed out again
UPDATE mew_item SET held = 0 WHERE entity = :entity;

-- name: mew_items_free_for_letters: only who asks for dead letters may have it
UPDATE mew_item SET held = 0 WHERE entity = :entity AND pool = :pool;

-- name: mew_pools_of: the pools an entity is in
SELECT pool FROM mew_item WHERE entity = :entity;

-- name: mew_delivery_get: how an entity stands
SELECT entity, lease, fails, delivs, watch, due_at, dead FROM mew_delivery WHERE entity = :entity;

-- name: mew_delivery_put: how an entity stands from now on
INSERT INTO mew_delivery (entity, lease, fails, delivs, watch, due_at, dead)
VALUES (:entity, :lease, :fails, :delivs, :watch, :due_at, :dead)
ON CONFLICT (entity) DO UPDATE SET lease = excluded.lease, fails = excluded.fails, delivs = excluded.delivs,
  watch = excluded.watch, due_at = excluded.due_at, dead = excluded.dead;

-- name: mew_delivery_delete: nothing is to be remembered about it
DELETE FROM mew_delivery WHERE entity = :entity;

-- name: mew_deliveries_of_watch: what a watch was handed and nobody has settled
SELECT entity, lease, fails, delivs, watch, due_at, dead FROM mew_delivery
WHERE watch = :watch AND lease IS NOT NULL ORDER BY lease;

-- name: mew_leases_expired: deliveries that ran out
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE ended_at IS NULL AND queue = 0 AND deadline <= :now ORDER BY deadline, no LIMIT :limit;

-- name: mew_audit_held: deliveries whose lease has ended, or is not there
SELECT d.entity FROM mew_delivery AS d LEFT JOIN lease AS l ON l.no = d.lease
WHERE d.lease IS NOT NULL AND (l.no IS NULL OR l.ended_at IS NOT NULL);

-- name: mew_audit_leases: deliveries that nobody holds though their lease lives
SELECT l.no FROM lease AS l WHERE l.queue = 0 AND l.ended_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM mew_delivery AS d WHERE d.lease = l.no);

-- name: mew_audit_items: entities that may be handed out though they are held
SELECT i.pool, i.entity FROM mew_item AS i JOIN mew_delivery AS d ON d.entity = i.entity
WHERE i.held = 0 AND d.lease IS NOT NULL;

-- name: mew_audit_counts: watches that count other than what they hold
SELECT w.no, w.held, count(d.entity) FROM mew_watch AS w
LEFT JOIN mew_delivery AS d ON d.watch = w.no AND d.lease IS NOT NULL
WHERE w.status <> 'cancelled' GROUP BY w.no, w.held HAVING w.held <> count(d.entity);

-- name: mew_audit_orphans: values and ends of entities that are gone
SELECT entity FROM (SELECT entity FROM mew_num UNION ALL SELECT entity FROM mew_txt UNION ALL SELECT edge FROM mew_end
  UNION ALL SELECT node FROM mew_end) AS v
WHERE NOT EXISTS (SELECT 1 FROM mew_entity AS n WHERE n.no = v.entity) LIMIT 10;
