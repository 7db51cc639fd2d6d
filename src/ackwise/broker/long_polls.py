"""Parked claims, and which of them a commit wakes.

A claim that finds nothing and may wait is parked. Each method `unpark_...` removes parked claims and returns them. The
caller then wakes them, and each tries its claim again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from ackwise.broker.maintenance import SCOUT_EVERY, WATCH_EVERY
from ackwise.broker.turn_queue import Submission
from ackwise.core.answers import Claimed
from ackwise.core.commands import Claim, Command, PauseQueue, Push, SeekGroup, Transaction
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.messages import PlainBatch

ANY_QUEUE = ""
"""Key of the claims by namespace or task: a commit to any queue may serve them."""
EVERY_QUEUE = "\0"
"""Stands for all further watched queues. No queue can have this name, so no commit removes it."""
MOST_WATCHED = 10_000

QueueVersion = tuple[int, int]
"""Counts of wake-ups: of all queues together, and of one queue. It changes when the queue may have new messages."""

Selection = tuple[str, tuple[str, ...] | None, tuple[int, ...] | None, str | None, str | None]
"""Group, partitions, priorities, namespace and task of a claim. Claims with the same selection compete."""

Kind = tuple[str | None, str | None, str | None]
"""Exclusivity, order and owner of a claim. They decide whether the claim may take an available message now."""

_HOLDS_FOR_KIND = (EmptyReason.LOCKED, EmptyReason.DELAYED)
"""Reasons that hold for claims of one kind. Any other reason holds for all claims with the same selection."""

MOST_AT_ONCE = 4
"""How many claims with one selection a commit wakes. If one of them finds messages, it wakes the next ones."""


class LongPoll(Submission[Claimed]):
    """A claim that waits for messages."""

    __slots__ = (
        "entered",
        "kind",
        "leaving",
        "more",
        "parked",
        "queue",
        "scout",
        "seen",
        "selection",
        "tried",
        "until",
    )

    def __init__(self, claim: Claim, wake: Callable[[], None], until: int | None = None) -> None:
        super().__init__([claim], wake)
        self.queue = claim.queue or ANY_QUEUE
        self.selection: Selection = (
            claim.group,
            None if claim.partitions is None else tuple(claim.partitions),
            None if claim.priorities is None else tuple(claim.priorities),
            claim.namespace,
            claim.task,
        )
        self.kind: Kind = claim.exclusivity, claim.order, claim.owner
        self.until = until
        """Instant of the store at which the claim tries again without a wake-up."""
        self.seen: QueueVersion = (0, 0)
        self.parked = False
        self.entered = False
        """Whether the claim has ever parked. A turn can have only such a claim."""
        self.leaving = False
        """The caller's time is up, but a turn has the claim: the caller waits for that turn only."""
        self.scout = False
        """The claim tries again without a known commit. If it finds messages, a wake-up was missed."""
        self.tried: frozenset[Kind] | None = None
        """Kinds that could not take the message for which this claim was woken. If this claim cannot either, the
        next kind is woken."""
        self.more = 0
        """How many further claims to wake if this one finds messages."""


