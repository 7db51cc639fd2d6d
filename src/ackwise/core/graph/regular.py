"""Regular expressions whose cost is bounded: all places they may be in are followed at once, letter by letter, so a
text takes time in proportion to its length, whatever the expression. What cannot be done so, looking around and
referring back, is refused."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import Literal, NoReturn

import msgspec

from ackwise.core.graph import faults
from ackwise.core.graph.faults import NOWHERE, At

MOST_STATES = 500
"""Counted repetitions are written out."""
LONGEST_TEXT = 2000
MOST_STEPS = 200_000
"""Letters times parts: a large expression is looked for in a shorter text."""
DEEPEST = 20
_CLASSES = {
    "d": lambda letter: letter.isdecimal(),
    "w": lambda letter: letter.isalnum() or letter == "_",
    "s": lambda letter: letter.isspace(),
}
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
Place = Literal["begin", "end", "boundary", "inside"]


class Letters(msgspec.Struct, frozen=True):
    """Which letters fit: ranges of them, in order and apart, and classes by their name (upper case: all others)."""

    ranges: tuple[tuple[str, str], ...] = ()
    classes: tuple[str, ...] = ()
    negated: bool = False

    def __contains__(self, letter: str) -> bool:
        place = bisect_right(self.ranges, letter, key=_first) - 1
        fits = (place >= 0 and letter <= self.ranges[place][1]) or any(
            _CLASSES[name.lower()](letter) is name.islower() for name in self.classes
        )
        return fits is not self.negated


def _first(found: tuple[str, str]) -> str:
    return found[0]


def _apart(ranges: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The same letters, in ranges that are in order and do not touch."""
    found: list[tuple[str, str]] = []
    for first, last in sorted(ranges):
        if found and ord(first) <= ord(found[-1][1]) + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


class Between(msgspec.Struct, frozen=True):
    """Fits between letters."""

    place: Place


class Sequence(msgspec.Struct, frozen=True):
    parts: tuple[Part, ...]


class Choice(msgspec.Struct, frozen=True):
    ways: tuple[Part, ...]


class Repeat(msgspec.Struct, frozen=True):
    of: Part
    least: int
    most: int | None


Part = Letters | Between | Sequence | Choice | Repeat
NOTHING = Sequence(())
"""Left out where it is read, so that all that is written out, or gone through, are states, which are counted."""


class _Reading:
    """The text of an expression, read from left to right."""

    def __init__(self, text: str, at: At) -> None:
        self.text, self.where = text, at
        self.place = self.deep = 0

    def refuse(self, why: str) -> NoReturn:
        raise faults.constraint(f"{self.text!r} is not a regular expression that can be used: {why}", self.where)

    def whole(self) -> Part:
        found = self._choice()
        if self.place < len(self.text):
            self.refuse("a ')' too many")
        return found

    def _eat(self, text: str) -> bool:
        if self.text.startswith(text, self.place):
            self.place += len(text)
            return True
        return False

    def _letter(self) -> str:
        if self.place >= len(self.text):
            self.refuse("it ends too early")
        self.place += 1
        return self.text[self.place - 1]

    def _choice(self) -> Part:
        ways = [self._sequence()]
        while self._eat("|"):
            ways.append(self._sequence())
        some = [way for way in ways if way != NOTHING]
        if len(some) < len(ways):
            some.append(NOTHING)
        return some[0] if len(some) == 1 else Choice(tuple(some))

    def _sequence(self) -> Part:
        parts: list[Part] = []
        while self.place < len(self.text) and self.text[self.place] not in "|)":
            part = self._repeated(self._one())
            if part != NOTHING:
                parts.append(part)
        return Sequence(tuple(parts))

    def _repeated(self, part: Part) -> Part:
        bounds = self._bounds()
        if bounds is None:
            return part
        self._eat("?")  # the shortest or the longest: whether there is one is the same
        if self._bounds() is not None:
            self.refuse("a repetition of a repetition needs brackets")
        least, most = bounds
        if most is not None and most < least:
            self.refuse("a repetition that ends before it begins")
        return NOTHING if part == NOTHING or most == 0 else Repeat(part, least, most)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._eat(sign):
                return least, most
        end = self.text.find("}", self.place, self.place + len("{,}") + 8)
        if not self.text.startswith("{", self.place) or end < 0:
            return None
        first, comma, last = self.text[self.place + 1 : end].partition(",")
        if not (first + last).isascii() or not (first + last).isdecimal() or len(first + last) > 8:
            return None  # just a brace
        self.place = end + 1
        return int(first or 0), (int(last) if last else None) if comma else int(first)

    def _one(self) -> Part:
        match self._letter():
            case "(":
                return self._group()
            case "[":
                return self._set()
            case ".":
                return Letters((("\n", "\n"),), negated=True)
            case "^":
                return Between("begin")
            case "$":
                return Between("end")
            case "\\":
                return self._escaped()
            case ("*" | "+" | "?") as sign:
                self.refuse(f"nothing before {sign!r} to repeat")
            case letter:
                return Letters(((letter, letter),))

    def _group(self) -> Part:
        self.deep += 1
        if self.deep > DEEPEST:
            self.refuse("brackets are nested too deeply")
        if self._eat("?") and not self._eat(":"):
            self.refuse("of brackets with (? only (?:...) is known")
        found = self._choice()
        if not self._eat(")"):
            self.refuse("a ')' is missing")
        self.deep -= 1
        return found

    def _escaped(self) -> Part:
        letter = self._letter()
        if letter in "bB":
            return Between("boundary" if letter == "b" else "inside")
        if letter in "AZ":
            return Between("begin" if letter == "A" else "end")
        if letter.lower() in _CLASSES:
            return Letters(classes=(letter,))
        letter = self._meant(letter)
        return Letters(((letter, letter),))

    def _meant(self, letter: str) -> str:
        """The letter that is written as a backslash and this one."""
        if letter in _CONTROL:
            return _CONTROL[letter]
        if letter in "xuU":
            digits = self.text[self.place : self.place + {"x": 2, "u": 4, "U": 8}[letter]]
            self.place += len(digits)
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError):
                self.refuse(f"\\{letter} needs the number of a letter")
        if letter.isalnum():
            self.refuse(f"\\{letter} is not known")
        return letter

    def _set(self) -> Part:
        negated = self._eat("^")
        ranges: list[tuple[str, str]] = []
        classes: list[str] = []
        while (not ranges and not classes) or not self._eat("]"):
            first = self._member(classes)
            if first is None:
                continue
            last = first
            if self.text[self.place : self.place + 1] == "-" and self.text[self.place + 1 : self.place + 2] != "]":
                self.place += 1
                last = self._member([]) or self.refuse("a range ends with a letter")
            if last < first:
                self.refuse(f"the range {first}-{last} is the wrong way round")
            ranges.append((first, last))
        return Letters(_apart(ranges), tuple(dict.fromkeys(classes)), negated)

    def _member(self, classes: list[str]) -> str | None:
        """A letter of a set; None for a class, which is noted."""
        letter = self._letter()
        if letter != "\\":
            return letter
        letter = self._letter()
        if letter.lower() in _CLASSES:
            classes.append(letter)
            return None
        return "\b" if letter == "b" else self._meant(letter)


