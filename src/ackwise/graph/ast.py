"""Syntax tree of MEW."""

from __future__ import annotations

from typing import Literal as OneOf

import msgspec

from ackwise.graph.errors import NOWHERE, At


class Node(msgspec.Struct, frozen=True, tag_field="_", omit_defaults=True):
    """Base of all nodes. Watches store their nodes, so a class may change its name, but never its tag."""


def tag_of(node: Node) -> str:
    """The stored tag of a node's class."""
    return str(type(node).__struct_config__.tag)


# expressions

Kind = OneOf["string", "int", "float", "bool", "null", "timestamp", "duration"]


class Literal(Node, frozen=True, tag="Literal"):
    """A constant. Timestamps and durations are milliseconds. `text` is the user's spelling."""

    kind: Kind
    value: str | int | float | bool | None = None
    text: str = ""


class Param(Node, frozen=True, tag="Param"):
    name: str
    optional: bool = False
    at: At = NOWHERE


class IdRef(Node, frozen=True, tag="IdRef"):
    """`#name`. `id` is the id of the entity, `shown` the user's spelling."""

    id: str
    shown: str = ""
    at: At = NOWHERE


class Name(Node, frozen=True, tag="Name"):
    name: str
    at: At = NOWHERE


class Wild(Node, frozen=True, tag="Wild"):
    """`_`: anything."""


class Attr(Node, frozen=True, tag="Attr"):
    of: Expr
    name: str
    at: At = NOWHERE


class FunctionCall(Node, frozen=True, tag="Call"):
    name: str
    args: tuple[Expr, ...] = ()
    distinct: bool = False
    star: bool = False
    where: Expr | None = None
    at: At = NOWHERE


class Exists(Node, frozen=True, tag="Exists"):
    pattern: tuple[Element, ...]
    where: Expr | None = None


class Unary(Node, frozen=True, tag="Unary"):
    op: OneOf["not", "-"]
    of: Expr


class Binary(Node, frozen=True, tag="Binary"):
    op: str
    left: Expr
    right: Expr
    at: At = NOWHERE


class Chain(Node, frozen=True, tag="Chain"):
    """`a + b - c`: operators of one precedence, from left to right. A flat list, so that a long chain is not deep."""

    operands: tuple[Expr, ...]
    operators: tuple[str, ...]
    """The operator before each operand but the first."""
    at: At = NOWHERE


class IsNull(Node, frozen=True, tag="IsNull"):
    of: Expr
    negated: bool = False


class ListOf(Node, frozen=True, tag="ListOf"):
    items: tuple[Expr, ...]


class Sorted(Node, frozen=True, tag="Sorted"):
    """An expression with a direction, as in ORDER BY."""

    by: Expr
    descending: bool = False


Expr = (
    Literal | Param | IdRef | Name | Wild | Attr | FunctionCall | Exists | Unary | Binary | Chain | IsNull | ListOf
    | Sorted
)  # fmt: skip


# patterns


class NodeElement(Node, frozen=True, tag="NodeElement"):
    name: str
    types: tuple[str, ...]
    at: At = NOWHERE


class EdgeElement(Node, frozen=True, tag="EdgeElement"):
    type: str
    targets: tuple[Expr, ...]
    alias: str | None = None
    at: At = NOWHERE


Element = NodeElement | EdgeElement


class Projection(Node, frozen=True, tag="Projection"):
    """One column of a RETURN. `*` has no expression."""

    of: Expr | None
    name: str
    alias: str | None = None


class Return(Node, frozen=True, tag="Return"):
    projections: tuple[Projection, ...]
    distinct: bool = False


# declarations


class TypeRef(Node, frozen=True, tag="TypeRef"):
    names: tuple[str, ...]
    nullable: bool = False
    at: At = NOWHERE


class Modifier(Node, frozen=True, tag="Modifier"):
    """A modifier such as `required`, `length: 1..40` or `>= 0`."""

    name: str
    values: tuple[str | int | float | bool | None, ...] = ()
    at: At = NOWHERE


class AttributeDecl(Node, frozen=True, tag="AttributeDecl"):
    name: str
    type: TypeRef
    modifiers: tuple[Modifier, ...] = ()
    default: Expr | None = None
    at: At = NOWHERE


class AliasDecl(Node, frozen=True, tag="AliasDecl"):
    name: str
    type: TypeRef
    modifiers: tuple[Modifier, ...] = ()
    at: At = NOWHERE


