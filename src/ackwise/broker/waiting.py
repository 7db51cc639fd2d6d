"""Long polls: parked claims that ride in the next turn that may have something for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from ackwise.broker.duties import LOOK_EVERY, WATCH_EVERY
from ackwise.broker.pending import Slot
from ackwise.core.answers import Claimed
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import Claim, Command, PauseQueue, Push, SeekGroup, Transaction
from ackwise.core.messages import PlainBatch

ANY = ""
"""Where claims by namespace or task are parked: any queue may concern them."""

Seen = tuple[int, int]
"""What a queue's version was when somebody looked and found nothing."""

Want = tuple[str, tuple[str, ...] | None, tuple[int, ...] | None, str | None, str | None]
"""Which messages a claim asks for: what one claim takes, the others that want the same cannot have."""

Kind = tuple[str | None, str | None, str | None]
"""Exclusivity, order and owner: they decide whether a message that is there may be had by this claim now."""

_NOT_FOR_ALL = (EmptyReason.LOCKED, EmptyReason.DELAYED)
"""Reasons that hold for one kind only. Any other says that there is nothing for anybody who wants the same."""

AT_ONCE = 4
"""How many are called after a commit; when one of them finds something, the next are called."""


class Waiting(Slot):
    """A parked claim. `until` is when it looks again by itself, in the store's time."""

    __slots__ = ("kind", "leaving", "more", "parked", "queue", "scout", "seen", "tried", "until", "want")

    def __init__(self, claim: Claim, wake: Callable[[], None], until: int | None = None) -> None:
        super().__init__([claim], wake)
        self.queue = claim.queue or ANY
        self.want: Want = (
            claim.group,
            None if claim.partitions is None else tuple(claim.partitions),
            None if claim.priorities is None else tuple(claim.priorities),
            claim.namespace,
            claim.task,
        )
        self.kind: Kind = claim.exclusivity, claim.order, claim.owner
        self.until = until
        self.seen: Seen = (0, 0)
        self.parked = False
        self.leaving = False
        """Its caller waits no longer, and only for the turn that has it."""
        self.scout = False
        """It looks for everybody of its queue: if it finds something, a wake-up was missed."""
        self.tried: frozenset[Kind] | None = None
        """It was called for a message that these kinds could not have; if it cannot either, another is called."""
        self.more = 0
        """How many more are to be called if it finds something."""


