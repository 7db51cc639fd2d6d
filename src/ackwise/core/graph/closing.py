"""A statement on its own: parameters, session names and session functions replaced by what they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, TypeVar

import msgspec

from ackwise.core.graph import faults
from ackwise.core.graph import syntax as s

T = TypeVar("T")
DEEPEST = 100
"""Lists in lists, in the value of a parameter."""


class Bindings(msgspec.Struct):
    """What a session knows when a statement is run."""

    names: Mapping[str, str] = {}
    params: Mapping[str, Any] = {}
    session: str = ""
    actor: str | None = None


def closed(statement: T, bindings: Bindings) -> T:
    found: T = _closed(statement, bindings, frozenset())
    return found


def _closed(node: Any, b: Bindings, bound: frozenset[str]) -> Any:
    match node:
        case s.Settle(verb=verb, delivery=s.IdRef(id=text), no_retry=no_retry, at=at):
            return s.Settle(verb, s.Literal("string", text), no_retry, at)
        case s.Param(name=name, optional=optional, at=at):
            return constant(_parameter(b, name, optional, at), name, at)
        case s.IdRef(id=text, shown=shown, at=at):
            return s.IdRef(_resolved(b, text), shown, at)
        case s.Name(name=name, at=at) if name not in bound and name in b.names:
            return s.IdRef(b.names[name], "#" + name, at)
        case s.Call(name=name, args=(), at=at) if name.lower() in ("current_session", "current_actor"):
            return _current(b, name.lower(), at)
        case s.EdgeElement(type=kind, targets=targets, alias=alias, at=at):
            # A bare name in a pattern is a variable, never a session's name.
            ends = tuple(one if isinstance(one, s.Name) else _closed(one, b, bound) for one in targets)
            return s.EdgeElement(kind, ends, alias, at)
        case s.Match(pattern=pattern) | s.Watch(pattern=pattern) | s.Exists(pattern=pattern):
            bound = bound | variables(pattern)
            if isinstance(node, s.Match):
                bound |= {p.alias for p in (node.returns.projections if node.returns else ()) if p.alias}
                bound |= spawned(node.mutations)
        case s.Option(key=key, value=s.Name()) if key != "filter":
            return node
        case s.Inspect(ref=ref, returns=returns, at=at):
            # Names behind RETURN are attributes.
            return s.Inspect(_closed(ref, b, bound), returns, at)
    if isinstance(node, tuple):
        changed = tuple([_closed(one, b, bound) for one in node])
        return changed if any(new is not old for new, old in zip(changed, node, strict=True)) else node
    if isinstance(node, msgspec.Struct):
        changes = {}
        for field in node.__struct_fields__:
            value = getattr(node, field)
            if isinstance(value, tuple | msgspec.Struct):
                new = _closed(value, b, bound)
                if new is not value:
                    changes[field] = new
        return msgspec.structs.replace(node, **changes) if changes else node
    return node


def variables(pattern: tuple[s.Element, ...]) -> frozenset[str]:
    """Every name that a pattern binds."""
    found: set[str] = set()
    for element in pattern:
        if isinstance(element, s.NodeElement):
            found.add(element.name)
        else:
            found |= {target.name for target in element.targets if isinstance(target, s.Name)}
            found |= {element.alias} if element.alias else set()
    return frozenset(found)


def spawned(mutations: tuple[s.Mutation, ...]) -> frozenset[str]:
    """Names that mutations give to what they make."""
    found: set[str] = set()
    for mutation in mutations:
        if isinstance(mutation, s.Spawn):
            found |= {item.name for item in mutation.items if item.name}
        elif isinstance(mutation, s.Link):
            found |= {mutation.name} if mutation.name else set()
            found |= {t.name for t in mutation.targets if isinstance(t, s.SpawnItem) and t.name}
    return frozenset(found)


def _resolved(b: Bindings, text: str) -> str:
    if text == "self" and b.actor is not None:
        return b.actor
    return b.names.get(text, text)


def _current(b: Bindings, name: str, at: faults.At) -> s.IdRef:
    if name == "current_session":
        return s.IdRef(b.session, "#" + b.session, at)
    if b.actor is None:
        raise faults.unknown("this session has no actor", at)
    return s.IdRef(b.actor, "#" + b.actor, at)


def _parameter(b: Bindings, name: str, optional: bool, at: faults.At) -> Any:
    if name in b.params:
        return b.params[name]
    if optional:
        return None
    raise faults.missing_parameter(name, at)


def constant(value: Any, name: str, at: faults.At, deep: int = 0) -> s.Expr:
    """A parameter's value as the constant it stands for."""
    if deep > DEEPEST:
        raise faults.wrong_type(f"parameter '${name}' is nested too deeply", at)
    match value:
        case None:
            return s.Literal("null", None)
        case bool():
            return s.Literal("bool", value)
        case int():
            return s.Literal("int", value)
        case float():
            if not isfinite(value):
                raise faults.wrong_type(f"parameter '${name}' is {value}: not a value of the language", at)
            return s.Literal("float", value)
        case str():
            return s.Literal("string", value)
        case list() | tuple():
            return s.ListOf(tuple(constant(one, name, at, deep + 1) for one in value))
        case _:
            raise faults.wrong_type(f"parameter '${name}' is {type(value).__name__}: not a value of the language", at)