class NodeDecl(Node, frozen=True, tag="NodeDecl"):
    name: str
    parents: tuple[str, ...] = ()
    attributes: tuple[AttributeDecl, ...] = ()
    flags: tuple[str, ...] = ()
    at: At = NOWHERE


class EdgeDecl(Node, frozen=True, tag="EdgeDecl"):
    name: str
    slots: tuple[tuple[str, TypeRef], ...]
    modifiers: tuple[Modifier, ...] = ()
    attributes: tuple[AttributeDecl, ...] = ()
    at: At = NOWHERE


Declaration = AliasDecl | NodeDecl | EdgeDecl


# statements


class OntologyDecl(Node, frozen=True, tag="Ontology"):
    """A block of declarations. A single declaration is an ontology without a name."""

    declarations: tuple[Declaration, ...]
    name: str | None = None
    at: At = NOWHERE


Assignments = tuple[tuple[str, Expr], ...]


class Returning(Node, frozen=True, tag="Returning"):
    """Columns of a RETURNING: pairs of path and name. No pairs mean `*`."""

    items: tuple[tuple[tuple[str, ...], str], ...] = ()


class SpawnItem(Node, frozen=True, tag="SpawnItem"):
    name: str | None
    type: str
    values: Assignments = ()
    at: At = NOWHERE


class Spawn(Node, frozen=True, tag="Spawn"):
    items: tuple[SpawnItem, ...]
    returning: Returning | None = None
    at: At = NOWHERE


class Chosen(Node, frozen=True, tag="Chosen"):
    """`{ MATCH ... }` in place of an entity."""

    match: Match


Target = IdRef | Name | Param | Chosen | SpawnItem | Wild


class Link(Node, frozen=True, tag="Link"):
    type: str
    targets: tuple[Target, ...]
    values: Assignments = ()
    name: str | None = None
    if_not_exists: bool = False
    returning: Returning | None = None
    at: At = NOWHERE


class Set(Node, frozen=True, tag="Set"):
    target: Target
    values: Assignments
    returning: Returning | None = None
    at: At = NOWHERE


class Kill(Node, frozen=True, tag="Kill"):
    target: Target
    cascade: bool | None = None
    returning: Returning | None = None
    at: At = NOWHERE


class Unlink(Node, frozen=True, tag="Unlink"):
    """UNLINK of one edge. With `type`, of every edge of that type between the targets."""

    targets: tuple[Target, ...]
    type: str | None = None
    returning: Returning | None = None
    at: At = NOWHERE


Mutation = Spawn | Link | Set | Kill | Unlink


class Match(Node, frozen=True, tag="Match"):
    pattern: tuple[Element, ...]
    where: Expr | None = None
    returns: Return | None = None
    order: tuple[Sorted, ...] = ()
    limit: Expr | None = None
    offset: Expr | None = None
    mutations: tuple[Mutation, ...] = ()
    at: At = NOWHERE


class Inspect(Node, frozen=True, tag="Inspect"):
    ref: IdRef
    returns: Return | None = None
    at: At = NOWHERE


class Begin(Node, frozen=True, tag="Begin"):
    at: At = NOWHERE


class Commit(Node, frozen=True, tag="Commit"):
    at: At = NOWHERE


class Rollback(Node, frozen=True, tag="Rollback"):
    at: At = NOWHERE


class Tick(Node, frozen=True, tag="Tick"):
    amount: int = 1
    at: At = NOWHERE


class Option(Node, frozen=True, tag="Option"):
    key: str
    value: Expr
    at: At = NOWHERE


class Watch(Node, frozen=True, tag="Watch"):
    pattern: tuple[Element, ...]
    returns: Return
    where: Expr | None = None
    options: tuple[Option, ...] = ()
    name: str | None = None
    text: str = ""
    at: At = NOWHERE


class SettleStatement(Node, frozen=True, tag="Settle"):
    """ACK, NACK and NACK [no_retry]."""

    verb: OneOf["ACK", "NACK"]
    delivery: Expr
    no_retry: bool = False
    at: At = NOWHERE


class Manage(Node, frozen=True, tag="Manage"):
    verb: OneOf["PAUSE", "RESUME", "CANCEL"]
    ref: IdRef
    at: At = NOWHERE


class Alter(Node, frozen=True, tag="Alter"):
    ref: IdRef
    options: tuple[Option, ...]
    at: At = NOWHERE


Statement = (
    OntologyDecl | Spawn | Link | Set | Kill | Unlink | Match | Inspect | Begin | Commit | Rollback | Tick | Watch
    | SettleStatement | Manage | Alter
)  # fmt: skip
