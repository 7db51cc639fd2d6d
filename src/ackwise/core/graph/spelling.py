"""Declarations as text again."""

from __future__ import annotations

import msgspec

from ackwise.core.graph import syntax as s


def declaration(found: s.Declaration) -> str:
    match found:
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
    return ", ".join(f"{one.name}: {_type(one.type)}{_modifiers(one.modifiers)}{_default(one)}" for one in attributes)


def _default(attribute: s.AttributeDecl) -> str:
    match attribute.default:
        case None:
            return ""
        case s.Literal(text=text) if text:
            return f" = {text}"
        case s.Literal(value=value):
            return f" = {msgspec.json.encode(value).decode()}"
        case s.Call(name=name, args=()):
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