class Regular:
    """An expression as states: from each one goes on with a letter, or to others without one."""

    def __init__(self, text: str, at: At = NOWHERE) -> None:
        self._reading = _Reading(text, at)
        self._letters: list[Letters | None] = []
        self._places: list[Place | None] = []
        self._next: list[list[int]] = []
        self._over = self._state()
        self._begin = self._built(self._reading.whole(), self._over)
        self.longest = min(LONGEST_TEXT, MOST_STEPS // len(self._next))
        """Letters of a text that it may be looked for in."""

    def _state(self, *following: int, letters: Letters | None = None, place: Place | None = None) -> int:
        if len(self._next) >= MOST_STATES:
            self._reading.refuse(f"it is too large (counted repetitions are written out, {MOST_STATES} parts are most)")
        self._letters.append(letters)
        self._places.append(place)
        self._next.append(list(following))
        return len(self._next) - 1

    def _built(self, part: Part, following: int) -> int:
        """The state in which the part begins, after which `following` comes."""
        match part:
            case Letters():
                return self._state(following, letters=part)
            case Between(place=place):
                return self._state(following, place=place)
            case Sequence(parts=parts):
                for one in reversed(parts):
                    following = self._built(one, following)
                return following
            case Choice(ways=ways):
                return self._state(*[self._built(one, following) for one in ways])
            case Repeat(of=of, least=least, most=most):
                begin = following
                if most is None:
                    begin = self._state(following)
                    self._next[begin].append(self._built(of, begin))
                for _ in range((most or least) - least):
                    begin = self._state(self._built(of, begin), following)
                for _ in range(least):
                    begin = self._built(of, begin)
                return begin

    def found_in(self, text: str) -> bool:
        """Whether some part of the text fits; `^` and `$` are its beginning and its end."""
        states: set[int] = set()
        for at in range(len(text) + 1):
            states = self._reached([*states, self._begin], text, at)
            if self._over in states:
                return True
            letter = text[at : at + 1]
            states = {
                self._next[one][0]
                for one in states
                if (letters := self._letters[one]) is not None and letter and letter in letters
            }
        return False

    def _reached(self, ahead: list[int], text: str, at: int) -> set[int]:
        """All states that these lead to without a letter."""
        found: set[int] = set()
        while ahead:
            one = ahead.pop()
            if one in found:
                continue
            found.add(one)
            if self._letters[one] is None and _stands(self._places[one], text, at):
                ahead += self._next[one]
        return found


def _stands(place: Place | None, text: str, at: int) -> bool:
    match place:
        case None:
            return True
        case "begin":
            return at == 0
        case "end":
            return at == len(text)
        case _:
            sides = [_CLASSES["w"](letter) for letter in (text[at - 1 : at] if at else "", text[at : at + 1]) if letter]
            return (sum(sides) == 1) is (place == "boundary")


@lru_cache(maxsize=1000)
def regular(text: str) -> Regular:
    return Regular(text)
