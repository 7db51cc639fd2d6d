"""Ports of a server: binds them before the store is opened, so that a taken port changes no store."""

from __future__ import annotations

import socket
from typing import NamedTuple

from ackwise.core.errors import AckwiseError
from ackwise.server.settings import Settings

BACKLOG = 4096


class BoundPorts(NamedTuple):
    """Bound sockets of a server. They refuse connections until `listen`."""

    http: socket.socket
    pushpop: socket.socket | None = None
    amps: socket.socket | None = None

    @property
    def web(self) -> list[socket.socket]:
        """Sockets of the HTTP listeners."""
        return [self.http] if self.pushpop is None else [self.http, self.pushpop]

    def listen(self) -> None:
        """Start to listen. Fails if another process bound a port at the same time and was faster."""
        for sock in self._all():
            try:
                sock.listen(BACKLOG)
            except OSError as problem:
                host, port = sock.getsockname()[:2]
                raise _cannot_listen(host, port, problem) from None

    def close(self) -> None:
        for sock in self._all():
            sock.close()

    def _all(self) -> list[socket.socket]:
        return [sock for sock in self if sock is not None]


def bind_ports(settings: Settings) -> BoundPorts:
    """Bind the ports of the settings. An error names the host and the port."""
    host = settings.host.strip("[]")
    sockets: list[socket.socket | None] = []
    try:
        for port in (settings.port, settings.pushpop_port, settings.amps_port):
            sockets.append(None if port is None else _bound(host, port))
    except BaseException:
        for sock in sockets:
            if sock is not None:
                sock.close()
        raise
    http, pushpop, amps = sockets
    assert http is not None
    return BoundPorts(http, pushpop, amps)


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, number)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
        except BaseException:
            sock.close()
            raise
    except OSError as problem:
        raise _cannot_listen(host, port, problem) from None
    return sock


def _cannot_listen(host: str, port: int, problem: OSError) -> AckwiseError:
    return AckwiseError(f"cannot listen on {host} port {port}: {problem.strerror or problem}")
