"""Types of nodes and edges: what may be spawned and linked, and with which attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from ackwise.core.graph import faults
from ackwise.core.graph import syntax as s
from ackwise.core.graph.faults import NOWHERE, At

SCALARS = ("String", "Int", "Float", "Bool", "Timestamp", "Duration")
FIRST_USER_TYPE = 100
MOST_ATTRIBUTES = 250
Action = Literal["cascade", "unlink", "prevent"]
_NUMERIC = ("Int", "Float", "Timestamp", "Duration")
_FORMATS = ("email", "uuid", "url", "date")


class Attribute(msgspec.Struct, frozen=True):
    """One attribute as declared; `no` names it in the index."""

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
    """`cards` bounds how many edges of this type a node may have in a slot."""

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
    found = kind.attributes.get(name)
    if found is None:
        raise faults.unknown(f"'{kind.name}' has no attribute '{name}'", at)
    return found


class Ontology:
    """Every type that is known: those of the system, and those that users declared."""

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
        """False when the very same was declared before; another of that name is refused."""
        before = self.declared.get(declaration.name)
        if before is None:
            return True
        if _placeless(before) == _placeless(declaration):
            return False
        raise faults.constraint(f"'{declaration.name}' is declared already, and differently", declaration.at)

    def add(self, number: int, declaration: s.Declaration) -> None:
        """Check a declaration of a user and make it known."""
        if declaration.name.startswith("_"):
            raise faults.constraint(f"'{declaration.name}': names that begin with _ are reserved", declaration.at)
        if declaration.name in SCALARS or declaration.name == "any":
            raise faults.constraint(f"'{declaration.name}' is a type of the language", declaration.at)
        self._add(number, declaration)

    def node(self, name: str, at: At = NOWHERE) -> NodeType:
        found = self.nodes.get(name)
        if found is None:
            raise faults.unknown(f"there is no node type '{name}'", at)
        return found

    def edge(self, name: str, at: At = NOWHERE) -> EdgeType:
        found = self.edges.get(name)
        if found is None:
            raise faults.unknown(f"there is no edge type '{name}'", at)
        return found

    def accepting(self, names: tuple[str, ...], at: At = NOWHERE) -> frozenset[int]:
        """Ids of the node types that `x: A | B` matches: those, and all that are derived from them."""
        if names in self._accepting:
            return self._accepting[names]
        wanted = self._union(names, at)
        if "any" in wanted:
            found = frozenset(kind.id for kind in self.nodes.values() if not kind.protected)
        else:
            found = frozenset(k.id for k in self.nodes.values() if k.name in wanted or wanted & k.ancestors)
        self._accepting[names] = found
        return found

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
        """Whether an end of that type may stand in the slot."""
        names = edge.slots[slot][1]
        if edge.protected and "any" in names:
            return True
        return kind.id in self.accepting(names)

    # making types

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
                raise faults.constraint(f"'{alias.name}': a union of types takes no modifiers", alias.at)
            self._union(alias.type.names, alias.type.at)
        else:
            scalar, modifiers = self.scalar(alias.type)
            _check_modifiers(alias.name, scalar, (*modifiers, *alias.modifiers))
        self.aliases[alias.name] = Alias(alias.name, alias.type, alias.modifiers)

    def is_scalar(self, ref: s.TypeRef) -> bool:
        """A type of values, or what is to be one: not of nodes."""
        return len(ref.names) == 1 and ref.names[0] not in self.nodes

    def scalar(self, ref: s.TypeRef) -> tuple[str, tuple[s.Modifier, ...]]:
        """The scalar behind a type, and the modifiers of the aliases on the way."""
        if len(ref.names) > 1:
            raise faults.constraint("an attribute has one type", ref.at)
        name = ref.names[0]
        if name in SCALARS:
            return name, ()
        alias = self.aliases.get(name)
        if alias is None:
            raise faults.unknown(f"there is no type '{name}' for an attribute", ref.at)
        scalar, modifiers = self.scalar(alias.type)
        return scalar, (*modifiers, *alias.modifiers)

    def _attributes(
        self, number: int, owner: str, declared: tuple[s.AttributeDecl, ...], inherited: dict[str, Attribute]
    ) -> dict[str, Attribute]:
        found = dict(inherited)
        if len(declared) > MOST_ATTRIBUTES:
            raise faults.constraint(f"'{owner}' has more than {MOST_ATTRIBUTES} attributes", declared[-1].at)
        for position, attribute in enumerate(declared):
            if attribute.name in found:
                raise faults.constraint(f"'{owner}' has two attributes '{attribute.name}'", attribute.at)
            if attribute.name in ("_id", "_type", "_targets") or (attribute.name == "id" and not owner.startswith("_")):
                raise faults.constraint(f"'{attribute.name}' is built in", attribute.at)
            found[attribute.name] = self._attribute(number * 256 + position, attribute)
        return found

    def _attribute(self, no: int, declared: s.AttributeDecl) -> Attribute:
        scalar, inherited = self.scalar(declared.type)
        modifiers = (*inherited, *declared.modifiers)
        _check_modifiers(declared.name, scalar, modifiers)
        words = {modifier.name for modifier in modifiers}
        if declared.type.nullable and "required" in words:
            raise faults.constraint(f"'{declared.name}' cannot be both nullable and required", declared.at)
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
                raise faults.constraint(f"'{name}' is sealed: nothing is derived from it", declared.at)
            for attribute in parent.attributes.values():
                if inherited.get(attribute.name, attribute).no != attribute.no:
                    raise faults.constraint(
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
            raise faults.constraint(f"'{declared.name}' has two ends of one name", declared.at)
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
                    raise faults.constraint(f"an edge has no modifier '{modifier.name}'", modifier.at)
        attributes = self._attributes(number, declared.name, declared.attributes, {})
        return EdgeType(number, declared.name, attributes, slots, frozenset(flags), cards, on_kill)


def _slot_number(slots: tuple[tuple[str, tuple[str, ...]], ...], name: str, at: At) -> int:
    for number, (slot, _) in enumerate(slots):
        if slot == name:
            return number
    raise faults.unknown(f"the edge has no end '{name}'", at)


def _check_modifiers(name: str, scalar: str, modifiers: tuple[s.Modifier, ...]) -> None:
    for modifier in modifiers:
        match modifier.name, modifier.values:
            case ((">=" | "<=" | ">" | "<" | ".."), values) if any(isinstance(value, bool) for value in values):
                raise faults.constraint(f"'{name}': true and false bound nothing", modifier.at)
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
            case _:
                raise faults.constraint(f"'{name}': modifier '{modifier.name}' does not fit {scalar}", modifier.at)


def _placeless(declaration: s.Declaration) -> bytes:
    """A declaration without the places it was written at."""
    return msgspec.json.encode(_without_places(msgspec.to_builtins(declaration)))


def _without_places(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_places(one) for key, one in value.items() if key not in ("at", "text")}
    if isinstance(value, list | tuple):
        return [_without_places(one) for one in value]
    return value
