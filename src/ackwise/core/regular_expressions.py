r"""Regular expressions in linear time, by RE2. `\d`, `\w` and `\s` mean all of Unicode. `\b` knows only ASCII letters.

Look-around and back-references would need more than linear time, so they are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from ackwise.core.errors import BadInput
from ackwise.core.extras import needed

MOST_MEMORY = 16 << 20
r"""Bytes that RE2 may use for one expression, enough for `\w{1,500}`. It refuses an expression that needs more."""
MOST_CACHED = 256
"""Expressions that stay compiled: those of 16 filters with as many expressions as a filter may have."""

_ESCAPE = r"\\(?P<escape>x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.|\Z)"
_PIECE = re.compile(
    rf"(?P<set>\[\^?\]?(?:\\.|[^\]\\])*(?P<end>\]?))|{_ESCAPE}|(?P<look>\(\?<?[=!])|(?P<up_to>\{{,(?=[0-9]+\}}))",
    re.DOTALL,
)
"""Constructs that RE2 spells differently: a set, an escape, look-around, and `{,3}`."""
_MEMBER = re.compile(rf"{_ESCAPE}|\[", re.DOTALL)
_CLASSES = {
    "d": r"\p{Nd}",
    "w": r"\p{L}_\p{N}",
    "s": r"\p{Zs}\t-\r\x1c-\x1f\x{85}\p{Z}",
}
"""Members of a set for each class. They begin and end with `\\p`, so that no `-` beside them makes a range."""
_COMPLEMENTS = {
    "D": r"\P{Nd}",
    "W": r"\p{M}\p{Pd}\p{Ps}\p{Pe}\p{Pi}\p{Pf}\p{Po}\x{203f}\x{2040}\x{2054}\x{fe33}\x{fe34}\x{fe4d}-\x{fe4f}\x{ff3f}"
    r"\p{S}\p{Z}\p{C}",
    "S": r"\p{L}\x00-\x08\x0e-\x1b!-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}"
    r"\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}\p{N}",
}
r"""Members of a set for complements: a set cannot contain another set. `\W` lacks unassigned characters."""
_KEPT = frozenset("AbBzntrfvpPx")
"""Escapes that RE2 knows under the same letter."""


class RegularExpression:
    """A compiled expression. Raises `BadInput` for a text that RE2 cannot use."""

    def __init__(self, text: str) -> None:
        with needed("mew", "a regular expression"):
            import re2
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = MOST_MEMORY
        try:
            self._search: Callable[[bytes], object] = re2.compile(_bytes(translated(text)), options).search
            re2.purge()  # The cache of `compiled` suffices: an expression may be large.
        except (ValueError, re2.error) as problem:
            reason = problem.args[0]
            words = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
            raise BadInput(f"{text!r} is not a regular expression that can be used: {words}") from None

    def found_in(self, text: str) -> bool:
        """Whether a part of the text matches. `^` and `$` match only at its beginning and its end."""
        return self._search(_bytes(text)) is not None


@lru_cache(maxsize=MOST_CACHED)
def compiled(text: str) -> RegularExpression:
    """The compiled expression, cached."""
    return RegularExpression(text)


def _bytes(text: str) -> bytes:
    """UTF-8. A lone surrogate counts as a character."""
    return text.encode("utf-8", "surrogatepass")


def translated(text: str) -> str:
    """The expression in RE2's syntax. Raises `ValueError` with the reason if RE2 cannot express it."""
    return _PIECE.sub(_piece, text)


def _piece(match: re.Match[str]) -> str:
    if match["set"]:
        return _set(match["set"], closed=match["end"] == "]")
    if match["look"]:
        raise ValueError("look-around is not supported")
    if match["up_to"]:
        return "{0,"
    escape = match["escape"]
    if escape in _COMPLEMENTS:
        return f"[^{_CLASSES[escape.lower()]}]"
    return f"[{_CLASSES[escape]}]" if escape in _CLASSES else _escaped(escape)


def _set(text: str, *, closed: bool) -> str:
    if not closed:
        raise ValueError("a ']' is missing")
    opening = "[^" if text.startswith("[^") else "["
    return opening + _MEMBER.sub(_member, text[len(opening) : -1]) + "]"


def _member(match: re.Match[str]) -> str:
    escape = match["escape"]
    if escape is None:
        return r"\["  # RE2 would read [:alpha:] as a class
    if escape == "b":
        return r"\x08"
    return _CLASSES.get(escape) or _COMPLEMENTS.get(escape) or _escaped(escape)


def _escaped(escape: str) -> str:
    if len(escape) > 1:
        return f"\\x{{{escape[1:]}}}"
    if escape == "Z":
        return r"\z"
    if not escape:
        raise ValueError("it ends with a backslash")
    if escape.isdigit():
        raise ValueError("back-references are not supported")
    if escape.isalnum() and escape not in _KEPT:
        raise ValueError(f"\\{escape} is not known")
    return f"\\{escape}" if escape.isascii() else escape
