"""Whether a declaration can be kept at all. It stands for ever, so what could never be met is refused at once."""

from __future__ import annotations

import math
from typing import Any

from ackwise.core.graph import faults
from ackwise.core.graph import syntax as s
from ackwise.core.graph.checking import accepted, broken
from ackwise.core.graph.evaluating import Scope, evaluate
from ackwise.core.graph.faults import At
from ackwise.core.graph.ontology import Ontology
from ackwise.core.graph.regular import Regular
from ackwise.core.graph.values import fitting


def check(declared: s.Declaration, ontology: Ontology, scope: Scope) -> None:
    """Refuse what no value and no number of edges could meet. The ontology knows the declaration already."""
    match declared:
        case s.AliasDecl(name=name, type=kind, at=at) if ontology.is_scalar(kind):
            scalar, modifiers = ontology.scalar(s.TypeRef((name,), at=at))
            _check_values(name, scalar, modifiers, at)
        case s.NodeDecl(attributes=attributes) | s.EdgeDecl(attributes=attributes):
            kind_of = ontology.nodes.get(declared.name) or ontology.edges[declared.name]
            for one in attributes:
                attribute = kind_of.attributes[one.name]
                _check_values(one.name, attribute.scalar, attribute.checks, one.at)
                if attribute.default is not None:
                    accepted(attribute, evaluate(attribute.default, scope), one.at)
    if isinstance(declared, s.EdgeDecl):
        _check_cards(declared)


def _check_cards(edge: s.EdgeDecl) -> None:
    seen: set[Any] = set()
    for modifier in edge.modifiers:
        if modifier.name == "->":
            end, least, most = modifier.values
            if end in seen:
                raise faults.constraint(f"'{edge.name}' says twice how many there are of '{end}'", modifier.at)
            if isinstance(most, int) and isinstance(least, int) and (most < least or most < 1):
                raise faults.constraint(f"'{edge.name}': no number of edges is within {least}..{most}", modifier.at)
            seen.add(end)


def _check_values(name: str, scalar: str, checks: tuple[s.Modifier, ...], at: At) -> None:
    """Some value must be left that keeps all of them."""
    low, high = -math.inf, math.inf
    least, most = 0, 1 << 62
    for check in checks:
        values: tuple[Any, ...] = check.values
        match check.name:
            case "match":
                Regular(values[0], check.at)
            case "length":
                least, most = max(least, values[0]), min(most, values[1])
            case "in":
                for value in values:
                    fitting(value, scalar, name, check.at)
            case ">=" | ">" | "<=" | "<" | "..":
                low = max(low, _low(check.name, values, scalar))
                high = min(high, _high(check.name, values, scalar))
        if low > high or least > most:
            raise faults.constraint(f"'{name}': no value is left by its modifiers", check.at)
    if scalar == "Float" and low == high and any(check.name in "<>" and check.values == (low,) for check in checks):
        raise faults.constraint(f"'{name}': no value is left by its modifiers", at)
    for check in checks:
        if check.name == "in" and all(any(broken(one, value) for one in checks) for value in check.values):
            raise faults.constraint(f"'{name}': none of the values in its list keeps its other modifiers", check.at)


def _low(op: str, values: tuple[Any, ...], scalar: str) -> float:
    """The least number that a modifier allows."""
    if op not in (">=", ">", ".."):
        return -math.inf
    if scalar == "Float":
        return float(values[0])
    number: float = values[0]
    return math.floor(number) + 1 if op == ">" else math.ceil(number)


def _high(op: str, values: tuple[Any, ...], scalar: str) -> float:
    if op not in ("<=", "<", ".."):
        return math.inf
    if scalar == "Float":
        return float(values[-1])
    number: float = values[-1]
    return math.ceil(number) - 1 if op == "<" else math.floor(number)
