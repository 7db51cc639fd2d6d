"""Answer memory: bounds the bytes of pending answers and releases the claims of answers that no client gets."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from ackwise.broker import AsyncBroker
from ackwise.broker.deliveries import is_short
from ackwise.core.answers import Claimed
from ackwise.core.errors import AnswersFull
from ackwise.core.validation import DEFAULT_CLAIM_BYTES

DEFAULT_MEMORY = 256 << 20
LARGE = 64 << 10
"""Smaller answers do not count: they fit into the socket's own buffer."""
PATIENCE = 10.0
"""Seconds that a granted claim waits for memory. Then the server releases the claim and refuses the request."""


class AnswerMemory:
    """Bytes of answers that are being built or that wait for slow readers, over the whole server.

    `each` bounds one answer to a claim, `most` bounds all answers together. One peer address gets at most its `share`,
    so that one slow reader cannot stop the others.
    """

    def __init__(self, each: int = DEFAULT_CLAIM_BYTES, most: int = DEFAULT_MEMORY, share: float = 1.0) -> None:
        self.each, self._most, self._own = each, most, max(1, int(most * share))
        self.used = 0
        self._by_peer: Counter[str] = Counter()
        self._waiting: deque[_Wait] = deque()
        self._listeners: list[Callable[[], object]] = []

    @property
    def full(self) -> bool:
        """Whether the server can begin no further answer."""
        return self.used >= self._most or self._is_awaited

    @property
    def _is_awaited(self) -> bool:
        """Whether an answer waits for the server's memory, and not only for its own peer to read."""
        return any(self._within_share(wait.size, wait.peer) for wait in self._waiting)

    def check(self, peer: str = "") -> None:
        """Raise `AnswersFull` before the server claims or reads anything for a request."""
        if self.full:
            raise AnswersFull(f"{self.used >> 20} MiB of answers wait for slow clients; retry in a second")
        if self._by_peer[peer] >= self._own:
            raise AnswersFull(f"{self._by_peer[peer] >> 20} MiB of answers wait for your address; read them first")

    def is_full_for(self, peer: str, *, without: int = 0) -> bool:
        """Whether the server can begin no further answer to this address. `without` bytes of it do not count."""
        return self.used - without >= self._most or self._is_awaited or self._by_peer[peer] - without >= self._own

    def when_free(self, listener: Callable[[], object]) -> None:
        """Call the listener each time that the memory is no longer full, for all addresses or for one."""
        self._listeners.append(listener)

    def add(self, size: int, peer: str = "") -> None:
        self.used += size
        self._by_peer[peer] += size

    def free(self, size: int, peer: str = "") -> None:
        was_full = self.is_full_for(peer)
        self.used -= size
        self._by_peer[peer] -= size
        if not self._by_peer[peer]:
            del self._by_peer[peer]
        self._serve_after(peer, was_full=was_full)

    def _serve_after(self, peer: str, *, was_full: bool) -> None:
        self._serve()
        if was_full and not self.is_full_for(peer):
            for listener in self._listeners:
                listener()

    def _serve(self) -> None:
        """Give memory to waiting answers in turn. An answer whose own peer has too much does not hold up the others."""
        for wait in list(self._waiting):
            if wait.granted.done():
                # Cancelled just now: its task has not run since.
                self._waiting.remove(wait)
            elif self._fits(wait.size, wait.peer):
                self._waiting.remove(wait)
                self.add(wait.size, wait.peer)
                wait.granted.set_result(None)
            elif self._within_share(wait.size, wait.peer):
                return

    def reserve(self, size: int, peer: str = "") -> Awaitable[None] | None:
        """Take memory at once if enough is free, else wait in turn."""
        if not self._waiting and self._fits(size, peer):
            self.add(size, peer)
            return None
        return self._wait(size, peer)

    def grow(self, held: int, size: int, peer: str = "") -> bool:
        """Let an answer that holds `held` bytes hold `size` bytes, at once. False when others need the memory."""
        others, own = self.used - held, self._by_peer[peer] - held
        if self._is_awaited or (others and others + size > self._most) or (own and own + size > self._own):
            return False
        self.add(size - held, peer)
        return True

    def _fits(self, size: int, peer: str) -> bool:
        return self._within_share(size, peer) and (self.used + size <= self._most or not self.used)

    def _within_share(self, size: int, peer: str) -> bool:
        held = self._by_peer[peer]
        return self._own >= self._most or held + size <= self._own or not held

    async def _wait(self, size: int, peer: str) -> None:
        wait = _Wait(size, peer, asyncio.get_running_loop().create_future())
        self._waiting.append(wait)
        self._serve()
        try:
            async with asyncio.timeout(PATIENCE):
                await wait.granted
        except BaseException as problem:
            if wait in self._waiting:
                was_full = self.is_full_for(peer)
                self._waiting.remove(wait)
                self._serve_after(peer, was_full=was_full)
            elif wait.granted.done() and not wait.granted.cancelled():
                self.free(size, peer)
            if isinstance(problem, TimeoutError):
                raise AnswersFull from None
            raise


