"""A broker under load in a process of its own, which says every question and every answer. Its parent kills it.

Usage: python -m tests.faults.worker, with one JSON object (`Job`) on standard input. Each line on standard output is
["s", number, kind, about] when an operation starts, ["e", number, events] when it was answered, ["x", number, code]
when it failed. An event is [what, group key, transaction ids] or ["pushed", queue, [[transaction id, message id]]].
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

import msgspec

from ackwise.broker import AsyncBroker, Broker
from ackwise.clock import SystemClock
from ackwise.connect import open_store
from ackwise.core.answers import Handed, Settled
from ackwise.core.commands import Claim, Command, Settle
from ackwise.core.errors import AckwiseError

T = TypeVar("T")
Event = list[Any]


class Job(msgspec.Struct):
    """What the parent asks for. `shift` moves the clock, so that each life of a store is later than the one before."""

    url: str
    prefix: str
    seed: int
    style: str
    shift: int


class ShiftedClock:
    """The machine's clock plus a constant."""

    def __init__(self, shift: int) -> None:
        self._shift = shift
        self._system = SystemClock()

    def now(self) -> int:
        return self._system.now() + self._shift

    def shift(self) -> int:
        return 0

    def now_and_shift(self) -> tuple[int, int]:
        return self.now(), 0


class ActorBroker(Protocol):
    """What an actor needs of a broker, whichever kind it is."""

    async def send(self, command: Command) -> Any: ...

    async def claim(self, command: Claim, wait: float = 0.0) -> Handed: ...

    async def settle_and_claim(
        self, settle: Settle | None, claim: Claim, wait: float = 0.0
    ) -> tuple[list[Settled], Handed]: ...

    async def pause(self, seconds: float) -> None: ...


class ThreadActorBroker:
    """The threads' broker behind the same words; it never suspends, so `run_now` can drive it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def send(self, command: Command) -> Any:
        return self._broker.send(command)

    async def claim(self, command: Claim, wait: float = 0.0) -> Handed:
        return self._broker.claim(command, wait)

    async def settle_and_claim(
        self, settle: Settle | None, claim: Claim, wait: float = 0.0
    ) -> tuple[list[Settled], Handed]:
        return self._broker.settle_and_claim(settle, claim, wait)

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)


class AsyncActorBroker:
    def __init__(self, broker: AsyncBroker) -> None:
        self._broker = broker
        self.send = broker.send
        self.claim = broker.claim
        self.settle_and_claim = broker.settle_and_claim

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine that never waits for an event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise RuntimeError("it suspended")


class Voice:
    """Says operations to the parent, each line in one write."""

    def __init__(self, out: int) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def say(self, *line: Any) -> None:
        self.write(msgspec.json.encode(line) + b"\n")

    def write(self, data: bytes) -> None:
        with self._lock:
            while data:
                data = data[os.write(self._out, data) :]

    async def tell(
        self,
        kind: str,
        about: Any,
        work: Coroutine[Any, Any, T],
        events: Callable[[T], list[Event]],
        broker: ActorBroker,
    ) -> T | None:
        """Run one operation and say how it went; None when the store failed."""
        number = next(self._numbers)
        self.say("s", number, kind, about)
        try:
            answer = await work
        except AckwiseError as problem:
            self.say("x", number, problem.code, str(problem)[:300])
            await broker.pause(0.02)
            return None
        self.say("e", number, events(answer))
        return answer


class Complaints(logging.Handler):
    """What the broker logs as an error is a fault of ours; its warnings are about the store, and expected."""

    def __init__(self, voice: Voice) -> None:
        super().__init__(logging.ERROR)
        self._voice = voice

    def emit(self, record: logging.LogRecord) -> None:
        self._voice.say("error", record.getMessage())


Actor = Callable[[ActorBroker, Voice], Coroutine[Any, Any, None]]


def _threads(job: Job, voice: Voice, actors: list[Actor]) -> None:
    store = open_store(job.url, clock=ShiftedClock(job.shift))
    broker = ThreadActorBroker(Broker(store))
    for actor in actors:
        threading.Thread(target=_endless, args=(run_now, actor, broker, voice), daemon=True).start()
    voice.say("ready")
    threading.Event().wait()


def _endless(run: Callable[[Any], None], actor: Actor, broker: ActorBroker, voice: Voice) -> None:
    try:
        run(actor(broker, voice))
    except BaseException as problem:
        voice.say("crash", repr(problem))
        os._exit(3)


async def _coroutines(job: Job, voice: Voice, actors: list[Actor]) -> None:
    store = open_store(job.url, clock=ShiftedClock(job.shift))
    broker = AsyncActorBroker(await AsyncBroker.start(store))
    tasks = [asyncio.create_task(actor(broker, voice)) for actor in actors]
    voice.say("ready")
    try:
        await asyncio.gather(*tasks)
    except BaseException as problem:
        voice.say("crash", repr(problem))
        os._exit(3)


def main() -> None:
    from tests.faults import actors

    voice = Voice(sys.stdout.fileno())
    logging.getLogger().addHandler(Complaints(voice))
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=Job)
    cast = actors.cast(job)
    if job.style == "async":
        asyncio.run(_coroutines(job, voice, cast))
    else:
        _threads(job, voice, cast)


if __name__ == "__main__":
    main()
