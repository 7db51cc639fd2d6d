"""Change tracker: compares the matches of watches before and after a command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from ackwise.engine.statement_meter import WRITER_SECONDS, Meter, Overrun
from ackwise.graph.engine import pattern_sql
from ackwise.graph.engine.pattern_sql import MatchRow, Search
from ackwise.graph.engine.watch_index import (
    ConcernedWatch,
    Neighbours,
    StandingId,
    StandingQuery,
    WatchIndex,
    WatchLookup,
)
from ackwise.graph.expressions import surely_holds
from ackwise.graph.ontology import EdgeType
from ackwise.graph.projection import match_of
from ackwise.graph.values import Entity

if TYPE_CHECKING:
    from ackwise.graph.engine.entities import Graph

_UNMETERED = nullcontext()
Key = tuple[int, ...]
"""The numbers of a match's entities."""
Matches = dict[Key, Any]


class Difference(msgspec.Struct):
    """Difference that a command made for one standing query: events for a watch, entities for a pool."""

    watch: StandingQuery
    events: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = []
    """(kind, match, previous match)"""
    touched: dict[int, bool] = {}
    """Entities that may have joined or left the pool, by number, with whether they matched before."""
    matching: set[int] = set()
    """Those that match now."""


class Tracker:
    """Records the matches that changes concern: before the first change and after the last change.

    The graph calls `changing` before it sets, unlinks or kills an entity, and `made` after it makes one.

    - The entity is inside a match: the tracker records the match before the change.
    - Only an exists() reads the entity: the tracker evaluates the matches that the exists() decides, before the change.
    - The entity is new: the tracker evaluates the matches that an exists() decides, without the entity.

    Only the first change that concerns a match counts for its earlier state.
    """

    __slots__ = (
        "_before",
        "_beside",
        "_changed",
        "_firsts",
        "_graph",
        "_index",
        "_made",
        "_neighbours",
        "_watches",
        "lost",
    )

    def __init__(self, graph: Graph, index: WatchIndex) -> None:
        self._graph, self._index = graph, index
        self._neighbours = Neighbours(graph)
        self._changed: set[int] = set()
        self._made: set[int] = set()
        self._before: dict[StandingId, Matches] = {}
        self._firsts: dict[StandingId, dict[int, bool]] = {}
        """For pools: first elements of concerned matches, with whether they matched before."""
        self._watches: dict[StandingId, StandingQuery] = {}
        self._beside: dict[StandingId, dict[Key, MatchRow]] = {}
        """Rows whose exists() reads a changed entity, whether they matched or not."""
        self.lost: dict[StandingId, StandingQuery] = {}
        """Watches for which a change exceeded the budget. Their matches are out of date."""

    def _budget(self, watch: StandingQuery) -> AbstractContextManager[None]:
        """The budget for one search of a watch's matches.

        A statement whose watch exceeds it runs again without the watch. An expiry or the end of a connection cannot
        fail: it continues, and the watch is lost.
        """
        if watch.simple:
            return _UNMETERED
        return self._losing(watch) if self._graph.background else self._graph.costs.metered(self._graph, watch)

    def _concerned(self, lookup: WatchLookup, entity: Entity) -> Iterator[ConcernedWatch]:
        """Watches that the entity concerns, without those that statements leave out for now."""
        left_out = self._graph.left_out
        for concerned in lookup.concerned(entity, self._neighbours):
            watch = concerned.watch
            if left_out and watch.id in left_out and not watch.simple:
                self.lost[watch.id] = watch
            else:
                yield concerned

    @contextmanager
    def _losing(self, watch: StandingQuery) -> Iterator[None]:
        graph = self._graph
        meter, graph.meter = graph.meter, Meter(seconds=WRITER_SECONDS, name="writer")
        graph.session.savepoint(WRITER_SECONDS)
        try:
            yield
        except Exception as problem:
            graph.session.undo()
            if not isinstance(problem, Overrun) and not graph.session.stopped(problem):
                raise
            self.lost[watch.id] = watch
        else:
            graph.session.keep()
        finally:
            graph.meter = meter

    # before a change

    def changing(self, entity: Entity) -> None:
        """Record the matches of an entity that is about to change. Only the first call for an entity counts."""
        if not len(self._index) or entity.no in self._changed or entity.no in self._made:
            return
        for concerned in self._concerned(self._index.within, entity):
            with self._budget(concerned.watch):
                for row in self._rows(concerned, entity):
                    if not self._is_judged(concerned.watch, row):
                        self._record(concerned.watch, row)
        self._look_beside(entity)
        self._changed.add(entity.no)

    def made(self, entity: Entity) -> None:
        """Note a new entity. A new node has no edges yet, so only a new edge can decide an exists()."""
        self._made.add(entity.no)
        if len(self._index) and isinstance(entity.type, EdgeType):
            self._look_beside(entity, entity.no)

    def _is_judged(self, watch: StandingQuery, row: MatchRow) -> bool:
        """Whether the earlier state of the match is known. A match that contains a new entity did not exist before."""
        if not self._changed.isdisjoint(row.key) or not self._made.isdisjoint(row.key):
            return True
        return row.key in self._beside.get(watch.id, ())

    def _look_beside(self, entity: Entity, without: int | None = None) -> None:
        for concerned in self._concerned(self._index.beside, entity):
            with self._budget(concerned.watch):
                self._record_beside(concerned, entity, without)

    def _record_beside(self, concerned: ConcernedWatch, entity: Entity, without: int | None) -> None:
        watch = concerned.watch
        for variable in concerned.variables:
            search = Search({variable: entity.no})
            for row in pattern_sql.around(self._graph, concerned.plan, watch.spec.where, watch.plan.names, search):
                if not self._is_judged(watch, row) and self._holds(watch, row, without):
                    self._record(watch, row, without)
                self._watches[watch.id] = watch
                self._beside.setdefault(watch.id, {})[row.key] = row

    def _record(self, watch: StandingQuery, row: MatchRow, without: int | None = None) -> None:
        """Keep a match as it was before the change."""
        self._watches[watch.id] = watch
        if watch.pool:
            self._firsts.setdefault(watch.id, {})[_first(watch, row)] = True
        else:
            self._before.setdefault(watch.id, {}).setdefault(row.key, self._shown(watch, row, without))

    # after the last change

    def differences(self) -> list[Difference]:
        """One difference for each watch that the changes concern. Call it after the last change."""
        if not self._index.members or not (self._changed or self._made):
            return []
        after: dict[StandingId, Matches] = {}
        firsts: dict[StandingId, set[int]] = {}
        for no in sorted(self._changed | self._made):
            entity = self._graph.by_no(no)
            if entity is not None:
                self._gather_within(entity, after, firsts)
        self._gather_beside(after, firsts)
        ids = (self._watches.keys() | self._firsts.keys()) - self.lost.keys()
        return [self._difference(standing_id, after, firsts) for standing_id in sorted(ids)]

    def _gather_within(
        self, entity: Entity, after: dict[StandingId, Matches], firsts: dict[StandingId, set[int]]
    ) -> None:
        """Gather the matches that contain the entity now."""
        for concerned in self._concerned(self._index.within, entity):
            watch = concerned.watch
            with self._budget(watch):
                self._gather(watch, self._rows(concerned, entity), after, firsts)
            if watch.pool and watch.plan.first in concerned.variables:
                self._firsts.setdefault(watch.id, {}).setdefault(entity.no, False)

    def _gather_beside(self, after: dict[StandingId, Matches], firsts: dict[StandingId, set[int]]) -> None:
        """Gather the matches whose exists() reads a changed entity."""
        for standing_id, rows in self._beside.items():
            watch = self._index.members.get(standing_id, self._watches[standing_id])
            with self._budget(watch):
                self._gather(watch, self._still_matching(watch, rows.values()), after, firsts)
            if watch.pool:
                known = self._firsts.setdefault(standing_id, {})
                for row in rows.values():
                    known.setdefault(_first(watch, row), False)

    def _still_matching(self, watch: StandingQuery, rows: Iterable[MatchRow]) -> Iterator[MatchRow]:
        """The rows whose entities still exist and still meet the condition."""
        for row in rows:
            if all(self._graph.by_no(no) is not None for no in row.key):
                names = {name: self._graph.by_no(entity.no) or entity for name, entity in row.names.items()}
                now = MatchRow(names, row.key)
                if self._holds(watch, now):
                    yield now

    def _gather(
        self,
        watch: StandingQuery,
        rows: Iterable[MatchRow],
        after: dict[StandingId, Matches],
        firsts: dict[StandingId, set[int]],
    ) -> None:
        self._watches[watch.id] = watch
        for row in rows:
            if watch.pool:
                firsts.setdefault(watch.id, set()).add(_first(watch, row))
            else:
                after.setdefault(watch.id, {}).setdefault(row.key, self._shown(watch, row))

    def _difference(
        self, standing_id: StandingId, after: dict[StandingId, Matches], firsts: dict[StandingId, set[int]]
    ) -> Difference:
        watch = self._watches[standing_id]
        if watch.pool:
            return self._pool_difference(watch, firsts.get(standing_id, set()))
        difference = Difference(watch)
        before, now = self._before.get(standing_id, {}), after.get(standing_id, {})
        for key in sorted(before.keys() | now.keys()):
            if key not in now:
                difference.events.append(("removed", before[key], None))
            elif key not in before:
                difference.events.append(("added", now[key], None))
            elif before[key] != now[key]:
                difference.events.append(("changed", now[key], before[key]))
        return difference

    def _pool_difference(self, pool: StandingQuery, matching: set[int]) -> Difference:
        touched = {**dict.fromkeys(matching, False), **self._firsts.get(pool.id, {})}
        if pool.spec.initial == "none" and not pool.alone:
            with self._budget(pool):
                for no in matching:
                    touched[no] = touched[no] or self._has_unchanged_match(pool, no)
        return Difference(pool, touched=touched, matching=matching)

    def _rows(self, concerned: ConcernedWatch, entity: Entity) -> Iterable[MatchRow]:
        """Matches of the watch that contain the entity."""
        watch = concerned.watch
        if watch.alone:
            row = MatchRow({watch.plan.first: entity}, (entity.no,))
            return [row] if self._holds(watch, row) else []
        rows: dict[Key, MatchRow] = {}
        for variable in concerned.variables:
            search = Search({variable: entity.no})
            for row in pattern_sql.standing_match(self._graph, watch.plan, watch.spec.condition, search):
                rows[row.key] = row
        return rows.values()

    def _has_unchanged_match(self, watch: StandingQuery, first: int) -> bool:
        """Whether a first element has a match that no change concerned."""
        search = Search({watch.plan.first: first})
        rows = pattern_sql.standing_match(self._graph, watch.plan, watch.spec.condition, search)
        return any(not self._is_judged(watch, row) for row in rows)

    def _holds(self, watch: StandingQuery, row: MatchRow, without: int | None = None) -> bool:
        return surely_holds(watch.spec.condition, pattern_sql.scope_of(self._graph, row.names, without))

    def _shown(self, watch: StandingQuery, row: MatchRow, without: int | None = None) -> dict[str, Any]:
        scope = pattern_sql.scope_of(self._graph, row.names, without)
        return match_of(watch.spec.returns, watch.plan.variables, row.names, scope)


def _first(watch: StandingQuery, row: MatchRow) -> int:
    return row.key[watch.plan.names.index(watch.plan.first)]
