"""HTTP by hand over one socket: for what a well-behaved client library would not do."""

from __future__ import annotations

import json
import socket
from types import TracebackType
from typing import Any, NamedTuple

from tests.patience import PATIENCE


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """One connection."""

    def __init__(self, address: tuple[str, int], source: str = "") -> None:
        self.socket = socket.create_connection(address, PATIENCE, (source, 0) if source else None)
        self._file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, method: str, path: str, body: bytes | None = None) -> None:
        """Send a whole request."""
        self.send(request(method, path, body))

    def reply(self) -> Reply | None:
        """The next answer, or None when the server has closed the connection."""
        try:
            start = self._file.readline()
        except ConnectionResetError:
            return None
        if not start:
            return None
        headers = {}
        while (line := self._file.readline().decode("latin-1").strip()) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = self._file.read(int(headers.get("content-length", 0)))
        return Reply(int(start.split()[1]), headers, body)

    def closed(self) -> bool:
        """Whether the server closes now, without another word; waits for it."""
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def request(method: str, path: str, body: bytes | None = None, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", *headers]
    if body is not None:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


UPGRADE = request(
    "GET",
    "/mew/events?session=s",
    None,
    "connection: Upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
)
