"""Patterns: what they bind, which types they accept, and which conditions an index can serve."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import msgspec

from ackwise.graph import ast as s
from ackwise.graph import errors
from ackwise.graph.errors import At
from ackwise.graph.expressions import literal
from ackwise.graph.ontology import Attribute, EdgeType, NodeType, Ontology, own_attribute
from ackwise.graph.values import kind_of

BUILT_IN = ("id", "_id", "_type", "_targets")
"""Attributes that every entity has."""
CLOCKS = ("now", "wall_time", "logical_time")
MOST_PARTS = 50
"""Nodes, edges and ends of a pattern. The database joins one table for each, and joins a few dozen at most."""


class EdgePart(msgspec.Struct, frozen=True):
    """An edge of a pattern. Its name is the alias, or `~<n>` without one. An end is a variable, an id, or anything."""

    name: str
    type: EdgeType
    ends: tuple[str | s.IdRef | None, ...]


class PatternPlan(msgspec.Struct):
    """A checked pattern: node variables with the ids of their types, edges, and the variables that `*` returns."""

    nodes: dict[str, frozenset[int]]
    edges: list[EdgePart]
    variables: tuple[str, ...]
    first: str
    """The variable of the first element. A consume watch consumes its entity."""

    def types(self, name: str) -> frozenset[int]:
        if name in self.nodes:
            return self.nodes[name]
        return next(frozenset({edge.type.id}) for edge in self.edges if edge.name == name)

    @property
    def names(self) -> list[str]:
        return [*self.nodes, *(edge.name for edge in self.edges)]


def plan_pattern(
    pattern: tuple[s.Element, ...], ontology: Ontology, outer: frozenset[str] = frozenset()
) -> PatternPlan:
    """Check a pattern against the ontology. In an exists(), `outer` are the variables of the enclosing pattern."""
    planner = _Planner(ontology, outer)
    for element in pattern:
        if isinstance(element, s.NodeElement):
            planner.add_node(element)
    for number, element in enumerate(pattern):
        if isinstance(element, s.EdgeElement):
            planner.add_edge(element, number)
    start = pattern[0]
    first = planner.edges[0].name if isinstance(start, s.EdgeElement) else start.name
    plan = PatternPlan(planner.nodes, planner.edges, tuple(planner.variables), first)
    check_size(plan, start.at)
    return plan


class _Planner:
    """Collects the nodes and edges of a pattern. Nodes come first: edges may name nodes that stand after them."""

    def __init__(self, ontology: Ontology, outer: frozenset[str]) -> None:
        self._ontology, self._outer = ontology, outer
        self.nodes: dict[str, frozenset[int]] = {}
        self.edges: list[EdgePart] = []
        self.variables: list[str] = []

    def add_node(self, element: s.NodeElement) -> None:
        self._refuse_bound(element.name, element.at)
        self.nodes[element.name] = self._ontology.accepting(element.types, element.at)
        self.variables.append(element.name)

    def add_edge(self, element: s.EdgeElement, number: int) -> None:
        edge = self._ontology.edge(element.type, element.at)
        if len(element.targets) != len(edge.slots):
            raise errors.constraint(f"'{edge.name}' has {len(edge.slots)} ends, not {len(element.targets)}", element.at)
        name = element.alias or f"~{number}"
        self._refuse_bound(name, element.at)
        ends = tuple(self._end(edge, slot, target, element.at) for slot, target in enumerate(element.targets))
        if element.alias:
            self.variables.append(element.alias)
        self.edges.append(EdgePart(name, edge, ends))

    def _refuse_bound(self, name: str, at: At) -> None:
        if name in self.nodes:
            raise errors.constraint(f"'{name}' is bound twice", at)

    def _end(self, edge: EdgeType, slot: int, target: s.Expr, at: At) -> str | s.IdRef | None:
        match target:
            case s.Wild():
                return None
            case s.IdRef():
                return target
            case s.Name(name=name):
                if name not in self.nodes and name not in self._outer:
                    self.nodes[name] = _slot_types(self._ontology, edge, slot)
                    self.variables.append(name)
                return name
            case s.Param():
                raise errors.missing_parameter(target.name, target.at)
            case _:
                raise errors.constraint("an end of an edge is a name, _, #id or $parameter", at)


def check_size(plan: PatternPlan, at: At) -> None:
    if len(plan.nodes) + sum(len(edge.ends) + 1 for edge in plan.edges) > MOST_PARTS:
        raise errors.constraint(f"the pattern is too large: at most {MOST_PARTS} nodes, edges and their ends", at)


def _slot_types(ontology: Ontology, edge: EdgeType, slot: int) -> frozenset[int]:
    names = edge.slots[slot][1]
    if edge.protected and "any" in names:
        return frozenset(kind.id for kind in ontology.nodes.values())
    return ontology.accepting(names)


def conjuncts(expr: s.Expr | None) -> Iterator[s.Expr]:
    """The conditions that `and` joins at the top level."""
    if isinstance(expr, s.Binary) and expr.op == "and":
        yield from conjuncts(expr.left)
        yield from conjuncts(expr.right)
    elif isinstance(expr, s.Chain) and expr.operators[0] == "and":
        for operand in expr.operands:
            yield from conjuncts(operand)
    elif expr is not None:
        yield expr


PREFIX = 128
"""The index has this many leading characters of a string."""


class Bound(msgspec.Struct, frozen=True):
    """`variable.attribute op constant`."""

    variable: str
    attribute: str
    op: str
    value: str | int | float | bool


_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def bounds(expr: s.Expr | None) -> Iterator[Bound]:
    """The conjuncts that compare an attribute with a constant, on either side."""
    for condition in conjuncts(expr):
        if isinstance(condition, s.Binary) and condition.op in _MIRRORED:
            sides = (
                _bound(condition.left, condition.op, condition.right),
                _bound(condition.right, _MIRRORED[condition.op], condition.left),
            )
            yield from (bound for bound in sides if bound is not None)
        elif isinstance(condition, s.Binary) and condition.op == "starts with":
            yield from _prefix_bounds(condition)


def _prefix_bounds(condition: s.Binary) -> Iterator[Bound]:
    """The range of strings that begin with a constant."""
    least = _bound(condition.left, ">=", condition.right)
    if least is not None and isinstance(least.value, str):
        yield least
        # No string with that prefix is greater: the index has `PREFIX` characters of a string.
        greatest = least.value + chr(sys.maxunicode) * max(0, PREFIX - len(least.value))
        yield Bound(least.variable, least.attribute, "<=", greatest)


def _bound(side: s.Expr, op: str, other: s.Expr) -> Bound | None:
    value = _constant(other)
    if value is None or not isinstance(side, s.Attr) or not isinstance(side.of, s.Name):
        return None
    return Bound(side.of.name, side.name, op, value)


def _constant(expr: s.Expr) -> str | int | float | bool | None:
    match expr:
        case s.Literal():
            value: str | int | float | bool | None = literal(expr)
            return value
        case s.IdRef(id=entity_id):
            return entity_id
        case _:
            return None


def declared(bound: Bound, plan: PatternPlan, ontology: Ontology) -> Attribute | None:
    """The attribute whose index serves the bound. None when several attributes have that name, or none is indexed."""
    kinds = [ontology.by_id[number] for number in plan.types(bound.variable)]
    attributes = [kind.attributes[bound.attribute] for kind in kinds if bound.attribute in kind.attributes]
    if len({attribute.no for attribute in attributes}) != 1 or any(kind.protected for kind in kinds):
        return None
    attribute, kind, numbers = attributes[0], kind_of(bound.value), ("Int", "Float")
    if attribute.scalar != kind and not (attribute.scalar in numbers and kind in numbers):
        raise errors.wrong_type(f"'{attribute.name}' is {attribute.scalar} and cannot be compared with {kind}")
    return attribute


def check_bounds(expr: s.Expr | None, plan: PatternPlan, ontology: Ontology) -> None:
    """Refuse comparisons between types that cannot be compared."""
    _check_declared(expr, plan, ontology)
    outer = frozenset(plan.names)
    for exists in exists_in(expr):
        inner = plan_pattern(exists.pattern, ontology, outer)
        _check_declared(exists.where, inner, ontology)
        outer |= frozenset(inner.names)


def _check_declared(expr: s.Expr | None, plan: PatternPlan, ontology: Ontology) -> None:
    for bound in bounds(expr):
        if bound.variable in plan.names:
            declared(bound, plan, ontology)


def parts(expr: s.Expr | None) -> Iterator[s.Expr]:
    """The expression and all its subexpressions."""
    if expr is None:
        return
    yield expr
    for operand in _operands(expr):
        yield from parts(operand)


def _operands(expr: s.Expr | None) -> tuple[s.Expr | None, ...]:
    """The direct subexpressions. Those of an exists() are in its WHERE."""
    match expr:
        case s.Binary(left=left, right=right):
            return left, right
        case s.Chain(operands=operands):
            return operands
        case s.Unary(of=of) | s.IsNull(of=of) | s.Attr(of=of) | s.Sorted(by=of) | s.Exists(where=of):
            return (of,)
        case s.FunctionCall(args=args, where=where):
            return *args, where
        case s.ListOf(items=items):
            return items
        case _:
            return ()


def reads_other_entity(expr: s.Expr | None) -> bool:
    """Whether the expression reads an attribute of `#name`, an entity outside the match."""
    return any(isinstance(part, s.Attr) and isinstance(part.of, s.IdRef) for part in parts(expr))


def reads_clock(expr: s.Expr | None) -> bool:
    """Whether the expression may change its value by time alone."""
    return any(isinstance(part, s.FunctionCall) and part.name.lower() in CLOCKS for part in parts(expr))


def exists_in(expr: s.Expr | None) -> Iterator[s.Exists]:
    """Every exists() of an expression."""
    return (part for part in parts(expr) if isinstance(part, s.Exists))


class JoinedExists(msgspec.Struct):
    """An exists() joined with its enclosing pattern: finds the matches whose exists() a change may decide."""

    plan: PatternPlan
    own: frozenset[str]
    """Variables that only the exists() has."""


def joined_exists(expr: s.Expr | None, around: PatternPlan, ontology: Ontology) -> Iterator[JoinedExists]:
    """Every exists() of an expression, nested ones too, without their conditions."""
    if isinstance(expr, s.Exists):
        joined = _joined(around, plan_pattern(expr.pattern, ontology, frozenset(around.names)))
        yield joined
        around = joined.plan
    for operand in _operands(expr):
        yield from joined_exists(operand, around, ontology)


def _joined(around: PatternPlan, inner: PatternPlan) -> JoinedExists:
    nodes = {name: kinds for name, kinds in inner.nodes.items() if name not in around.names}
    edges = list(around.edges)
    for edge in inner.edges:
        is_taken = edge.name.startswith("~") or edge.name in around.names
        edges.append(msgspec.structs.replace(edge, name=f"~{len(edges)} within") if is_taken else edge)
    own = frozenset([*nodes, *(edge.name for edge in edges[len(around.edges) :])])
    return JoinedExists(PatternPlan({**around.nodes, **nodes}, edges, around.variables, around.first), own)


def is_connected(joined: JoinedExists) -> bool:
    """Whether edges connect every variable of the exists() with the enclosing pattern."""
    reached = set(joined.plan.names) - joined.own
    groups = [{edge.name, *(end for end in edge.ends if isinstance(end, str))} for edge in joined.plan.edges]
    while any(reached & group and not group <= reached for group in groups):
        reached |= {name for group in groups if reached & group for name in group}
    return joined.own <= reached


Kinds = dict[str, list[NodeType | EdgeType]]


def check_names(expr: s.Expr | None, plan: PatternPlan, ontology: Ontology) -> None:
    """Refuse variables and attributes that do not exist, before the search begins."""
    _check_names(expr, _kinds_of(plan, ontology), ontology)


def _kinds_of(plan: PatternPlan, ontology: Ontology) -> Kinds:
    return {name: [ontology.by_id[number] for number in plan.types(name)] for name in plan.names}


def _check_names(expr: s.Expr | None, kinds: Kinds, ontology: Ontology) -> None:
    match expr:
        case s.Attr(of=s.Name() as variable):
            _check_variable(variable, kinds)
            _check_attribute(expr, kinds[variable.name])
        case s.Name():
            _check_variable(expr, kinds)
        case s.Exists(pattern=pattern, where=where):
            inner = plan_pattern(pattern, ontology, frozenset(kinds))
            _check_names(where, {**kinds, **_kinds_of(inner, ontology)}, ontology)
        case _:
            for operand in _operands(expr):
                _check_names(operand, kinds, ontology)


def _check_variable(name: s.Name, kinds: Kinds) -> None:
    if name.name not in kinds:
        raise errors.unknown(f"'{name.name}' is not known here", name.at)


def _check_attribute(attr: s.Attr, kinds: list[NodeType | EdgeType]) -> None:
    """Refuse an attribute that none of the variable's types has."""
    if kinds and attr.name not in BUILT_IN and all(attr.name not in kind.attributes for kind in kinds):
        own_attribute(kinds[0], attr.name, attr.at)
