"""Binds parameters and session names into a statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import isfinite
from operator import is_not
from typing import Any, TypeVar

import msgspec

from ackwise.graph import ast as s
from ackwise.graph import errors

T = TypeVar("T")
DEEPEST = 100
"""Levels of nested lists in the value of a parameter."""


class Bindings(msgspec.Struct):
    """Names, parameters and identity of the session that runs a statement."""

    names: Mapping[str, str] = {}
    params: Mapping[str, Any] = {}
    session: str = ""
    actor: str | None = None


def closed(statement: T, bindings: Bindings) -> T:
    """The statement with its parameters and session names replaced by constants and ids."""
    replaced: T = _closed(statement, bindings, frozenset())
    return replaced


def _closed(node: Any, b: Bindings, bound: frozenset[str]) -> Any:
    """Replace names in a node. `bound` are variables of patterns around it, which hide session names."""
    if type(node) is tuple:
        changed = tuple([_closed(part, b, bound) for part in node])
        return changed if any(map(is_not, changed, node)) else node
    if not isinstance(node, s.Node):
        return node
    special = _SPECIAL.get(type(node))
    return special(node, b, bound) if special is not None else _fields_closed(node, b, bound)


def _fields_closed(node: s.Node, b: Bindings, bound: frozenset[str]) -> Any:
    """The node with the names in its fields replaced."""
    changes = {}
    for field in _parts(type(node)):
        value = getattr(node, field)
        if type(value) is tuple or isinstance(value, s.Node):
            new = _closed(value, b, bound)
            if new is not value:
                changes[field] = new
    return msgspec.structs.replace(node, **changes) if changes else node


@cache
def _parts(kind: type[s.Node]) -> tuple[str, ...]:
    """Fields that may contain nodes: all but the position."""
    return tuple(field for field in kind.__struct_fields__ if field != "at")


def _settle(node: s.SettleStatement, b: Bindings, bound: frozenset[str]) -> s.SettleStatement:
    if isinstance(node.delivery, s.IdRef):
        return s.SettleStatement(node.verb, s.Literal("string", node.delivery.id), node.no_retry, node.at)
    replaced: s.SettleStatement = _fields_closed(node, b, bound)
    return replaced


def _param(node: s.Param, b: Bindings, bound: frozenset[str]) -> s.Expr:
    return constant(_parameter(b, node.name, node.optional, node.at), node.name, node.at)


def _id_ref(node: s.IdRef, b: Bindings, bound: frozenset[str]) -> s.IdRef:
    return s.IdRef(_resolved(b, node.id), node.shown, node.at)


def _name(node: s.Name, b: Bindings, bound: frozenset[str]) -> s.Name | s.IdRef:
    if node.name not in bound and node.name in b.names:
        return s.IdRef(b.names[node.name], "#" + node.name, node.at)
    return node


def _call(node: s.FunctionCall, b: Bindings, bound: frozenset[str]) -> Any:
    if not node.args and node.name.lower() in ("current_session", "current_actor"):
        return _current(b, node.name.lower(), node.at)
    return _fields_closed(node, b, bound)


def _edge_element(node: s.EdgeElement, b: Bindings, bound: frozenset[str]) -> s.EdgeElement:
    """Keep bare names: in a pattern they are variables, never names of the session."""
    ends = tuple(end if isinstance(end, s.Name) else _closed(end, b, bound) for end in node.targets)
    return s.EdgeElement(node.type, ends, node.alias, node.at)


def _patterned(node: s.Match | s.Watch | s.Exists, b: Bindings, bound: frozenset[str]) -> Any:
    bound = bound | variables(node.pattern)
    if isinstance(node, s.Match):
        bound |= {p.alias for p in (node.returns.projections if node.returns else ()) if p.alias}
        bound |= spawned(node.mutations)
    return _fields_closed(node, b, bound)


def _option(node: s.Option, b: Bindings, bound: frozenset[str]) -> Any:
    if isinstance(node.value, s.Name) and node.key != "filter":
        return node
    return _fields_closed(node, b, bound)


def _inspect(node: s.Inspect, b: Bindings, bound: frozenset[str]) -> s.Inspect:
    """Keep the names after RETURN: they are attributes."""
    return s.Inspect(_closed(node.ref, b, bound), node.returns, node.at)


_SPECIAL: dict[type[s.Node], Callable[[Any, Bindings, frozenset[str]], Any]] = {
    s.SettleStatement: _settle,
    s.Param: _param,
    s.IdRef: _id_ref,
    s.Name: _name,
    s.FunctionCall: _call,
    s.EdgeElement: _edge_element,
    s.Match: _patterned,
    s.Watch: _patterned,
    s.Exists: _patterned,
    s.Option: _option,
    s.Inspect: _inspect,
}
"""Nodes with rules of their own. A dictionary, because each run of a statement passes through here."""


def variables(pattern: tuple[s.Element, ...]) -> frozenset[str]:
    """Every name that a pattern binds."""
    names: set[str] = set()
    for element in pattern:
        if isinstance(element, s.NodeElement):
            names.add(element.name)
        else:
            names |= {target.name for target in element.targets if isinstance(target, s.Name)}
            names |= {element.alias} if element.alias else set()
    return frozenset(names)


def spawned(mutations: tuple[s.Mutation, ...]) -> frozenset[str]:
    """Names that mutations give to new entities."""
    names: list[str | None] = []
    for mutation in mutations:
        if isinstance(mutation, s.Spawn):
            names += [item.name for item in mutation.items]
        elif isinstance(mutation, s.Link):
            names += [mutation.name, *(end.name for end in mutation.targets if isinstance(end, s.SpawnItem))]
    return frozenset(filter(None, names))


def _resolved(b: Bindings, text: str) -> str:
    if text == "self" and b.actor is not None:
        return b.actor
    return b.names.get(text, text)


def _current(b: Bindings, name: str, at: errors.At) -> s.IdRef:
    if name == "current_session":
        return s.IdRef(b.session, "#" + b.session, at)
    if b.actor is None:
        raise errors.unknown("this session has no actor", at)
    return s.IdRef(b.actor, "#" + b.actor, at)


def _parameter(b: Bindings, name: str, optional: bool, at: errors.At) -> Any:
    if name in b.params:
        return b.params[name]
    if optional:
        return None
    raise errors.missing_parameter(name, at)


def constant(value: Any, name: str, at: errors.At, depth: int = 0) -> s.Expr:
    """The value of a parameter as a constant of the language."""
    if depth > DEEPEST:
        raise errors.wrong_type(f"parameter '${name}' is nested too deeply", at)
    match value:
        case None:
            return s.Literal("null", None)
        case bool():
            return s.Literal("bool", value)
        case int():
            return s.Literal("int", value)
        case float():
            if not isfinite(value):
                raise errors.wrong_type(f"parameter '${name}' is {value}: not a value of the language", at)
            return s.Literal("float", value)
        case str():
            return s.Literal("string", value)
        case list() | tuple():
            return s.ListOf(tuple(constant(item, name, at, depth + 1) for item in value))
        case _:
            raise errors.wrong_type(f"parameter '${name}' is {type(value).__name__}: not a value of the language", at)