class LongPolls:
    """Parked claims by queue and selection.

    A claim reads the version of its queue before it tries. If a wake-up changed the version meanwhile, the claim is not
    parked and tries again. So no wake-up is lost between the try and the parking.

    A turn calls `ride` if claims are parked. After its commit it calls `unpark_after_commit` if it has riders, or if it
    woke queues while some queue is watched.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.parked: dict[str, dict[Selection, list[LongPoll]]] = {}
        self.watched: set[str] = set()
        """Queues with parked claims, and queues whose current version a claim has read. The claim may park at it."""
        self._versions: dict[str, int] = {}
        self._version_of_all = 0
        self._count = 0
        self._round: list[tuple[str, Selection, Kind]] = []
        self._round_at = 0.0
        self._scouts_at_once = 1

    def __len__(self) -> int:
        return self._count

    def version(self, queue: str | None) -> QueueVersion:
        """Version of a queue, for a claim that may park at this version."""
        with self._lock:
            return self._read_version(queue or ANY_QUEUE)

    def _read_version(self, queue: str) -> QueueVersion:
        # Callers choose the names, so the number of names is bounded.
        self.watched.add(queue if len(self.watched) < MOST_WATCHED else EVERY_QUEUE)
        return self._version_of_all, self._versions.get(queue, 0)

    def park(self, poll: LongPoll, seen: QueueVersion) -> bool:
        """Park a claim that tried at version `seen`. Returns False after a later wake-up: the claim must try again."""
        with self._lock:
            if self._read_version(poll.queue) != seen:
                return False
            self._add(poll)
            return True

    def leave(self, poll: LongPoll) -> bool:
        """Remove a claim whose time is up. Returns False if a turn has the claim: that turn wakes it."""
        with self._lock:
            if poll.parked:
                self._remove([poll])
                return True
            poll.leaving = True
            return not poll.entered

    def ride(self, commands: Iterable[Command], riders: list[LongPoll]) -> None:
        """Add the parked claims that these commands may serve to `riders`: their claims run in the same turn."""
        with self._lock:
            for command in commands:
                for queue, most, partitions in _may_serve(command):
                    for selection in list(self.parked.get(queue, ())):
                        if partitions is None or selection[1] is None or not partitions.isdisjoint(selection[1]):
                            taken = self.parked[queue][selection][:most]
                            riders += taken
                            self._remove(taken)
                            for poll in taken:
                                poll.seen = self._read_version(queue)

    def unpark_after_commit(
        self, queues: Mapping[str, int], riders: Sequence[LongPoll], unparked: list[LongPoll]
    ) -> None:
        """Unpark the claims that the commit may serve. Adds them to `unparked`.

        Riders with an answer are also added to `unparked`. The other riders are parked again. `queues` has the number
        of messages that became claimable. For each selection the method unparks at most one claim per message that
        the riders left. It unparks no claim of a selection if a rider of that selection found nothing to claim.
        """
        if not queues and not riders:
            return
        with self._lock:
            outcomes = _RiderOutcomes(riders)
            unparked += [poll for poll in riders if not self._park_again(poll)]
            woken = [*queues.items(), (ANY_QUEUE, sum(queues.values()))] if queues else []
            for queue, _ in woken:
                self._versions[queue] = self._versions.get(queue, 0) + 1
                if queue not in self.parked:
                    self.watched.discard(queue)
            for poll in unparked:
                # The rider's answer includes this commit.
                poll.seen = self._read_version(poll.queue)
            for queue, count in woken:
                for selection in list(self.parked.get(queue, ())):
                    left = outcomes.left(count, queue, selection)
                    self._unpark(queue, selection, left, outcomes.tried(queue, selection), unparked)

    def unpark_after_try(self, poll: LongPoll, claimed: Claimed) -> list[LongPoll]:
        """Unpark the claims to wake after a woken claim tried.

        If the claim found messages, these are further claims. If claims of its kind cannot take the message now, these
        are claims of another kind.
        """
        if poll.scout and claimed.grants:
            with self._lock:
                self._versions[poll.queue] = self._versions.get(poll.queue, 0) + 1
                others = [other for parked in self.parked.get(poll.queue, {}).values() for other in parked]
                self._remove(others)
                for other in others:
                    other.results = []
                return others
        if poll.tried is None or (not claimed.grants and claimed.empty not in _HOLDS_FOR_KIND):
            return []
        unparked: list[LongPoll] = []
        with self._lock:
            if claimed.grants:
                self._unpark(poll.queue, poll.selection, poll.more, poll.tried, unparked)
            else:
                self._unpark(poll.queue, poll.selection, max(1, poll.more), poll.tried | {poll.kind}, unparked)
        return unparked

    def unpark_successor(self, poll: LongPoll) -> list[LongPoll]:
        """Unpark one claim with the same selection, after a claim left. That claim knew when a message becomes due.

        The successor tries again, learns that instant and wakes up by itself.
        """
        with self._lock:
            successors = list(self.parked.get(poll.queue, {}).get(poll.selection, ()))[:1]
            self._remove(successors)
            for successor in successors:
                successor.results = []
            return successors

    def unpark_all(self) -> list[LongPoll]:
        """Every parked claim, because another process may have committed to any queue."""
        with self._lock:
            self._version_of_all += 1
            polls = list(self._polls())
            self._remove(polls)
            for poll in polls:
                poll.results = []
            return polls

    def unpark_scouts(self, now: float) -> list[LongPoll]:
        """Claims that try again in case a wake-up was missed.

        One claim of each queue, selection and kind tries in each round. A round lasts `SCOUT_EVERY` seconds, and the
        calls spread its claims over half of that time.
        """
        with self._lock:
            if now >= self._round_at:
                self._round_at = now + SCOUT_EVERY
                kinds = {(poll.queue, poll.selection, poll.kind) for poll in self._polls()}
                self._round = list(kinds)
                self._scouts_at_once = 1 + int(len(kinds) * 2 * WATCH_EVERY / SCOUT_EVERY)
            scouts: list[LongPoll] = []
            while self._round and len(scouts) < self._scouts_at_once:
                queue, selection, kind = self._round.pop()
                parked = self.parked.get(queue, {}).get(selection, ())
                scouts += [poll for poll in parked if poll.kind == kind][:1]
            self._remove(scouts)
            for poll in scouts:
                poll.scout, poll.results = True, []
            return scouts

    def _park_again(self, poll: LongPoll) -> bool:
        """Park a rider again.

        Returns False if it has an answer, if its queue changed, or if it must continue or try again earlier.
        """
        answer = poll.results[-1] if poll.results else None
        if not isinstance(answer, Claimed) or answer.grants or answer.empty is EmptyReason.ENDED or poll.leaving:
            return False
        if answer.more is not None:
            return False
        if self._read_version(poll.queue) != poll.seen:
            poll.results = []
            return False
        if answer.until is not None and (poll.until is None or answer.until < poll.until):
            return False
        self._add(poll)
        poll.results = None
        return True

    def _unpark(
        self, queue: str, selection: Selection, most: int, tried: frozenset[Kind], unparked: list[LongPoll]
    ) -> None:
        """Unpark up to `most` claims of kinds that have not tried. `more` of the first is the rest of `most`.

        The claims are in `unparked` before they are removed, so that an interrupt loses none.
        """
        parked = self.parked.get(queue, {}).get(selection, ())
        polls = list(islice((poll for poll in parked if poll.kind not in tried), min(max(0, most), MOST_AT_ONCE)))
        unparked += polls
        for poll in polls:
            poll.tried, poll.results = tried, []
        self._remove(polls)
        if polls:
            polls[0].more = most - len(polls)

    def _polls(self) -> Iterator[LongPoll]:
        return (poll for by_selection in self.parked.values() for polls in by_selection.values() for poll in polls)

    def _add(self, poll: LongPoll) -> None:
        self.parked.setdefault(poll.queue, {}).setdefault(poll.selection, []).append(poll)
        poll.parked = poll.entered = True
        self._count += 1

    def _remove(self, polls: Sequence[LongPoll]) -> None:
        """Remove claims. The search is short: callers mostly remove the claims that were parked first."""
        for poll in polls:
            by_selection = self.parked[poll.queue]
            parked = by_selection[poll.selection]
            parked.remove(poll)
            poll.parked = False
            self._count -= 1
            if not parked:
                del by_selection[poll.selection]
                if not by_selection:
                    del self.parked[poll.queue]


class _RiderOutcomes:
    """Results of the riders of a turn, by queue and selection."""

    def __init__(self, riders: Iterable[LongPoll]) -> None:
        self._taken: dict[tuple[str, Selection], int] = {}
        self._tried: dict[tuple[str, Selection], frozenset[Kind]] = {}
        self._exhausted: set[tuple[str, Selection]] = set()
        for poll in riders:
            answer = poll.results[-1] if poll.results else None
            if not isinstance(answer, Claimed):
                continue
            key = poll.queue, poll.selection
            self._taken[key] = self._taken.get(key, 0) + answer.count
            if not answer.grants and answer.more is None:
                self._tried[key] = self.tried(*key) | {poll.kind}
                if answer.empty not in _HOLDS_FOR_KIND:
                    self._exhausted.add(key)

    def left(self, count: int, queue: str, selection: Selection) -> int:
        """How many of `count` messages the riders left for other claims."""
        return 0 if (queue, selection) in self._exhausted else count - self._taken.get((queue, selection), 0)

    def tried(self, queue: str, selection: Selection) -> frozenset[Kind]:
        """Kinds of claims that found nothing."""
        return self._tried.get((queue, selection), frozenset())


def _may_serve(command: Command) -> list[tuple[str, int, frozenset[str] | None]]:
    """Queues that a command may serve, with the number of messages and their partitions. None means any partition.

    Commands that make messages claimable in another way report them when they commit.
    """
    match command:
        case Push():
            return _pushed(command)
        case Transaction(pushes=pushes):
            return [serving for push in pushes for serving in _pushed(push)]
        case SeekGroup(queue=queue) | PauseQueue(queue=queue):
            return [(queue, 64, None)]
    return []


def _pushed(push: Push) -> list[tuple[str, int, frozenset[str] | None]]:
    messages = push.messages
    count = len(messages)
    if isinstance(messages, PlainBatch):
        partitions = {messages.partition}
    else:
        partitions = {message.partition for message in messages}
    return [(queue, count, frozenset(partitions)) for queue in (push.queue, ANY_QUEUE)]
