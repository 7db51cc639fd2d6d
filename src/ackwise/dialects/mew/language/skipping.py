"""Declarations that are read over (`constraint`, `rule`, `policy`): blanked out, with a notice for each."""

from __future__ import annotations

import re
from typing import NamedTuple

from ackwise.core.graph.faults import At

_QUIET = re.compile(r'"(?:[^"\\\n]|\\.)*"|--[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_HEAD = re.compile(r"(?im)(?:^|[;{}])[ \t]*(constraint|rule|policy)[ \t]+([a-z_]\w*)")
_NEXT = re.compile(
    r"(?im)^([ \t]*)(?:ontology|type|node|edge|abstract|sealed|constraint|rule|policy|spawn|link|set|kill|unlink|match"
    r"|inspect|begin|commit|rollback|tick|watch|ack|nack|pause|resume|cancel|alter|\w+[ \t]*=[ \t]*watch)\b|;"
)


class Skipped(NamedTuple):
    word: str
    name: str
    at: At


def blank_skipped(text: str) -> tuple[str, list[Skipped]]:
    """The text with those declarations replaced by spaces, so that every other place keeps its line and column."""
    if not _HEAD.search(text):
        return text, []
    plain = _QUIET.sub(lambda found: _spaces(found[0]), text)
    skipped: list[Skipped] = []
    kept: list[str] = []
    at = 0
    while found := _HEAD.search(plain, at):
        start = found.start(1)
        end = _end(plain, found.end(), start - plain.rfind("\n", 0, start) - 1)
        line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
        skipped.append(Skipped(found[1].lower(), found[2], (line, column)))
        kept += (text[at:start], _spaces(text[start:end]))
        at = end
    return "".join((*kept, text[at:])), skipped


def _end(plain: str, at: int, indent: int) -> int:
    """Where the declaration ends: at `;`, at what closes the ontology, or where the next one begins at its indent."""
    depth = 0
    for number in range(at, len(plain)):
        letter = plain[number]
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
            if depth < 0:
                return number
        elif depth == 0 and letter == ";":
            return number
        elif depth == 0 and letter == "\n":
            following = _NEXT.match(plain, number + 1)
            if following and len(following[1] or "") <= indent:
                return number
    return len(plain)


def _spaces(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
