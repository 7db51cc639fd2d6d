-- name: mew_state: logical time of the graph, and versions of its ontology and watches
SELECT tick, ticked, ticked_at, ontology, watches FROM mew_state WHERE id = 1;

-- name: mew_tick: moves the logical time after a commit or a TICK
UPDATE mew_state SET tick = :tick WHERE id = 1;

-- name: mew_ticked: records that a TICK ran
UPDATE mew_state SET tick = :tick, ticked = :tick, ticked_at = :now WHERE id = 1;

-- name: mew_ontology_changed: raises the version of the ontology: sessions read the types again
UPDATE mew_state SET ontology = :version WHERE id = 1;

-- name: mew_watches_changed: raises the version of the watches: sessions read them again
UPDATE mew_state SET watches = :version WHERE id = 1;

-- name: mew_types: all declarations of users
SELECT id, declared FROM mew_type ORDER BY id;

-- name: mew_counts: entities of each type
SELECT type, count(*) FROM mew_entity GROUP BY type ORDER BY type;

-- name: mew_type_insert: inserts a declaration
INSERT INTO mew_type (id, name, declared) VALUES (:id, :name, :declared);

-- name: mew_entity_insert: inserts a node or an edge
INSERT INTO mew_entity (id, type, attrs, tick) VALUES (:id, :type, :attrs, :tick) RETURNING no;

-- name: mew_entity_update: sets the attributes of an entity
UPDATE mew_entity SET attrs = :attrs, tick = :tick WHERE no = :no;

-- name: mew_entity_delete: deletes a killed node or an unlinked edge
DELETE FROM mew_entity WHERE no = :no;

-- name: mew_entity_by_id: an entity by its literal id
SELECT no, id, type, attrs, tick FROM mew_entity WHERE id = :id;

-- name: mew_entity_by_no: an entity by number
SELECT no, id, type, attrs, tick FROM mew_entity WHERE no = :no;

-- name: mew_entity_last: the highest entity number
SELECT max(no) FROM mew_entity;

-- name: mew_end_insert: inserts one end of an edge
INSERT INTO mew_end (edge, slot, node, type) VALUES (:edge, :slot, :node, :type);

-- name: mew_ends_of_edge: the ends of an edge
SELECT e.node, n.id FROM mew_end AS e JOIN mew_entity AS n ON n.no = e.node WHERE e.edge = :edge ORDER BY e.slot;

-- name: mew_edges_of_node: edges with a node at one end
SELECT edge, slot, type FROM mew_end WHERE node = :node ORDER BY edge, slot;

-- name: mew_edges_some: some of the edges with a node at one end
SELECT edge FROM mew_end WHERE node = :node ORDER BY edge LIMIT :limit;

-- name: mew_edges_in_slot: how many edges of a type have a node in a slot
SELECT count(*) FROM mew_end WHERE node = :node AND type = :type AND slot = :slot;

-- name: mew_edges_out: targets of the edges of a type that leave a node
SELECT o.node FROM mew_end AS s JOIN mew_end AS o ON o.edge = s.edge AND o.slot = 1
WHERE s.node = :node AND s.type = :type AND s.slot = 0;

-- name: mew_ends_delete: deletes the ends of a deleted edge
DELETE FROM mew_end WHERE edge = :edge;

-- name: mew_num_insert: indexes a numeric attribute of an entity
INSERT INTO mew_num (attr, value, entity) VALUES (:attr, :value, :entity);

-- name: mew_txt_insert: indexes a text attribute of an entity
INSERT INTO mew_txt (attr, value, entity) VALUES (:attr, :value, :entity);

-- name: mew_num_delete: deletes a number from the index
DELETE FROM mew_num WHERE attr = :attr AND value = :value AND entity = :entity;

-- name: mew_txt_delete: deletes a text from the index
DELETE FROM mew_txt WHERE attr = :attr AND value = :value AND entity = :entity;

-- name: mew_num_with: entities with a number
SELECT n.no, n.id, n.type, n.attrs, n.tick FROM mew_num AS v JOIN mew_entity AS n ON n.no = v.entity
WHERE v.attr = :attr AND v.value = :value LIMIT 100;

