"""What a transaction changes for those who watch: matches before, matches after, and the difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from ackwise.core.graph.evaluating import surely_holds
from ackwise.core.graph.ontology import EdgeType
from ackwise.core.graph.projecting import match_of
from ackwise.core.graph.values import Entity
from ackwise.store.graph import matching
from ackwise.store.graph.matching import Row, Wanted
from ackwise.store.graph.standing import Index, Look, Name, Neighbours, Places, Standing
from ackwise.store.meter import WRITER_SECONDS, Meter, Overrun

if TYPE_CHECKING:
    from ackwise.store.graph.writing import Graph

_PLAIN = nullcontext()
Key = tuple[int, ...]
Found = dict[Key, Any]


class Difference(msgspec.Struct):
    """For one watch: (kind, match, previous match); for a pool: entities that may have come or gone."""

    watch: Standing
    events: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = []
    touched: dict[int, bool] = {}
    """Entities by number, with whether they matched before."""
    matching: set[int] = set()


class Tracker:
    """Told of each change, before it is made, so that it knows what was.

    What a match contains is looked at before it changes. What only an exists() looks at may decide over matches that do
    not contain it: those it is joined with are judged when it is about to change, or has just been made, as if it were
    not there. Each match is judged once: the first change that concerns it finds it as it was.
    """

    def __init__(self, graph: Graph, index: Index) -> None:
        self._graph, self._index = graph, index
        self._neighbours = Neighbours(graph)
        self._seen: set[int] = set()
        self._made: set[int] = set()
        self._before: dict[Name, Found] = {}
        self._firsts: dict[Name, dict[int, bool]] = {}
        self._watches: dict[Name, Standing] = {}
        self._beside: dict[Name, dict[Key, Row]] = {}
        """What an exists() decides over, whether it matched or not."""
        self.lost: dict[Name, Standing] = {}
        """Watches for which a change exceeded the budget. Their matches are out of date."""

    def _asking(self, watch: Standing) -> AbstractContextManager[None]:
        """Look for matches of a watch. A watch that exceeds its budget is lost. A statement then runs again without
        it. An expiry or the end of a connection goes on."""
        if watch.simple:
            return _PLAIN
        return self._losing(watch) if self._graph.unasked else self._graph.bills.look(self._graph, watch)

    def _concerned(self, places: Places, entity: Entity) -> Iterator[Look]:
        """Looks at the entity, without those of watches that statements leave out for now."""
        out = self._graph.left_out
        for look in places.concerned(entity, self._neighbours):
            if out and look.watch.name in out and not look.watch.simple:
                self.lost[look.watch.name] = look.watch
            else:
                yield look

    @contextmanager
    def _losing(self, watch: Standing) -> Iterator[None]:
        graph = self._graph
        meter, graph.meter = graph.meter, Meter(seconds=WRITER_SECONDS, name="writer")
        graph.session.savepoint(WRITER_SECONDS)
        try:
            yield
        except Exception as problem:
            graph.session.undo()
            if not isinstance(problem, Overrun) and not graph.session.stopped(problem):
                raise
            self.lost[watch.name] = watch
        else:
            graph.session.keep()
        finally:
            graph.meter = meter

    def changing(self, entity: Entity) -> None:
        """The entity is about to be set, unlinked or killed; told once is enough."""
        if not len(self._index) or entity.no in self._seen or entity.no in self._made:
            return
        for look in self._concerned(self._index.within, entity):
            with self._asking(look.watch):
                for row in self._rows(look, entity):
                    if not self._judged(look.watch, row):
                        self._note(look.watch, row)
        self._look_beside(entity)
        self._seen.add(entity.no)

    def made(self, entity: Entity) -> None:
        """A node that was made just now is joined to nothing yet."""
        self._made.add(entity.no)
        if len(self._index) and isinstance(entity.type, EdgeType):
            self._look_beside(entity, entity.no)

    def _judged(self, watch: Standing, row: Row) -> bool:
        """Whether it is known how the match was before the first change; with something that was made it was not."""
        if not self._seen.isdisjoint(row.key) or not self._made.isdisjoint(row.key):
            return True
        return row.key in self._beside.get(watch.name, ())

    def _look_beside(self, entity: Entity, without: int | None = None) -> None:
        for look in self._concerned(self._index.beside, entity):
            with self._asking(look.watch):
                self._look_around(look, entity, without)

    def _look_around(self, look: Look, entity: Entity, without: int | None) -> None:
        watch = look.watch
        for variable in look.variables:
            wanted = Wanted({variable: entity.no})
            for row in matching.around(self._graph, look.plan, watch.spec.where, watch.plan.names, wanted):
                if not self._judged(watch, row) and self._holds(watch, row, without):
                    self._note(watch, row, without)
                self._watches[watch.name] = watch
                self._beside.setdefault(watch.name, {})[row.key] = row

    def _note(self, watch: Standing, row: Row, without: int | None = None) -> None:
        self._watches[watch.name] = watch
        if watch.pool:
            self._firsts.setdefault(watch.name, {})[_first(watch, row)] = True
        else:
            self._before.setdefault(watch.name, {}).setdefault(row.key, self._shown(watch, row, without))

    def differences(self) -> list[Difference]:
        """After the last change."""
        if not self._index.members or not (self._seen or self._made):
            return []
        after: dict[Name, Found] = {}
        firsts: dict[Name, set[int]] = {}
        for no in sorted(self._seen | self._made):
            entity = self._graph.by_no(no)
            if entity is None:
                continue
            for look in self._concerned(self._index.within, entity):
                watch = look.watch
                with self._asking(watch):
                    self._gather(watch, self._rows(look, entity), after, firsts)
                if watch.pool and watch.plan.first in look.variables:
                    self._firsts.setdefault(watch.name, {}).setdefault(no, False)
        for name, rows in self._beside.items():
            watch = self._index.members.get(name, self._watches[name])
            with self._asking(watch):
                self._gather(watch, self._still(watch, rows.values()), after, firsts)
            if watch.pool:
                known = self._firsts.setdefault(name, {})
                for row in rows.values():
                    known.setdefault(_first(watch, row), False)
        names = (self._watches.keys() | self._firsts.keys()) - self.lost.keys()
        return [self._difference(name, after, firsts) for name in sorted(names)]

    def _still(self, watch: Standing, rows: Iterable[Row]) -> Iterator[Row]:
        """Those that match now: what they contain is there, and it is as the watch wants it."""
        for row in rows:
            if all(self._graph.by_no(no) is not None for no in row.key):
                names = {name: self._graph.by_no(entity.no) or entity for name, entity in row.names.items()}
                now = Row(names, row.key)
                if self._holds(watch, now):
                    yield now

    def _gather(
        self, watch: Standing, rows: Iterable[Row], after: dict[Name, Found], firsts: dict[Name, set[int]]
    ) -> None:
        self._watches[watch.name] = watch
        for row in rows:
            if watch.pool:
                firsts.setdefault(watch.name, set()).add(_first(watch, row))
            else:
                after.setdefault(watch.name, {}).setdefault(row.key, self._shown(watch, row))

    def _difference(self, name: Name, after: dict[Name, Found], firsts: dict[Name, set[int]]) -> Difference:
        watch = self._watches[name]
        found = Difference(watch)
        if watch.pool:
            found.matching = firsts.get(name, set())
            found.touched = {**dict.fromkeys(found.matching, False), **self._firsts.get(name, {})}
            if watch.spec.initial == "none" and not watch.alone:
                with self._asking(watch):
                    for no in found.matching:
                        found.touched[no] = found.touched[no] or self._matched_anyway(watch, no)
            return found
        before, now = self._before.get(name, {}), after.get(name, {})
        for key in sorted(before.keys() | now.keys()):
            if key not in now:
                found.events.append(("removed", before[key], None))
            elif key not in before:
                found.events.append(("added", now[key], None))
            elif before[key] != now[key]:
                found.events.append(("changed", now[key], before[key]))
        return found

    def _rows(self, look: Look, entity: Entity) -> Iterable[Row]:
        """Matches of the watch that contain the entity."""
        watch = look.watch
        if watch.alone:
            row = Row({watch.plan.first: entity}, (entity.no,))
            return [row] if self._holds(watch, row) else []
        found: dict[Key, Row] = {}
        for variable in look.variables:
            wanted = Wanted({variable: entity.no})
            for row in matching.standing_match(self._graph, watch.plan, watch.spec.condition, wanted):
                found[row.key] = row
        return found.values()

    def _matched_anyway(self, watch: Standing, first: int) -> bool:
        """Whether it has a match that no change concerned."""
        wanted = Wanted({watch.plan.first: first})
        rows = matching.standing_match(self._graph, watch.plan, watch.spec.condition, wanted)
        return any(not self._judged(watch, row) for row in rows)

    def _holds(self, watch: Standing, row: Row, without: int | None = None) -> bool:
        return surely_holds(watch.spec.condition, matching.scope_of(self._graph, row.names, without))

    def _shown(self, watch: Standing, row: Row, without: int | None = None) -> dict[str, Any]:
        scope = matching.scope_of(self._graph, row.names, without)
        return match_of(watch.spec.returns, watch.plan.variables, row.names, scope)


def _first(watch: Standing, row: Row) -> int:
    return row.key[watch.plan.names.index(watch.plan.first)]
