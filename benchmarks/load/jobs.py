"""Jobs of the load generator and their results, as one line of JSON each."""

from __future__ import annotations

from typing import Literal

import msgspec

Peer = Literal["http", "redis", "redis-py", "nats", "rabbit"]
"""How a server is spoken to. `http` is Queen's API: a Queen server, or ours."""


class Load(msgspec.Struct, kw_only=True):
    """Target, number of connections, and messages per request."""

    peer: Peer = "http"
    address: str
    queue: str
    connections: int
    batch: int
    messages: int


class Push(msgspec.Struct, tag=True):
    """Push. There are as many partitions as connections, and each request goes to one."""

    load: Load


class Drain(msgspec.Struct, tag=True):
    """Pop and ack until no message is left."""

    load: Load


class Beside(msgspec.Struct, tag=True):
    """Push while `consumers` pop and ack all the time."""

    load: Load
    consumers: int


class Acks(msgspec.Struct, tag=True):
    """Pop before, then measure acks alone: the batch is the size of an ack, `leased` whether it names its lease."""

    load: Load
    leased: bool


class Idle(msgspec.Struct, tag=True, kw_only=True):
    """Park long polls, measure the idle server process, then push one by one."""

    address: str
    pid: int
    queues: int
    waiters: int
    partitions: int
    seconds: float
    pushes: int


Job = Push | Drain | Beside | Acks | Idle


class Done(msgspec.Struct, kw_only=True):
    """Result of one job. Latencies of single requests are in milliseconds."""

    messages: int
    seconds: float
    p50: float = 0.0
    p99: float = 0.0
    busy: float = 0.0
    """How much of a core the load generator itself needed: near 1, and it is what was measured."""
    taken: int = 0
    """What consumers had beside."""
    idle_cpu: float = 0.0
    """How much of a core the server needed while it had nothing to do."""
    wrong: int = 0
    """Messages that reached no waiter, several waiters, or a waiter of another queue."""
    error: str = ""

    @property
    def rate(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0
