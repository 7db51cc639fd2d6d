"""The syntax tree of MEW. Every node is a plain value: a watch is stored with the pattern it was made with."""

from __future__ import annotations

from typing import Literal as OneOf

import msgspec

from ackwise.core.graph.faults import NOWHERE, At


class Node(msgspec.Struct, frozen=True, tag=True, tag_field="_", omit_defaults=True):
    """Base of all nodes."""


# expressions

Kind = OneOf["string", "int", "float", "bool", "null", "timestamp", "duration"]


class Literal(Node, frozen=True):
    """A constant. Timestamps and durations are milliseconds; `text` is how the user spelled it."""

    kind: Kind
    value: str | int | float | bool | None = None
    text: str = ""


class Param(Node, frozen=True):
    name: str
    optional: bool = False
    at: At = NOWHERE


class IdRef(Node, frozen=True):
    """`#name`: `id` is the literal id it stands for, `shown` what the user wrote."""

    id: str
    shown: str = ""
    at: At = NOWHERE


class Name(Node, frozen=True):
    name: str
    at: At = NOWHERE


class Wild(Node, frozen=True):
    """`_`: anything."""


class Attr(Node, frozen=True):
    of: Expr
    name: str
    at: At = NOWHERE


class Call(Node, frozen=True):
    name: str
    args: tuple[Expr, ...] = ()
    distinct: bool = False
    star: bool = False
    where: Expr | None = None
    at: At = NOWHERE


class Exists(Node, frozen=True):
    pattern: tuple[Element, ...]
    where: Expr | None = None


class Unary(Node, frozen=True):
    op: OneOf["not", "-"]
    of: Expr


class Binary(Node, frozen=True):
    op: str
    left: Expr
    right: Expr
    at: At = NOWHERE


class IsNull(Node, frozen=True):
    of: Expr
    negated: bool = False


class ListOf(Node, frozen=True):
    items: tuple[Expr, ...]


class Sorted(Node, frozen=True):
    """An expression with a direction, as in ORDER BY."""

    by: Expr
    descending: bool = False


Expr = (
    Literal | Param | IdRef | Name | Wild | Attr | Call | Exists | Unary | Binary | IsNull | ListOf | Sorted
)  # fmt: skip


# patterns


class NodeElement(Node, frozen=True):
    name: str
    types: tuple[str, ...]
    at: At = NOWHERE


class EdgeElement(Node, frozen=True):
    type: str
    targets: tuple[Expr, ...]
    alias: str | None = None
    at: At = NOWHERE


Element = NodeElement | EdgeElement


class Projection(Node, frozen=True):
    """One column of a RETURN; `of` None is `*`."""

    of: Expr | None
    name: str
    alias: str | None = None


class Return(Node, frozen=True):
    projections: tuple[Projection, ...]
    distinct: bool = False


# declarations


class TypeRef(Node, frozen=True):
    names: tuple[str, ...]
    nullable: bool = False
    at: At = NOWHERE


class Modifier(Node, frozen=True):
    """`required`, `length: 1..40`, `>= 0` and the like, as they are written."""

    name: str
    values: tuple[str | int | float | bool | None, ...] = ()
    at: At = NOWHERE


class AttributeDecl(Node, frozen=True):
    name: str
    type: TypeRef
    modifiers: tuple[Modifier, ...] = ()
    default: Expr | None = None
    at: At = NOWHERE


class AliasDecl(Node, frozen=True):
    name: str
    type: TypeRef
    modifiers: tuple[Modifier, ...] = ()
    at: At = NOWHERE


class NodeDecl(Node, frozen=True):
    name: str
    parents: tuple[str, ...] = ()
    attributes: tuple[AttributeDecl, ...] = ()
    flags: tuple[str, ...] = ()
    at: At = NOWHERE


class EdgeDecl(Node, frozen=True):
    name: str
    slots: tuple[tuple[str, TypeRef], ...]
    modifiers: tuple[Modifier, ...] = ()
    attributes: tuple[AttributeDecl, ...] = ()
    at: At = NOWHERE


Declaration = AliasDecl | NodeDecl | EdgeDecl


# statements


class Ontology(Node, frozen=True):
    """Declarations that are made together; a bare declaration is an ontology without a name."""

    declarations: tuple[Declaration, ...]
    name: str | None = None
    at: At = NOWHERE


Assignments = tuple[tuple[str, Expr], ...]


class Returning(Node, frozen=True):
    """(path, column) pairs; none means `*`."""

    items: tuple[tuple[tuple[str, ...], str], ...] = ()


class SpawnItem(Node, frozen=True):
    name: str | None
    type: str
    values: Assignments = ()
    at: At = NOWHERE


class Spawn(Node, frozen=True):
    items: tuple[SpawnItem, ...]
    returning: Returning | None = None
    at: At = NOWHERE


class Chosen(Node, frozen=True):
    """`{ MATCH ... }` where an entity is expected."""

    match: Match


Target = IdRef | Name | Param | Chosen | SpawnItem | Wild


class Link(Node, frozen=True):
    type: str
    targets: tuple[Target, ...]
    values: Assignments = ()
    name: str | None = None
    if_not_exists: bool = False
    returning: Returning | None = None
    at: At = NOWHERE


class Set(Node, frozen=True):
    target: Target
    values: Assignments
    returning: Returning | None = None
    at: At = NOWHERE


class Kill(Node, frozen=True):
    target: Target
    cascade: bool | None = None
    returning: Returning | None = None
    at: At = NOWHERE


class Unlink(Node, frozen=True):
    """An edge itself, or with `type` every edge of that type between the targets."""

    targets: tuple[Target, ...]
    type: str | None = None
    returning: Returning | None = None
    at: At = NOWHERE


Mutation = Spawn | Link | Set | Kill | Unlink


class Match(Node, frozen=True):
    pattern: tuple[Element, ...]
    where: Expr | None = None
    returns: Return | None = None
    order: tuple[Sorted, ...] = ()
    limit: Expr | None = None
    offset: Expr | None = None
    mutations: tuple[Mutation, ...] = ()
    at: At = NOWHERE


class Inspect(Node, frozen=True):
    ref: IdRef
    returns: Return | None = None
    at: At = NOWHERE


class Begin(Node, frozen=True):
    at: At = NOWHERE


class Commit(Node, frozen=True):
    at: At = NOWHERE


class Rollback(Node, frozen=True):
    at: At = NOWHERE


class Tick(Node, frozen=True):
    amount: int = 1
    at: At = NOWHERE


class Option(Node, frozen=True):
    key: str
    value: Expr
    at: At = NOWHERE


class Watch(Node, frozen=True):
    pattern: tuple[Element, ...]
    returns: Return
    where: Expr | None = None
    options: tuple[Option, ...] = ()
    name: str | None = None
    text: str = ""
    at: At = NOWHERE


class Settle(Node, frozen=True):
    """ACK, NACK and NACK [no_retry]."""

    verb: OneOf["ACK", "NACK"]
    delivery: Expr
    no_retry: bool = False
    at: At = NOWHERE


class Manage(Node, frozen=True):
    verb: OneOf["PAUSE", "RESUME", "CANCEL"]
    ref: IdRef
    at: At = NOWHERE


class Alter(Node, frozen=True):
    ref: IdRef
    options: tuple[Option, ...]
    at: At = NOWHERE


Statement = (
    Ontology | Spawn | Link | Set | Kill | Unlink | Match | Inspect | Begin | Commit | Rollback | Tick | Watch
    | Settle | Manage | Alter
)  # fmt: skip
