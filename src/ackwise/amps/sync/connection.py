# Generated from ../aio/connection.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Connection to one AMPS server: sends commands, matches answers, dispatches messages."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ackwise.amps.message import CommandFailed, Disconnected, Message, NoAnswer
from ackwise.amps.settings import Address
from ackwise.amps.sockets.threads import TCPSocket
from ackwise.client.concurrency.threads import Signal, Worker
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.wire.amps import FAILURE, Frames, Header, packed, text

log = logging.getLogger("ackwise.amps")

MESSAGES = ("p", "sow")
LARGEST_ANSWER = (1 << 32) - 1
"""Largest frame that the client accepts: the server chooses the size of its frames."""


class LostCallback(Protocol):
    """Callback that a connection's reader calls once, when the connection ends."""

    def __call__(self, connection: ServerConnection, problem: str) -> None: ...


class _PendingCommand:
    """A command that waits for its answer."""

    __slots__ = ("_on_success", "answer", "kind", "signal")

    def __init__(self, kind: str, on_success: Callable[[], object]) -> None:
        self.kind, self.signal, self._on_success = kind, Signal(), on_success
        self.answer: Header | AckwiseError | None = None

    def finish(self, answer: Header | AckwiseError) -> None:
        """Set the answer, if there is none yet, and wake the waiting caller."""
        if self.answer is None:
            self.answer = answer
            if isinstance(answer, Header):
                self._on_success()
            self.signal.set()


class ServerConnection:
    """Connection to one AMPS server. Its reader starts with the connection."""

    def __init__(
        self, address: Address, sock: TCPSocket, on_message: Callable[[Message], None], on_lost: LostCallback
    ) -> None:
        self.address, self._socket = address, sock
        self._on_message, self._on_lost = on_message, on_lost
        self._names = itertools.count(1)
        self._waiting: dict[str, _PendingCommand] = {}
        self._guard = threading.Lock()
        self.lost = False
        self.reader = Worker(self._read, f"amps {address}")

    @classmethod
    def open(cls, address: Address, on_message: Callable[[Message], None], on_lost: LostCallback) -> ServerConnection:
        try:
            sock = TCPSocket.open(address.host, address.port)
        except (OSError, UnicodeError) as problem:
            raise Disconnected(f"no server answers at {address}: {str(problem) or 'no answer in time'}") from None
        return cls(address, sock, on_message, on_lost)

    def command(self, header: Header, timeout: float, body: bytes = b"", kind: str = "processed") -> Header:
        """Send a command and wait for its answer of this kind. Raises if the server refuses it."""
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
        """Send several commands in one write. Returns the answer to each, or its error.

        Calls `on_success` for each successful command as soon as its answer arrives.
        """
        waiting = [self._register(header, kind, partial(on_success, header)) for header in headers]
        try:
            self.send(b"".join(packed(header, body) for header in headers))
            return [self._answer(command, timeout) for command in waiting]
        except Disconnected as problem:
            return [command.answer or problem for command in waiting]
        finally:
            for header in headers:
                self._waiting.pop(text(header.cid), None)

    def send(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except OSError as problem:
            raise Disconnected(f"the connection to {self.address} is lost: {problem}") from None

    def _register(self, header: Header, kind: str, on_success: Callable[[], object]) -> _PendingCommand:
        header.cid, header.a = str(next(self._names)), kind
        waiting = _PendingCommand(kind, on_success)
        with self._guard:
            if self.lost:
                waiting.finish(Disconnected(f"the connection to {self.address} is lost"))
            self._waiting[header.cid] = waiting
        return waiting

    def _answer(self, waiting: _PendingCommand, timeout: float) -> Header | AckwiseError:
        waiting.signal.wait(timeout)
        return waiting.answer or NoAnswer(f"{self.address} did not answer within {timeout:g} seconds")

    def _read(self) -> None:
        """Read frames until the connection ends. Never waits for a user's code."""
        frames = Frames(LARGEST_ANSWER)
        problem = "the server hung up"
        try:
            while data := self._socket.read():
                frames.feed(data)
                while (frame := frames.next()) is not None:
                    self._receive(*frame)
        except OSError as broken:
            problem = str(broken) or type(broken).__name__
        except BadInput as broken:
            problem = broken.message
        except Exception as broken:
            log.exception("the client cannot read what %s sent", self.address)
            problem = repr(broken)
        self._socket.close()
        with self._guard:
            self.lost = True
            waiting = list(self._waiting.values())
        for command in waiting:
            command.finish(Disconnected(f"the connection to {self.address} is lost: {problem}"))
        self._on_lost(self, problem)

    def _receive(self, header: Header, body: bytes) -> None:
        command = header.command
        if command in MESSAGES:
            self._on_message(Message(header, body, self))
        elif command == "ack":
            waiting = self._waiting.get(text(header.cid))
            if waiting is None:
                return
            if header.status == FAILURE:
                waiting.finish(CommandFailed(text(header.reason) or "the server refused the command"))
            elif header.a == waiting.kind:
                waiting.finish(header)

    def close(self) -> None:
        self._socket.close()