class _Wait(NamedTuple):
    """An answer that waits for memory."""

    size: int
    peer: str
    granted: asyncio.Future[None]


class PendingAnswer:
    """An answer from before its claim until the socket has taken it.

    If the answer is lost, it releases its claims. A release costs no failure. Messages of a claim with auto-ack have no
    lease and stay acked.
    """

    __slots__ = ("_broker", "_claims", "_memory", "_peer", "_size")

    def __init__(self, memory: AnswerMemory, peer: str = "") -> None:
        self._memory, self._peer, self._size = memory, peer, 0
        self._broker: AsyncBroker | None = None
        self._claims: list[Claimed] = []

    def bound(self, requested: int | None) -> int:
        """Most bytes of a claim: the requested number, but not above the server's bound."""
        return self._memory.each if requested is None else min(requested, self._memory.each)

    def gate(self, size: int, releasable: bool = True) -> Awaitable[None] | None:
        """Take memory for messages before the broker reads them. Auto-acked messages do not wait for memory."""
        if size <= LARGE:
            return None
        if self._size or not releasable:
            # An answer that holds memory and waits for more could wait for itself.
            self._memory.add(size, self._peer)
        elif (room := self._memory.reserve(size, self._peer)) is not None:
            return self._entered(room, size)
        self._size += size
        return None

    def grow(self, size: int) -> bool:
        """Hold `size` bytes in all, without waiting. False when others need the memory: then nothing changes."""
        if size <= max(LARGE, self._size):
            return True
        if not self._memory.grow(self._size, size, self._peer):
            return False
        self._size = size
        return True

    def hold(self, size: int) -> None:
        """Hold `size` bytes in all, even if other answers need the memory.

        Use it for an answer that reports a committed change.
        """
        if size > max(LARGE, self._size):
            self._memory.add(size - self._size, self._peer)
            self._size = size

    async def _entered(self, room: Awaitable[None], size: int) -> None:
        await room
        self._size += size

    def keep(self, broker: AsyncBroker, *claims: Claimed) -> None:
        """Release these claims if the answer is lost."""
        self._broker = broker
        self._claims += claims

    def built(self, size: int) -> None:
        """Record the size of the built answer."""
        size = size if size > LARGE else 0
        added, self._size = size - self._size, size
        if added > 0:
            self._memory.add(added, self._peer)
        elif added:
            self._memory.free(-added, self._peer)

    def delivered(self) -> None:
        """End a delivered answer: the socket has taken it, and the client now owns its messages."""
        self._claims.clear()
        self._free()

    def lost(self) -> None:
        """Release the claims: the answer was not built, or the socket did not take the answer."""
        claims, self._claims = self._claims, []
        if self._broker is not None and claims:
            self._broker.release_soon(claims)
        self._free()

    def _free(self) -> None:
        size, self._size = self._size, 0
        if size:
            self._memory.free(size, self._peer)


async def build(broker: AsyncBroker, claims: Sequence[Claimed], write: Callable[..., Any], *arguments: Any) -> Any:
    """Write an answer: a large one in a helper thread, so that the event loop stays free."""
    if all(map(is_short, claims)):
        return write(*arguments)
    return await broker.in_thread(write, *arguments)
