"""Both brokers with the same methods, so that one test runs on threads and on an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from ackwise.broker import AsyncBroker, Broker
from ackwise.broker.async_broker import AsyncShard
from ackwise.broker.long_polls import LongPolls
from ackwise.core.answers import Handed, Settled
from ackwise.core.commands import Claim, Command, Settle
from ackwise.core.errors import AckwiseError
from ackwise.core.queries import Query
from ackwise.store.port import Store

T = TypeVar("T")


class LoopBroker:
    """An `AsyncBroker` on an event loop in a thread of its own, with the methods of `Broker`."""

    def __init__(self, store: Store, *, background: bool = True) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.inner = self._run(AsyncBroker.start(store, background=background))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _call(self, work: Callable[[], None]) -> None:
        async def call() -> None:
            work()

        self._run(call())

    @property
    def long_polls(self) -> LongPolls:
        return self.inner.long_polls

    @property
    def closed(self) -> bool:
        return self.inner.closed

    @property
    def _shards(self) -> list[AsyncShard]:
        return self.inner._shards

    def send(self, command: Command[T]) -> T:
        return self._run(self.inner.send(command))

    def send_all(self, commands: Sequence[Command[T]]) -> list[T | AckwiseError]:
        return self._run(self.inner.send_all(commands))

    def claim(self, command: Claim, wait: float = 0.0) -> Handed:
        return self._run(self.inner.claim(command, wait))

    def settle_and_claim(self, settle: Settle | None, claim: Claim, wait: float = 0.0) -> tuple[list[Settled], Handed]:
        return self._run(self.inner.settle_and_claim(settle, claim, wait))

    def claim_ahead(self, settle: Settle | None, claim: Claim, count: int) -> tuple[list[Settled], list[Handed]]:
        return self._run(self.inner.claim_ahead(settle, claim, count))

    def ask(self, query: Query[T]) -> T:
        return self._run(self.inner.ask(query))

    def retry_parked(self) -> None:
        self._call(self.inner.retry_parked)

    def retry_scouts(self) -> None:
        self._call(self.inner.retry_scouts)

    def stop_claims(self) -> None:
        self._call(self.inner.stop_claims)

    def drain(self, grace: float = 0.0) -> int:
        return self._run(self.inner.drain(grace))

    def close(self) -> None:
        self._run(self.inner.close())

    def end_loop(self) -> None:
        """Stop the event loop of a closed broker."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


AnyBroker = Broker | LoopBroker
StartBroker = Callable[..., AnyBroker]
"""Starts a broker of the tested kind on a store, without background work unless `background=True`."""


def module_of(broker: AnyBroker) -> str:
    """The module of the broker's class, as a target for monkeypatch."""
    return type(broker.inner if isinstance(broker, LoopBroker) else broker).__module__


def waiting(broker: AnyBroker) -> int:
    """How many submissions wait for the next turn."""
    return sum(len(shard._queue) for shard in broker._shards)
