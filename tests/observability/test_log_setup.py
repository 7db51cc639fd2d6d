"""Formats, levels and the writer thread of the log."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ackwise.core.errors import BadInput
from ackwise.observability import log_setup
from ackwise.observability.log_records import Fields, JSONFormatter, TextFormatter, traceback_lines
from ackwise.observability.log_setup import WriterHandler, parse_levels, set_up_logs
from tests.patience import PATIENCE


def record(message: str, *args: object, problem: BaseException | None = None) -> logging.LogRecord:
    error = None if problem is None else (type(problem), problem, problem.__traceback__)
    return logging.LogRecord("ackwise.store", logging.WARNING, __file__, 1, message, args, error)


def caught(problem: BaseException) -> BaseException:
    try:
        raise problem
    except BaseException as raised:
        return raised


def test_text_is_one_line_with_time_level_and_logger() -> None:
    line = TextFormatter().format(record("%s %s", "dead letter", Fields(queue="a b", attempts=3)))
    time, rest = line.split(" ", 1)
    assert rest == 'WARNING ackwise.store: dead letter queue="a b" attempts=3'
    assert time.endswith("Z")


def test_json_is_one_object_with_fields_apart() -> None:
    line = JSONFormatter().format(record("%s %s", "dead letter", Fields(queue="a\nb", attempts=3, error="x", group="")))
    entry = json.loads(line)
    assert "\n" not in line
    del entry["time"]
    assert entry == {
        "level": "warning",
        "logger": "ackwise.store",
        "message": "dead letter",
        "queue": "a\\nb",
        "attempts": 3,
        "error": "x",
    }


def test_json_of_half_a_character_is_readable() -> None:
    entry = json.loads(JSONFormatter().format(record("%s %s", "request", Fields(queue="\udc80"))))
    assert entry["queue"] == "\\udc80"


def test_plain_record_cannot_forge_a_line() -> None:
    hostile = record("queue %s", "a\n2026-01-01 ERROR ackwise: fake")
    assert "\n" not in TextFormatter().format(hostile)
    assert json.loads(JSONFormatter().format(hostile))["message"] == "queue a\\n2026-01-01 ERROR ackwise: fake"


def test_traceback_cannot_forge_a_line() -> None:
    problem = caught(ValueError("broken\n2026-01-01 ERROR ackwise: fake"))
    head, *rest = TextFormatter().format(record("failed", problem=problem)).splitlines()
    assert head.endswith("failed")
    assert all(line.startswith("  ") for line in rest)
    assert "traceback" in json.loads(JSONFormatter().format(record("failed", problem=problem)))


def test_password_in_message_and_traceback_is_masked() -> None:
    problem = caught(ValueError("postgresql://app:secret@db/queue"))
    text = TextFormatter().format(record("cannot open postgresql://app:secret@db/queue", problem=problem))
    assert "secret" not in text
    fields = record("%s %s", "opened", Fields(store="postgresql://app:secret@db/queue"))
    assert "secret" not in JSONFormatter().format(fields) + TextFormatter().format(fields)


def test_traceback_has_no_frames_of_ackwise() -> None:
    from ackwise.core.spans import cut

    def handler(*_: Any) -> None:
        raise ValueError("mine")

    class Trap:
        lo = property(handler)

    try:
        cut(Trap(), 0, 1)  # type: ignore[arg-type]
    except ValueError as problem:
        text = "\n".join(traceback_lines(problem))
    assert "spans.py" not in text
    assert "in handler" in text


def test_error_inside_ackwise_keeps_its_frames() -> None:
    with pytest.raises(BadInput) as caught_problem:
        parse_levels(["loud"])
    problem = caught_problem.value
    assert problem.__traceback__ is not None
    problem.__traceback__ = problem.__traceback__.tb_next
    assert "log_setup.py" in "\n".join(traceback_lines(problem))


def test_levels_are_those_of_all_loggers_and_of_one() -> None:
    assert parse_levels([]) == {"": logging.INFO}
    assert parse_levels(["warning", "ackwise.store=debug"]) == {"": logging.WARNING, "ackwise.store": logging.DEBUG}
    assert parse_levels(["ackwise.store=DEBUG,error"]) == {"": logging.ERROR, "ackwise.store": logging.DEBUG}


@pytest.mark.parametrize("text", ["loud", "", "ackwise.store=", "=debug", "ackwise store=debug", "a..b=info"])
def test_level_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--log-level"):
        parse_levels([text])


class SlowStream(io.StringIO):
    """A stderr whose reader has stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.reading, self.entered = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.entered.set()
        assert self.reading.wait(PATIENCE)
        return super().write(text)


@pytest.fixture
def slow() -> Iterator[SlowStream]:
    stream = SlowStream()
    yield stream
    stream.reading.set()


def test_slow_stderr_blocks_no_caller_and_drops_are_said(slow: SlowStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_setup, "MOST_WAITING", 5)
    handler = WriterHandler(slow)
    handler.setFormatter(TextFormatter())
    handler.emit(record("first"))
    assert slow.entered.wait(PATIENCE)
    for _ in range(9):
        handler.emit(record("later"))
    slow.reading.set()
    handler.close()
    text = slow.getvalue()
    assert text.count("later") == 5
    assert "stderr is slow: 4 log records were dropped" in text


def test_closed_stderr_ends_no_thread() -> None:
    stream = io.StringIO()
    handler = WriterHandler(stream)
    handler.setFormatter(TextFormatter())
    stream.close()
    handler.emit(record("lost"))
    handler.close()


def test_set_up_writes_json_from_the_level_of_each_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    loggers = [root, logging.getLogger("ackwise.store"), logging.getLogger("ackwise.client")]
    levels = [logger.level for logger in loggers]
    try:
        handler = set_up_logs(["warning", "ackwise.store=debug"], "json", stream)
        logging.getLogger("ackwise.store").debug("shown")
        logging.getLogger("ackwise.client").info("hidden")
        handler.close()
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["shown"]
    assert sys.stderr is not stream


def test_token_in_a_field_is_masked() -> None:
    shown = TextFormatter().format(record("dead letter: Authorization: Bearer abc.def, http://h/x?token=abc"))
    assert "abc" not in shown
