"""Makes, changes and removes entities and their index rows, and informs the trackers before each change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from ackwise.engine.ports import Row
from ackwise.engine.statement_meter import Meter, Overrun
from ackwise.engine.turn import Turn
from ackwise.graph import errors
from ackwise.graph.commands import ReaderMatches, minted
from ackwise.graph.constraints import accepted
from ackwise.graph.engine import entity_reads
from ackwise.graph.engine.change_tracker import Tracker
from ackwise.graph.engine.entity_reads import Reader
from ackwise.graph.engine.pattern_sql import indexed
from ackwise.graph.engine.watch_budget import WatchCosts
from ackwise.graph.engine.watch_index import StandingId, Watches, watches_of
from ackwise.graph.errors import NOWHERE, At
from ackwise.graph.ontology import Attribute, EdgeType, NodeType, Ontology, own_attribute
from ackwise.graph.values import Entity

FIRST_MINTED = 36**11
"""Numbers from here on have the same length in base 36, so ids do, too."""


class Graph(Reader):
    """The graph as one command of a turn sees and changes it."""

    def __init__(self, turn: Turn, *, background: bool = False, meter: Meter | None = None) -> None:
        super().__init__(turn.session, turn.wall, meter)
        self.turn = turn
        self.background = background
        """Time or the end of a connection runs the command, not a statement: it cannot be refused or blocked."""
        self.watches: Watches = watches_of(turn.session, self.state.watches, self.ontology)
        self.tick = self.state.tick + 1
        """The tick of this command's commit."""
        self.found: tuple[ReaderMatches, ...] = ()
        """The reader's matches for the statement."""
        self.may_wait = False
        """Whether a pattern that takes long may be left to a reader."""
        self.left_out: frozenset[StandingId] = frozenset()
        """Watches that this statement leaves out, because they cost too much."""
        self.costs = WatchCosts()
        self.changed = False
        self.to_check: dict[int, At] = {}
        """Nodes whose minimum number of edges is checked at the end, and where the first statement changed them."""
        self.trackers = [Tracker(self, self.watches.committed)]
        if background:
            # Nothing happens between this change and its commit: immediate watches see both at once.
            self.trackers.append(Tracker(self, self.watches.immediate))
        self._live: dict[int, Entity] = {}
        """Entities as they are now. The database always has the same values."""
        self._removed: set[int] = set()
        """Entities that this command removed. Their numbers are never used again."""
        self._touched: set[int] = set()
        """Entities that this step changed."""
        self._mint = turn.dice.getrandbits(60) + FIRST_MINTED

    @contextmanager
    def tentatively(self) -> Iterator[None]:
        """Undo the changes of the block if it raises `GraphError` or `Overrun`."""
        self.session.savepoint()
        try:
            yield
        except BaseException:
            # Every error: savepoints have one name, and the turn's `undo` would take back this one instead of its own.
            self.session.undo()
            self._live.clear()
            self._removed.clear()
            raise
        self.session.keep()

    def begin_step(self, mint: int, now: int) -> None:
        self._mint, self.now = mint, now
        self._touched.clear()

    def entity(self, row: Row) -> Entity:
        live = self._live.get(row[0])
        return live if live is not None else super().entity(row)

    def by_no(self, no: int) -> Entity | None:
        entity = self._live.get(no)
        if entity is None and no not in self._removed:
            self.check()
            entity = super().by_no(no)
            if entity is not None and not entity.type.protected:
                self._live[no] = entity
        return entity

    def _touch(self, no: int) -> None:
        """Count a changed entity against the limit of changes."""
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
        """Replace the ontology, and plan the patterns of all watches again."""
        version = self.turn.dice.getrandbits(62) + 1
        self.session.run("mew_ontology_changed", {"version": version})
        entity_reads.remember(self.session, version, ontology)
        self.ontology = ontology
        self.watches.renew(ontology)
        self.watches_changed()

    def watches_changed(self) -> None:
        """Give the cached watches a new version, so that other connections read them again."""
        self.watches.version = self.turn.dice.getrandbits(62) + 1
        self.session.run("mew_watches_changed", {"version": self.watches.version})

    # entities

    def insert(
        self,
        kind: NodeType | EdgeType,
        attrs: dict[str, Any],
        ends: tuple[Entity, ...] = (),
        *,
        entity_id: str | None = None,
    ) -> Entity:
        """Insert a node, or an edge between `ends`. Without `entity_id` it gets a new id."""
        text = msgspec.json.encode(attrs).decode()
        entity_id = entity_id or self.new_id(kind.name)
        row = self.session.row(
            "mew_entity_insert", {"id": entity_id, "type": kind.id, "attrs": text, "tick": self.tick}
        )
        assert row is not None
        self._touch(row[0])
        entity = Entity(int(row[0]), entity_id, kind, attrs, self.tick)
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
        """Set attributes, in the database and in `entity`."""
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
        """Remove one entity. The caller removes its edges first."""
        self._touch(entity.no)
        self.changing(entity)
        if not entity.type.protected:
            for attribute in entity.type.attributes.values():
                self._unindex(attribute, entity.attrs.get(attribute.name), entity.no)
        if isinstance(entity.type, EdgeType):
            self.session.run("mew_ends_delete", {"edge": entity.no})
        self.session.run("mew_entity_delete", {"no": entity.no})
        self._live.pop(entity.no, None)
        self._removed.add(entity.no)
        self.changed = True

    def changing(self, entity: Entity) -> None:
        """Inform the trackers before a change."""
        for tracker in self.trackers:
            tracker.changing(entity)

    def _index(self, attribute: Attribute, value: Any, no: int) -> None:
        if value is not None:
            table, key = indexed(value)
            self.session.run(f"{table}_insert", {"attr": attribute.no, "value": key, "entity": no})

    def _unindex(self, attribute: Attribute, value: Any, no: int) -> None:
        if value is not None:
            table, key = indexed(value)
            self.session.run(f"{table}_delete", {"attr": attribute.no, "value": key, "entity": no})

    # values

    def stored(self, kind: NodeType | EdgeType, name: str, value: Any, at: At = NOWHERE) -> Any:
        """A value as the attribute stores it. An entity is stored as its id. Raises if a modifier refuses the value."""
        attribute = own_attribute(kind, name, at)
        return accepted(attribute, value.id if isinstance(value, Entity) else value, at)

    def refuse_duplicate(self, entity: Entity | None, attribute: Attribute, value: Any, at: At) -> None:
        if not attribute.unique or value is None:
            return
        table, key = indexed(value)
        for row in self.session.rows(f"{table}_with", {"attr": attribute.no, "value": key}):
            other = self.entity(row)
            if (entity is None or other.no != entity.no) and other.attrs.get(attribute.name) == value:
                raise errors.constraint(f"duplicate value '{value}' for unique attribute '{attribute.name}'", at)
