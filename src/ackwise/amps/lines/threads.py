"""A line for threads."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from ackwise.amps.lines import CHUNK, CONNECT_WITHIN
from ackwise.core.amps import alive


class Line:
    """One connection. Everything that goes wrong is an `OSError`."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._writing = threading.Lock()

    @classmethod
    def open(cls, host: str, port: int) -> Line:
        sock = socket.create_connection((host, port), CONNECT_WITHIN)
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        alive.ask_after(sock, socket)
        return cls(sock)

    def read(self) -> bytes:
        """b"" at the end."""
        return self._socket.recv(CHUNK)

    def send(self, data: bytes) -> None:
        with self._writing:
            self._socket.sendall(data)

    def close(self) -> None:
        """Whoever reads meanwhile finds the end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
