"""What a transaction changes for those who watch: matches before, matches after, and the difference."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from ackwise.core.graph.evaluating import surely_holds
from ackwise.core.graph.projecting import match_of
from ackwise.core.graph.values import Entity
from ackwise.store.graph import matching
from ackwise.store.graph.matching import Row, Wanted
from ackwise.store.graph.standing import Index, Neighbours, Standing

if TYPE_CHECKING:
    from ackwise.store.graph.writing import Graph

Found = dict[tuple[int, ...], Any]


class Difference(msgspec.Struct):
    """For one watch: (kind, match, previous match); for a pool: entities that may have come or gone."""

    watch: Standing
    events: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = []
    touched: dict[int, bool] = {}
    """Entities by number, with whether they matched before."""
    matching: set[int] = set()


class Tracker:
    """Told before each change, so that it knows what was."""

    def __init__(self, graph: Graph, index: Index) -> None:
        self._graph, self._index = graph, index
        self._neighbours = Neighbours(graph.session)
        self._seen: set[int] = set()
        self._made: set[int] = set()
        self._before: dict[tuple[int, bool], Found] = {}
        self._firsts: dict[tuple[int, bool], dict[int, bool]] = {}
        self._watches: dict[tuple[int, bool], Standing] = {}
        self._whole: set[tuple[int, bool]] = set()

    def changing(self, entity: Entity) -> None:
        """The entity is about to be set, unlinked or killed; told once is enough."""
        if not len(self._index) or entity.no in self._seen or entity.no in self._made:
            return
        self._everywhere(entity.type.id)
        for watch, variables in self._index.concerned(entity, self._neighbours):
            for row in self._rows(watch, variables, entity):
                if not self._seen.isdisjoint(row.key) or not self._made.isdisjoint(row.key):
                    continue  # noted when the other one was changed, or was not there before
                self._note(watch, row)
        self._seen.add(entity.no)

    def making(self, kind: int) -> None:
        """An entity of this type is about to be made."""
        if len(self._index):
            self._everywhere(kind)

    def made(self, entity: Entity) -> None:
        self._made.add(entity.no)

    def _everywhere(self, kind: int) -> None:
        for watch in self._index.everywhere(kind):
            name = watch.no, watch.pool
            if name not in self._whole:
                self._whole.add(name)
                self._watches[name] = watch
                for row in self._all(watch):
                    self._note(watch, row)

    def _note(self, watch: Standing, row: Row) -> None:
        name = watch.no, watch.pool
        self._watches[name] = watch
        if watch.pool:
            self._firsts.setdefault(name, {})[_first(watch, row)] = True
        else:
            self._before.setdefault(name, {}).setdefault(row.key, self._shown(watch, row))

    def differences(self) -> list[Difference]:
        """After the last change."""
        if not self._index.members or not (self._seen or self._made or self._whole):
            return []
        after: dict[tuple[int, bool], Found] = {}
        firsts: dict[tuple[int, bool], set[int]] = {}
        for no in sorted(self._seen | self._made):
            entity = self._graph.by_no(no)
            if entity is None:
                continue
            for watch, variables in self._index.concerned(entity, self._neighbours):
                self._gather(watch, self._rows(watch, variables, entity), after, firsts)
                if watch.pool and watch.plan.first in variables:
                    self._firsts.setdefault((watch.no, True), {}).setdefault(no, False)
        for name in self._whole:
            watch = self._index.members.get(name, self._watches[name])
            self._gather(watch, self._all(watch), after, firsts)
        return [self._difference(name, after, firsts) for name in sorted(self._watches.keys() | self._firsts.keys())]

    def _gather(
        self,
        watch: Standing,
        rows: Iterable[Row],
        after: dict[tuple[int, bool], Found],
        firsts: dict[tuple[int, bool], set[int]],
    ) -> None:
        name = watch.no, watch.pool
        self._watches[name] = watch
        for row in rows:
            if watch.pool:
                firsts.setdefault(name, set()).add(_first(watch, row))
            else:
                after.setdefault(name, {}).setdefault(row.key, self._shown(watch, row))

    def _difference(
        self,
        name: tuple[int, bool],
        after: dict[tuple[int, bool], Found],
        firsts: dict[tuple[int, bool], set[int]],
    ) -> Difference:
        watch = self._watches[name]
        found = Difference(watch)
        if watch.pool:
            found.matching = firsts.get(name, set())
            found.touched = {**dict.fromkeys(found.matching, False), **self._firsts.get(name, {})}
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

    def _rows(self, watch: Standing, variables: set[str], entity: Entity) -> Iterable[Row]:
        """Matches of the watch that contain the entity."""
        if watch.alone:
            names = {watch.plan.first: entity}
            kept = surely_holds(watch.spec.condition, matching.scope_of(self._graph, names))
            return [Row(names, (entity.no,))] if kept else []
        found: dict[tuple[int, ...], Row] = {}
        for variable in variables:
            for row in matching.standing_match(
                self._graph, watch.plan, watch.spec.condition, Wanted({variable: entity.no})
            ):
                found[row.key] = row
        return found.values()

    def _all(self, watch: Standing) -> list[Row]:
        return list(matching.standing_match(self._graph, watch.plan, watch.spec.condition))

    def _shown(self, watch: Standing, row: Row) -> dict[str, Any]:
        scope = matching.scope_of(self._graph, row.names)
        return match_of(watch.spec.returns, watch.plan.variables, row.names, scope)


def _first(watch: Standing, row: Row) -> int:
    return row.key[watch.plan.names.index(watch.plan.first)]
