"""A session as a user at a prompt sees it: the answer to each text, and the events that follow."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.clock import ManualClock
from ackwise.mew import MewError, Session
from ackwise.protocols.mew.output_records import Line

Object = dict[str, Any]


class Prompt:
    def __init__(self, session: Session, clock: ManualClock) -> None:
        self.session, self.clock = session, clock
        self.lines: list[Object] = []

    def __call__(self, text: str, **params: Any) -> list[Object]:
        """Everything the text answers, events included."""
        lines: list[Line] = []
        self.session.stream(text, lines.append, params, events=1000)
        self.lines = [line.as_object() for line in lines]
        return self.lines

    def ok(self, text: str, **params: Any) -> Object:
        """The last statement's result; nothing failed."""
        lines = self(text, **params)
        assert [line for line in lines if line["kind"] == "error"] == []
        results: list[Object] = [line for line in lines if line["kind"] == "result"]
        return results[-1]

    def rows(self, text: str, **params: Any) -> list[list[Any]]:
        rows: list[list[Any]] = self.ok(text, **params)["rows"]
        return rows

    def refused(self, text: str, code: str, message: str = "", **params: Any) -> Object:
        lines = self(text, **params)
        errors = [line for line in lines if line["kind"] == "error"]
        assert len(errors) == 1, lines
        assert errors[0]["code"] == code, errors
        assert message in errors[0]["message"], errors
        return errors[0]

    @property
    def events(self) -> list[Object]:
        """What followed the last text."""
        return [line for line in self.lines if line["kind"] == "event"]

    @property
    def notices(self) -> list[Object]:
        return [line for line in self.lines if line["kind"] == "notice"]

    @property
    def consumed(self) -> list[Object]:
        return [event for event in self.events if event["type"] == "consumed"]

    def look(self) -> list[Object]:
        """Events that are due now."""
        return self("")

    def fetch(self) -> list[Object]:
        """Events that are due now, without a statement before them."""
        before = len(self.session.notices)
        found = [event.as_object() for event in self.session.events(1000)]
        self.lines = [*(note.as_object() for note in list(self.session.notices)[before:]), *found]
        return self.lines

    def advance(self, seconds: float) -> list[Object]:
        self.clock.advance(seconds)
        return self.fetch()

    def another(self) -> Prompt:
        return Prompt(self.session.another(), self.clock)


def raised(session: Session, text: str, **params: Any) -> MewError:
    with pytest.raises(MewError) as caught:
        session.run(text, params)
    return caught.value
