"""Splits a file into statements, meta commands, steps and parameter defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ackwise.graph.errors import GraphError, missing_parameter

_COMMENT = re.compile(r'(?P<kept>"(?:[^"\\\n]|\\[^\n])*"|--[^\n]*)|/\*.*?\*/', re.DOTALL)
"""A block comment. The group `kept` matches strings and line comments, which may contain `/*`."""
_STEP = re.compile(r"--#\s*(.*?)\s*$")
_PARAM = re.compile(r"--\s*@param\s+\$([A-Za-z_]\w*)\s*=\s*(.*?)\s*$")
_META = re.compile(r"\s*\\([a-z]+)\s*(.*?)\s*;?\s*$")


class Text(msgspec.Struct):
    """Statements. `above` is the number of lines before them."""

    text: str
    above: int


class Meta(msgspec.Struct):
    """A meta command, `\\word rest`."""

    word: str
    rest: str
    line: int


class StepMark(msgspec.Struct):
    """`--# name`: a step begins."""

    name: str
    line: int


class ParamDefault(msgspec.Struct):
    """`-- @param $name = value`."""

    name: str
    value: str
    line: int


Piece = Text | Meta | StepMark | ParamDefault


def pieces(text: str) -> Iterator[Piece]:
    """The pieces of a file in order. Steps and commands inside block comments do not count."""
    uncommented = _COMMENT.sub(lambda match: match["kept"] or re.sub(r"[^\n]", " ", match[0]), text)
    lines: list[str] = []
    above = 0
    for number, (line, bare) in enumerate(zip(_lines(text), _lines(uncommented), strict=True)):
        piece = _piece(bare, number + 1)
        if piece is None:
            lines.append(line)
            continue
        if any(line.strip() for line in lines):
            yield Text("\n".join(lines), above)
        yield piece
        lines, above = [], number + 1
    if any(line.strip() for line in lines):
        yield Text("\n".join(lines), above)


def _lines(text: str) -> list[str]:
    """Lines as the parser counts them: only a newline ends a line. A form feed does not."""
    return text.removesuffix("\n").split("\n")


def _piece(line: str, number: int) -> Piece | None:
    if match := _STEP.match(line.strip()):
        return StepMark(match[1], number)
    if match := _PARAM.match(line.strip()):
        return ParamDefault(match[1], match[2], number)
    if match := _META.match(line):
        return Meta(match[1], match[2], number)
    return None


def assignment(rest: str, params: Mapping[str, Any]) -> tuple[str, Any]:
    """Name and value of a `\\let`."""
    name, equals, value = rest.partition("=")
    name = name.strip().removeprefix("$")
    if not equals or not name.isidentifier():
        raise GraphError("parse_error", '\\let needs a name and a value: \\let d1 = $delivery_id, or \\let n = "text"')
    return name, value_of(value.strip(), params)


def value_of(text: str, params: Mapping[str, Any]) -> Any:
    """A JSON literal, the value of another parameter, or the text itself."""
    if text.startswith("$"):
        if text[1:] not in params:
            raise missing_parameter(text[1:])
        return params[text[1:]]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
