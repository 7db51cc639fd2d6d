"""Ontology: node and edge types, attributes and aliases, built from declarations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from ackwise.graph import ast as s
from ackwise.graph import errors
from ackwise.graph.errors import NOWHERE, At

SCALARS = ("String", "Int", "Float", "Bool", "Timestamp", "Duration")
FIRST_USER_TYPE = 100
MOST_ATTRIBUTES = 250
Action = Literal["cascade", "unlink", "prevent"]
_NUMERIC = ("Int", "Float", "Timestamp", "Duration")
_FORMATS = ("email", "uuid", "url", "slug", "date")


class Attribute(msgspec.Struct, frozen=True):
    """One declared attribute. `no` identifies it in the index."""

    name: str
    scalar: str
    no: int
    nullable: bool = False
    unique: bool = False
    readonly: bool = False
    default: s.Expr | None = None
    checks: tuple[s.Modifier, ...] = ()


class NodeType(msgspec.Struct, frozen=True):
    id: int
    name: str
    attributes: dict[str, Attribute]
    ancestors: frozenset[str] = frozenset()
    abstract: bool = False
    sealed: bool = False

    @property
    def protected(self) -> bool:
        return self.name.startswith("_")


class EdgeType(msgspec.Struct, frozen=True):
    """An edge type. `cards` limits, per slot, how many edges of the type a node may have."""

    id: int
    name: str
    attributes: dict[str, Attribute]
    slots: tuple[tuple[str, tuple[str, ...]], ...]
    flags: frozenset[str] = frozenset()
    cards: dict[int, tuple[int, int | None]] = {}
    on_kill: dict[int, Action] = {}

    @property
    def protected(self) -> bool:
        return self.name.startswith("_")


class Alias(msgspec.Struct, frozen=True):
    name: str
    type: s.TypeRef
    modifiers: tuple[s.Modifier, ...]


def own_attribute(kind: NodeType | EdgeType, name: str, at: At = NOWHERE) -> Attribute:
    """The attribute of a type. Raises NOT_FOUND if the type has none of that name."""
    attribute = kind.attributes.get(name)
    if attribute is None:
        raise errors.unknown(f"'{kind.name}' has no attribute '{name}'", at)
    return attribute


class Ontology:
    """All types: built-in ones and those that users declared."""

    def __init__(self, stored: Iterable[tuple[int, s.Declaration]] = ()) -> None:
        self.aliases: dict[str, Alias] = {}
        self.nodes: dict[str, NodeType] = {}
        self.edges: dict[str, EdgeType] = {}
        self.by_id: dict[int, NodeType | EdgeType] = {}
        self.declared: dict[str, s.Declaration] = {}
        self._accepting: dict[tuple[str, ...], frozenset[int]] = {}
        for number, declaration in stored:
            self._add(number, declaration)

    def known(self, name: str) -> bool:
        return name in self.declared

    def is_new(self, declaration: s.Declaration) -> bool:
        """False if the ontology has an equal declaration. Raises if it has a different one of that name."""
        before = self.declared.get(declaration.name)
        if before is None:
            return True
        if _without_source(before) == _without_source(declaration):
            return False
        raise errors.constraint(f"'{declaration.name}' is declared already, and differently", declaration.at)

    def add(self, number: int, declaration: s.Declaration) -> None:
        """Check a user's declaration and add it."""
        if declaration.name.startswith("_"):
            raise errors.constraint(f"'{declaration.name}': names that begin with _ are reserved", declaration.at)
        if declaration.name in SCALARS or declaration.name == "any":
            raise errors.constraint(f"'{declaration.name}' is a type of the language", declaration.at)
        self._add(number, declaration)

    def node(self, name: str, at: At = NOWHERE) -> NodeType:
        kind = self.nodes.get(name)
        if kind is None:
            raise errors.unknown(f"there is no node type '{name}'", at)
        return kind

    def edge(self, name: str, at: At = NOWHERE) -> EdgeType:
        kind = self.edges.get(name)
        if kind is None:
            raise errors.unknown(f"there is no edge type '{name}'", at)
        return kind

    def accepting(self, names: tuple[str, ...], at: At = NOWHERE) -> frozenset[int]:
        """Ids of the node types that `x: A | B` matches: A, B and all types derived from them."""
        if names in self._accepting:
            return self._accepting[names]
        wanted = self._union(names, at)
        if "any" in wanted:
            accepted = frozenset(kind.id for kind in self.nodes.values() if not kind.protected)
        else:
            accepted = frozenset(k.id for k in self.nodes.values() if k.name in wanted or wanted & k.ancestors)
        self._accepting[names] = accepted
        return accepted

    def _union(self, names: tuple[str, ...], at: At) -> frozenset[str]:
        wanted: set[str] = set()
        for name in names:
            alias = self.aliases.get(name)
            if alias is not None:
                wanted |= self._union(alias.type.names, at)
            elif name == "any":
                wanted.add(name)
            else:
                wanted.add(self.node(name, at).name)
        return frozenset(wanted)

    def accepts(self, edge: EdgeType, slot: int, kind: NodeType | EdgeType) -> bool:
        """Whether an entity of type `kind` may be in that slot of the edge."""
        names = edge.slots[slot][1]
        if edge.protected and "any" in names:
            return True
        return kind.id in self.accepting(names)

    # building types

    def _add(self, number: int, declaration: s.Declaration) -> None:
        match declaration:
            case s.AliasDecl():
                self._add_alias(declaration)
            case s.NodeDecl():
                made = self._node_type(number, declaration)
                self.nodes[made.name] = self.by_id[number] = made
            case s.EdgeDecl():
                edge = self._edge_type(number, declaration)
                self.edges[edge.name] = self.by_id[number] = edge
        self.declared[declaration.name] = declaration
        self._accepting.clear()

    def _add_alias(self, alias: s.AliasDecl) -> None:
        if not self.is_scalar(alias.type):
            if alias.modifiers:
                raise errors.constraint(f"'{alias.name}': a union of types takes no modifiers", alias.at)
            self._union(alias.type.names, alias.type.at)
        else:
            scalar, modifiers = self.scalar(alias.type)
            _check_modifiers(alias.name, scalar, (*modifiers, *alias.modifiers))
        self.aliases[alias.name] = Alias(alias.name, alias.type, alias.modifiers)

    def is_scalar(self, ref: s.TypeRef) -> bool:
        """Whether the type is a scalar: one name that is no node type. Unknown names count as scalars."""
        return len(ref.names) == 1 and ref.names[0] not in self.nodes

    def scalar(self, ref: s.TypeRef) -> tuple[str, tuple[s.Modifier, ...]]:
        """The scalar that a type stands for, with the modifiers of its aliases."""
        if len(ref.names) > 1:
            raise errors.constraint("an attribute has one type", ref.at)
        name = ref.names[0]
        if name in SCALARS:
            return name, ()
        alias = self.aliases.get(name)
        if alias is None:
            raise errors.unknown(f"there is no type '{name}' for an attribute", ref.at)
        scalar, modifiers = self.scalar(alias.type)
        return scalar, (*modifiers, *alias.modifiers)

    def _attributes(
        self, number: int, owner: str, declared: tuple[s.AttributeDecl, ...], inherited: dict[str, Attribute]
    ) -> dict[str, Attribute]:
        attributes = dict(inherited)
        if len(declared) > MOST_ATTRIBUTES:
            raise errors.constraint(f"'{owner}' has more than {MOST_ATTRIBUTES} attributes", declared[-1].at)
        for position, attribute in enumerate(declared):
            if attribute.name in attributes:
                raise errors.constraint(f"'{owner}' has two attributes '{attribute.name}'", attribute.at)
            if attribute.name in ("_id", "_type", "_targets") or (attribute.name == "id" and not owner.startswith("_")):
                raise errors.constraint(f"'{attribute.name}' is built in", attribute.at)
            attributes[attribute.name] = self._attribute(number * 256 + position, attribute)
        return attributes

    def _attribute(self, no: int, declared: s.AttributeDecl) -> Attribute:
        scalar, inherited = self.scalar(declared.type)
        modifiers = (*inherited, *declared.modifiers)
        _check_modifiers(declared.name, scalar, modifiers)
        words = {modifier.name for modifier in modifiers}
        if declared.type.nullable and "required" in words:
            raise errors.constraint(f"'{declared.name}' cannot be both nullable and required", declared.at)
        checks = tuple(m for m in modifiers if m.name not in ("required", "unique", "readonly", "indexed"))
        return Attribute(
            declared.name,
            scalar,
            no,
            declared.type.nullable,
            "unique" in words,
            "readonly" in words,
            declared.default,
            checks,
        )

    def _node_type(self, number: int, declared: s.NodeDecl) -> NodeType:
        inherited: dict[str, Attribute] = {}
        ancestors: set[str] = set()
        for name in declared.parents:
            parent = self.node(name, declared.at)
            if parent.sealed:
                raise errors.constraint(f"'{name}' is sealed: nothing is derived from it", declared.at)
            for attribute in parent.attributes.values():
                if inherited.get(attribute.name, attribute).no != attribute.no:
                    raise errors.constraint(
                        f"'{declared.name}' inherits two attributes '{attribute.name}'", declared.at
                    )
                inherited[attribute.name] = attribute
            ancestors |= parent.ancestors | {name}
        attributes = self._attributes(number, declared.name, declared.attributes, inherited)
        flags = declared.flags
        return NodeType(number, declared.name, attributes, frozenset(ancestors), "abstract" in flags, "sealed" in flags)

    def _edge_type(self, number: int, declared: s.EdgeDecl) -> EdgeType:
        slots = tuple((name, ref.names) for name, ref in declared.slots)
        if len({name for name, _ in slots}) < len(slots):
            raise errors.constraint(f"'{declared.name}' has two ends of one name", declared.at)
        for _, ref in declared.slots:
            if not declared.name.startswith("_"):
                self._union(ref.names, ref.at)
        flags: set[str] = set()
        cards: dict[int, tuple[int, int | None]] = {}
        on_kill: dict[int, Action] = {}
        for modifier in declared.modifiers:
            match modifier.name, modifier.values:
                case ("unique" | "no_self" | "symmetric" | "acyclic" | "indexed") as word, ():
                    flags.add(word)
                case "->", (str(slot), int(least), (int() | None) as most):
                    cards[_slot_number(slots, slot, modifier.at)] = least, most
                case ("on_kill_source" | "on_kill_target") as word, (("cascade" | "unlink" | "prevent") as action,):
                    on_kill[0 if word == "on_kill_source" else 1] = action
                case _:
                    raise errors.constraint(f"an edge has no modifier '{modifier.name}'", modifier.at)
        attributes = self._attributes(number, declared.name, declared.attributes, {})
        return EdgeType(number, declared.name, attributes, slots, frozenset(flags), cards, on_kill)


