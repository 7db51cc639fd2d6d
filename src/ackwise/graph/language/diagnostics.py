"""Explains text that does not parse, and blanks declarations that MEW ignores."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import NamedTuple

from ackwise.graph.errors import At

_UNSUPPORTED_STARTS = {
    "WALK": "WALK",
    "OPTIONAL": "OPTIONAL MATCH",
    "EXPLAIN": "EXPLAIN",
    "PROFILE": "PROFILE",
    "SAVEPOINT": "SAVEPOINT",
    "RELEASE": "SAVEPOINT",
    "SNAPSHOT": "versioning (SNAPSHOT)",
    "CHECKOUT": "versioning (CHECKOUT)",
    "BRANCH": "versioning (BRANCH)",
    "MERGE": "versioning (MERGE)",
    "DIFF": "versioning (DIFF)",
    "VERSION": "versioning (VERSION)",
    "ON": "a trigger (ON MATCH DO)",
    "TRIGGER": "a trigger",
}
_STARTS = (
    *("ontology", "type", "node", "edge", "SPAWN", "LINK", "SET", "KILL", "UNLINK", "MATCH", "INSPECT", "BEGIN"),
    *("COMMIT", "ROLLBACK", "TICK", "WATCH", "ACK", "NACK", "PAUSE", "RESUME", "CANCEL", "ALTER"),
)
_WORDS = {
    "NAME": "a name",
    "STRING": "a string",
    "ID_REF": "#name",
    "PARAM": "$parameter",
    "INT": "a number",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "COLON": "':'",
    "COMMA": "','",
    "EQUAL": "'='",
    "DOT": "'.'",
    "$END": "the end",
}
_QUIET = {"SEMICOLON", "COMPARE", "PLUS", "MINUS", "STAR", "SLASH", "PERCENT", "COALESCE", "CONCAT", "OR", "AND", "IN"}


def unsupported(first: str, found: str, so_far: str) -> str:
    """The name of a known feature that MEW does not support. Empty if the text is another error."""
    if first in _UNSUPPORTED_STARTS:
        return _UNSUPPORTED_STARTS[first]
    word = found.upper()
    if word == "DO":
        return "MATCH ... DO (a trigger that manages watches)"
    if word in ("OPTIONAL", "WALK"):
        return _UNSUPPORTED_STARTS[word]
    if word in ("+", "*") and first in ("MATCH", "WATCH") and so_far.rstrip("+*").rstrip().endswith(")"):
        return "a transitive pattern (+ or *)"
    if word == "[" and first == "MATCH" and so_far.rstrip("[").rstrip().endswith(")"):
        return "[depth: n] on a pattern"
    return ""


def hint(first: str, found: str, expected: set[str], ended: bool) -> str:
    """One line of help for a parse error."""
    if first == "WATCH" and ended and "RETURN" in expected:
        return "a WATCH ends with RETURN"
    starts = [start.upper() for start in _STARTS]
    if first and first not in starts:
        close = get_close_matches(first, starts, n=1)
        if close:
            return f"did you mean {close[0]}?"
        if found.upper() == first:
            return "statements begin with " + ", ".join(_STARTS)
    words = sorted(
        {_WORDS.get(token, token) for token in expected if token not in _QUIET and not token.startswith("__")}
    )
    return "expected " + ", ".join(words[:12]) if words else ""


_IGNORED = re.compile(r'"(?:[^"\\\n]|\\.)*"|--[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_HEAD = re.compile(r"(?im)(?:^|[;{}])[ \t]*(constraint|rule|policy)[ \t]+([a-z_]\w*)")
_NEXT = re.compile(
    r"(?im)^([ \t]*)(?:ontology|type|node|edge|abstract|sealed|constraint|rule|policy|spawn|link|set|kill|unlink|match"
    r"|inspect|begin|commit|rollback|tick|watch|ack|nack|pause|resume|cancel|alter|\w+[ \t]*=[ \t]*watch)\b|;"
)


class Skipped(NamedTuple):
    """A declaration that MEW ignores, with a notice."""

    word: str
    name: str
    at: At


def blank_skipped(text: str) -> tuple[str, list[Skipped]]:
    """Replace `constraint`, `rule` and `policy` declarations by spaces, so that lines and columns stay the same."""
    if not _HEAD.search(text):
        return text, []
    plain = _IGNORED.sub(lambda match: _spaces(match[0]), text)
    skipped: list[Skipped] = []
    kept: list[str] = []
    at = 0
    while head := _HEAD.search(plain, at):
        start = head.start(1)
        end = _end(plain, head.end(), start - plain.rfind("\n", 0, start) - 1)
        line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
        skipped.append(Skipped(head[1].lower(), head[2], (line, column)))
        kept += (text[at:start], _spaces(text[start:end]))
        at = end
    return "".join((*kept, text[at:])), skipped


def _end(plain: str, at: int, indent: int) -> int:
    """The end of a declaration: `;`, the bracket that closes the ontology, or a line that begins the next statement."""
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
