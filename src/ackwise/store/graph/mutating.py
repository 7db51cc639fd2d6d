"""SPAWN, LINK, SET, KILL and UNLINK, with every rule of the ontology."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from ackwise.core.graph import faults, system
from ackwise.core.graph import syntax as s
from ackwise.core.graph.commands import Done
from ackwise.core.graph.evaluating import evaluate
from ackwise.core.graph.faults import NOWHERE, At
from ackwise.core.graph.ontology import EdgeType, NodeType, own_attribute
from ackwise.core.graph.patterns import EdgePart, Plan
from ackwise.core.graph.projecting import plain
from ackwise.core.graph.values import Entity
from ackwise.store.graph import matching, prematch, redriving
from ackwise.store.graph.writing import Graph

Names = Mapping[str, Entity]
MOST_DEPTH = 100
MOST_KILLED = 10_000


class Mutator:
    """Runs mutations and counts what they do."""

    def __init__(self, graph: Graph, done: Done) -> None:
        self.graph, self.done = graph, done
        self._killed = 0

    def run(self, mutation: s.Mutation, names: Names) -> dict[str, Entity]:
        """What the mutation named."""
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

    # making

    def _spawn(self, spawn: s.Spawn, names: Names) -> dict[str, Entity]:
        made: dict[str, Entity] = {}
        for item in spawn.items:
            entity = self._spawn_item(item, {**names, **made})
            if item.name:
                made[item.name] = entity
            self._returned(spawn.returning, entity, {**names, **made}, created=True)
        return made

    def _spawn_item(self, item: s.SpawnItem, names: Names) -> Entity:
        kind = self.graph.ontology.node(item.type, item.at)
        if kind.protected:
            raise faults.protected(kind.name, item.at)
        if kind.abstract:
            raise faults.constraint(f"'{kind.name}' is abstract and cannot be spawned", item.at)
        entity = self.graph.insert(kind, self._values(kind, item.values, names, item.at))
        self.graph.to_check.add(entity.no)
        self.done.created += 1
        return entity

    def _values(self, kind: NodeType | EdgeType, given: s.Assignments, names: Names, at: At) -> dict[str, Any]:
        scope = matching.scope_of(self.graph, names)
        values = {name: evaluate(expr, scope) for name, expr in given}
        for name in values:
            own_attribute(kind, name, at)
        stored: dict[str, Any] = {}
        for name, attribute in kind.attributes.items():
            if name in values:
                value = values[name]
            elif attribute.default is not None:
                value = evaluate(attribute.default, matching.scope_of(self.graph, {}))
            elif attribute.nullable:
                value = None
            else:
                raise faults.constraint(f"required attribute '{name}' of '{kind.name}' is not given", at)
            stored[name] = self.graph.stored(kind, name, value, at)
            self.graph.refuse_duplicate(None, attribute, stored[name], at)
        return {name: value for name, value in stored.items() if value is not None}

    def _link(self, link: s.Link, names: Names) -> dict[str, Entity]:
        kind = self.graph.ontology.edge(link.type, link.at)
        if kind.protected:
            raise faults.protected(kind.name, link.at)
        if len(link.targets) != len(kind.slots):
            raise faults.constraint(f"'{kind.name}' has {len(kind.slots)} ends, not {len(link.targets)}", link.at)
        made: dict[str, Entity] = {}
        ends: list[Entity] = []
        for target in link.targets:
            if isinstance(target, s.SpawnItem):
                end = self._spawn_item(target, {**names, **made})
                made |= {target.name: end} if target.name else {}
            else:
                end = self._one(target, {**names, **made}, link.at)
            ends.append(end)
        edge = self._existing(kind, ends) if link.if_not_exists else None
        created = edge is None
        if edge is None:
            edge = self.link(kind, tuple(ends), self._values(kind, link.values, {**names, **made}, link.at), link.at)
        if link.name:
            made[link.name] = edge
        self._returned(link.returning, edge, {**names, **made}, created=created)
        return made

    def link(self, kind: EdgeType, ends: tuple[Entity, ...], attrs: dict[str, Any], at: At = NOWHERE) -> Entity:
        self.check_link(kind, ends, at)
        edge = self.graph.insert(kind, attrs, ends)
        self.done.linked += 1
        return edge

    def check_link(self, kind: EdgeType, ends: tuple[Entity, ...], at: At = NOWHERE) -> None:
        """Refuse an edge that the ontology does not allow."""
        for slot, end in enumerate(ends):
            if end.type.protected and not kind.protected:
                raise faults.constraint(f"'{end.type.name}' is protected and cannot be linked", at)
            if not self.graph.ontology.accepts(kind, slot, end.type):
                wanted = " | ".join(kind.slots[slot][1])
                raise faults.wrong_type(f"'{kind.name}.{kind.slots[slot][0]}' is {wanted}, not {end.type.name}", at)
        if "no_self" in kind.flags and len({end.no for end in ends}) < len(ends):
            raise faults.constraint(f"'{kind.name}' does not join an entity with itself", at)
        if "unique" in kind.flags and self._existing(kind, list(ends)) is not None:
            raise faults.constraint(f"'{kind.name}' joins them already, and is unique", at)
        for slot, (_, most) in kind.cards.items():
            where = {"node": ends[slot].no, "type": kind.id, "slot": slot}
            row = self.graph.session.row("mew_edges_in_slot", where)
            if most is not None and row is not None and row[0] >= most:
                name = kind.slots[slot][0]
                raise faults.constraint(f"cardinality: {name} already has {row[0]} '{kind.name}' edge(s) of {most}", at)
        if "acyclic" in kind.flags and len(ends) == 2:
            self._refuse_cycle(kind, ends, at)

    def _existing(self, kind: EdgeType, ends: list[Entity]) -> Entity | None:
        return next(iter(self._between(kind, [s.IdRef(end.id) for end in ends])), None)

    def _between(self, kind: EdgeType, ends: list[s.IdRef | None]) -> list[Entity]:
        """Edges of a type between given ends; None is any."""
        looked = Plan({}, [EdgePart("edge", kind, tuple(ends))], ("edge",), "edge")
        return [row.names["edge"] for row in matching.match(self.graph, looked, None)]

    def edges_between(self, kind: EdgeType, ends: Mapping[int, str]) -> list[Entity]:
        """Edges of a type that have these entities, by id, in these slots."""
        return self._between(kind, [s.IdRef(ends[n]) if n in ends else None for n in range(len(kind.slots))])

    def _refuse_cycle(self, kind: EdgeType, ends: tuple[Entity, ...], at: At) -> None:
        seen: set[int] = set()
        ahead = [ends[1].no]
        while ahead:
            node = ahead.pop()
            if node == ends[0].no:
                raise faults.constraint(f"'{kind.name}' would lead back to where it begins", at)
            if node not in seen:
                seen.add(node)
                self.graph.check()
                ahead += [row[0] for row in self.graph.session.rows("mew_edges_out", {"node": node, "type": kind.id})]

    # changing

    def _set(self, entity: Entity, values: s.Assignments, names: dict[str, Entity], at: At) -> None:
        _refuse_protected(entity, "set", at)
        scope = matching.scope_of(self.graph, names)
        changes: dict[str, Any] = {}
        for name, expr in values:
            attribute = own_attribute(entity.type, name, at)
            if attribute.readonly:
                raise faults.constraint(f"attribute '{name}' is readonly", at)
            changes[name] = self.graph.stored(entity.type, name, evaluate(expr, scope), at)
            self.graph.refuse_duplicate(entity, attribute, changes[name], at)
        self.graph.update(entity, changes)
        self.done.modified += 1

    # removing

    def kill(self, entity: Entity, at: At = NOWHERE, *, cascade: bool = True, depth: int = 0) -> None:
        """A node with its edges: unlinked, killed along or in the way, as each edge's type says."""
        _refuse_protected(entity, "killed", at)
        if isinstance(entity.type, EdgeType):
            self.unlink(entity, at)
            return
        if depth > MOST_DEPTH:
            raise faults.cascade_too_large("E3303", f"depth {MOST_DEPTH}", at)
        self._killed += 1
        if self._killed > MOST_KILLED:
            raise faults.cascade_too_large("E3304", f"count {MOST_KILLED}", at)
        edges = self._edges_of(entity)
        for edge, slot in edges:
            if _action(edge, slot) == "prevent":
                raise faults.kill_prevented(entity.id, edge.type.name, at)
        self.graph.changing(entity)
        along: list[int] = []
        for edge, slot in edges:
            if cascade and _action(edge, slot) == "cascade":
                along += [no for no in edge.targets if no != entity.no]
            if self.graph.by_no(edge.no) is not None:
                self._drop_edge(edge)
        self.graph.remove(entity)
        redriving.gone(self.graph, entity.no)
        self.done.deleted += 1
        for no in along:
            other = self.graph.by_no(no)
            if other is not None:
                self.kill(other, at, cascade=cascade, depth=depth + 1)

    def _edges_of(self, node: Entity) -> list[tuple[Entity, int]]:
        found = []
        for edge, slot, _ in self.graph.session.rows("mew_edges_of_node", {"node": node.no}):
            entity = self.graph.by_no(edge)
            if entity is not None:
                found.append((entity, slot))
        return found

    def unlink(self, edge: Entity, at: At = NOWHERE) -> None:
        if not isinstance(edge.type, EdgeType):
            raise faults.wrong_type(f"'{edge.id}' is a node: KILL it", at)
        if edge.type.id != system.LETTER_ITEM:
            _refuse_protected(edge, "unlinked", at)
        self._drop_edge(edge)

    def _drop_edge(self, edge: Entity) -> None:
        targets = edge.targets
        self.graph.to_check.update(targets)
        self.graph.remove(edge)
        redriving.gone(self.graph, edge.no)
        if edge.type.id == system.LETTER_ITEM:
            redriving.redrive(self.graph, targets[1])
        self.done.unlinked += 1

    def _edges(self, unlink: s.Unlink, names: Names) -> list[Entity]:
        if unlink.type is None:
            return self._entities(unlink.targets[0], names)
        kind = self.graph.ontology.edge(unlink.type, unlink.at)
        if len(unlink.targets) != len(kind.slots):
            raise faults.constraint(f"'{kind.name}' has {len(kind.slots)} ends, not {len(unlink.targets)}", unlink.at)
        ends: list[s.IdRef | None] = [
            None if isinstance(target, s.Wild) else s.IdRef(self._one(target, names, unlink.at).id)
            for target in unlink.targets
        ]
        if kind.id == system.LETTER_ITEM and ends[1] is not None:
            # What is held because it could not be moved has no edge; it is freed all the same.
            redriving.redrive(self.graph, self.graph.existing(ends[1]).no)
        return self._between(kind, ends)

    # who is meant

    def _entities(self, target: s.Target, names: Names) -> list[Entity]:
        if isinstance(target, s.Chosen):
            return self._chosen(target.match)
        return [self._one(target, names, NOWHERE)]

    def _one(self, target: s.Target | s.Expr, names: Names, at: At) -> Entity:
        match target:
            case s.IdRef():
                return self.graph.existing(target, at)
            case s.Name(name=name):
                known = names.get(name)
                found = self.graph.by_no(known.no) if known is not None else None
                if found is None:
                    raise faults.unknown(f"'{name}' is not known here", target.at)
                return found
            case s.Literal(kind="string", value=str(text)):
                return self.graph.existing(s.IdRef(text, f"#{text}"), at)
            case s.Chosen(match=match):
                chosen = self._chosen(match)
                if len(chosen) != 1:
                    raise faults.constraint(f"{{ MATCH }} found {len(chosen)} entities where one is needed", at)
                return chosen[0]
            case _:
                raise faults.wrong_type("an entity is named here by #id, a name or { MATCH }", at)

    def _chosen(self, match: s.Match) -> list[Entity]:
        first, rows = prematch.matched(self.graph, match)
        name = first
        if match.returns is not None and isinstance(match.returns.projections[0].of, s.Name):
            name = match.returns.projections[0].of.name
        found = {names[name].no: names[name] for names in rows}
        return list(found.values())

    # what is told

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
        """The least number of edges, when everything is done."""
        kinds = [kind for kind in self.graph.ontology.edges.values() if kind.cards]
        if not kinds:
            return
        for no in self.graph.to_check:
            node = self.graph.by_no(no)
            if node is None or isinstance(node.type, EdgeType):
                continue
            for kind in kinds:
                for slot, (least, _) in kind.cards.items():
                    if least and self.graph.ontology.accepts(kind, slot, node.type):
                        where = {"node": no, "type": kind.id, "slot": slot}
                        row = self.graph.session.row("mew_edges_in_slot", where)
                        if row is None or row[0] < least:
                            raise faults.constraint(
                                f"cardinality: '{node.id}' needs at least {least} '{kind.name}' edge(s)"
                            )


def _returned_value(path: tuple[str, ...], entity: Entity, names: Names, created: bool) -> Any:
    if len(path) == 2:
        owner = names.get(path[0])
        if owner is None:
            raise faults.unknown(f"'{path[0]}' is not known here")
        return owner.value(path[1])
    if path[0].upper() == "CREATED":
        return created
    return names[path[0]] if path[0] in names else entity.value(path[0])


def _action(edge: Entity, slot: int) -> str:
    assert isinstance(edge.type, EdgeType)
    return edge.type.on_kill.get(slot, "unlink")


def _refuse_protected(entity: Entity, what: str, at: At) -> None:
    if entity.type.protected:
        raise faults.GraphError(
            "constraint", f"'{entity.type.name}' is protected and cannot be {what}", name="PROTECTED", at=at
        )