-- name: mew_txt_with: entities with a text that has a prefix
SELECT n.no, n.id, n.type, n.attrs, n.tick FROM mew_txt AS v JOIN mew_entity AS n ON n.no = v.entity
WHERE v.attr = :attr AND v.value = :value LIMIT 1000;

-- name: mew_session_by_no: a session by number
SELECT no, id, instance, ended_at FROM mew_session WHERE no = :no;

-- name: mew_session_insert: inserts the session of a new connection
INSERT INTO mew_session (no, id, instance) VALUES (:no, :id, :instance);

-- name: mew_session_by_id: a session by id
SELECT no, id, instance, ended_at FROM mew_session WHERE id = :id;

-- name: mew_session_adopt: moves a session to this broker
UPDATE mew_session SET instance = :instance, ended_at = NULL WHERE no = :no;

-- name: mew_session_end: ends the session of a closed connection
UPDATE mew_session SET ended_at = :now WHERE no = :no;

-- name: mew_session_delete: deletes a session
DELETE FROM mew_session WHERE no = :no;

-- name: mew_watch_any: whether a session ever had a watch
SELECT 1 FROM mew_watch WHERE session = :session LIMIT 1;

-- name: mew_sessions_orphaned: sessions of brokers without recent heartbeats
SELECT s.no, s.id FROM mew_session AS s LEFT JOIN instance AS i ON i.id = s.instance
WHERE s.ended_at IS NULL AND s.instance <> :own AND (i.heartbeat_at IS NULL OR i.heartbeat_at < :before)
ORDER BY s.no LIMIT :limit;

-- name: mew_watch_insert: inserts a watch
INSERT INTO mew_watch (no, id, session, pool, status, spec, head, sent, delivered, held)
VALUES (:no, :id, :session, :pool, 'active', :spec, 0, 0, 0, 0);

-- name: mew_watch_get: a watch
SELECT no, id, session, pool, status, spec, head, sent, delivered, held, last_event_at, served, waits_from
FROM mew_watch WHERE no = :no;

-- name: mew_watches_standing: all watches that are not cancelled
SELECT no, id, session, pool, status, spec, head, sent, delivered, held, last_event_at, served, waits_from
FROM mew_watch WHERE status <> 'cancelled' ORDER BY no;

-- name: mew_watches_of_session: watches of a session that are active or have unsent events
SELECT no, id, session, pool, status, spec, head, sent, delivered, held, last_event_at, served, waits_from
FROM mew_watch WHERE session = :session AND (status <> 'cancelled' OR sent < head) ORDER BY no;

-- name: mew_watches_of_pool: the watches of a consumer group
SELECT no, id, session, pool, status, spec, head, sent, delivered, held, last_event_at, served, waits_from
FROM mew_watch WHERE pool = :pool AND status <> 'cancelled' ORDER BY no;

-- name: mew_watch_pool_left: whether a pool has a watch that is not cancelled
SELECT 1 FROM mew_watch WHERE pool = :pool AND status <> 'cancelled' LIMIT 1;

-- name: mew_watch_others: whether another watch of a pool can receive items
SELECT 1 FROM mew_watch WHERE pool = :pool AND no <> :no AND status = 'active' LIMIT 1;

-- name: mew_watches_waiting: members of a group that wait for an item, in the order of their turns
SELECT no, id, session, pool, status, spec, head, sent, delivered, held, last_event_at, served, waits_from
FROM mew_watch WHERE pool = :pool AND status <> 'cancelled' AND status = 'active' AND waits_from > :since
ORDER BY served, no LIMIT :limit;

-- name: mew_watch_last_served: the number of the group's latest turn
SELECT max(served) FROM mew_watch WHERE pool = :pool AND status <> 'cancelled';

-- name: mew_watch_turn: gives a member its turn, or notes since when it waits
UPDATE mew_watch SET served = :served, waits_from = :waits_from WHERE no = :no;

-- name: mew_watch_absent: notes that a member missed its turn
UPDATE mew_watch SET waits_from = NULL WHERE no = :no;

-- name: mew_watches_count: number of active watches
SELECT count(*) FROM mew_watch WHERE status <> 'cancelled';

