"""Files of statements with meta commands between them: `\\clock +31s`, `--# step`, `-- @param $name = value`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ackwise.core.graph.faults import GraphError, missing_parameter

_COMMENT = re.compile(r'(?P<kept>"(?:[^"\\\n]|\\[^\n])*"|--[^\n]*)|/\*.*?\*/', re.DOTALL)
"""What looks like a comment in a string, or behind `--`, is none."""
_STEP = re.compile(r"--#\s*(.*?)\s*$")
_PARAM = re.compile(r"--\s*@param\s+\$([A-Za-z_]\w*)\s*=\s*(.*?)\s*$")
_META = re.compile(r"\s*\\([a-z]+)\s*(.*?)\s*;?\s*$")


class Text(msgspec.Struct):
    """Statements; `above` lines stand before them."""

    text: str
    above: int


class Meta(msgspec.Struct):
    """`\\word rest`."""

    word: str
    rest: str
    line: int


class StepMark(msgspec.Struct):
    name: str
    line: int


class ParamDefault(msgspec.Struct):
    name: str
    value: str
    line: int


Piece = Text | Meta | StepMark | ParamDefault


def pieces(text: str) -> Iterator[Piece]:
    """A file in order. What stands in a block comment is neither a step nor a command."""
    plain = _COMMENT.sub(lambda found: found["kept"] or re.sub(r"[^\n]", " ", found[0]), text)
    gathered: list[str] = []
    above = 0
    for number, (line, seen) in enumerate(zip(_lines(text), _lines(plain), strict=True)):
        piece = _piece(seen, number + 1)
        if piece is None:
            gathered.append(line)
            continue
        if any(one.strip() for one in gathered):
            yield Text("\n".join(gathered), above)
        yield piece
        gathered, above = [], number + 1
    if any(one.strip() for one in gathered):
        yield Text("\n".join(gathered), above)


def _lines(text: str) -> list[str]:
    """As the language counts them: form feeds and the like end no line."""
    return text.removesuffix("\n").split("\n")


def _piece(line: str, number: int) -> Piece | None:
    if found := _STEP.match(line.strip()):
        return StepMark(found[1], number)
    if found := _PARAM.match(line.strip()):
        return ParamDefault(found[1], found[2], number)
    if found := _META.match(line):
        return Meta(found[1], found[2], number)
    return None


def assignment(rest: str, params: Mapping[str, Any]) -> tuple[str, Any]:
    """`name = value` of a `\\let`."""
    name, equals, value = rest.partition("=")
    name = name.strip().removeprefix("$")
    if not equals or not name.isidentifier():
        raise GraphError("parse_error", '\\let needs a name and a value: \\let d1 = $delivery_id, or \\let n = "text"')
    return name, value_of(value.strip(), params)


def value_of(text: str, params: Mapping[str, Any]) -> Any:
    """A literal as JSON writes it, another parameter, or the text as it is."""
    if text.startswith("$"):
        if text[1:] not in params:
            raise missing_parameter(text[1:])
        return params[text[1:]]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
