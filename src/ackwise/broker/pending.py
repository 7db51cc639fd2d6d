"""Commands that wait for the next turn, with bounds on how many a turn takes and how much may wait."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

from ackwise.core.answers import Claimed
from ackwise.core.commands import Break, Command, Extend, Push, Settle, Transaction
from ackwise.core.errors import AckwiseError, OutcomeUnknown, Overloaded
from ackwise.core.messages import PlainBatch

TURN_SECONDS = 0.005
TURN_BYTES = 4 << 20
TURN_COMMANDS = 2000
LEAST_COMMANDS = 64
WAITING_BYTES = 64 << 20
_NEVER_DEFERRED = (Settle, Break, Extend, Transaction)


class Slot:
    """One caller's commands, answered together: `results` or `error` is set, then `finish` wakes the caller."""

    __slots__ = ("commands", "error", "finished", "lead", "results", "size", "urgent", "wake")

    def __init__(self, commands: Sequence[Command], wake: Callable[[], None]) -> None:
        self.commands = commands
        self.wake = wake
        self.results: list[Any] | None = None
        self.error: BaseException | None = None
        self.lead = False
        self.finished = False
        self.size = sum(map(payload_bytes, commands))
        self.urgent = any(isinstance(c, _NEVER_DEFERRED) for c in commands)

    @property
    def done(self) -> bool:
        return self.results is not None or self.error is not None

    def finish(self) -> None:
        """Wake the caller, once."""
        if not self.finished:
            self.finished = True
            self.wake()

    def answers(self) -> list[Any]:
        """The answers, or the first refusal raised."""
        if self.error is not None:
            raise self.error
        assert self.results is not None
        for result in self.results:
            if isinstance(result, AckwiseError):
                raise result
        return self.results


def payload_bytes(command: Command) -> int:
    """How much a command would write, roughly."""
    if isinstance(command, Push):
        messages = command.messages
        # Nobody has checked it yet: what is not a list is the store's to refuse.
        listed = messages if isinstance(messages, list) else []
        payloads = messages.payloads if isinstance(messages, PlainBatch) else [m.payload for m in listed]
        try:
            return sum(map(len, payloads))
        except TypeError:
            return 0
    if isinstance(command, Transaction):
        return sum(map(payload_bytes, command.pushes))
    return 0


class Pending:
    """Slots in arrival order. Not locked: its owner is."""

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        self._bytes = 0
        self._seconds_each = 0.0

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, slot: Slot) -> None:
        if self._bytes + slot.size > WAITING_BYTES and self._slots:
            raise Overloaded(f"{self._bytes >> 20} MiB wait to be written; try again in a second", retry_after=1)
        self._slots.append(slot)
        self._bytes += slot.size

    def first(self) -> Slot:
        return self._slots[0]

    def remove(self, slot: Slot) -> None:
        """Its caller has gone; nothing happens when a turn has it already."""
        if slot in self._slots:
            self._slots.remove(slot)
            self._bytes -= slot.size

    def take(self) -> list[Slot]:
        """The next turn's slots: within its bounds, but settlements are never left behind."""
        most = TURN_COMMANDS
        if self._seconds_each:
            # One hiccup must not break up the group commit, hence the floor.
            most = max(LEAST_COMMANDS, min(most, int(TURN_SECONDS / self._seconds_each)))
        taken: list[Slot] = []
        later: deque[Slot] = deque()
        commands = size = 0
        for slot in self._slots:
            fits = not taken or (commands < most and size + slot.size <= TURN_BYTES)
            if fits or (slot.urgent and not slot.size):
                taken.append(slot)
                commands += len(slot.commands)
                size += slot.size
            else:
                later.append(slot)
        self._slots = later
        self._bytes = sum(slot.size for slot in later)
        return taken

    def learn(self, commands: int, started: float) -> None:
        """How long a command takes now, so that the next turn keeps to its time."""
        each = (time.perf_counter() - started) / max(1, commands)
        self._seconds_each = each if not self._seconds_each else 0.8 * self._seconds_each + 0.2 * each


def shard_of(commands: Sequence[Command], shards: int) -> int:
    """Turns are sharded by queue where the store can run several at once."""
    if shards == 1:
        return 0
    for command in commands:
        name = getattr(command, "queue", None)
        if isinstance(name, str):
            return crc32(name.encode("utf-8", "replace")) % shards
    return crc32(repr(commands[0]).encode("utf-8", "replace")) % shards if commands else 0


def deal(slots: Sequence[Slot], results: Sequence[Any]) -> None:
    """Give each slot the answers to its own commands."""
    at = 0
    for slot in slots:
        slot.results = list(results[at : at + len(slot.commands)])
        at += len(slot.commands)


def interrupted() -> OutcomeUnknown:
    """What the others of a turn are told when its leader is interrupted by a signal or cancelled."""
    return OutcomeUnknown("the turn was interrupted: it may or may not have happened")


def is_empty(results: list[Any] | None) -> bool:
    """Whether the slot's claim found nothing."""
    last = results[-1] if results else None
    return isinstance(last, Claimed) and not last.grants