-- name: mew_watch_status: sets the status of a watch: paused, active or cancelled
UPDATE mew_watch SET status = :status WHERE no = :no;

-- name: mew_watch_cancel: cancels a watch
UPDATE mew_watch SET status = 'cancelled', cancelled_at = :now, waits_from = NULL WHERE no = :no;

-- name: mew_watches_dated: dates the cancelled watches of older versions
UPDATE mew_watch SET cancelled_at = :now WHERE no IN (
  SELECT no FROM mew_watch WHERE status = 'cancelled' AND cancelled_at IS NULL LIMIT :limit);

-- name: mew_watches_old: watches that were cancelled long ago and hold no delivery
SELECT no, session FROM mew_watch AS w WHERE status = 'cancelled' AND cancelled_at < :before
  AND NOT EXISTS (SELECT 1 FROM mew_delivery AS d WHERE d.watch = w.no AND d.lease IS NOT NULL)
ORDER BY cancelled_at LIMIT :limit;

-- name: mew_watch_delete: deletes a watch
DELETE FROM mew_watch WHERE no = :no;

-- name: mew_watch_spec: sets the options of a watch after ALTER
UPDATE mew_watch SET spec = :spec WHERE no = :no;

-- name: mew_watch_count: updates the event counts of a watch
UPDATE mew_watch SET head = :head, sent = :sent, delivered = :delivered, held = :held, last_event_at = :last_event_at,
  served = :served, waits_from = :waits_from
WHERE no = :no;

-- name: mew_watch_emptied: notes that a watch has no unsent events
UPDATE mew_watch SET sent = head WHERE no = :no;

-- name: mew_watch_settled: subtracts a settled delivery from the outstanding ones
UPDATE mew_watch SET held = held - 1 WHERE no = :no AND held > 0;

-- name: mew_event_insert: inserts an event of a watch
INSERT INTO mew_event (watch, position, kind, tick, delivery_id, lease, created_at, body)
VALUES (:watch, :position, :kind, :tick, :delivery_id, :lease, :created_at, :body);

-- name: mew_events_next: events of a watch that are not sent yet
SELECT position, kind, tick, delivery_id, body FROM mew_event
WHERE watch = :watch AND position > :sent AND (tick <= :tick OR kind = 'initial') AND kind <> 'consumed' ORDER BY position LIMIT :limit;

-- name: mew_events_sizes: the bytes of each of them
SELECT octet_length(body) FROM mew_event
WHERE watch = :watch AND position > :sent AND (tick <= :tick OR kind = 'initial') AND kind <> 'consumed' ORDER BY position LIMIT :limit;

-- name: mew_events_prune: deletes events beyond the buffer, except those that wait for a settlement
DELETE FROM mew_event WHERE watch = :watch AND position <= :upto AND (lease IS NULL OR NOT EXISTS (
  SELECT 1 FROM mew_delivery AS d WHERE d.watch = mew_event.watch AND d.lease = mew_event.lease));

-- name: mew_watches_over: watches that were cancelled long ago and still have events
SELECT no FROM mew_watch WHERE status = 'cancelled' AND last_event_at < :before LIMIT :limit;

-- name: mew_events_expire: deletes the events of a watch that was cancelled long ago
DELETE FROM mew_event WHERE watch = :watch;

-- name: mew_watch_quiet: notes that all events of a watch are deleted
UPDATE mew_watch SET last_event_at = NULL WHERE no = :no;

-- name: mew_events_forget: deletes the buffer of a cancelled watch
DELETE FROM mew_event WHERE watch = :watch AND position > :sent AND kind <> 'notice';

-- name: mew_pool_insert: inserts the pool of a new consumer group
INSERT INTO mew_pool (key, spec, scanned) VALUES (:key, :spec, :scanned) RETURNING id;

-- name: mew_pool_by_key: the pool of a consumer group
SELECT id, key, spec, scanned FROM mew_pool WHERE key = :key;

-- name: mew_pool_get: a pool by number
SELECT id, key, spec, scanned FROM mew_pool WHERE id = :id;

-- name: mew_pools: all pools
SELECT id, key, spec, scanned FROM mew_pool ORDER BY id;