def _slot_number(slots: tuple[tuple[str, tuple[str, ...]], ...], name: str, at: At) -> int:
    for number, (slot, _) in enumerate(slots):
        if slot == name:
            return number
    raise errors.unknown(f"the edge has no end '{name}'", at)


def _check_modifiers(name: str, scalar: str, modifiers: tuple[s.Modifier, ...]) -> None:
    for modifier in modifiers:
        match modifier.name, modifier.values:
            case ((">=" | "<=" | ">" | "<" | ".."), values) if any(isinstance(value, bool) for value in values):
                raise errors.constraint(f"'{name}': true and false bound nothing", modifier.at)
            case (("required" | "unique" | "readonly"), ()):
                pass
            case "indexed", () | ("asc" | "desc",):
                pass
            case ((">=" | "<=" | ">" | "<"), (int() | float(),)) if scalar in _NUMERIC:
                pass
            case "..", (int() | float(), int() | float()) if scalar in _NUMERIC:
                pass
            case "in", values if values:
                pass
            case "length", (int(), int()) if scalar == "String":
                pass
            case "match", (str(),) if scalar == "String":
                pass
            case "format", (str() as word,) if scalar == "String" and word in _FORMATS:
                pass
            case "format", (str() as word,) if scalar == "String":
                known = ", ".join(_FORMATS)
                raise errors.constraint(f"'{name}': there is no format '{word}'; use one of {known}", modifier.at)
            case _:
                raise errors.constraint(f"'{name}': modifier '{modifier.name}' does not fit {scalar}", modifier.at)


def _without_source(declaration: s.Declaration) -> bytes:
    """A declaration without positions and the user's spelling, to compare it with another."""
    return msgspec.json.encode(_stripped(msgspec.to_builtins(declaration)))


def _stripped(value: object) -> object:
    if isinstance(value, dict):
        return {key: _stripped(part) for key, part in value.items() if key not in ("at", "text")}
    if isinstance(value, list | tuple):
        return [_stripped(part) for part in value]
    return value
