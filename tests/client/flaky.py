"""A proxy in front of a server that passes requests on one by one, and fails them the way it is told to."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections import deque
from typing import Literal

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)

Fault = Literal["lose the request", "lose the answer"] | bytes | threading.Event
"""What becomes of a request: it never arrives, its answer never does, it is answered here with these bytes, or its
answer is kept back until the event."""


class Flaky:
    """`faults` are used up one by one, each by the next request whose path is named."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._faults: deque[tuple[bytes, Fault]] = deque()
        self._lines: set[socket.socket] = set()
        self.requests: list[bytes] = []
        """The path of each request that was seen."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def fail(self, path: str, *faults: Fault) -> None:
        self._faults.extend((path.encode(), fault) for fault in faults)

    @property
    def used_up(self) -> bool:
        return not self._faults

    def count(self, path: str) -> int:
        return self.requests.count(path.encode())

    def down(self) -> None:
        """Stops listening and cuts every open connection."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            lines, self._lines = self._lines, set()
        for line in lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def up(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = listener.accept()
                with self._lock:
                    self._lines.add(line)
                threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        with contextlib.suppress(OSError), line, socket.create_connection(self._target) as server:
            while request := _whole(line):
                fault = self._next_fault(request)
                if isinstance(fault, bytes):
                    line.sendall(fault)
                    continue
                if fault == "lose the request":
                    return
                server.sendall(request)
                answer = _whole(server)
                if fault == "lose the answer":
                    return
                if isinstance(fault, threading.Event):
                    fault.wait()
                line.sendall(answer)

    def _next_fault(self, request: bytes) -> Fault | None:
        path = request.split(b" ", 2)[1]
        with self._lock:
            self.requests.append(path)
            if self._faults and self._faults[0][0] == path:
                return self._faults.popleft()[1]
        return None


def _whole(line: socket.socket) -> bytes:
    """One message of HTTP with its body; nothing at the end."""
    got = b""
    while b"\r\n\r\n" not in got:
        data = line.recv(1 << 16)
        if not data:
            return b""
        got += data
    length = _LENGTH.search(got)
    size = got.index(b"\r\n\r\n") + 4 + (int(length[1]) if length else 0)
    while len(got) < size:
        data = line.recv(1 << 16)
        if not data:
            return b""
        got += data
    return got


def refusal(status: int, code: str, *headers: str) -> bytes:
    """What a server answers that cannot now."""
    body = b'{"error":"not now","code":"%b"}' % code.encode()
    lines = [f"HTTP/1.1 {status} No", f"content-length: {len(body)}", "content-type: application/json", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
