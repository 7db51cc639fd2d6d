"""Checks declarations and prints them as DDL."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ackwise.graph import ast as s
from ackwise.graph import errors
from ackwise.graph.constraints import accepted, expression, violation
from ackwise.graph.errors import At
from ackwise.graph.expressions import Scope, evaluate
from ackwise.graph.ontology import Ontology
from ackwise.graph.values import fitting


def check(declared: s.Declaration, ontology: Ontology, scope: Scope) -> None:
    """Refuse modifiers that no value, or no number of edges, can satisfy. Call it after `Ontology.add`."""
    match declared:
        case s.AliasDecl(name=name, type=kind, at=at) if ontology.is_scalar(kind):
            scalar, modifiers = ontology.scalar(s.TypeRef((name,), at=at))
            _check_values(name, scalar, modifiers, at)
        case s.NodeDecl(attributes=attributes) | s.EdgeDecl(attributes=attributes):
            owner = ontology.nodes.get(declared.name) or ontology.edges[declared.name]
            for written in attributes:
                attribute = owner.attributes[written.name]
                _check_values(written.name, attribute.scalar, attribute.checks, written.at)
                if attribute.default is not None:
                    accepted(attribute, evaluate(attribute.default, scope), written.at)
    if isinstance(declared, s.EdgeDecl):
        _check_cards(declared)


def _check_cards(edge: s.EdgeDecl) -> None:
    seen: set[Any] = set()
    for modifier in edge.modifiers:
        if modifier.name == "->":
            end, least, most = modifier.values
            if end in seen:
                raise errors.constraint(f"'{edge.name}' says twice how many there are of '{end}'", modifier.at)
            if isinstance(most, int) and isinstance(least, int) and (most < least or most < 1):
                raise errors.constraint(f"'{edge.name}': no number of edges is within {least}..{most}", modifier.at)
            seen.add(end)


def _check_values(name: str, scalar: str, checks: tuple[s.Modifier, ...], at: At) -> None:
    """Refuse modifiers that contradict each other."""
    low, high = -math.inf, math.inf
    least, most = 0, 1 << 62
    for check in checks:
        values: tuple[Any, ...] = check.values
        match check.name:
            case "match":
                expression(values[0], check.at)
            case "length":
                least, most = max(least, values[0]), min(most, values[1])
            case "in":
                for value in values:
                    fitting(value, scalar, name, check.at)
            case ">=" | ">" | "<=" | "<" | "..":
                low = max(low, _low(check.name, values, scalar))
                high = min(high, _high(check.name, values, scalar))
        if low > high or least > most:
            raise errors.constraint(f"'{name}': no value is left by its modifiers", check.at)
    if scalar == "Float" and low == high and any(check.name in "<>" and check.values == (low,) for check in checks):
        raise errors.constraint(f"'{name}': no value is left by its modifiers", at)
    for check in checks:
        if check.name == "in" and all(any(violation(other, value) for other in checks) for value in check.values):
            raise errors.constraint(f"'{name}': none of the values in its list keeps its other modifiers", check.at)


def _low(op: str, values: tuple[Any, ...], scalar: str) -> float:
    """The smallest number that a modifier allows."""
    if op not in (">=", ">", ".."):
        return -math.inf
    if scalar == "Float":
        return float(values[0])
    number: float = values[0]
    return math.floor(number) + 1 if op == ">" else math.ceil(number)


def _high(op: str, values: tuple[Any, ...], scalar: str) -> float:
    """The largest number that a modifier allows."""
    if op not in ("<=", "<", ".."):
        return math.inf
    if scalar == "Float":
        return float(values[-1])
    number: float = values[-1]
    return math.ceil(number) - 1 if op == "<" else math.floor(number)


def declaration(declared: s.Declaration) -> str:
    """A declaration as a user writes it."""
    match declared:
        case s.AliasDecl(name=name, type=kind, modifiers=modifiers):
            return f"type {name} = {_type(kind)}{_modifiers(modifiers)}"
        case s.NodeDecl(name=name, parents=parents, attributes=attributes, flags=flags):
            above = f": {', '.join(parents)}" if parents else ""
            return f"{' '.join([*flags, 'node'])} {name}{above} {{ {_attributes(attributes)} }}"
        case s.EdgeDecl(name=name, slots=slots, modifiers=modifiers, attributes=attributes):
            ends = ", ".join(f"{slot}: {_type(kind)}" for slot, kind in slots)
            body = f" {{ {_attributes(attributes)} }}" if attributes else ""
            return f"edge {name}({ends}){_modifiers(modifiers)}{body}"


def _type(ref: s.TypeRef) -> str:
    return " | ".join(ref.names) + ("?" if ref.nullable else "")


def _attributes(attributes: tuple[s.AttributeDecl, ...]) -> str:
    return ", ".join(f"{a.name}: {_type(a.type)}{_modifiers(a.modifiers)}{_default(a)}" for a in attributes)


def _default(attribute: s.AttributeDecl) -> str:
    match attribute.default:
        case None:
            return ""
        case s.Literal(text=text) if text:
            return f" = {text}"
        case s.Literal(value=value):
            return f" = {msgspec.json.encode(value).decode()}"
        case s.FunctionCall(name=name, args=()):
            return f" = {name}()"
        case _:
            return " = ..."


def _modifiers(modifiers: tuple[s.Modifier, ...]) -> str:
    return f" [{', '.join(map(_modifier, modifiers))}]" if modifiers else ""


def _modifier(modifier: s.Modifier) -> str:
    values = [msgspec.json.encode(value).decode() for value in modifier.values]
    match modifier.name:
        case "..":
            return "..".join(values)
        case ">=" | "<=" | ">" | "<" as op:
            return f"{op} {values[0]}"
        case "length":
            return f"length: {'..'.join(values)}"
        case "in":
            return f"in: [{', '.join(values)}]"
        case "->":
            least, most = values[1], "*" if modifier.values[2] is None else values[2]
            return f"{modifier.values[0]} -> {least if least == most else f'{least}..{most}'}"
        case name:
            return f"{name}: {values[0]}" if values else name
