"""What to say about text that is not understood."""

from __future__ import annotations

from difflib import get_close_matches

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
    """The name of a part of the language that is known and left out; empty when it is just wrong."""
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
    """One line of help."""
    if first == "WATCH" and ended and "RETURN" in expected:
        return "a WATCH ends with RETURN"
    starts = [start.upper() for start in _STARTS]
    if first and first not in starts:
        close = get_close_matches(first, starts, n=1)
        if close:
            return f"did you mean {close[0]}?"
        if found.upper() == first:
            return "statements begin with " + ", ".join(_STARTS)
    words = sorted({_WORDS.get(one, one) for one in expected if one not in _QUIET and not one.startswith("__")})
    return "expected " + ", ".join(words[:12]) if words else ""
