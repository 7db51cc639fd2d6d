"""What a pattern binds, and which types and attributes its matches depend on."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ackwise.core.graph import faults
from ackwise.core.graph import syntax as s
from ackwise.core.graph.evaluating import literal
from ackwise.core.graph.faults import At
from ackwise.core.graph.ontology import Attribute, EdgeType, NodeType, Ontology, own_attribute
from ackwise.core.graph.values import kind_of

CLOCKS = ("now", "wall_time", "logical_time")
MOST_PARTS = 50
"""Every part is a table to be joined, and databases join a few dozen."""


class EdgePart(msgspec.Struct, frozen=True):
    """An edge of a pattern: its variable (made up when it has none) and what stands at its ends."""

    name: str
    type: EdgeType
    ends: tuple[str | s.IdRef | None, ...]


class Plan(msgspec.Struct):
    """A pattern ready to be looked for: node variables with the ids of their types, edges, shown variables."""

    nodes: dict[str, frozenset[int]]
    edges: list[EdgePart]
    variables: tuple[str, ...]
    first: str
    """The variable of the first element: what a consume watch consumes."""

    def types(self, name: str) -> frozenset[int]:
        if name in self.nodes:
            return self.nodes[name]
        return next(frozenset({edge.type.id}) for edge in self.edges if edge.name == name)

    @property
    def names(self) -> list[str]:
        return [*self.nodes, *(edge.name for edge in self.edges)]


def plan(pattern: tuple[s.Element, ...], ontology: Ontology, outer: frozenset[str] = frozenset()) -> Plan:
    """`outer` are variables of an enclosing pattern, which an exists() may mention."""
    nodes: dict[str, frozenset[int]] = {}
    edges: list[EdgePart] = []
    shown: list[str] = []
    first = ""
    for element in pattern:
        if isinstance(element, s.NodeElement):
            if element.name in nodes:
                raise faults.constraint(f"'{element.name}' is bound twice", element.at)
            nodes[element.name] = ontology.accepting(element.types, element.at)
            shown.append(element.name)
            first = first or element.name
    for number, element in enumerate(pattern):
        if isinstance(element, s.EdgeElement):
            edge = ontology.edge(element.type, element.at)
            if len(element.targets) != len(edge.slots):
                raise faults.constraint(
                    f"'{edge.name}' has {len(edge.slots)} ends, not {len(element.targets)}", element.at
                )
            name = element.alias or f"~{number}"
            if name in nodes:
                raise faults.constraint(f"'{name}' is bound twice", element.at)
            ends: list[str | s.IdRef | None] = []
            for slot, target in enumerate(element.targets):
                match target:
                    case s.Wild():
                        ends.append(None)
                    case s.IdRef():
                        ends.append(target)
                    case s.Name(name=end):
                        if end not in nodes and end not in outer:
                            nodes[end] = _slot_types(ontology, edge, slot)
                            shown.append(end)
                        ends.append(end)
                    case s.Param(name=missing, at=at):
                        raise faults.missing_parameter(missing, at)
                    case _:
                        raise faults.constraint("an end of an edge is a name, _, #id or $parameter", element.at)
            if element.alias:
                shown.append(element.alias)
            edges.append(EdgePart(name, edge, tuple(ends)))
    start = pattern[0]
    if isinstance(start, s.EdgeElement):
        first = edges[0].name
    made = Plan(nodes, edges, tuple(shown), first)
    check_size(made, start.at)
    return made


def check_size(plan_: Plan, at: At) -> None:
    if len(plan_.nodes) + sum(len(edge.ends) + 1 for edge in plan_.edges) > MOST_PARTS:
        raise faults.constraint(f"the pattern is too large: at most {MOST_PARTS} nodes, edges and their ends", at)


def _slot_types(ontology: Ontology, edge: EdgeType, slot: int) -> frozenset[int]:
    names = edge.slots[slot][1]
    if edge.protected and "any" in names:
        return frozenset(kind.id for kind in ontology.nodes.values())
    return ontology.accepting(names)


def conjuncts(expr: s.Expr | None) -> Iterator[s.Expr]:
    """The conditions that all have to hold."""
    if isinstance(expr, s.Binary) and expr.op == "and":
        yield from conjuncts(expr.left)
        yield from conjuncts(expr.right)
    elif expr is not None:
        yield expr


class Bound(msgspec.Struct, frozen=True):
    """`variable.attribute op constant`."""

    variable: str
    attribute: str
    op: str
    value: str | int | float | bool


_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def bounds(expr: s.Expr | None) -> Iterator[Bound]:
    """The conjuncts that compare an attribute with a constant."""
    for one in conjuncts(expr):
        if isinstance(one, s.Binary) and one.op in _MIRRORED:
            for side, other, op in ((one.left, one.right, one.op), (one.right, one.left, _MIRRORED[one.op])):
                if isinstance(side, s.Attr) and isinstance(side.of, s.Name):
                    value = _constant(other)
                    if value is not None:
                        yield Bound(side.of.name, side.name, op, value)


def _constant(expr: s.Expr) -> str | int | float | bool | None:
    match expr:
        case s.Literal():
            value: str | int | float | bool | None = literal(expr)
            return value
        case s.IdRef(id=found):
            return found
        case _:
            return None


def declared(bound: Bound, plan_: Plan, ontology: Ontology) -> Attribute | None:
    """The one attribute that is meant, if the constant can be compared with it; None when there are several, or it is
    not indexed."""
    kinds = [ontology.by_id[number] for number in plan_.types(bound.variable)]
    found = {kind.attributes[bound.attribute].no for kind in kinds if bound.attribute in kind.attributes}
    if len(found) != 1 or any(kind.protected for kind in kinds):
        return None
    attribute = next(kind.attributes[bound.attribute] for kind in kinds if bound.attribute in kind.attributes)
    kind, numbers = kind_of(bound.value), ("Int", "Float")
    if attribute.scalar != kind and not (attribute.scalar in numbers and kind in numbers):
        raise faults.wrong_type(f"'{attribute.name}' is {attribute.scalar} and cannot be compared with {kind}")
    return attribute


def check_bounds(expr: s.Expr | None, plan_: Plan, ontology: Ontology) -> None:
    """Refuse comparisons that can never be made, before anybody depends on them."""
    for bound in bounds(expr):
        if bound.variable in plan_.names:
            declared(bound, plan_, ontology)
    outer = frozenset(plan_.names)
    for exists in exists_in(expr):
        inner = plan(exists.pattern, ontology, outer)
        for bound in bounds(exists.where):
            if bound.variable in inner.names:
                declared(bound, inner, ontology)
        outer |= frozenset(inner.names)


def parts(expr: s.Expr | None) -> Iterator[s.Expr]:
    """The expression and all that it is made of."""
    if expr is None:
        return
    yield expr
    for one in _inner(expr):
        yield from parts(one)


def _inner(expr: s.Expr | None) -> tuple[s.Expr | None, ...]:
    """What an expression is made of."""
    match expr:
        case s.Binary(left=left, right=right):
            return left, right
        case s.Unary(of=of) | s.IsNull(of=of) | s.Attr(of=of) | s.Sorted(by=of) | s.Exists(where=of):
            return (of,)
        case s.Call(args=args, where=where):
            return *args, where
        case s.ListOf(items=items):
            return items
        case _:
            return ()


def looks_elsewhere(expr: s.Expr | None) -> bool:
    """Whether an attribute of `#name` is in it: an entity that is no part of the match."""
    return any(isinstance(one, s.Attr) and isinstance(one.of, s.IdRef) for one in parts(expr))


def tells_time(expr: s.Expr | None) -> bool:
    """Whether it may become true, or false, by time alone."""
    return any(isinstance(one, s.Call) and one.name.lower() in CLOCKS for one in parts(expr))


def exists_in(expr: s.Expr | None) -> Iterator[s.Exists]:
    """Every exists() of an expression."""
    return (one for one in parts(expr) if isinstance(one, s.Exists))


class Beside(msgspec.Struct):
    """An exists() joined with the pattern it stands in: what may make it true or false, next to which match."""

    plan: Plan
    own: frozenset[str]
    """The variables that are in the exists() only."""


def beside(expr: s.Expr | None, around: Plan, ontology: Ontology) -> Iterator[Beside]:
    """Every exists() of an expression, also within another one. Their conditions are left out."""
    if isinstance(expr, s.Exists):
        found = _joined(around, plan(expr.pattern, ontology, frozenset(around.names)))
        yield found
        around = found.plan
    for one in _inner(expr):
        yield from beside(one, around, ontology)


def _joined(around: Plan, inner: Plan) -> Beside:
    nodes = {name: kinds for name, kinds in inner.nodes.items() if name not in around.names}
    edges = list(around.edges)
    for edge in inner.edges:
        known = edge.name.startswith("~") or edge.name in around.names
        edges.append(msgspec.structs.replace(edge, name=f"~{len(edges)} within") if known else edge)
    own = frozenset([*nodes, *(edge.name for edge in edges[len(around.edges) :])])
    return Beside(Plan({**around.nodes, **nodes}, edges, around.variables, around.first), own)


def is_joined(found: Beside) -> bool:
    """Whether edges lead from all that is in the exists() to the pattern around it."""
    near = set(found.plan.names) - found.own
    far = {edge.name: {edge.name, *(end for end in edge.ends if isinstance(end, str))} for edge in found.plan.edges}
    while any(near & ends and not ends <= near for ends in far.values()):
        near |= {name for ends in far.values() if near & ends for name in ends}
    return found.own <= near


def check_names(expr: s.Expr | None, plan_: Plan, ontology: Ontology) -> None:
    """Refuse unknown variables and attributes before anything is looked for."""
    kinds: dict[str, list[NodeType | EdgeType]] = {
        name: [ontology.by_id[number] for number in plan_.types(name)] for name in plan_.names
    }
    _check(expr, kinds, ontology)


def _check(expr: s.Expr | None, kinds: dict[str, list[NodeType | EdgeType]], ontology: Ontology) -> None:
    match expr:
        case s.Attr(of=s.Name(name=name, at=at), name=attribute):
            if name not in kinds:
                raise faults.unknown(f"'{name}' is not known here", at)
            if attribute not in ("id", "_id", "_type", "_targets"):
                refusals = 0
                for kind in kinds[name]:
                    refusals += attribute not in kind.attributes
                if kinds[name] and refusals == len(kinds[name]):
                    own_attribute(kinds[name][0], attribute, expr.at)
        case s.Name(name=name, at=at):
            if name not in kinds:
                raise faults.unknown(f"'{name}' is not known here", at)
        case s.Binary(left=left, right=right):
            _check(left, kinds, ontology)
            _check(right, kinds, ontology)
        case s.Unary(of=of) | s.IsNull(of=of) | s.Attr(of=of) | s.Sorted(by=of):
            _check(of, kinds, ontology)
        case s.Call(args=args, where=where):
            for arg in (*args, where):
                _check(arg, kinds, ontology)
        case s.ListOf(items=items):
            for item in items:
                _check(item, kinds, ontology)
        case s.Exists(pattern=pattern, where=where):
            inner = plan(pattern, ontology, frozenset(kinds))
            more = {name: [ontology.by_id[number] for number in inner.types(name)] for name in inner.names}
            _check(where, {**kinds, **more}, ontology)
        case _:
            return
