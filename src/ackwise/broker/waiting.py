"""Long polls: parked claims that ride in the next turn that may have something for them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from ackwise.broker.pending import Slot
from ackwise.core.commands import Command, PauseQueue, Push, Redrive, Replay, SeekGroup, Settle, Sweep, Transaction

ANY = ""
"""Where claims by namespace or task are parked: any queue may concern them."""


Seen = tuple[int, int]
"""What a queue's version was when somebody looked and found nothing."""


class Waiters:
    """Parked slots by queue. A version per queue closes the gap between an empty try and parking."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parked: dict[str, list[Slot]] = {}
        self._versions: dict[str, int] = {}
        self._all = 0

    def __len__(self) -> int:
        return sum(map(len, self._parked.values()))

    def version(self, queue: str | None) -> Seen:
        return self._all, self._versions.get(queue or ANY, 0)

    def park(self, queue: str | None, slot: Slot, seen: Seen) -> bool:
        """False when something was woken since `seen`: try again instead."""
        with self._lock:
            if self.version(queue) != seen:
                return False
            self._parked.setdefault(queue or ANY, []).append(slot)
            return True

    def leave(self, queue: str | None, slot: Slot) -> bool:
        """Take a slot back; False when a turn has it now."""
        with self._lock:
            parked = self._parked.get(queue or ANY, [])
            if slot in parked:
                parked.remove(slot)
                return True
            return False

    def riders(self, commands: Iterable[Command]) -> list[Slot]:
        """Parked claims that the turn's other commands may serve; they are no longer parked."""
        if not self._parked:
            return []
        taken: list[Slot] = []
        with self._lock:
            for command in commands:
                for queue, most in _may_serve(command, self._parked):
                    parked = self._parked.get(queue, [])
                    taken += parked[:most]
                    del parked[:most]
                    if not parked:
                        self._parked.pop(queue, None)
        return taken

    def woken(self, queues: Mapping[str, int], served: int) -> list[Slot]:
        """After a commit: bump the versions; give back at most as many parked slots as there may be messages left."""
        with self._lock:
            taken: list[Slot] = []
            for queue, count in (*queues.items(), (ANY, sum(queues.values()))):
                self._versions[queue] = self._versions.get(queue, 0) + 1
                parked = self._parked.get(queue)
                if parked:
                    most = max(0, count - served)
                    taken += parked[:most]
                    del parked[:most]
                    if not parked:
                        del self._parked[queue]
            return taken

    def everybody(self) -> list[Slot]:
        """Something happened elsewhere: everybody looks again."""
        with self._lock:
            self._all += 1
            taken = [slot for parked in self._parked.values() for slot in parked]
            self._parked.clear()
            return taken


def _may_serve(command: Command, parked: dict[str, list[Slot]]) -> list[tuple[str, int]]:
    match command:
        case Push(queue=queue, messages=messages):
            return [(queue, len(messages)), (ANY, len(messages))]
        case Transaction(pushes=pushes):
            return [(p.queue, len(p.messages)) for p in pushes] + [(ANY, 1)]
        case Settle() | Sweep() | Redrive() | Replay():
            return [(queue, 4) for queue in list(parked)] if len(parked) <= 8 else []
        case SeekGroup(queue=queue) | PauseQueue(queue=queue):
            return [(queue, 64)]
        case _:
            return []
