"""Entities made, changed and removed in a turn, with their indexes; those who watch are told before each change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from ackwise.core.graph import faults
from ackwise.core.graph.checking import accepted
from ackwise.core.graph.commands import Found, minted
from ackwise.core.graph.faults import NOWHERE, At, GraphError
from ackwise.core.graph.ontology import Attribute, EdgeType, NodeType, Ontology, own_attribute
from ackwise.core.graph.values import Entity
from ackwise.store.graph import reading
from ackwise.store.graph.burden import Bills
from ackwise.store.graph.matching import indexed
from ackwise.store.graph.reading import Reader
from ackwise.store.graph.standing import Name, Watches, watches_of
from ackwise.store.graph.tracking import Tracker
from ackwise.store.meter import Meter, Overrun
from ackwise.store.session import Row
from ackwise.store.turn.context import Turn

FIRST_MINTED = 36**11
"""Ids are of one length."""


class Graph(Reader):
    """The graph as one command of a turn sees and changes it."""

    def __init__(self, turn: Turn, *, unasked: bool = False, meter: Meter | None = None) -> None:
        super().__init__(turn.session, turn.now, meter)
        self.turn = turn
        self.unasked = unasked
        """Time, or the end of a connection, does it and not a statement: it cannot be refused or held up."""
        self.watches: Watches = watches_of(turn.session, self.state.watches, self.ontology)
        self.tick = self.state.tick + 1
        """What this command commits, it commits as this tick."""
        self.found: tuple[Found, ...] = ()
        """The reader's matches for the statement."""
        self.may_wait = False
        """Whether a pattern that takes long may be left to a reader."""
        self.left_out: frozenset[Name] = frozenset()
        """Watches that this statement does not look at, because they cost too much."""
        self.bills = Bills()
        self.changed = False
        self.to_check: set[int] = set()
        """Nodes whose least number of edges is looked at when everything is done."""
        self.trackers = [Tracker(self, self.watches.committed)]
        if unasked:
            # Nothing stands between what the system does and its commit.
            self.trackers.append(Tracker(self, self.watches.immediate))
        self._live: dict[int, Entity] = {}
        """Entities as they are now. The database always has the same values."""
        self._touched: set[int] = set()
        """Entities that this step changed."""
        self._mint = turn.dice.getrandbits(60) + FIRST_MINTED

    @contextmanager
    def tentatively(self) -> Iterator[None]:
        """What is done inside is taken back when it is refused half-way."""
        self.session.savepoint()
        try:
            yield
        except (GraphError, Overrun):
            self.session.undo()
            self._live.clear()
            raise
        self.session.keep()

    def begin_step(self, mint: int, now: int) -> None:
        self._mint, self.now = mint, now
        self._touched.clear()

    def entity(self, row: Row) -> Entity:
        known = self._live.get(row[0])
        return known if known is not None else super().entity(row)

    def by_no(self, no: int) -> Entity | None:
        known = self._live.get(no)
        if known is None:
            self.check()
            known = super().by_no(no)
            if known is not None and not known.type.protected:
                self._live[no] = known
        return known

    def _touch(self, no: int) -> None:
        """Count an entity that changes."""
        if self.meter is None:
            return
        self.meter.check()
        self._touched.add(no)
        if len(self._touched) > self.meter.changes:
            raise Overrun("changes", self.meter.changes)

    def new_id(self, kind: str) -> str:
        self._mint += 1
        return minted(kind, self._mint)

    # the ontology and the watches

    def declare(self, ontology: Ontology) -> None:
        """The types are these from now on."""
        version = self.turn.dice.getrandbits(62) + 1
        self.session.run("mew_ontology_changed", {"version": version})
        reading.remember(self.session, version, ontology)
        self.ontology = ontology
        self.watches.renew(ontology)
        self.watches_changed()

    def watches_changed(self) -> None:
        """What is remembered of the watches is right, under a new version."""
        self.watches.version = self.turn.dice.getrandbits(62) + 1
        self.session.run("mew_watches_changed", {"version": self.watches.version})

    # entities

    def insert(
        self, kind: NodeType | EdgeType, attrs: dict[str, Any], ends: tuple[Entity, ...] = (), found: str | None = None
    ) -> Entity:
        text = msgspec.json.encode(attrs).decode()
        made = found or self.new_id(kind.name)
        row = self.session.row("mew_entity_insert", {"id": made, "type": kind.id, "attrs": text, "tick": self.tick})
        assert row is not None
        self._touch(row[0])
        entity = Entity(int(row[0]), made, kind, attrs, self.tick)
        entity.ends = tuple(end.no for end in ends), tuple(end.id for end in ends)
        for slot, end in enumerate(ends):
            self.session.run("mew_end_insert", {"edge": entity.no, "slot": slot, "node": end.no, "type": kind.id})
        if not kind.protected:
            for attribute in kind.attributes.values():
                self._index(attribute, attrs.get(attribute.name), entity.no)
            self._live[entity.no] = entity
        for tracker in self.trackers:
            tracker.made(entity)
        self.changed = True
        return entity

    def update(self, entity: Entity, changes: dict[str, Any]) -> None:
        """New values of attributes; the entity itself is changed too."""
        self._touch(entity.no)
        self.changing(entity)
        for name, value in changes.items():
            attribute = entity.type.attributes[name]
            self._unindex(attribute, entity.attrs.get(name), entity.no)
            self._index(attribute, value, entity.no)
        entity.attrs = {**entity.attrs, **changes}
        entity.tick = self.tick
        text = msgspec.json.encode(entity.attrs).decode()
        self.session.run("mew_entity_update", {"no": entity.no, "attrs": text, "tick": self.tick})
        self._live[entity.no] = entity
        self.changed = True

    def remove(self, entity: Entity) -> None:
        """The entity alone; its edges are the caller's business."""
        self._touch(entity.no)
        self.changing(entity)
        if not entity.type.protected:
            for attribute in entity.type.attributes.values():
                self._unindex(attribute, entity.attrs.get(attribute.name), entity.no)
        if isinstance(entity.type, EdgeType):
            self.session.run("mew_ends_delete", {"edge": entity.no})
        self.session.run("mew_entity_delete", {"no": entity.no})
        self._live.pop(entity.no, None)
        self.changed = True

    def changing(self, entity: Entity) -> None:
        for tracker in self.trackers:
            tracker.changing(entity)

    def _index(self, attribute: Attribute, value: Any, no: int) -> None:
        if value is not None:
            table, shown = indexed(value)
            self.session.run(f"{table}_insert", {"attr": attribute.no, "value": shown, "entity": no})

    def _unindex(self, attribute: Attribute, value: Any, no: int) -> None:
        if value is not None:
            table, shown = indexed(value)
            self.session.run(f"{table}_delete", {"attr": attribute.no, "value": shown, "entity": no})

    # values

    def stored(self, kind: NodeType | EdgeType, name: str, value: Any, at: At = NOWHERE) -> Any:
        """A value as the attribute takes it, and nobody else's if it is unique."""
        attribute = own_attribute(kind, name, at)
        return accepted(attribute, value.id if isinstance(value, Entity) else value, at)

    def refuse_duplicate(self, entity: Entity | None, attribute: Attribute, value: Any, at: At) -> None:
        if not attribute.unique or value is None:
            return
        table, shown = indexed(value)
        for row in self.session.rows(f"{table}_with", {"attr": attribute.no, "value": shown}):
            other = self.entity(row)
            if (entity is None or other.no != entity.no) and other.attrs.get(attribute.name) == value:
                raise faults.constraint(f"duplicate value '{value}' for unique attribute '{attribute.name}'", at)
