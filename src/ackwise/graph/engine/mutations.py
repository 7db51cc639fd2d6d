"""Runs the mutations of a statement: SPAWN, LINK, SET, KILL, UNLINK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from ackwise.graph import ast as s
from ackwise.graph import errors, system_types
from ackwise.graph.commands import Done
from ackwise.graph.engine import early_matches, entity_removal, pattern_sql
from ackwise.graph.engine.entities import Graph
from ackwise.graph.errors import NOWHERE, At
from ackwise.graph.expressions import evaluate
from ackwise.graph.ontology import EdgeType, NodeType, own_attribute
from ackwise.graph.patterns import EdgePart, PatternPlan
from ackwise.graph.projection import plain
from ackwise.graph.values import Entity

Names = Mapping[str, Entity]
MOST_DEPTH = 100
"""Levels of a cascade of KILL."""
MOST_KILLED = 10_000
"""Nodes that one statement kills."""


class Mutator:
    """Runs mutations, and counts their changes in `done`."""

    def __init__(self, graph: Graph, done: Done) -> None:
        self.graph, self.done = graph, done
        self._killed = 0

    def run(self, mutation: s.Mutation, names: Names) -> dict[str, Entity]:
        """Run a mutation. Returns the entities that it names."""
        match mutation:
            case s.Spawn():
                return self._spawn(mutation, names)
            case s.Link():
                return self._link(mutation, names)
            case s.Set():
                for entity in self._entities(mutation.target, names):
                    self._set(entity, mutation.values, {**names}, mutation.at)
                    self._returned(mutation.returning, entity, names, created=False)
                return {}
            case s.Kill():
                for entity in self._entities(mutation.target, names):
                    self._returned(mutation.returning, entity, names, created=False)
                    self.kill(entity, mutation.at, cascade=mutation.cascade is not False)
                return {}
            case s.Unlink():
                for entity in self._edges(mutation, names):
                    self._returned(mutation.returning, entity, names, created=False)
                    self.unlink(entity, mutation.at)
                return {}
            case _:
                assert_never(mutation)

    # SPAWN and LINK

    def _spawn(self, spawn: s.Spawn, names: Names) -> dict[str, Entity]:
        named: dict[str, Entity] = {}
        for item in spawn.items:
            entity = self._spawn_item(item, {**names, **named})
            if item.name:
                named[item.name] = entity
            self._returned(spawn.returning, entity, {**names, **named}, created=True)
        return named

    def _spawn_item(self, item: s.SpawnItem, names: Names) -> Entity:
        kind = self.graph.ontology.node(item.type, item.at)
        if kind.protected:
            raise errors.protected(kind.name, item.at)
        if kind.abstract:
            raise errors.constraint(f"'{kind.name}' is abstract and cannot be spawned", item.at)
        entity = self.graph.insert(kind, self._values(kind, item.values, names, item.at))
        self.graph.to_check.setdefault(entity.no, item.at)
        self.done.created += 1
        return entity

    def _values(self, kind: NodeType | EdgeType, assigned: s.Assignments, names: Names, at: At) -> dict[str, Any]:
        """The attributes of a new entity: assigned values, defaults, or null."""
        scope = pattern_sql.scope_of(self.graph, names)
        values = {name: evaluate(expr, scope) for name, expr in assigned}
        for name in values:
            own_attribute(kind, name, at)
        stored: dict[str, Any] = {}
        for name, attribute in kind.attributes.items():
            if name in values:
                value = values[name]
            elif attribute.default is not None:
                value = evaluate(attribute.default, pattern_sql.scope_of(self.graph, {}))
            elif attribute.nullable:
                value = None
            else:
                raise errors.constraint(f"required attribute '{name}' of '{kind.name}' is not given", at)
            stored[name] = self.graph.stored(kind, name, value, at)
            self.graph.refuse_duplicate(None, attribute, stored[name], at)
        return {name: value for name, value in stored.items() if value is not None}

    def _link(self, link: s.Link, names: Names) -> dict[str, Entity]:
        kind = self.graph.ontology.edge(link.type, link.at)
        if kind.protected:
            raise errors.protected(kind.name, link.at)
        if len(link.targets) != len(kind.slots):
            raise errors.constraint(f"'{kind.name}' has {len(kind.slots)} ends, not {len(link.targets)}", link.at)
        named: dict[str, Entity] = {}
        ends: list[Entity] = []
        for target in link.targets:
            if isinstance(target, s.SpawnItem):
                end = self._spawn_item(target, {**names, **named})
                named |= {target.name: end} if target.name else {}
            else:
                end = self._entity(target, {**names, **named}, link.at)
            ends.append(end)
        edge = self._existing_edge(kind, ends) if link.if_not_exists else None
        created = edge is None
        if edge is None:
            edge = self.link(kind, tuple(ends), self._values(kind, link.values, {**names, **named}, link.at), link.at)
        if link.name:
            named[link.name] = edge
        self._returned(link.returning, edge, {**names, **named}, created=created)
        return named

    def link(self, kind: EdgeType, ends: tuple[Entity, ...], attrs: dict[str, Any], at: At = NOWHERE) -> Entity:
        self.check_link(kind, ends, at)
        edge = self.graph.insert(kind, attrs, ends)
        self.done.linked += 1
        return edge

    def check_link(self, kind: EdgeType, ends: tuple[Entity, ...], at: At = NOWHERE) -> None:
        """Refuse an edge that the ontology does not allow."""
        for slot, end in enumerate(ends):
            if end.type.protected and not kind.protected:
                raise errors.constraint(f"'{end.type.name}' is protected and cannot be linked", at)
            if not self.graph.ontology.accepts(kind, slot, end.type):
                wanted = " | ".join(kind.slots[slot][1])
                raise errors.wrong_type(f"'{kind.name}.{kind.slots[slot][0]}' is {wanted}, not {end.type.name}", at)
        if "no_self" in kind.flags and len({end.no for end in ends}) < len(ends):
            raise errors.constraint(f"'{kind.name}' does not join an entity with itself", at)
        if "unique" in kind.flags and self._existing_edge(kind, list(ends)) is not None:
            raise errors.constraint(f"'{kind.name}' joins them already, and is unique", at)
        self._check_most_edges(kind, ends, at)
        if "acyclic" in kind.flags and len(ends) == 2:
            self._refuse_cycle(kind, ends, at)

    def _check_most_edges(self, kind: EdgeType, ends: tuple[Entity, ...], at: At) -> None:
        """Refuse an edge if a node already has as many as the cardinality of its slot allows."""
        for slot, (_, most) in kind.cards.items():
            count = self._edges_in_slot(ends[slot].no, kind, slot)
            if most is not None and count >= most:
                name = kind.slots[slot][0]
                raise errors.constraint(f"cardinality: {name} already has {count} '{kind.name}' edge(s) of {most}", at)

    def _edges_in_slot(self, node: int, kind: EdgeType, slot: int) -> int:
        row = self.graph.session.row("mew_edges_in_slot", {"node": node, "type": kind.id, "slot": slot})
        return int(row[0]) if row is not None else 0

    def _existing_edge(self, kind: EdgeType, ends: list[Entity]) -> Entity | None:
        return next(iter(self._between(kind, [s.IdRef(end.id) for end in ends])), None)

    def _between(self, kind: EdgeType, ends: list[s.IdRef | None]) -> list[Entity]:
        """Edges of a type between these ends. None stands for any end."""
        plan = PatternPlan({}, [EdgePart("edge", kind, tuple(ends))], ("edge",), "edge")
        return [row.names["edge"] for row in pattern_sql.match(self.graph, plan, None)]

    def edges_between(self, kind: EdgeType, ends: Mapping[int, str]) -> list[Entity]:
        """Edges of a type that have these ids in these slots."""
        return self._between(kind, [s.IdRef(ends[n]) if n in ends else None for n in range(len(kind.slots))])

    def _refuse_cycle(self, kind: EdgeType, ends: tuple[Entity, ...], at: At) -> None:
        seen: set[int] = set()
        ahead = [ends[1].no]
        while ahead:
            node = ahead.pop()
            if node == ends[0].no:
                raise errors.constraint(f"'{kind.name}' would lead back to where it begins", at)
            if node not in seen:
                seen.add(node)
                self.graph.check()
                ahead += [row[0] for row in self.graph.session.rows("mew_edges_out", {"node": node, "type": kind.id})]

    # SET

    def _set(self, entity: Entity, values: s.Assignments, names: dict[str, Entity], at: At) -> None:
        _refuse_protected(entity, "set", at)
        scope = pattern_sql.scope_of(self.graph, names)
        changes: dict[str, Any] = {}
        for name, expr in values:
            attribute = own_attribute(entity.type, name, at)
            if attribute.readonly:
                raise errors.constraint(f"attribute '{name}' is readonly", at)
            changes[name] = self.graph.stored(entity.type, name, evaluate(expr, scope), at)
            self.graph.refuse_duplicate(entity, attribute, changes[name], at)
        self.graph.update(entity, changes)
        self.done.modified += 1

    # KILL and UNLINK

    def kill(self, entity: Entity, at: At = NOWHERE, *, cascade: bool = True, depth: int = 0) -> None:
        """Kill a node and remove its edges. An edge type may cascade to the other ends, or prevent the kill."""
        _refuse_protected(entity, "killed", at)
        if isinstance(entity.type, EdgeType):
            self.unlink(entity, at)
            return
        self._count_kill(depth, at)
        edges = self._edges_of(entity)
        preventing = next((edge for edge, slot in edges if _action(edge, slot) == "prevent"), None)
        if preventing is not None:
            raise errors.kill_prevented(entity.id, preventing.type.name, at)
        self.graph.changing(entity)
        cascading = [edge for edge, slot in edges if cascade and _action(edge, slot) == "cascade"]
        others = [no for edge in cascading for no in edge.targets if no != entity.no]
        for edge, _ in edges:
            if self.graph.by_no(edge.no) is not None:
                self._drop_edge(edge, at)
        self.graph.remove(entity)
        entity_removal.forget_entity(self.graph, entity.no)
        self.done.deleted += 1
        for other in filter(None, map(self.graph.by_no, others)):
            self.kill(other, at, cascade=cascade, depth=depth + 1)

    def _count_kill(self, depth: int, at: At) -> None:
        if depth > MOST_DEPTH:
            raise errors.cascade_too_large("E3303", f"depth {MOST_DEPTH}", at)
        self._killed += 1
        if self._killed > MOST_KILLED:
            raise errors.cascade_too_large("E3304", f"count {MOST_KILLED}", at)

    def _edges_of(self, node: Entity) -> list[tuple[Entity, int]]:
        """The edges of a node, each with the node's slot."""
        edges = []
        for no, slot, _ in self.graph.session.rows("mew_edges_of_node", {"node": node.no}):
            edge = self.graph.by_no(no)
            if edge is not None:
                edges.append((edge, slot))
        return edges

    def unlink(self, edge: Entity, at: At = NOWHERE) -> None:
        if not isinstance(edge.type, EdgeType):
            raise errors.wrong_type(f"'{edge.id}' is a node: KILL it", at)
        if edge.type.id != system_types.DEAD_LETTER_ITEM:
            _refuse_protected(edge, "unlinked", at)
        self._drop_edge(edge, at)

    def _drop_edge(self, edge: Entity, at: At) -> None:
        targets = edge.targets
        for target in targets:
            self.graph.to_check.setdefault(target, at)
        self.graph.remove(edge)
        entity_removal.forget_entity(self.graph, edge.no)
        if edge.type.id == system_types.DEAD_LETTER_ITEM:
            entity_removal.redrive(self.graph, targets[1])
        self.done.unlinked += 1

    def _edges(self, unlink: s.Unlink, names: Names) -> list[Entity]:
        if unlink.type is None:
            return self._entities(unlink.targets[0], names)
        kind = self.graph.ontology.edge(unlink.type, unlink.at)
        if len(unlink.targets) != len(kind.slots):
            raise errors.constraint(f"'{kind.name}' has {len(kind.slots)} ends, not {len(unlink.targets)}", unlink.at)
        ends: list[s.IdRef | None] = [
            None if isinstance(target, s.Wild) else s.IdRef(self._entity(target, names, unlink.at).id)
            for target in unlink.targets
        ]
        if kind.id == system_types.DEAD_LETTER_ITEM and ends[1] is not None:
            # An item that is held because it could not be moved has no edge. UNLINK frees it, too.
            entity_removal.redrive(self.graph, self.graph.existing(ends[1]).no)
        return self._between(kind, ends)

    # targets

    def _entities(self, target: s.Target, names: Names) -> list[Entity]:
        if isinstance(target, s.Chosen):
            return self._chosen(target.match)
        return [self._entity(target, names, NOWHERE)]

    def _entity(self, target: s.Target | s.Expr, names: Names, at: At) -> Entity:
        match target:
            case s.IdRef():
                return self.graph.existing(target, at)
            case s.Name(name=name):
                named = names.get(name)
                entity = self.graph.by_no(named.no) if named is not None else None
                if entity is None:
                    raise errors.unknown(f"'{name}' is not known here", target.at)
                return entity
            case s.Literal(kind="string", value=str(text)):
                return self.graph.existing(s.IdRef(text, f"#{text}"), at)
            case s.Chosen(match=match):
                chosen = self._chosen(match)
                if len(chosen) != 1:
                    raise errors.constraint(f"{{ MATCH }} found {len(chosen)} entities where one is needed", at)
                return chosen[0]
            case _:
                raise errors.wrong_type("an entity is named here by #id, a name or { MATCH }", at)

    def _chosen(self, match: s.Match) -> list[Entity]:
        first, rows = early_matches.matched(self.graph, match)
        name = first
        if match.returns is not None and isinstance(match.returns.projections[0].of, s.Name):
            name = match.returns.projections[0].of.name
        by_no = {names[name].no: names[name] for names in rows}
        return list(by_no.values())

    # RETURNING and cardinality

    def _returned(self, returning: s.Returning | None, entity: Entity, names: Names, *, created: bool) -> None:
        if returning is None:
            return
        if not returning.items:
            self.done.columns, values = ["*"], [entity.shown()]
        else:
            self.done.columns = [column for _, column in returning.items]
            values = [_returned_value(path, entity, names, created) for path, _ in returning.items]
        self.done.rows.append([plain(value) for value in values])

    def check_cardinality(self) -> None:
        """Refuse a commit in which a node has fewer edges than the minimum of its type."""
        kinds = [kind for kind in self.graph.ontology.edges.values() if kind.cards]
        if not kinds:
            return
        for no, at in self.graph.to_check.items():
            node = self.graph.by_no(no)
            if node is not None and not isinstance(node.type, EdgeType):
                for kind in kinds:
                    self._check_least_edges(node, kind, at)

    def _check_least_edges(self, node: Entity, kind: EdgeType, at: At) -> None:
        for slot, (least, _) in kind.cards.items():
            if not least or not self.graph.ontology.accepts(kind, slot, node.type):
                continue
            if self._edges_in_slot(node.no, kind, slot) < least:
                raise errors.minimum_unmet(node.id, least, kind.name, at)


def _returned_value(path: tuple[str, ...], entity: Entity, names: Names, created: bool) -> Any:
    if len(path) == 2:
        owner = names.get(path[0])
        if owner is None:
            raise errors.unknown(f"'{path[0]}' is not known here")
        return owner.value(path[1])
    if path[0].upper() == "CREATED":
        return created
    return names[path[0]] if path[0] in names else entity.value(path[0])


def _action(edge: Entity, slot: int) -> str:
    assert isinstance(edge.type, EdgeType)
    return edge.type.on_kill.get(slot, "unlink")


def _refuse_protected(entity: Entity, what: str, at: At) -> None:
    if entity.type.protected:
        raise errors.GraphError(
            "constraint", f"'{entity.type.name}' is protected and cannot be {what}", name="PROTECTED", at=at
        )
