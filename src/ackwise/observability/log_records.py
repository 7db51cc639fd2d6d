"""Log records with named fields, and their two formats: one line of text, or one JSON object per line."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from ackwise.core.messages import QUEUE_MODE
from ackwise.wire.store_url import without_password
from ackwise.wire.timestamps import moment

LogFormat = Literal["text", "json"]
FieldValue = str | int | float | bool | None
LONGEST_FIELD = 1000
"""Maximum number of characters in one field. A longer text is cut."""
LONGEST_KNOWN = 100
"""Maximum number of characters of a text whose form in the log is remembered."""
DEFAULT_GROUP = "(default)"
"""The default group in the text format. The JSON format has its stored name."""
MOST_FRAMES = 30
"""Maximum number of frames in a traceback. The frames nearest to the failure stay."""
OUR_FOLDER = str(Path(__file__).resolve().parents[1])
_LOOP_FOLDERS = ("/asyncio/", "/concurrent/futures/")
_MOST_CAUSES = 20
_RECORD_KEYS = frozenset({"time", "level", "logger", "message", "traceback"})


_FIELDS = "%s %s"
"""Format of a record with named fields: its message, then the fields."""


class Fields(dict[str, FieldValue]):
    """Named values of a log record: `queue=orders attempts=3`. Empty texts and None are left out.

    As text, the default group is `group=(default)`, as in the command line.
    """

    def __str__(self) -> str:
        shown = {**self, "group": DEFAULT_GROUP} if self.get("group") == QUEUE_MODE else self
        return " ".join(f"{name}={_shown(value)}" for name, value in shown.items() if value is not None and value != "")


def log_fields(logger: logging.Logger, level: int, message: str, /, **fields: FieldValue) -> None:
    """Log a message with named fields. In the JSON format each field has its own key."""
    if logger.isEnabledFor(level):
        logger.log(level, _FIELDS, message, Fields(fields))


def log_at(at: float, logger: logging.Logger, level: int, message: str, fields: Fields) -> None:
    """Log a message with named fields that belongs to an earlier time, in seconds."""
    if logger.isEnabledFor(level):
        record = logger.makeRecord(logger.name, level, __file__, 0, _FIELDS, (message, fields), None)
        record.relativeCreated += (at - record.created) * 1000
        record.created, record.msecs = at, float(int(at % 1 * 1000))
        logger.handle(record)


def escaped(text: str) -> str:
    """The text with newlines and control characters escaped, so that a record stays on one line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _shown(value: FieldValue) -> str:
    if isinstance(value, str):
        return _known_text(value) if len(value) <= LONGEST_KNOWN else _shown_text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if isinstance(value, int) else _shown_text(str(value))


def _shown_text(value: str) -> str:
    text = _masked(value)
    if len(text) > LONGEST_FIELD:
        text = text[:LONGEST_FIELD] + "..."
    if text.isprintable() and text and not any(char in text for char in ' "='):
        return text
    return '"' + escaped(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


_known_text = lru_cache(maxsize=2000)(_shown_text)
"""Texts as fields show them. Most records repeat the texts of earlier ones: addresses, routes, queues."""


def _masked(text: str) -> str:
    folded = text.casefold()
    if "@" in text or "password=" in folded or "token=" in folded or "bearer " in folded:
        return without_password(text)
    return text


class TextFormatter(logging.Formatter):
    """One line for each record. The lines of a traceback are indented."""

    def format(self, record: logging.LogRecord) -> str:
        head = f"{_time(record)} {record.levelname} {record.name}: {_message(record)}"
        return "\n".join([head, *("  " + line for line in _error_lines(record))])


class JSONFormatter(logging.Formatter):
    """One JSON object for each record: `time`, `level`, `logger`, `message`, `traceback`, and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        message = str(record.args[0]) if fields is not None and isinstance(record.args, tuple) else _message(record)
        entry: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": escaped(message),
        }
        for name, value in (fields or {}).items():
            if value is not None and value != "":
                entry[f"{name}_" if name in _RECORD_KEYS else name] = _bounded(value)
        if lines := list(_error_lines(record)):
            entry["traceback"] = lines
        return msgspec.json.encode(entry).decode()


def formatter(log_format: LogFormat) -> logging.Formatter:
    return JSONFormatter() if log_format == "json" else TextFormatter()


def _bounded(value: FieldValue) -> FieldValue:
    if not isinstance(value, str):
        return value
    # A text from outside may have a lone surrogate, which JSON cannot encode.
    text = _masked(value if value.isprintable() else escaped(value))
    return text if len(text) <= LONGEST_FIELD else text[:LONGEST_FIELD] + "..."


def _fields(record: logging.LogRecord) -> Fields | None:
    arguments = record.args
    if isinstance(arguments, tuple) and len(arguments) == 2 and isinstance(arguments[1], Fields):
        return arguments[1]
    return None


def _message(record: logging.LogRecord) -> str:
    return _masked(escaped(record.getMessage()))


def _time(record: logging.LogRecord) -> str:
    second, micros = divmod(round(record.created * 1_000_000), 1_000_000)
    return f"{_second(second)}.{micros:06}Z"


@lru_cache(maxsize=4)
def _second(second: int) -> str:
    return moment(second * 1_000_000).strftime("%Y-%m-%dT%H:%M:%S")


def _error_lines(record: logging.LogRecord) -> Iterator[str]:
    if record.exc_info and record.exc_info[1] is not None:
        yield from traceback_lines(record.exc_info[1])
    elif record.exc_text:
        yield from map(escaped, record.exc_text.splitlines())


def traceback_lines(problem: BaseException) -> Iterator[str]:
    """The traceback without frames of Ackwise. An error inside Ackwise keeps its frames."""
    summary = traceback.TracebackException(type(problem), problem, problem.__traceback__, compact=True)
    for part in _chain(summary):
        part.stack[:] = _callers_frames(part.stack)
    for piece in summary.format():
        yield from (without_password(escaped(line)) for line in piece.rstrip("\n").split("\n"))


def _chain(summary: traceback.TracebackException) -> list[traceback.TracebackException]:
    """The exception with its causes and the members of its groups."""
    chain, waiting = list[traceback.TracebackException](), [summary]
    while waiting and len(chain) < _MOST_CAUSES:
        part = waiting.pop()
        chain.append(part)
        waiting += [other for other in (part.__cause__, part.__context__) if other is not None]
        waiting += part.exceptions or ()
    return chain


def _callers_frames(stack: traceback.StackSummary) -> list[traceback.FrameSummary]:
    frames = [frame for frame in stack if not frame.filename.startswith(OUR_FOLDER)]
    while frames and any(folder in frames[0].filename for folder in _LOOP_FOLDERS):
        del frames[0]
    return (frames or list(stack))[-MOST_FRAMES:]
