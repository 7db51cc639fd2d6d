"""Long polls: parked claims that ride in the next turn that may have something for them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ackwise.broker.pending import Slot
from ackwise.core.answers import Claimed
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import (
    Claim,
    Command,
    PauseQueue,
    Push,
    Redrive,
    Replay,
    SeekGroup,
    Settle,
    Sweep,
    Transaction,
)
from ackwise.core.messages import PlainBatch

ANY = ""
"""Where claims by namespace or task are parked: any queue may concern them."""

Seen = tuple[int, int]
"""What a queue's version was when somebody looked and found nothing."""

Kind = tuple[str, tuple[str, ...] | None, tuple[int, ...] | None, str | None, str | None]
"""Claims of one kind want the same messages: what one of them cannot have, the others cannot have either."""

Parked = dict[str, dict[Kind, list[Slot]]]


class Waiters:
    """Parked slots by queue and kind. A version per queue closes the gap between an empty try and parking."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parked: Parked = {}
        self._versions: dict[str, int] = {}
        self._all = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def version(self, queue: str | None) -> Seen:
        return self._all, self._versions.get(queue or ANY, 0)

    def park(self, queue: str | None, slot: Slot, seen: Seen) -> bool:
        """False when something was woken since `seen`: try again instead."""
        with self._lock:
            if self.version(queue) != seen:
                return False
            self._parked.setdefault(queue or ANY, {}).setdefault(_kind(slot), []).append(slot)
            self._count += 1
            return True

    def leave(self, queue: str | None, slot: Slot) -> bool:
        """Take a slot back; False when a turn has it now."""
        with self._lock:
            parked = self._parked.get(queue or ANY, {}).get(_kind(slot), [])
            if slot not in parked:
                return False
            parked.remove(slot)
            self._count -= 1
            self._tidy(queue or ANY, _kind(slot))
            return True

    def riders(self, commands: Iterable[Command]) -> list[Slot]:
        """Parked claims that the turn's other commands may serve; they are no longer parked."""
        if not self._parked:
            return []
        taken: list[Slot] = []
        with self._lock:
            for command in commands:
                for queue, most, partitions in _may_serve(command, self._parked):
                    # Nobody has checked the commands yet: a queue may be anything.
                    for kind in list(self._parked.get(queue, ())) if _is_name(queue) else ():
                        if partitions is None or kind[1] is None or not partitions.isdisjoint(kind[1]):
                            taken += self._take(queue, kind, most)
        return taken

    def woken(self, queues: Mapping[str, int], riders: Sequence[Slot]) -> list[Slot]:
        """After a commit: bump the versions, and give back parked slots that may find something now.

        Of each kind at most as many as there may be messages left, and none where a rider found that there is nothing.
        """
        with self._lock:
            taken: list[Slot] = []
            for queue, count in (*queues.items(), (ANY, sum(queues.values()))):
                self._versions[queue] = self._versions.get(queue, 0) + 1
                for kind in list(self._parked.get(queue, ())):
                    taken += self._take(queue, kind, _left(count, queue, kind, riders))
            return taken

    def everybody(self) -> list[Slot]:
        """Something happened elsewhere: everybody looks again."""
        with self._lock:
            self._all += 1
            taken = [slot for kinds in self._parked.values() for parked in kinds.values() for slot in parked]
            self._parked.clear()
            self._count = 0
            return taken

    def _take(self, queue: str, kind: Kind, most: int) -> list[Slot]:
        parked = self._parked[queue][kind]
        taken = parked[:most]
        del parked[:most]
        self._count -= len(taken)
        self._tidy(queue, kind)
        return taken

    def _tidy(self, queue: str, kind: Kind) -> None:
        if not self._parked[queue][kind]:
            del self._parked[queue][kind]
            if not self._parked[queue]:
                del self._parked[queue]


def _claim(slot: Slot) -> Claim:
    claim = slot.commands[-1]
    assert isinstance(claim, Claim)
    return claim


def _kind(slot: Slot) -> Kind:
    claim = _claim(slot)
    partitions = None if claim.partitions is None else tuple(claim.partitions)
    priorities = None if claim.priorities is None else tuple(claim.priorities)
    return claim.group, partitions, priorities, claim.namespace, claim.task


def _left(count: int, queue: str, kind: Kind, riders: Sequence[Slot]) -> int:
    """How many more claims of a kind may find something, after what its riders found."""
    for slot in riders:
        if (_claim(slot).queue or ANY) != queue or _kind(slot) != kind or not slot.results:
            continue
        answer = slot.results[-1]
        if not isinstance(answer, Claimed):
            continue
        if answer.empty is EmptyReason.LOCKED:
            # For this one. Another owner may be let in.
            return 1 << 30
        if not answer.grants:
            return 0
        count -= answer.count
    return max(0, count)


def _may_serve(command: Command, parked: Parked) -> Iterator[tuple[str, int, frozenset[str] | None]]:
    """Queues, how many claims of each kind, and in which partitions (None: in any)."""
    match command:
        case Push():
            yield command.queue, len(command.messages), _partitions(command)
            yield ANY, len(command.messages), _partitions(command)
        case Transaction(pushes=pushes):
            for push in pushes:
                yield push.queue, len(push.messages), _partitions(push)
            yield ANY, 1, None
        case Settle() | Sweep() | Redrive() | Replay():
            if len(parked) <= 8:
                yield from ((queue, 4, None) for queue in list(parked))
        case SeekGroup(queue=queue) | PauseQueue(queue=queue):
            yield queue, 64, None


def _partitions(push: Push) -> frozenset[str]:
    if isinstance(push.messages, PlainBatch):
        return frozenset(filter(_is_name, (push.messages.partition,)))
    return frozenset(m.partition for m in push.messages if _is_name(m.partition))


def _is_name(value: object) -> bool:
    return isinstance(value, str)
