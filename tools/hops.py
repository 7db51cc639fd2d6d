"""Count the functions that one message passes through: `python tools/hops.py`.

A profile hook counts functions of `ackwise` for six walks: push, pop and ack over HTTP in Queen's protocol, and push,
claim and ack in an embedded connection. Every walk handles one message, in process, on SQLite, after a warm-up.
The ASGI application is called without a socket, so the code that reads and writes sockets is not counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import ackwise
from ackwise.connect import open_store
from ackwise.server.server import make_server
from ackwise.server.settings import Settings

ROUNDS = 5
"""Counted repetitions of a walk. The smallest count is shown: it has no background work in it."""
WARM_UP = 3
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
BUDGETS = {
    "HTTP push (Queen)": (20, 26),
    "HTTP pop (Queen)": (26, 40),
    "HTTP ack (Queen)": (22, 25),
    "embedded push": (18, 24),
    "embedded claim": (25, 28),
    "embedded ack": (21, 25),
}
"""Modules, and calls from one folder into another (`crossings`), that a walk may take. See decision 0018."""


@dataclass
class Walk:
    """Calls of one walk. `functions` counts a function each time it is called.

    `crossings` counts calls from one package into another, and a package is the folder of a module. `top_crossings`
    counts calls from one package below `ackwise` into another, such as from `server` into `broker`.
    """

    functions: int = 0
    modules: set[str] = field(default_factory=set)
    crossings: int = 0
    top_crossings: int = 0
    broker_calls: int = 0
    """Calls of a protocol that wait for the broker."""

    @property
    def counts(self) -> tuple[int, int, int, int]:
        return self.functions, len(self.modules), self.crossings, self.top_crossings


class Counter:
    """Profile hook. It counts in every thread that starts while the hook is installed, and only inside `counting`."""

    def __init__(self) -> None:
        self._walk: Walk | None = None
        self._frames: dict[int, FrameType] = {}

    @contextlib.contextmanager
    def installed(self) -> Iterator[Counter]:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield self
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextlib.contextmanager
    def counting(self) -> Iterator[Walk]:
        walk = self._walk = Walk()
        try:
            yield walk
        finally:
            self._walk = None
            self._frames.clear()

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        walk = self._walk
        if walk is None or event != "call" or id(frame) in self._frames:
            return
        module = _module(frame)
        if module is None or frame.f_code.co_name in COMPREHENSIONS:
            return
        # A coroutine is called once and resumed often: its frame, kept alive here, tells one from the other.
        self._frames[id(frame)] = frame
        walk.functions += 1
        walk.modules.add(module)
        caller = _caller(frame)
        if caller is not None:
            walk.crossings += _folder(caller) != _folder(module)
            walk.top_crossings += _package(caller) != _package(module)
            waits = bool(frame.f_code.co_flags & inspect.CO_COROUTINE)
            walk.broker_calls += waits and (_package(caller), _package(module)) == ("protocols", "broker")


def _module(frame: FrameType) -> str | None:
    name = frame.f_globals.get("__name__", "")
    return name if name.startswith(f"{ackwise.__name__}.") else None


def _caller(frame: FrameType) -> str | None:
    """The nearest module of `ackwise` above the frame."""
    above = frame.f_back
    while above is not None:
        module = _module(above)
        if module is not None:
            return module
        above = above.f_back
    return None


def _folder(module: str) -> str:
    return module.rpartition(".")[0]


def _package(module: str) -> str:
    return module.split(".")[1]


def count_embedded(counter: Counter, url: str, rounds: int) -> list[dict[str, Walk]]:
    """The walks of an embedded connection, round by round."""
    counted = []
    with ackwise.connect(url) as queue:
        for _ in range(rounds):
            with counter.counting() as push:
                queue.push("orders", {"id": 1}, partition="eu")
            with counter.counting() as claim:
                batch = queue.claim("orders", group="billing")
                delivery = batch[0]
            with counter.counting() as ack:
                delivery.ack()
            counted.append({"embedded push": push, "embedded claim": claim, "embedded ack": ack})
    return counted


async def count_http(counter: Counter, url: str, rounds: int) -> list[dict[str, Walk]]:
    """The walks of Queen's protocol through the ASGI application, round by round."""
    counted = []
    store = open_store(url)
    server = make_server(store, Settings(port=0), lambda host, port: None)
    # Logs and metrics listen to events. They are no part of a walk.
    server.runtime.observer.stop_listening()
    app = server.config.app
    async with _lifespan(app):
        for _ in range(rounds):
            item = {"queue": "orders", "partition": "eu", "payload": {"id": 1}}
            with counter.counting() as push:
                status, _ = await _request(app, "POST", "/api/v1/push", {"items": [item]})
            assert status == 201, status
            with counter.counting() as pop:
                status, answer = await _request(app, "GET", "/api/v1/pop/queue/orders", query="consumerGroup=billing")
            assert status == 200, status
            message = answer["messages"][0]
            settlement = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
            with counter.counting() as ack:
                status, answer = await _request(app, "POST", "/api/v1/ack", {**settlement, "status": "completed"})
            assert answer["success"], answer
            counted.append({"HTTP push (Queen)": push, "HTTP pop (Queen)": pop, "HTTP ack (Queen)": ack})
    store.close()
    return counted


@contextlib.asynccontextmanager
async def _lifespan(app: Any) -> AsyncIterator[None]:
    incoming: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    outgoing: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    running = asyncio.create_task(app({"type": "lifespan", "state": {}}, incoming.get, outgoing.put))
    for step in ("startup", "shutdown"):
        await incoming.put({"type": f"lifespan.{step}"})
        reply = await outgoing.get()
        assert reply["type"] == f"lifespan.{step}.complete", reply
        if step == "startup":
            yield
    await running


async def _request(app: Any, method: str, path: str, body: Any = None, *, query: str = "") -> tuple[int, Any]:
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
    }
    pending = [{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode(), "more_body": False}]
    gone = asyncio.Event()
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not pending:
            await gone.wait()  # The client stays connected until the answer is complete.
        return pending.pop()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], json.loads(content) if content else None


def count_walks(rounds: int = ROUNDS) -> dict[str, Walk]:
    """Every walk by its name, with the smallest count of its rounds."""
    counter = Counter()
    with tempfile.TemporaryDirectory(prefix="hops-") as folder, counter.installed():
        http = asyncio.run(count_http(counter, f"sqlite:///{Path(folder) / 'http.db'}", WARM_UP + rounds))
        embedded = count_embedded(counter, f"sqlite:///{Path(folder) / 'embedded.db'}", WARM_UP + rounds)
    walks: dict[str, Walk] = {}
    for counted in (*http[WARM_UP:], *embedded[WARM_UP:]):
        for name, walk in counted.items():
            walks[name] = min(walks.get(name, walk), walk, key=lambda walk: walk.counts)
    return walks


def table(walks: dict[str, Walk]) -> str:
    """The counts beside their budgets, as text."""
    head = ("walk", "functions", "modules", "crossings", "top crossings", "budget: modules", "budget: crossings")
    rows = [(name, *walks[name].counts, *budget) for name, budget in BUDGETS.items()]
    width = max(len(name) for name in BUDGETS)
    lines = [f"{head[0]:<{width}}  " + "  ".join(head[1:])]
    for name, *numbers in rows:
        cells = (f"{number:>{len(title)}}" for number, title in zip(numbers, head[1:], strict=True))
        lines.append(f"{name:<{width}}  " + "  ".join(cells))
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(count_walks()))