-- name: mew_pool_scanned: records how far the graph was scanned for a pool
UPDATE mew_pool SET scanned = :scanned WHERE id = :id;

-- name: mew_pool_delete: deletes a pool without watches
DELETE FROM mew_pool WHERE id = :id;

-- name: mew_items_delete: deletes the items of a pool without watches
DELETE FROM mew_item WHERE pool = :pool;

-- name: mew_item_put: puts a matching entity into a pool
INSERT INTO mew_item (pool, entity, held, rank) VALUES (:pool, :entity, :held, :rank)
ON CONFLICT (pool, entity) DO UPDATE SET held = excluded.held, rank = excluded.rank;

-- name: mew_item_get: whether an entity is in a pool
SELECT held, rank FROM mew_item WHERE pool = :pool AND entity = :entity;

-- name: mew_item_delete: removes an entity that no longer matches from a pool
DELETE FROM mew_item WHERE pool = :pool AND entity = :entity;

-- name: mew_items_gone: removes an entity from all pools
DELETE FROM mew_item WHERE entity = :entity;

-- name: mew_items_next: items of a pool that may be delivered, in order
SELECT i.entity, i.rank, i.kept_for, i.kept_until, d.fails, d.delivs, d.watch, d.due_at FROM mew_item AS i
LEFT JOIN mew_delivery AS d ON d.entity = i.entity
WHERE i.pool = :pool AND i.held = 0 AND (i.rank > :rank OR (i.rank = :rank AND i.entity > :entity))
ORDER BY i.rank, i.entity LIMIT :limit;

-- name: mew_item_keep: keeps an item for the member whose turn it is
UPDATE mew_item SET kept_for = :watch, kept_until = :until WHERE pool = :pool AND entity = :entity;

-- name: mew_items_hold: marks an entity as not deliverable now
UPDATE mew_item SET held = 1, kept_for = NULL, kept_until = NULL WHERE entity = :entity;

-- name: mew_items_free: marks an entity as deliverable again
UPDATE mew_item SET held = 0 WHERE entity = :entity;

-- name: mew_items_free_for_letters: marks an entity as deliverable in one pool
UPDATE mew_item SET held = 0 WHERE entity = :entity AND pool = :pool;

-- name: mew_pools_of: the pools that contain an entity
SELECT pool FROM mew_item WHERE entity = :entity;

-- name: mew_delivery_get: delivery state of an entity
SELECT entity, lease, fails, delivs, watch, due_at, dead FROM mew_delivery WHERE entity = :entity;

-- name: mew_delivery_put: sets the delivery state of an entity
INSERT INTO mew_delivery (entity, lease, fails, delivs, watch, due_at, dead)
VALUES (:entity, :lease, :fails, :delivs, :watch, :due_at, :dead)
ON CONFLICT (entity) DO UPDATE SET lease = excluded.lease, fails = excluded.fails, delivs = excluded.delivs,
  watch = excluded.watch, due_at = excluded.due_at, dead = excluded.dead;

-- name: mew_delivery_delete: deletes the delivery state of an entity
DELETE FROM mew_delivery WHERE entity = :entity;

-- name: mew_delivery_forget: deletes the delivery state of a deleted entity that no consumer holds
DELETE FROM mew_delivery WHERE entity = :entity AND lease IS NULL;

-- name: mew_deliveries_of_watch: unsettled deliveries of a watch
SELECT entity, lease, fails, delivs, watch, due_at, dead FROM mew_delivery
WHERE watch = :watch AND lease IS NOT NULL ORDER BY lease;

-- name: mew_leases_expired: deliveries past their deadline
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE ended_at IS NULL AND queue = 0 AND deadline <= :now ORDER BY deadline, no LIMIT :limit;

-- name: mew_session_of_instance: an open session of a broker
SELECT no FROM mew_session WHERE instance = :instance AND ended_at IS NULL LIMIT 1;

-- name: mew_audit_held: deliveries whose lease has ended or does not exist
SELECT d.entity FROM mew_delivery AS d LEFT JOIN lease AS l ON l.no = d.lease
WHERE d.lease IS NOT NULL AND (l.no IS NULL OR l.ended_at IS NOT NULL);

