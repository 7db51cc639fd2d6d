"""Log configuration of a process: levels of loggers, the format, and a writer thread for stderr."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TextIO

from ackwise.core.errors import BadInput
from ackwise.observability.log_records import LogFormat, formatter

MOST_WAITING = 10_000
"""Maximum number of records that wait for a slow stderr. The handler drops and counts further records."""
LINGER = 0.1
"""Seconds that a record waits for more records. Then the thread writes them together. Errors do not wait."""
BUSY_LINGER = 1.0
"""The same on a busy server: each time that the thread wakes, it delays the requests."""
BUSY_RATE = 400.0
"""Records, and events of sources, that a busy server has in a second. A request has about three events."""
FLUSH_SECONDS = 2.0
"""Seconds that a flush waits for a slow stderr."""
DEFAULT_LEVEL = "info"
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_MOST_LOGGERS = 100


def parse_levels(texts: Iterable[str]) -> dict[str, int]:
    """Levels by logger name. The name "" stands for all other loggers.

    A text is `info`, `ackwise.store=debug`, or a list of these separated by commas.
    """
    levels = {"": _LEVELS[DEFAULT_LEVEL]}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, _, level = part.rpartition("=")
        if level.lower() not in _LEVELS or ("=" in part and not _is_logger(name)):
            raise BadInput(
                f"--log-level {part!r:.100}: use debug, info, warning or error, or a logger like ackwise.store=debug"
            )
        levels[name] = _LEVELS[level.lower()]
    if len(levels) > _MOST_LOGGERS:
        raise BadInput(f"--log-level names more than {_MOST_LOGGERS} loggers")
    return levels


def _is_logger(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def set_up_logs(levels: Iterable[str], log_format: LogFormat = "text", stream: TextIO | None = None) -> WriterHandler:
    """Write the logs of this process to stderr, or to the stream."""
    parsed = parse_levels(levels)
    handler = WriterHandler(stream or sys.stderr)
    handler.setFormatter(formatter(log_format))
    root = logging.getLogger()
    for earlier in [handler for handler in root.handlers if isinstance(handler, WriterHandler)]:
        root.removeHandler(earlier)
        earlier.close()
    if not root.handlers:
        root.addHandler(handler)
    for name, level in parsed.items():
        logging.getLogger(name or None).setLevel(level)
    return handler


def installed_writer() -> WriterHandler | None:
    """The handler of `set_up_logs` in this process."""
    return next((handler for handler in logging.getLogger().handlers if isinstance(handler, WriterHandler)), None)


class WriterHandler(logging.Handler):
    """Writes records in a thread of its own, so that a slow stderr does not delay requests.

    A source keeps what it logs until the thread asks for it. It logs in the thread that calls it, and returns how many
    events it had since the last call.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._waiting: deque[logging.LogRecord] = deque()
        self._changed = threading.Condition()
        self._writing = self._idle = False
        self._urgent = threading.Event()
        """Event: the thread writes at once instead of waiting for more records."""
        self._dropped = 0
        self._thread: threading.Thread | None = None
        self._closed = False
        self._sources: list[Callable[[], int]] = []
        self._asked = False
        """Whether a source has something to log."""

    def createLock(self) -> None:
        # `logging.shutdown` holds this lock while it flushes. A source that logs meanwhile would wait for it forever.
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        kept = bool(self.filter(record))
        if kept:
            self.emit(record)
        return kept

    def add_source(self, source: Callable[[], int]) -> Callable[[], None]:
        """Ask the source for its records before each write. Returns a function that ends this."""
        self._sources.append(source)
        return lambda: self._sources.remove(source)

    def ask_sources(self) -> None:
        """Write soon, though no record waits: a source has something to log. Thread-safe."""
        with self._changed:
            if not self._closed:
                self._asked = True
                self._wake()

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            if self._closed:
                return
            if len(self._waiting) >= MOST_WAITING:
                self._dropped += 1
                return
            self._waiting.append(record)
            self._wake()
            many = len(self._waiting) > MOST_WAITING // 2
        if many or record.levelno >= logging.ERROR:
            self._urgent.set()

    def _wake(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._write_all, name="ackwise-log", daemon=True)
            self._thread.start()
        elif self._idle:
            self._idle = False
            self._changed.notify_all()

    def _write_all(self) -> None:
        linger = LINGER
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                while not self._waiting and not self._asked:
                    if self._closed:
                        return
                    self._idle = True
                    self._changed.wait()
                self._idle = False
            # One wake-up for each record would cost more than writing the record.
            self._urgent.wait(linger)
            self._urgent.clear()
            events = self._ask()
            with self._changed:
                records, self._waiting = list(self._waiting), deque()
                dropped, self._dropped = self._dropped, 0
                self._writing = True
            linger = BUSY_LINGER if len(records) + events >= BUSY_RATE * linger else LINGER
            self._write(records, dropped)

    def _ask(self) -> int:
        self._asked = False
        return sum(source() for source in self._sources.copy())

    def _write(self, records: list[logging.LogRecord], dropped: int) -> None:
        # Sources log later than their records say. The sort is stable.
        records.sort(key=attrgetter("created"))
        if dropped:
            text = f"stderr is slow: {dropped} log records were dropped"
            records.append(logging.makeLogRecord({"name": "ackwise", "levelname": "WARNING", "msg": text}))
        try:
            self._stream.write("".join(f"{self._line(record)}\n" for record in records))
            self._stream.flush()
        except (OSError, ValueError):
            # The reader of stderr is gone. A server continues without a log.
            return

    def _line(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record)
        except Exception as problem:
            return f"ackwise: a log record of {record.name} cannot be written: {type(problem).__name__}"

    def flush(self) -> None:
        """Wait until all records are written, for at most `FLUSH_SECONDS`."""
        if threading.current_thread() is self._thread:
            return
        self._ask()
        end = time.monotonic() + FLUSH_SECONDS
        self._urgent.set()
        with self._changed:
            while self._waiting or self._writing:
                left = end - time.monotonic()
                if left <= 0 or self._thread is None or not self._thread.is_alive():
                    return
                self._changed.wait(left)

    def close(self) -> None:
        self.flush()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        super().close()
