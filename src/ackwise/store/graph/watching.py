"""WATCH, PAUSE, RESUME, CANCEL, ALTER, and the sessions they belong to."""

from __future__ import annotations

import msgspec

from ackwise.core.graph import faults
from ackwise.core.graph import syntax as s
from ackwise.core.graph.commands import Done, Opened
from ackwise.core.graph.faults import NOWHERE, At
from ackwise.core.graph.projecting import match_of
from ackwise.core.graph.values import Entity
from ackwise.core.graph.watching import MOST_WATCHES_IN_ALL, WatchSpec, altered, spec_of
from ackwise.store.graph import events, matching, pools, settling
from ackwise.store.graph.events import WatchRow, watch_from
from ackwise.store.graph.matching import Wanted
from ackwise.store.graph.standing import Standing
from ackwise.store.graph.writing import Graph


class SessionRow(msgspec.Struct):
    no: int
    id: str
    instance: str
    ended_at: int | None


def open_session(graph: Graph, found: str) -> SessionRow:
    """A session's node, made when it is not there. Its broker is alive, which others have to know."""
    graph.session.run("instance_beat", {"id": graph.turn.instance, "now": graph.turn.now})
    row = graph.session.row("mew_session_by_id", {"id": found})
    if row is not None:
        known = SessionRow(*row)
        if known.ended_at is not None or known.instance != graph.turn.instance:
            # It comes back: after an end, or after a restart of the broker it was with.
            graph.session.run("mew_session_adopt", {"no": known.no, "instance": graph.turn.instance})
        return known
    kind = graph.ontology.nodes["_Session"]
    node = graph.insert(kind, {"created_at": graph.turn.now // 1000}, (), found)
    graph.session.run("mew_session_insert", {"no": node.no, "id": found, "instance": graph.turn.instance})
    return SessionRow(node.no, found, graph.turn.instance, None)


def opened(graph: Graph, found: str) -> Opened:
    """A session's node, and what stands of it."""
    no = open_session(graph, found).no
    rows = [watch_from(one) for one in graph.session.rows("mew_watches_of_session", {"session": no})]
    letters = [row.spec.dead_letter.id for row in rows if row.spec.dead_letter is not None]
    return Opened(
        no,
        {row.id: row.spec.name for row in sorted(rows, key=_stands) if row.spec.name},
        frozenset(one for one in letters if graph.by_id(one) is None),
    )


def _stands(row: WatchRow) -> bool:
    return row.status != "cancelled"


def end_session(graph: Graph, found: str, *, lost: bool, here: bool = False) -> bool:
    """Its watches are cancelled and give back what they hold; after a lost connection reliable ones stay. False when
    there is no such session (or not `here`)."""
    row = graph.session.row("mew_session_by_id", {"id": found})
    if row is None or row[3] is not None or (here and row[2] != graph.turn.instance):
        return False
    stays = False
    for one in graph.session.rows("mew_watches_of_session", {"session": row[0]}):
        watch = watch_from(one)
        if watch.status == "cancelled":
            continue
        if lost and _outlives(watch):
            stays = True
        else:
            cancel(graph, watch, lost=lost)
    if not stays:
        _forget(graph, row[0])
    return True


def _outlives(watch: WatchRow) -> bool:
    """Whether it stands for its session to come back to."""
    return watch.spec.delivery == "reliable" and not watch.spec.consumes


def _forget(graph: Graph, no: int) -> None:
    """A session that had watches is kept with them, to be looked at; of one that had none nothing stays."""
    if graph.session.row("mew_watch_any", {"session": no}) is not None:
        graph.session.run("mew_session_end", {"no": no, "now": graph.turn.now})
        return
    graph.session.run("mew_session_delete", {"no": no})
    node = graph.by_no(no)
    if node is not None:
        graph.remove(node)


def abandon_session(graph: Graph, no: int) -> None:
    """Its broker is gone: the watches are cancelled, what they were handed keeps its deadline. Reliable ones stay, and
    this broker has the session from now on."""
    rows = [watch_from(one) for one in graph.session.rows("mew_watches_of_session", {"session": no})]
    standing = [row for row in rows if row.status != "cancelled"]
    for row in standing:
        if not _outlives(row):
            _stop(graph, row)
    if any(map(_outlives, standing)):
        graph.session.run("mew_session_adopt", {"no": no, "instance": graph.turn.instance})
    else:
        _forget(graph, no)
    graph.changed = True


def create(graph: Graph, session: str, watch: s.Watch, most: int, found: str) -> Done:
    spec = spec_of(watch, graph.ontology)
    owner = open_session(graph, session)
    rows = graph.session.rows("mew_watches_of_session", {"session": owner.no})
    own = sum(1 for one in rows if watch_from(one).status != "cancelled")
    if own >= most:
        raise faults.too_many_watches(own, most, watch.at)
    row = graph.session.row("mew_watches_count")
    if row is not None and row[0] >= MOST_WATCHES_IN_ALL:
        raise faults.too_many_watches(row[0], MOST_WATCHES_IN_ALL, watch.at)
    node = graph.insert(graph.ontology.nodes["_Watch"], _node_values(spec, graph.turn.now), (), found)
    graph.insert(graph.ontology.edges["_session_has_watch"], {}, (_node(graph, owner.no), node))
    pool = pools.join(graph, node.no, spec) if spec.consumes else None
    text = msgspec.json.encode(spec).decode()
    graph.session.run(
        "mew_watch_insert", {"no": node.no, "id": node.id, "session": owner.no, "pool": pool, "spec": text}
    )
    made = WatchRow(node.no, node.id, owner.no, pool, "active", spec, 0, 0, 0, 0, None)
    _begin(graph, made)
    graph.watches.add(node.no, spec, pool, graph.ontology)
    graph.watches_changed()
    done = Done(handle=node.id)
    if spec.dead_letter is not None and graph.by_id(spec.dead_letter.id) is None:
        done.warning = f"the dead_letter node '{spec.dead_letter.shown}' does not exist yet"
    return done


def _node(graph: Graph, no: int) -> Entity:
    found = graph.by_no(no)
    assert found is not None
    return found


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


def _begin(graph: Graph, row: WatchRow) -> None:
    """The initial event: what matches now; for a consumer it is empty, and the backlog follows as it is handed out."""
    spec = row.spec
    if spec.initial == "none":
        return
    matches = []
    if not spec.consumes:
        since = spec.initial if isinstance(spec.initial, int) else None
        plan = pools.plan_of(graph, spec).plan
        for found in matching.match(graph, plan, spec.condition, Wanted(since=since)):
            scope = matching.scope_of(graph, found.names)
            matches.append(match_of(spec.returns, plan.variables, found.names, scope))
    events.append(graph, row, "initial", {"matches": matches})
    events.save(graph, row)
    events.ring(graph, row)


def manage(graph: Graph, session: str, statement: s.Manage) -> Done:
    row = owned(graph, session, statement.ref, statement.at)
    match statement.verb, row.status:
        case "CANCEL", "cancelled":
            pass
        case "CANCEL", _:
            cancel(graph, row)
        case verb, "cancelled":
            raise faults.watch_not_found(statement.ref.shown, statement.at, cannot=verb.lower())
        case verb, _:
            status = "paused" if verb == "PAUSE" else "active"
            if status != row.status:
                graph.changing(_node(graph, row.no))
                graph.session.run("mew_watch_status", {"no": row.no, "status": status})
                events.ring(graph, row)
                graph.changed = True
    return Done()


def alter(graph: Graph, session: str, statement: s.Alter) -> Done:
    row = owned(graph, session, statement.ref, statement.at)
    if row.status == "cancelled":
        raise faults.watch_not_found(statement.ref.shown, statement.at, cannot="alter")
    spec = altered(row.spec, statement.options, graph.ontology)
    graph.changing(_node(graph, row.no))
    graph.session.run("mew_watch_spec", {"no": row.no, "spec": msgspec.json.encode(spec).decode()})
    graph.watches.add(row.no, spec, row.pool, graph.ontology)
    graph.watches_changed()
    events.ring(graph, row)
    graph.changed = True
    return Done()


def owned(graph: Graph, session: str, ref: s.IdRef, at: At = NOWHERE) -> WatchRow:
    """A watch of this session, whatever became of it."""
    node = graph.by_id(ref.id)
    row = events.watch(graph, node.no) if node is not None else None
    if row is None:
        raise faults.watch_not_found(ref.shown, at)
    owner = graph.session.row("mew_session_by_id", {"id": session})
    if owner is None or owner[0] != row.session:
        raise faults.access_denied(ref.shown, at)
    return row


def cancel(graph: Graph, row: WatchRow, *, lost: bool = False) -> None:
    """No more events; what it was handed goes back. The node stays, to be looked at."""
    settling.release(graph, row, lost=lost)
    _stop(graph, row)
    graph.session.run("mew_events_forget", {"watch": row.no, "sent": row.sent})
    graph.session.run("mew_watch_emptied", {"no": row.no})
    graph.changed = True


def overflow(graph: Graph, row: WatchRow) -> None:
    """Its buffer is full and it wants that to be an error: cancelled, and told so."""
    cancel(graph, row)
    stopped = events.watch(graph, row.no)
    assert stopped is not None
    events.notice(graph, stopped, faults.buffer_overflow(row.shown, row.spec.buffer))


def lose(graph: Graph, watch: Standing) -> None:
    """A change that cannot fail exceeded the budget of a watch. Scan a pool again, cancel any other watch."""
    if watch.pool:
        graph.session.run("mew_pool_scanned", {"id": watch.no, "scanned": 0})
        return
    row = events.watch(graph, watch.no)
    if row is not None and row.status != "cancelled":
        cancel(graph, row)
        stopped = events.watch(graph, row.no)
        assert stopped is not None
        events.notice(graph, stopped, faults.watch_too_large(row.shown))


def _stop(graph: Graph, row: WatchRow) -> None:
    graph.changing(_node(graph, row.no))
    graph.session.run("mew_watch_status", {"no": row.no, "status": "cancelled"})
    graph.watches.remove(row.no)
    if row.pool is not None:
        pools.leave(graph, row.pool)
    graph.watches_changed()
    events.ring(graph, row)  # whoever waits for it waits in vain


def found_letters(graph: Graph, session: str, names: dict[str, str]) -> None:
    """A node of the name that a watch's dead_letter waits for was made: from now on it is meant."""
    owner = graph.session.row("mew_session_by_id", {"id": session})
    if owner is None:
        return
    for one in graph.session.rows("mew_watches_of_session", {"session": owner[0]}):
        row = watch_from(one)
        ref = row.spec.dead_letter
        if ref is not None and ref.id in names and graph.by_id(ref.id) is None:
            spec = msgspec.structs.replace(row.spec, dead_letter=s.IdRef(names[ref.id], ref.shown, ref.at))
            graph.session.run("mew_watch_spec", {"no": row.no, "spec": msgspec.json.encode(spec).decode()})