-- name: mew_audit_leases: live leases of the graph without a delivery
SELECT l.no FROM lease AS l WHERE l.queue = 0 AND l.ended_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM mew_delivery AS d WHERE d.lease = l.no);

-- name: mew_audit_items: deliverable entities that a consumer holds
SELECT i.pool, i.entity FROM mew_item AS i JOIN mew_delivery AS d ON d.entity = i.entity
WHERE i.held = 0 AND d.lease IS NOT NULL;

-- name: mew_audit_counts: watches whose counts differ from their deliveries
SELECT w.no, w.held, count(d.entity) FROM mew_watch AS w
LEFT JOIN mew_delivery AS d ON d.watch = w.no AND d.lease IS NOT NULL
WHERE w.status <> 'cancelled' GROUP BY w.no, w.held HAVING w.held <> count(d.entity);

-- name: mew_audit_orphans: index values and ends of entities that do not exist
SELECT entity FROM (SELECT entity FROM mew_num UNION ALL SELECT entity FROM mew_txt UNION ALL SELECT edge FROM mew_end
  UNION ALL SELECT node FROM mew_end) AS v
WHERE NOT EXISTS (SELECT 1 FROM mew_entity AS n WHERE n.no = v.entity) LIMIT 10;

-- name: mew_entities_counted: entities of a type, up to a bound
SELECT count(*) FROM (SELECT 1 FROM mew_entity WHERE type = :type LIMIT :limit) AS counted;

-- name: mew_watches_counted: watches that are not cancelled, up to a bound
SELECT count(*) FROM (SELECT 1 FROM mew_watch WHERE status <> 'cancelled' LIMIT :limit) AS counted;

-- name: mew_deliveries_counted: unsettled deliveries, up to a bound
SELECT count(*) FROM (SELECT 1 FROM mew_delivery WHERE lease IS NOT NULL LIMIT :limit) AS counted;

-- name: mew_watches_newest: watches that are not cancelled, newest first, each with the id of its session
SELECT coalesce(s.id, ''), w.no, w.id, w.session, w.pool, w.status, w.spec, w.head, w.sent, w.delivered, w.held,
  w.last_event_at, w.served, w.waits_from
FROM mew_watch AS w LEFT JOIN mew_session AS s ON s.no = w.session
WHERE w.status <> 'cancelled' AND (CAST(:after AS bigint) IS NULL OR w.no < CAST(:after AS bigint))
ORDER BY w.no DESC LIMIT :limit;

-- name: mew_pools_page: pools with their members, unsettled deliveries and deliverable items
SELECT p.id, p.spec,
  (SELECT count(*) FROM mew_watch AS w WHERE w.pool = p.id AND w.status <> 'cancelled'),
  (SELECT count(*) FROM mew_watch AS w WHERE w.pool = p.id AND w.status <> 'cancelled' AND w.waits_from > :since),
  (SELECT coalesce(sum(w.held), 0) FROM mew_watch AS w WHERE w.pool = p.id AND w.status <> 'cancelled'),
  (SELECT count(*) FROM (SELECT 1 FROM mew_item AS i WHERE i.pool = p.id AND i.held = 0 LIMIT :most) AS counted)
FROM (SELECT id, spec FROM mew_pool WHERE id > :after ORDER BY id LIMIT :limit) AS p ORDER BY p.id;

-- name: mew_letters_newest: dead letters, newest first, without the values of large ones, each with its watch
SELECT x.no, x.id, CASE WHEN octet_length(x.attrs) <= :most THEN x.attrs END,
  (SELECT n.id FROM mew_end AS e JOIN mew_end AS o ON o.edge = e.edge AND o.slot = 0
   JOIN mew_entity AS n ON n.no = o.node WHERE e.node = x.no AND e.type = 22 AND e.slot = 1 LIMIT 1)
FROM (SELECT no, id, attrs FROM mew_entity
  WHERE type = 3 AND (CAST(:after AS bigint) IS NULL OR no < CAST(:after AS bigint))
  ORDER BY no DESC LIMIT :limit) AS x ORDER BY x.no DESC;
