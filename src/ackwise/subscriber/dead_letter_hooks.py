"""Calls a function of the app for each dead letter of a queue, in order and at least once."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ackwise.client.aio import AsyncConnection
from ackwise.client.results import DeadLetter, as_result
from ackwise.core import queries as q
from ackwise.core.commands import ConfigureQueue, SetHook, SettleHook, TakeHook
from ackwise.core.errors import AckwiseError
from ackwise.core.events import DeadLetterAdded, Event, HookDelivered, HookFailed, HookPaused
from ackwise.core.policy import NEW_QUEUE_POLICY
from ackwise.core.rows import HookLetter
from ackwise.core.validation import MICROS

log = logging.getLogger("ackwise.subscriber")

OnDead = Callable[[DeadLetter], Any]
SWEEP_EVERY = 5.0
"""Seconds between two looks for letters of other processes."""
LEASE = 60 * MICROS
"""A process that dies leaves its letters to another process of the app after this time."""


class DeadLetterHook:
    """Reads the dead letters of one queue behind a place that the store keeps under `name`."""

    def __init__(self, connection: AsyncConnection, queue: str, name: str, function: OnDead) -> None:
        self._connection, self._queue, self._name, self._function = connection, queue, name, function
        self._owner = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None
        self._held = False
        """Whether this process may hold the hook's lease."""

    async def start(self) -> None:
        """Create the queue and the place if they do not exist, and begin to report."""
        send = self._connection.transport.send
        await send(ConfigureQueue(queue=self._queue, create=NEW_QUEUE_POLICY))
        await send(SetHook(queue=self._queue, name=self._name))
        loop, events = asyncio.get_running_loop(), self._connection.transport.events

        def note(event: DeadLetterAdded) -> None:
            if event.queue == self._queue and not loop.is_closed():
                loop.call_soon_threadsafe(self._wake.set)

        if events is not None:
            self._unsubscribe = events.subscribe(note, DeadLetterAdded)
        self._task = asyncio.create_task(self._run(), name=f"ackwise-on-dead-{self._queue}")

    def wake(self) -> None:
        """Look for letters now."""
        self._wake.set()

    async def stop(self, grace: float) -> None:
        """End after the running call, or after `grace` seconds. Another process may continue at once."""
        self._unsubscribe()
        if self._task is not None:
            self._wake.set()
            task, self._task = self._task, None
            if self._held:
                await asyncio.wait([task], timeout=grace)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._held:
            with suppress(AckwiseError):
                await self._take(lease=1)

    async def _run(self) -> None:
        while True:
            wait = SWEEP_EVERY
            try:
                wait = await self._report()
            except AckwiseError as problem:
                log.warning("on_dead of %s will try again: %s", self._queue, problem)
            if self._task is None:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            self._wake.clear()

    async def _report(self) -> float:
        """Report the letters that wait. Returns the seconds until the next look."""
        hooks = await self._connection.transport.ask(q.ListHooks(queue=self._queue))
        if not any(hook.name == self._name and hook.pending and not hook.paused for hook in hooks):
            return SWEEP_EVERY
        while self._task is not None:
            taken = await self._take(LEASE)
            self._held = bool(taken.letters)
            if taken.hook is None or not taken.letters:
                retry_in = 0 if taken.hook is None else taken.hook.retry_in
                return min(SWEEP_EVERY, retry_in / MICROS or SWEEP_EVERY)
            wait = await self._report_some(taken.letters)
            if wait is not None:
                return wait
        return SWEEP_EVERY

    async def _take(self, lease: int) -> Any:
        command = TakeHook(queue=self._queue, name=self._name, owner=self._owner, lease=lease)
        return await self._connection.transport.send(command)

    async def _report_some(self, letters: list[HookLetter]) -> float | None:
        """Call the function for each letter. Returns the seconds to wait, or None to continue at once."""
        for place in letters:
            if self._task is None:
                return SWEEP_EVERY
            error = await self._call(place)
            settled = await self._connection.transport.send(
                SettleHook(
                    queue=self._queue,
                    name=self._name,
                    owner=self._owner,
                    mark=place.mark,
                    letter=place.number,
                    error=error,
                    lease=LEASE,
                )
            )
            if error is None:
                self._emit(HookDelivered(self._queue, self._name, place.letter.id))
                if not settled.held:
                    return SWEEP_EVERY
                continue
            wait = settled.retry_in / MICROS
            self._emit(HookFailed(self._queue, self._name, place.letter.id, error, settled.failures, wait))
            if settled.paused:
                log.warning("on_dead of %s failed for 24 hours and is paused; restart the app to resume", self._queue)
                self._emit(HookPaused(self._queue, self._name, error))
            return min(SWEEP_EVERY, wait)
        return None

    async def _call(self, place: HookLetter) -> str | None:
        """Call the function for one letter. Returns what went wrong, or None."""
        letter = as_result(place.letter, DeadLetter)
        try:
            if inspect.iscoroutinefunction(self._function):
                await self._function(letter)
            else:
                await asyncio.to_thread(self._function, letter)
        except Exception as problem:
            log.warning("on_dead of %s failed for %s, will try again", self._queue, letter.id, exc_info=True)
            return f"{type(problem).__name__}: {problem}"
        return None

    def _emit(self, event: Event) -> None:
        events = self._connection.transport.events
        if events is not None and events.listening:
            events.emit(event)
