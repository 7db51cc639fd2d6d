"""Requests whose client does not wait for the answer."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec

from tests.server.process import ServerProcess

MOST_MEMORY = 700 << 20


def post(server: ServerProcess, text: str) -> socket.socket:
    """A request whose answer is not waited for."""
    body = msgspec.json.encode({"text": text})
    sock = socket.create_connection(server.address)
    sock.sendall(b"POST /mew HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    return sock


def peak(server: ServerProcess) -> int:
    """The largest size that the process had, in bytes."""
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmHWM")
