"""A tiny proxy in front of PostgreSQL's socket that cuts connections in the middle of a byte stream."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path


class CuttingProxy:
    """Listens on a socket of its own in `folder`. After `cut_after(n)`, the n-th byte from then on is the last."""

    def __init__(self, folder: Path, target: Path, port: int = 5432) -> None:
        self.folder = folder
        self._target = str(target / f".s.PGSQL.{port}")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / f".s.PGSQL.{port}"))
        self._listener.listen(64)
        self._lock = threading.Lock()
        self._left: int | None = None
        self._only_from_server = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self.cuts = 0
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_after(self, count: int, *, only_from_server: bool = False) -> None:
        """Cut whichever connection carries that byte; `only_from_server` counts what is answered."""
        with self._lock:
            self._left, self._only_from_server = count, only_from_server

    def relax(self) -> None:
        with self._lock:
            self._left = None

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._target)
            except OSError:
                client.close()
                continue
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
            for source, sink, answers in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._carry, args=(pair, source, sink, answers), daemon=True).start()

    def _carry(
        self, pair: tuple[socket.socket, socket.socket], source: socket.socket, sink: socket.socket, answers: bool
    ) -> None:
        try:
            while data := source.recv(1 << 16):
                passed, cut = self._allow(data, answers)
                sink.sendall(passed)
                if cut:
                    break
        except OSError:
            pass
        self._drop(pair)

    def _allow(self, data: bytes, answers: bool) -> tuple[bytes, bool]:
        with self._lock:
            if self._left is None or (self._only_from_server and not answers):
                return data, False
            if len(data) < self._left:
                self._left -= len(data)
                return data, False
            passed, self._left = data[: self._left], None
            self.cuts += 1
            return passed, True

    def _drop(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            known = pair in self._pairs
            self._pairs.discard(pair)
        for end in pair if known else ():
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._drop(pair)
