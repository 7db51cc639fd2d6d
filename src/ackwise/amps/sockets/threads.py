"""Blocking TCP socket."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from ackwise.amps.sockets import CHUNK, CONNECT_SECONDS
from ackwise.wire import amps


class TCPSocket:
    """Blocking TCP connection. All its errors are `OSError`."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._writing = threading.Lock()

    @classmethod
    def open(cls, host: str, port: int) -> TCPSocket:
        sock = socket.create_connection((host, port), CONNECT_SECONDS)
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        amps.keep_alive(sock, socket)
        return cls(sock)

    def read(self) -> bytes:
        """Read available bytes. Returns b"" at the end of the stream."""
        return self._socket.recv(CHUNK)

    def send(self, data: bytes) -> None:
        with self._writing:
            self._socket.sendall(data)

    def close(self) -> None:
        """Close the connection. A concurrent `read` returns b""."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
