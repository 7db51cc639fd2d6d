"""Attackers: clients that hang up, trickle, ask for too much, or send garbage. Each loop is bounded."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
import threading
import time
from collections.abc import Callable

Address = tuple[str, int]
PATIENCE = 5.0
THIEF = "thief-"
"""Prefix of the groups for which `abandon` claims. These groups read no answer and settle nothing."""
THIEVES = 100
"""A lease that the server believes delivered locks its partitions. Other groups still find messages there."""
LONG_LEASE = 3600
"""Seconds. No such lease expires during a campaign, so nothing may charge its messages a failure."""
JOIN = json.dumps({"text": 'MATCH a: T, b: T, c: T, d: T SET a.n = "x"'}).encode()
LOOK = json.dumps({"text": "MATCH a: T, b: T, c: T RETURN a.n, b.n, c.n"}).encode()
LONG = json.dumps({"text": "MATCH a: T WHERE a.n = " + "1 + " * 12_000 + "1 RETURN a.n"}).encode()


def request(method: str, path: str, body: bytes = b"") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def reset(connection: socket.socket) -> None:
    """Close so that the server sees an error, not an end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def abandon(address: Address, dice: random.Random) -> None:
    """Ask for messages and hang up before the answer is read."""
    with socket.create_connection(address, PATIENCE) as connection:
        wait = dice.choice(("", "&wait=true&timeout=20000"))
        query = f"batch=50&consumerGroup={THIEF}{dice.randrange(THIEVES)}&leaseSeconds={LONG_LEASE}{wait}"
        connection.sendall(request("GET", f"/api/v1/pop/queue/work?{query}"))
        time.sleep(dice.choice((0.0, 0.001, 0.02)))
        if dice.random() < 0.5:
            reset(connection)


def trickle(address: Address, dice: random.Random) -> None:
    """Send a body byte by byte, and leave."""
    with socket.create_connection(address, PATIENCE) as connection:
        connection.sendall(b"POST /api/v1/push HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n")
        for _ in range(dice.randrange(40)):
            connection.sendall(b" ")
            time.sleep(0.02)


def overask(address: Address, dice: random.Random) -> None:
    """Run a statement that cannot end within its limits. Hang up, or wait for the refusal."""
    with socket.create_connection(address, PATIENCE) as connection:
        connection.sendall(request("POST", "/mew", dice.choice((JOIN, LOOK, LONG))))
        connection.settimeout(dice.choice((0.05, 0.5, 6.0)))
        with contextlib.suppress(TimeoutError):
            connection.recv(1000)


def garble(address: Address, dice: random.Random) -> None:
    """Send bytes that are no request."""
    with socket.create_connection(address, PATIENCE) as connection:
        connection.sendall(dice.randbytes(dice.randrange(1, 3000)))
        connection.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            connection.recv(1000)


ATTACKS: tuple[Callable[[Address, random.Random], None], ...] = (abandon, abandon, abandon, trickle, overask, garble)


class Attackers:
    """Threads that attack the servers until they are stopped."""

    def __init__(self, addresses: list[Address], seed: int, *, count: int = 4, most: int = 20_000) -> None:
        self._addresses, self._most = addresses, most
        self._over = threading.Event()
        self.attacks = 0
        self._threads = [threading.Thread(target=self._run, args=(seed + n,), daemon=True) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self, seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(self._most):
            if self._over.is_set():
                return
            with contextlib.suppress(OSError):
                dice.choice(ATTACKS)(dice.choice(self._addresses), dice)
            self.attacks += 1
            self._over.wait(0.005)

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)
