"""A line tapped between a client and a server: what the client says is kept, and the line can be cut."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from ackwise.wire.amps import Frames, Header, packed, text
from tests.patience import PATIENCE


class Tap:
    """Passes frames on both ways. `said` are the client's headers; `answer` speaks for the server."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._door = socket.create_server(("127.0.0.1", 0))
        self._news = threading.Condition()
        self._lines: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self.said: list[Header] = []
        self.open = True
        self.answer: Callable[[Header], Header | None] = lambda header: None
        """What the client is told instead of what the server would say; None passes the command on."""
        self._start(self._accept)

    @property
    def uri(self) -> str:
        return f"tcp://127.0.0.1:{self._door.getsockname()[1]}/amps/json"

    def acks(self) -> list[Header]:
        with self._news:
            return [one for one in self.said if one.command == "ack"]

    def bookmarks(self) -> list[list[str]]:
        return [one.bookmarks for one in self.acks()]

    def until(self, true: Callable[[], Any]) -> None:
        """Wait until it is so; asked whenever the client has said something."""
        with self._news:
            assert self._news.wait_for(true, PATIENCE), [one.command for one in self.said]

    def tell(self, header: Header, body: bytes = b"") -> None:
        """What the server never said; while it says nothing else."""
        for client, _ in self._lines:
            client.sendall(packed(header, body))

    def cut(self) -> None:
        """As when a cable is pulled: both ends find the connection reset."""
        lines, self._lines = self._lines, []
        for line in lines:
            for end in line:
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.open = False
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(PATIENCE)
        self._door.close()
        self.cut()
        for thread in self._threads:
            thread.join(PATIENCE)

    def __enter__(self) -> Tap:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while self.open:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server, PATIENCE)
            except OSError:
                client.close()
                continue
            self._lines.append((client, server))
            self._start(self._forward, client, server)
            self._start(self._back, server, client)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        frames = Frames()
        with suppress(OSError):
            while data := client.recv(65536):
                frames.feed(data)
                while (frame := frames.next()) is not None:
                    with self._news:
                        self.said.append(frame[0])
                        self._news.notify_all()
                    instead = self.answer(frame[0])
                    if instead is None:
                        server.sendall(packed(*frame))
                    else:
                        client.sendall(packed(instead))
        _hang_up(server, client)

    def _back(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
        _hang_up(server, client)


def _hang_up(*ends: socket.socket) -> None:
    """Shuts sockets down before it closes them, so that a blocked read ends."""
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


def refusal(header: Header, reason: str = "no") -> Header:
    return Header(c="ack", cid=header.cid, a="processed", status="failure", reason=reason)


def named(header: Header) -> str:
    return text(header.sub_id)
