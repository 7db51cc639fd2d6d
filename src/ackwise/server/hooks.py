"""Webhooks: posts the dead letters of queues, in order and at least once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import aiohttp

from ackwise.broker import AsyncBroker
from ackwise.clock import ManualClock
from ackwise.core import queries as q
from ackwise.core.commands import SettleHook, TakeHook
from ackwise.core.errors import AckwiseError
from ackwise.core.events import DeadLetterAdded, Event, HookDelivered, HookFailed, HookPaused
from ackwise.core.messages import json_value
from ackwise.core.rows import DeadLetter, HookLetter, HookRow
from ackwise.core.validation import MICROS
from ackwise.observability.debug_log import debug_records
from ackwise.protocols.http_response import encode
from ackwise.protocols.post_targets import host_of, may_post
from ackwise.wire.timestamps import text as show_time

log = logging.getLogger("ackwise.server")

POST_WITHIN = 30.0
LEASE = 60 * MICROS
"""Time for which a server holds a hook. Longer than `POST_WITHIN`. After a crash another server waits this long."""
SWEEP_EVERY = 10.0
"""Seconds between two checks for hooks and dead letters that other processes wrote."""
_HEADERS = {"content-type": "application/json"}
_PLAIN = (
    *("id", "queue", "partition", "partition_id", "group", "seq", "message_id", "transaction_id", "reason", "error"),
    *("error_type", "failures", "deliveries"),
)


class Webhooks:
    """Webhooks of a store while the server runs. Only the server that holds the lease of a hook posts its letters."""

    def __init__(self, broker: AsyncBroker, allowed: Collection[str] = ()) -> None:
        self._broker, self._allowed = broker, allowed
        self._owner = broker.store.traits.instance
        self._wake = asyncio.Event()
        self._queues: set[str] = set()
        """Queues with a webhook. Dead letters of other queues are ignored."""
        self._posting: dict[str, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._http: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=POST_WITHIN), cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
        )
        clock = self._broker.store.clock
        if isinstance(clock, ManualClock):
            clock.on_move(lambda: self._in_loop(self._wake.set))
        self._watching = asyncio.create_task(self._watch(), name="ackwise-webhooks")

    async def stop(self) -> None:
        """Stop all posts. This or another server repeats an interrupted post later."""
        self._queues = set()
        self._listen()
        tasks = [*self._posting.values(), *([self._watching] if self._watching is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._http is not None:
            await self._http.close()

    def _in_loop(self, function: Callable[..., None], *arguments: str) -> None:
        if not self._broker.loop.is_closed():
            self._broker.loop.call_soon_threadsafe(function, *arguments)

    def look(self) -> None:
        """Check for changed hooks now."""
        self._wake.set()

    def _note_dead(self, queue: str) -> None:
        if queue in self._queues:
            self._wake.set()

    async def _watch(self) -> None:
        while True:
            wait = SWEEP_EVERY
            try:
                wait = await self._start_due()
            except Exception as problem:
                log.warning("could not look for webhooks, will retry: %r", problem)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            self._wake.clear()

    async def _start_due(self) -> float:
        """Start posting for the hooks that have letters. Returns the seconds until the next check."""
        wait, queues, after = SWEEP_EVERY, set(), None
        while True:
            page = await self._broker.ask(q.ListHooks(after=after))
            for hook in page:
                if hook.url is None or hook.paused:
                    continue
                queues.add(hook.queue)
                if hook.pending and hook.retry_in:
                    wait = min(wait, hook.retry_in / MICROS)
                elif hook.pending and hook.queue not in self._posting:
                    self._start(hook)
            after = getattr(page, "next", None)
            if after is None:
                break
        self._queues = queues
        self._listen()
        return wait

    def _listen(self) -> None:
        """Subscribe to dead letters while a queue has a webhook. Without a subscription, turns build no events."""
        if self._queues and self._unsubscribe is None:
            self._unsubscribe = self._broker.events.subscribe(
                lambda event: self._in_loop(self._note_dead, event.queue), DeadLetterAdded
            )
        elif not self._queues and self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def _start(self, hook: HookRow) -> None:
        task = asyncio.create_task(self._post_all(hook.queue, hook.name), name=f"ackwise-webhook-{hook.queue}")
        self._posting[hook.queue] = task

        def done(_: asyncio.Task[None]) -> None:
            self._posting.pop(hook.queue, None)

        task.add_done_callback(done)

    async def _post_all(self, queue: str, name: str) -> None:
        try:
            while not self._broker.draining and await self._post_some(queue, name):
                pass
        except AckwiseError as problem:
            log.warning("the webhook of %s will try again: %s", queue, problem)
        except asyncio.CancelledError:
            # Another server may continue at once.
            with suppress(AckwiseError):
                await self._broker.send(TakeHook(queue=queue, name=name, owner=self._owner, lease=1))
            raise

    async def _post_some(self, queue: str, name: str) -> bool:
        """Post the next letters. Returns False if no letter is left, or after a failure."""
        taken = await self._broker.send(TakeHook(queue=queue, name=name, owner=self._owner, lease=LEASE))
        if taken.hook is None or taken.hook.url is None or not taken.letters:
            return False
        debug_records.write(log, "hook posts dead letters", queue=queue, hook=name, messages=len(taken.letters))
        for place in taken.letters:
            error = await self._post(taken.hook, taken.hook.url, place.letter)
            if not await self._settle(taken.hook, place, error):
                return False
        return True

    async def _post(self, hook: HookRow, url: str, letter: DeadLetter) -> str | None:
        """Post one letter. Returns the error, or None after a success."""
        assert self._http is not None
        if not may_post(url, self._allowed):
            return f"this server may not post to {host_of(url)}; see --pushpop-sink-host"
        try:
            body = letter_json(letter, include_payload=hook.include_payload)
            async with self._http.post(url, data=body, headers=_HEADERS, allow_redirects=False) as answer:
                return None if 200 <= answer.status < 300 else f"{host_of(url)} answered {answer.status}"
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            return f"{host_of(url)}: {type(problem).__name__}"

    async def _settle(self, hook: HookRow, place: HookLetter, error: str | None) -> bool:
        """Record the result. Returns False if the hook must wait, or if another server has taken the hook over."""
        command = SettleHook(
            queue=hook.queue,
            name=hook.name,
            owner=self._owner,
            mark=place.mark,
            letter=place.number,
            error=error,
            lease=LEASE,
        )
        settled = await self._broker.send(command)
        if error is None:
            self._emit(HookDelivered(hook.queue, hook.name, place.letter.id))
            return settled.held
        wait = settled.retry_in / MICROS
        log.warning("the webhook of %s failed, attempt %s: %s", hook.queue, settled.failures, error)
        self._emit(HookFailed(hook.queue, hook.name, place.letter.id, error, settled.failures, wait))
        if settled.paused:
            log.warning("the webhook of %s failed for 24 hours and is paused; set it again to resume it", hook.queue)
            self._emit(HookPaused(hook.queue, hook.name, error))
        self._wake.set()
        return False

    def _emit(self, event: Event) -> None:
        events = self._broker.store.events
        if events.listening:
            events.emit(event)


def letter_json(letter: DeadLetter, *, include_payload: bool) -> bytes:
    """The body of a post."""
    body: dict[str, Any] = {"type": "ackwise.dead_letter"}
    body |= {name: getattr(letter, name) for name in _PLAIN}
    body |= {"created_at": show_time(letter.created_at), "dead_at": show_time(letter.dead_at)}
    if include_payload:
        body |= {"content_type": letter.content_type, "headers": letter.headers}
        body["data"] = json_value(letter.payload, letter.content_type)
    return encode(body)
