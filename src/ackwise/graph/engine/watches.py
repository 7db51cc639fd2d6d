"""Statements on watches (WATCH, PAUSE, RESUME, CANCEL, ALTER), and the sessions that own them."""

from __future__ import annotations

import msgspec

from ackwise.graph import ast as s
from ackwise.graph import errors
from ackwise.graph.commands import Done, OpenedSession
from ackwise.graph.engine import consumer_pools, events, pattern_sql, settlements
from ackwise.graph.engine.entities import Graph
from ackwise.graph.engine.events import WatchRow, watch_from
from ackwise.graph.engine.pattern_sql import Search
from ackwise.graph.engine.watch_index import StandingQuery
from ackwise.graph.errors import NOWHERE, At
from ackwise.graph.projection import match_of
from ackwise.graph.values import Entity
from ackwise.graph.watch_options import MOST_WATCHES_IN_ALL, WatchSpec, altered, spec_of


class SessionRow(msgspec.Struct):
    no: int
    id: str
    instance: str
    ended_at: int | None


def open_session(graph: Graph, session_id: str) -> SessionRow:
    """Find or make the node of a session, and assign the session to this broker."""
    # A session keeps its broker's heartbeat alive, so that other brokers do not take the session over.
    graph.session.run("instance_beat", {"id": graph.turn.instance, "now": graph.turn.now})
    row = graph.session.row("mew_session_by_id", {"id": session_id})
    if row is not None:
        owner = SessionRow(*row)
        if owner.ended_at is not None or owner.instance != graph.turn.instance:
            graph.session.run("mew_session_adopt", {"no": owner.no, "instance": graph.turn.instance})
        return owner
    kind = graph.ontology.nodes["_Session"]
    node = graph.insert(kind, {"created_at": graph.turn.wall // 1000}, entity_id=session_id)
    graph.session.run("mew_session_insert", {"no": node.no, "id": session_id, "instance": graph.turn.instance})
    return SessionRow(node.no, session_id, graph.turn.instance, None)


def opened(graph: Graph, session_id: str) -> OpenedSession:
    """Open a session. The answer has the names of its watches, and the `dead_letter` names that it waits for."""
    no = open_session(graph, session_id).no
    rows = _watches_of(graph, no)
    dead_letters = [row.spec.dead_letter.id for row in rows if row.spec.dead_letter is not None]
    return OpenedSession(
        no,
        {row.id: row.spec.name for row in sorted(rows, key=_is_live) if row.spec.name},
        frozenset(name for name in dead_letters if graph.by_id(name) is None),
    )


def _watches_of(graph: Graph, session: int) -> list[WatchRow]:
    return [watch_from(row) for row in graph.session.rows("mew_watches_of_session", {"session": session})]


def _is_live(row: WatchRow) -> bool:
    return row.status != "cancelled"


def end_session(graph: Graph, session_id: str, *, lost: bool, here: bool = False) -> bool:
    """Cancel the watches of a session and release their deliveries. After a lost connection reliable watches stay.

    Returns False if there is no such session, or, with `here`, if another broker has it.
    """
    row = graph.session.row("mew_session_by_id", {"id": session_id})
    if row is None or row[3] is not None or (here and row[2] != graph.turn.instance):
        return False
    stays = False
    for watch in filter(_is_live, _watches_of(graph, row[0])):
        if lost and _outlives_connection(watch):
            stays = True
        else:
            cancel(graph, watch, lost=lost)
    if not stays:
        _forget(graph, row[0])
    return True


def _outlives_connection(watch: WatchRow) -> bool:
    """Whether the watch stays when its connection is lost, so that the session can come back to it."""
    return watch.spec.delivery == "reliable" and not watch.spec.consumes


def _forget(graph: Graph, no: int) -> None:
    """Mark a session as ended if it had watches. Queries then still find the session and its watches.

    Delete a session that had none.
    """
    if graph.session.row("mew_watch_any", {"session": no}) is not None:
        graph.session.run("mew_session_end", {"no": no, "now": graph.turn.wall})
        return
    graph.session.run("mew_session_delete", {"no": no})
    node = graph.by_no(no)
    if node is not None:
        graph.remove(node)


def abandon_session(graph: Graph, no: int) -> None:
    """Cancel the watches of a session whose broker is dead. Their deliveries keep their deadlines.

    Reliable watches stay, and this broker takes the session over.
    """
    live = list(filter(_is_live, _watches_of(graph, no)))
    for row in live:
        if not _outlives_connection(row):
            _stop(graph, row)
    if any(map(_outlives_connection, live)):
        graph.session.run("mew_session_adopt", {"no": no, "instance": graph.turn.instance})
    else:
        _forget(graph, no)
    graph.changed = True


def create(graph: Graph, session: str, watch: s.Watch, *, most: int, watch_id: str) -> Done:
    """Run a WATCH. The session may have `most` live watches."""
    spec = spec_of(watch, graph.ontology)
    owner = open_session(graph, session)
    live = sum(map(_is_live, _watches_of(graph, owner.no)))
    if live >= most:
        raise errors.too_many_watches(live, most, watch.at)
    row = graph.session.row("mew_watches_count")
    if row is not None and row[0] >= MOST_WATCHES_IN_ALL:
        raise errors.too_many_watches(row[0], MOST_WATCHES_IN_ALL, watch.at)
    node = graph.insert(graph.ontology.nodes["_Watch"], _node_values(spec, graph.turn.wall), entity_id=watch_id)
    graph.insert(graph.ontology.edges["_session_has_watch"], {}, (_node(graph, owner.no), node))
    pool = consumer_pools.join(graph, node.no, spec) if spec.consumes else None
    text = msgspec.json.encode(spec).decode()
    graph.session.run(
        "mew_watch_insert", {"no": node.no, "id": node.id, "session": owner.no, "pool": pool, "spec": text}
    )
    created = WatchRow(node.no, node.id, owner.no, pool, "active", spec, 0, 0, 0, 0, None)
    _send_initial(graph, created)
    graph.watches.add(node.no, spec, pool, graph.ontology)
    graph.watches_changed()
    done = Done(handle=node.id)
    if spec.dead_letter is not None and graph.by_id(spec.dead_letter.id) is None:
        done.warning = f"the dead_letter node '{spec.dead_letter.shown}' does not exist yet"
    return done


def _node(graph: Graph, no: int) -> Entity:
    node = graph.by_no(no)
    assert node is not None
    return node


def _node_values(spec: WatchSpec, now: int) -> dict[str, object]:
    return {
        "pattern": spec.text,
        "mode": spec.mode,
        "group": spec.group,
        "ordering": spec.ordering_text,
        "visibility": spec.visibility,
        "ack_timeout": spec.ack_timeout,
        "max_redeliveries": spec.max_redeliveries,
        "dead_letter": spec.dead_letter.shown if spec.dead_letter is not None else None,
        "created_at": now // 1000,
    }


def _send_initial(graph: Graph, row: WatchRow) -> None:
    """Append the initial event with the current matches. A consumer's is empty: its items follow as deliveries."""
    spec = row.spec
    if spec.initial == "none":
        return
    matches = []
    if not spec.consumes:
        since = spec.initial if isinstance(spec.initial, int) else None
        plan = consumer_pools.query_of(graph, spec).plan
        for match in pattern_sql.match(graph, plan, spec.condition, Search(since=since)):
            scope = pattern_sql.scope_of(graph, match.names)
            matches.append(match_of(spec.returns, plan.variables, match.names, scope))
    events.append(graph, row, "initial", {"matches": matches})
    events.save(graph, row)
    events.wake(graph, row)


def manage(graph: Graph, session: str, statement: s.Manage) -> Done:
    row = owned(graph, session, statement.ref, statement.at)
    match statement.verb, row.status:
        case "CANCEL", "cancelled":
            pass
        case "CANCEL", _:
            cancel(graph, row)
        case verb, "cancelled":
            raise errors.watch_not_found(statement.ref.shown, statement.at, cannot=verb.lower())
        case verb, _:
            status = "paused" if verb == "PAUSE" else "active"
            if status != row.status:
                graph.changing(_node(graph, row.no))
                graph.session.run("mew_watch_status", {"no": row.no, "status": status})
                events.wake(graph, row)
                graph.changed = True
    return Done()


def alter(graph: Graph, session: str, statement: s.Alter) -> Done:
    row = owned(graph, session, statement.ref, statement.at)
    if row.status == "cancelled":
        raise errors.watch_not_found(statement.ref.shown, statement.at, cannot="alter")
    spec = altered(row.spec, statement.options, graph.ontology)
    graph.changing(_node(graph, row.no))
    graph.session.run("mew_watch_spec", {"no": row.no, "spec": msgspec.json.encode(spec).decode()})
    graph.watches.add(row.no, spec, row.pool, graph.ontology)
    graph.watches_changed()
    events.wake(graph, row)
    graph.changed = True
    return Done()


def owned(graph: Graph, session: str, ref: s.IdRef, at: At = NOWHERE) -> WatchRow:
    """A watch of this session, also a cancelled one. Raises E8002 or E8010 otherwise."""
    node = graph.by_id(ref.id)
    row = events.watch_of(graph, node.no) if node is not None else None
    if row is None:
        raise errors.watch_not_found(ref.shown, at)
    owner = graph.session.row("mew_session_by_id", {"id": session})
    if owner is None or owner[0] != row.session:
        raise errors.access_denied(ref.shown, at)
    return row


def cancel(graph: Graph, row: WatchRow, *, lost: bool = False) -> None:
    """Cancel a watch: release its deliveries and drop its unsent events. Its node stays for a while."""
    settlements.release(graph, row, lost=lost)
    _stop(graph, row)
    graph.session.run("mew_events_forget", {"watch": row.no, "sent": row.sent})
    graph.session.run("mew_watch_emptied", {"no": row.no})
    graph.changed = True


def overflow(graph: Graph, row: WatchRow) -> None:
    """Cancel a watch whose buffer is full and whose `on_full` is error, with a notice."""
    cancel(graph, row)
    stopped = events.watch_of(graph, row.no)
    assert stopped is not None
    events.notice(graph, stopped, errors.buffer_overflow(row.handle, row.spec.buffer))


def lose(graph: Graph, watch: StandingQuery) -> None:
    """Handle a watch whose matches are out of date: cancel it with a notice, or scan a pool again."""
    if watch.pool:
        graph.session.run("mew_pool_scanned", {"id": watch.no, "scanned": 0})
        return
    row = events.watch_of(graph, watch.no)
    if row is not None and row.status != "cancelled":
        cancel(graph, row)
        stopped = events.watch_of(graph, row.no)
        assert stopped is not None
        events.notice(graph, stopped, errors.watch_too_large(row.handle))


def _stop(graph: Graph, row: WatchRow) -> None:
    graph.changing(_node(graph, row.no))
    graph.session.run("mew_watch_cancel", {"no": row.no, "now": graph.turn.now})
    graph.watches.remove(row.no)
    if row.pool is not None:
        consumer_pools.leave(graph, row.pool)
    graph.watches_changed()
    events.wake(graph, row)  # a waiting fetch must see that the watch is over


def remove_cancelled(graph: Graph, no: int, session: int, limit: int) -> int:
    """Remove up to `limit` entities of a cancelled watch: its edges, then its node, then the node of its session.

    The session's node goes with its last watch if the session has ended. Dead letters stay. Returns the number.
    """
    edges = graph.session.rows("mew_edges_some", {"node": no, "limit": limit})
    for (number,) in edges:
        edge = graph.by_no(number)
        if edge is not None:
            graph.remove(edge)
    if len(edges) == limit:
        return limit
    node = graph.by_no(no)
    if node is not None:
        graph.remove(node)
    graph.session.run("mew_events_expire", {"watch": no})
    graph.session.run("mew_watch_delete", {"no": no})
    owner = graph.session.row("mew_session_by_no", {"no": session})
    if owner is not None and owner[3] is not None and graph.session.row("mew_watch_any", {"session": session}) is None:
        _forget(graph, session)
    return len(edges) + 1


def resolve_dead_letters(graph: Graph, session: str, names: dict[str, str]) -> None:
    """Bind the `dead_letter` names of a session's watches to nodes that were made just now."""
    owner = graph.session.row("mew_session_by_id", {"id": session})
    if owner is None:
        return
    for row in _watches_of(graph, owner[0]):
        ref = row.spec.dead_letter
        if ref is not None and ref.id in names and graph.by_id(ref.id) is None:
            spec = msgspec.structs.replace(row.spec, dead_letter=s.IdRef(names[ref.id], ref.shown, ref.at))
            graph.session.run("mew_watch_spec", {"no": row.no, "spec": msgspec.json.encode(spec).decode()})
