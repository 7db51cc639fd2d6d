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
from ackwise.amps.sockets.aio import AsyncTCPSocket
from ackwise.client.concurrency.aio import AsyncSignal, AsyncWorker
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.wire.amps import FAILURE, Frames, Header, packed, text

log = logging.getLogger("ackwise.amps")

MESSAGES = ("p", "sow")
LARGEST_ANSWER = (1 << 32) - 1
"""Largest frame that the client accepts: the server chooses the size of its frames."""


class AsyncLostCallback(Protocol):
    """Callback that a connection's reader calls once, when the connection ends."""

    async def __call__(self, connection: AsyncServerConnection, problem: str) -> None: ...


class _PendingCommand:
    """A command that waits for its answer."""

    __slots__ = ("_on_success", "answer", "kind", "signal")

    def __init__(self, kind: str, on_success: Callable[[], object]) -> None:
        self.kind, self.signal, self._on_success = kind, AsyncSignal(), on_success
        self.answer: Header | AckwiseError | None = None

    def finish(self, answer: Header | AckwiseError) -> None:
        """Set the answer, if there is none yet, and wake the waiting caller."""
        if self.answer is None:
            self.answer = answer
            if isinstance(answer, Header):
                self._on_success()
            self.signal.set()


class AsyncServerConnection:
    """Connection to one AMPS server. Its reader starts with the connection."""

    def __init__(
        self, address: Address, sock: AsyncTCPSocket, on_message: Callable[[Message], None], on_lost: AsyncLostCallback
    ) -> None:
        self.address, self._socket = address, sock
        self._on_message, self._on_lost = on_message, on_lost
        self._names = itertools.count(1)
        self._waiting: dict[str, _PendingCommand] = {}
        self._guard = threading.Lock()
        self.lost = False
        self.reader = AsyncWorker(self._read, f"amps {address}")

    @classmethod
    async def open(
        cls, address: Address, on_message: Callable[[Message], None], on_lost: AsyncLostCallback
    ) -> AsyncServerConnection:
        try:
            sock = await AsyncTCPSocket.open(address.host, address.port)
        except (OSError, UnicodeError) as problem:
            raise Disconnected(f"no server answers at {address}: {str(problem) or 'no answer in time'}") from None
        return cls(address, sock, on_message, on_lost)

    async def command(self, header: Header, timeout: float, body: bytes = b"", kind: str = "processed") -> Header:
        """Send a command and wait for its answer of this kind. Raises if the server refuses it."""
        (answer,) = await self.commands([header], timeout, body, kind)
        if isinstance(answer, AckwiseError):
            raise answer
        return answer

    async def commands(
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
            await self.send(b"".join(packed(header, body) for header in headers))
            return [await self._answer(command, timeout) for command in waiting]
        except Disconnected as problem:
            return [command.answer or problem for command in waiting]
        finally:
            for header in headers:
                self._waiting.pop(text(header.cid), None)

    async def send(self, data: bytes) -> None:
        try:
            await self._socket.send(data)
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

    async def _answer(self, waiting: _PendingCommand, timeout: float) -> Header | AckwiseError:
        await waiting.signal.wait(timeout)
        return waiting.answer or NoAnswer(f"{self.address} did not answer within {timeout:g} seconds")

    async def _read(self) -> None:
        """Read frames until the connection ends. Never waits for a user's code."""
        frames = Frames(LARGEST_ANSWER)
        problem = "the server hung up"
        try:
            while data := await self._socket.read():
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
        await self._socket.close()
        with self._guard:
            self.lost = True
            waiting = list(self._waiting.values())
        for command in waiting:
            command.finish(Disconnected(f"the connection to {self.address} is lost: {problem}"))
        await self._on_lost(self, problem)

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

    async def close(self) -> None:
        await self._socket.close()
