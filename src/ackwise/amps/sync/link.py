# Generated from ../aio/link.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""One connection to a server: commands out, their answers back, messages to whoever subscribed."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ackwise.amps.addresses import Address
from ackwise.amps.errors import CommandFailed, Disconnected, NoAnswer
from ackwise.amps.lines.threads import Line
from ackwise.amps.message import Message
from ackwise.client.beside.threads import Signal, Worker
from ackwise.core.amps.frames import Frames, packed
from ackwise.core.amps.headers import FAILURE, Header, text
from ackwise.core.errors import AckwiseError, BadInput

log = logging.getLogger("ackwise.amps")

MESSAGES = ("p", "sow")
LARGEST_ANSWER = (1 << 32) - 1
"""The server decides how large its frames are."""


class Lost(Protocol):
    """Told once, by whoever reads, when a connection ends."""

    def __call__(self, link: Link, problem: str) -> None: ...


class _Waiting:
    """A command until it is answered."""

    __slots__ = ("_on_success", "answer", "kind", "signal")

    def __init__(self, kind: str, on_success: Callable[[], object]) -> None:
        self.kind, self.signal, self._on_success = kind, Signal(), on_success
        self.answer: Header | AckwiseError | None = None

    def over(self, answer: Header | AckwiseError) -> None:
        if self.answer is None:
            self.answer = answer
            if isinstance(answer, Header):
                self._on_success()
            self.signal.set()


class Link:
    """Reads from the moment it is made."""

    def __init__(self, address: Address, line: Line, on_message: Callable[[Message], None], on_lost: Lost) -> None:
        self.address, self._line = address, line
        self._on_message, self._on_lost = on_message, on_lost
        self._names = itertools.count(1)
        self._waiting: dict[str, _Waiting] = {}
        self._guard = threading.Lock()
        self.lost = False
        self.reader = Worker(self._read, f"amps {address}")

    @classmethod
    def open(cls, address: Address, on_message: Callable[[Message], None], on_lost: Lost) -> Link:
        try:
            line = Line.open(address.host, address.port)
        except (OSError, UnicodeError) as problem:
            raise Disconnected(f"no server answers at {address}: {str(problem) or 'no answer in time'}") from None
        return cls(address, line, on_message, on_lost)

    def command(self, header: Header, timeout: float, body: bytes = b"", kind: str = "processed") -> Header:
        """Send it and wait for the answer of this kind; a refusal is raised."""
        (answer,) = self.commands([header], timeout, body, kind)
        if isinstance(answer, AckwiseError):
            raise answer
        return answer

    def commands(
        self,
        headers: Sequence[Header],
        timeout: float,
        body: bytes = b"",
        kind: str = "processed",
        on_success: Callable[[Header], object] = lambda header: None,
    ) -> list[Header | AckwiseError]:
        """Several at once; the answer to each, or why there is none. `on_success` hears at once which was done."""
        waiting = [self._named(header, kind, partial(on_success, header)) for header in headers]
        try:
            self.send(b"".join(packed(header, body) for header in headers))
            return [self._answer(one, timeout) for one in waiting]
        except Disconnected as problem:
            return [one.answer or problem for one in waiting]
        finally:
            for header in headers:
                self._waiting.pop(text(header.cid), None)

    def send(self, data: bytes) -> None:
        try:
            self._line.send(data)
        except OSError as problem:
            raise Disconnected(f"the connection to {self.address} is lost: {problem}") from None

    def _named(self, header: Header, kind: str, on_success: Callable[[], object]) -> _Waiting:
        header.cid, header.a = str(next(self._names)), kind
        waiting = _Waiting(kind, on_success)
        with self._guard:
            if self.lost:
                waiting.over(Disconnected(f"the connection to {self.address} is lost"))
            self._waiting[header.cid] = waiting
        return waiting

    def _answer(self, waiting: _Waiting, timeout: float) -> Header | AckwiseError:
        waiting.signal.wait(timeout)
        return waiting.answer or NoAnswer(f"{self.address} did not answer within {timeout:g} seconds")

    def _read(self) -> None:
        """Until the end; nothing here waits for a user's code."""
        frames = Frames(LARGEST_ANSWER)
        problem = "the server hung up"
        try:
            while data := self._line.read():
                frames.feed(data)
                while (frame := frames.next()) is not None:
                    self._take(*frame)
        except OSError as broken:
            problem = str(broken) or type(broken).__name__
        except BadInput as broken:
            problem = broken.message
        except Exception as broken:
            log.exception("what %s sent could not be read", self.address)
            problem = repr(broken)
        self._line.close()
        with self._guard:
            self.lost = True
            waiting = list(self._waiting.values())
        for one in waiting:
            one.over(Disconnected(f"the connection to {self.address} is lost: {problem}"))
        self._on_lost(self, problem)

    def _take(self, header: Header, body: bytes) -> None:
        command = header.command
        if command in MESSAGES:
            self._on_message(Message(header, body, self))
        elif command == "ack":
            waiting = self._waiting.get(text(header.cid))
            if waiting is None:
                return
            if header.status == FAILURE:
                waiting.over(CommandFailed(text(header.reason) or "the server refused the command"))
            elif header.a == waiting.kind:
                waiting.over(header)

    def close(self) -> None:
        self._line.close()
