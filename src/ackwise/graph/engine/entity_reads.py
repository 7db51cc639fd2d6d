"""Reads entities, their types and the graph's clock."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from ackwise.engine.ports import Row, Session
from ackwise.engine.statement_meter import Meter
from ackwise.graph import ast as s
from ackwise.graph import errors, system_types
from ackwise.graph.errors import NOWHERE, At
from ackwise.graph.ontology import Ontology
from ackwise.graph.values import Entity

_DECLARED: msgspec.json.Decoder[s.Declaration] = msgspec.json.Decoder(s.Declaration)
_ATTRS: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])
_ontologies: WeakKeyDictionary[Session, tuple[int, Ontology]] = WeakKeyDictionary()


class GraphState(NamedTuple):
    """The graph's ticks and versions. A version is a random number: equal numbers mean equal content."""

    tick: int
    ticked: int
    ticked_at: int | None
    ontology: int
    watches: int


def state_of(session: Session) -> GraphState:
    row = session.row("mew_state")
    assert row is not None
    return GraphState(*row)


def ontology_of(session: Session, version: int) -> Ontology:
    """The types of that version. Reads them again after a declaration."""
    cached = _ontologies.get(session)
    if cached is None or cached[0] != version:
        stored = [(row[0], _DECLARED.decode(row[1])) for row in session.rows("mew_types")]
        cached = _ontologies[session] = version, Ontology((*system_types.SYSTEM, *stored))
    return cached[1]


def remember(session: Session, version: int, ontology: Ontology) -> None:
    _ontologies[session] = version, ontology


class Reader:
    """Reads the graph in one state."""

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
        """The entity of a row (no, id, type, attrs, tick)."""
        no, entity_id, kind, attrs, tick = row
        values = _ATTRS.decode(attrs)
        if kind == system_types.WATCH:
            values.update(self._watch_values(no))
        elif kind == system_types.TICK:
            values.update(global_tick=self.tick, last_tick_at=_millis(self.state.ticked_at))
        return Entity(no, entity_id, self.ontology.by_id[kind], values, tick, loader=self._ends)

    def _ends(self, no: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
        rows = self.session.rows("mew_ends_of_edge", {"edge": no})
        return tuple(row[0] for row in rows), tuple(row[1] for row in rows)

    def _watch_values(self, no: int) -> dict[str, Any]:
        """Attributes of a watch that change with its events. They are not stored with its node."""
        row = self.session.row("mew_watch_get", {"no": no})
        if row is None:
            return {}
        _, _, _, pool, status, spec, head, sent, delivered, held, last, *_ = row
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

    def by_id(self, entity_id: str) -> Entity | None:
        row = self.session.row("mew_entity_by_id", {"id": entity_id})
        return self.entity(row) if row else None

    def existing(self, ref: s.IdRef, at: At = NOWHERE) -> Entity:
        """The entity of a reference. Raises NOT_FOUND if there is none."""
        entity = self.by_id(ref.id)
        if entity is None:
            raise errors.unknown(
                f"there is nothing with the id '{ref.shown or '#' + ref.id}'", at if ref.at == NOWHERE else ref.at
            )
        return entity


def _millis(micros: int | None) -> int | None:
    return None if micros is None else micros // 1000