class Waiters:
    """Parked claims by queue and want. A version per queue closes the gap between an empty try and parking."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parked: dict[str, dict[Want, list[Waiting]]] = {}
        self._versions: dict[str, int] = {}
        self._all = 0
        self._count = 0
        self._round: list[tuple[str, Want, Kind]] = []
        self._round_at = 0.0
        self._at_once = 1

    def __len__(self) -> int:
        return self._count

    def version(self, queue: str | None) -> Seen:
        return self._all, self._versions.get(queue or ANY, 0)

    def park(self, slot: Waiting, seen: Seen) -> bool:
        """False when something was woken since `seen`: try again instead."""
        with self._lock:
            if self.version(slot.queue) != seen:
                return False
            self._add(slot)
            return True

    def leave(self, slot: Waiting) -> bool:
        """Take a slot back; False when a turn has it now, which will then wake it in any case."""
        with self._lock:
            if not slot.parked:
                slot.leaving = True
                return False
            self._remove([slot])
            return True

    def ride(self, commands: Iterable[Command], riders: list[Waiting]) -> None:
        """Parked claims that the turn's other commands may serve become its riders; they are no longer parked."""
        if not self._parked:
            return
        with self._lock:
            for command in commands:
                for queue, most, partitions in _may_serve(command):
                    for want in list(self._parked.get(queue, ())):
                        if partitions is None or want[1] is None or not partitions.isdisjoint(want[1]):
                            taken = self._parked[queue][want][:most]
                            riders += taken
                            self._remove(taken)
                            for slot in taken:
                                slot.seen = self.version(queue)

    def served(self, queues: Mapping[str, int], riders: Sequence[Waiting]) -> list[Waiting]:
        """After a commit: whom to wake. Riders that found nothing are parked again instead.

        Of those who want the same at most as many are called as there may be messages left, and none where a rider
        found that there is nothing.
        """
        if not queues and not riders:
            return []
        with self._lock:
            found = _Found(riders)
            awake = [slot for slot in riders if not self._park_again(slot)]
            woken = [*queues.items(), (ANY, sum(queues.values()))] if queues else []
            for queue, _ in woken:
                self._versions[queue] = self._versions.get(queue, 0) + 1
            for slot in awake:
                # Its answer is as new as this commit.
                slot.seen = self.version(slot.queue)
            for queue, count in woken:
                for want in list(self._parked.get(queue, ())):
                    awake += self._call(queue, want, found.left(count, queue, want), found.tried(queue, want))
            return awake

    def pass_on(self, slot: Waiting, claimed: Claimed) -> list[Waiting]:
        """A slot that was called has tried: whom to wake in its place, or because of what it found."""
        if slot.scout and claimed.grants:
            with self._lock:
                self._versions[slot.queue] = self._versions.get(slot.queue, 0) + 1
                rest = [one for parked in self._parked.get(slot.queue, {}).values() for one in parked]
                self._remove(rest)
                for one in rest:
                    one.results = []
                return rest
        if slot.tried is None or (not claimed.grants and claimed.empty not in _NOT_FOR_ALL):
            return []
        with self._lock:
            if claimed.grants:
                return self._call(slot.queue, slot.want, slot.more, slot.tried)
            return self._call(slot.queue, slot.want, max(1, slot.more), slot.tried | {slot.kind})

    def relay(self, slot: Waiting) -> list[Waiting]:
        """A slot gave up before something it knew of was due: one that wants the same learns of it in its place."""
        with self._lock:
            heirs = list(self._parked.get(slot.queue, {}).get(slot.want, ()))[:1]
            self._remove(heirs)
            for heir in heirs:
                heir.results = []
            return heirs

    def everybody(self) -> list[Waiting]:
        """Something happened elsewhere: everybody looks again."""
        with self._lock:
            self._all += 1
            taken = [slot for wants in self._parked.values() for parked in wants.values() for slot in parked]
            self._remove(taken)
            for slot in taken:
                slot.results = []
            return taken

    def scouts(self, now: float) -> list[Waiting]:
        """Slots that look again though nothing is known to have happened: one of each kind in each round, not all of
        them in the same moment. Asked every few milliseconds."""
        with self._lock:
            if now >= self._round_at:
                self._round_at = now + LOOK_EVERY
                kinds = {(s.queue, s.want, s.kind) for w in self._parked.values() for p in w.values() for s in p}
                self._round = list(kinds)
                self._at_once = 1 + int(len(kinds) * 2 * WATCH_EVERY / LOOK_EVERY)
            chosen: list[Waiting] = []
            while self._round and len(chosen) < self._at_once:
                queue, want, kind = self._round.pop()
                parked = self._parked.get(queue, {}).get(want, ())
                chosen += [slot for slot in parked if slot.kind == kind][:1]
            self._remove(chosen)
            for slot in chosen:
                slot.scout, slot.results = True, []
            return chosen

    def _park_again(self, slot: Waiting) -> bool:
        """Unless it has an answer, something else happened meanwhile, or it would now sleep too long."""
        answer = slot.results[-1] if slot.results else None
        if not isinstance(answer, Claimed) or answer.grants or answer.empty is EmptyReason.ENDED or slot.leaving:
            return False
        if self.version(slot.queue) != slot.seen:
            slot.results = []
            return False
        if answer.until is not None and (slot.until is None or answer.until < slot.until):
            return False
        slot.results = None
        self._add(slot)
        return True

    def _call(self, queue: str, want: Want, most: int, tried: frozenset[Kind]) -> list[Waiting]:
        parked = self._parked.get(queue, {}).get(want, ())
        called = list(islice((slot for slot in parked if slot.kind not in tried), min(max(0, most), AT_ONCE)))
        self._remove(called)
        for slot in called:
            slot.tried, slot.results = tried, []
        if called:
            called[0].more = most - len(called)
        return called

    def _add(self, slot: Waiting) -> None:
        self._parked.setdefault(slot.queue, {}).setdefault(slot.want, []).append(slot)
        slot.parked = True
        self._count += 1

    def _remove(self, slots: Sequence[Waiting]) -> None:
        """Most often those that have been there longest."""
        for slot in slots:
            wants = self._parked[slot.queue]
            parked = wants[slot.want]
            parked.remove(slot)
            slot.parked = False
            self._count -= 1
            if not parked:
                del wants[slot.want]
                if not wants:
                    del self._parked[slot.queue]


class _Found:
    """What a turn's riders found, by what they wanted."""

    def __init__(self, riders: Iterable[Waiting]) -> None:
        self._taken: dict[tuple[str, Want], int] = {}
        self._tried: dict[tuple[str, Want], frozenset[Kind]] = {}
        self._nothing: set[tuple[str, Want]] = set()
        for slot in riders:
            answer = slot.results[-1] if slot.results else None
            if not isinstance(answer, Claimed):
                continue
            key = slot.queue, slot.want
            self._taken[key] = self._taken.get(key, 0) + answer.count
            if not answer.grants:
                self._tried[key] = self.tried(*key) | {slot.kind}
                if answer.empty not in _NOT_FOR_ALL:
                    self._nothing.add(key)

    def left(self, count: int, queue: str, want: Want) -> int:
        """How many more claims may find something."""
        return 0 if (queue, want) in self._nothing else count - self._taken.get((queue, want), 0)

    def tried(self, queue: str, want: Want) -> frozenset[Kind]:
        return self._tried.get((queue, want), frozenset())


def _may_serve(command: Command) -> list[tuple[str, int, frozenset[str] | None]]:
    """Queues, how many claims that want the same, and in which partitions (None: in any).

    What else makes messages claimable says so when it is committed. Nobody has checked the commands yet: what is not
    well formed serves nobody.
    """
    try:
        match command:
            case Push():
                return _pushed(command)
            case Transaction(pushes=pushes):
                return [serving for push in pushes for serving in _pushed(push)]
            case SeekGroup(queue=str(queue)) | PauseQueue(queue=str(queue)):
                return [(queue, 64, None)]
    except (AttributeError, TypeError):
        pass
    return []


def _pushed(push: Push) -> list[tuple[str, int, frozenset[str] | None]]:
    messages = push.messages
    count = len(messages)
    names = {messages.partition} if isinstance(messages, PlainBatch) else {m.partition for m in messages}
    queues: tuple[object, ...] = (push.queue, ANY)
    return [(queue, count, frozenset(names)) for queue in queues if isinstance(queue, str)]
