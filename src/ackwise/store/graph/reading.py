"""Entities as they stand, and the types they have."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from ackwise.core.graph import faults, system
from ackwise.core.graph import syntax as s
from ackwise.core.graph.faults import NOWHERE, At
from ackwise.core.graph.ontology import Ontology
from ackwise.core.graph.values import Entity
from ackwise.store.meter import Meter
from ackwise.store.session import Row, Session

_DECLARED: msgspec.json.Decoder[s.Declaration] = msgspec.json.Decoder(s.Declaration)
_ATTRS: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])
_known: WeakKeyDictionary[Session, tuple[int, Ontology]] = WeakKeyDictionary()


class State(NamedTuple):
    """The clock of the graph. Versions are random: the same number is the same content."""

    tick: int
    ticked: int
    ticked_at: int | None
    ontology: int
    watches: int


def state_of(session: Session) -> State:
    row = session.row("mew_state")
    assert row is not None
    return State(*row)


def ontology_of(session: Session, version: int) -> Ontology:
    """The types; read again when somebody declared something."""
    known = _known.get(session)
    if known is None or known[0] != version:
        stored = [(row[0], _DECLARED.decode(row[1])) for row in session.rows("mew_types")]
        known = _known[session] = version, Ontology((*system.SYSTEM, *stored))
    return known[1]


def remember(session: Session, version: int, ontology: Ontology) -> None:
    _known[session] = version, ontology


class Reader:
    """One look at the graph."""

    def __init__(self, session: Session, now: int, meter: Meter | None = None) -> None:
        self.session, self.now, self.meter = session, now, meter
        self.state = state_of(session)
        self.tick = self.state.tick
        self.ontology = ontology_of(session, self.state.ontology)

    def check(self) -> None:
        """Raise `Overrun` when the statement has run for too long."""
        if self.meter is not None:
            self.meter.check()

    def entity(self, row: Row) -> Entity:
        """A row (no, id, type, attrs, tick) as what it is."""
        no, found, kind, attrs, tick = row
        values = _ATTRS.decode(attrs)
        if kind == system.WATCH:
            values.update(self._standing(no))
        elif kind == system.TICK:
            values.update(global_tick=self.tick, last_tick_at=_millis(self.state.ticked_at))
        return Entity(no, found, self.ontology.by_id[kind], values, tick, loader=self._ends)

    def _ends(self, no: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
        rows = self.session.rows("mew_ends_of_edge", {"edge": no})
        return tuple(row[0] for row in rows), tuple(row[1] for row in rows)

    def _standing(self, no: int) -> dict[str, Any]:
        """What of a watch changes all the time is not stored with its node."""
        row = self.session.row("mew_watch_get", {"no": no})
        if row is None:
            return {}
        _, _, _, pool, status, spec, head, sent, delivered, held, last = row
        options = msgspec.json.decode(spec)
        return {
            "status": status,
            "events_delivered": delivered,
            "events_pending": held if pool is not None else head - sent,
            "last_event_at": _millis(last),
            "buffer_size": options.get("buffer", 1000),
            "on_full": options.get("on_full", "drop"),
            "delivery": options.get("delivery", "best_effort"),
        }

    def by_no(self, no: int) -> Entity | None:
        row = self.session.row("mew_entity_by_no", {"no": no})
        return self.entity(row) if row else None

    def by_id(self, found: str) -> Entity | None:
        row = self.session.row("mew_entity_by_id", {"id": found})
        return self.entity(row) if row else None

    def existing(self, ref: s.IdRef, at: At = NOWHERE) -> Entity:
        found = self.by_id(ref.id)
        if found is None:
            raise faults.unknown(
                f"there is nothing with the id '{ref.shown or '#' + ref.id}'", at if ref.at == NOWHERE else ref.at
            )
        return found


def _millis(micros: int | None) -> int | None:
    return None if micros is None else micros // 1000
