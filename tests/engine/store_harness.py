"""A harness that pushes to, claims from and settles in one store, and raises what the store refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from ackwise.clock import ManualClock
from ackwise.core import commands as c
from ackwise.core import ids
from ackwise.core import queries as q
from ackwise.core.answers import Claimed, QueueInfo, Redriven, Settled, Swept
from ackwise.core.errors import AckwiseError
from ackwise.core.messages import DEFAULT_PARTITION, QUEUE_MODE, Message, NewMessage, Receipt
from ackwise.core.rows import DeadLetter, GroupStats
from ackwise.core.settlement import Outcome
from ackwise.core.validation import MICROS
from ackwise.store.database_store import DatabaseStore

A = TypeVar("A")


class Delivery(NamedTuple):
    """One handed-out message."""

    id: str
    lease_id: str
    lane: int
    seq: int
    partition: str
    partition_id: str
    priority: int
    failures: int
    attempt: int
    message: Message

    @property
    def body(self) -> str:
        return self.message.payload.decode()

    @property
    def transaction_id(self) -> str:
        return self.message.transaction_id


@dataclass(frozen=True)
class Hand:
    """A claim and its deliveries."""

    claimed: Claimed
    deliveries: list[Delivery]

    def __len__(self) -> int:
        return len(self.deliveries)

    @property
    def bodies(self) -> list[str]:
        return [d.body for d in self.deliveries]

    @property
    def lease_id(self) -> str:
        return self.claimed.lease_id

    @property
    def why(self) -> str | None:
        """Why it is empty."""
        return None if self.claimed.empty is None else self.claimed.empty.value


def deliveries(store: DatabaseStore, claimed: Claimed) -> list[Delivery]:
    found = []
    read = claimed.prefetched or store.read(claimed.ranges)
    for grant, segments in zip(claimed.grants, read, strict=True):
        by_seq = {seq: segment for segment in segments for seq in range(segment.first, segment.last + 1)}
        for seq in range(grant.lo, grant.hi):
            found.append(
                Delivery(
                    ids.delivery_id(claimed.lease_no, claimed.tag, grant.lane, seq),
                    claimed.lease_id,
                    grant.lane,
                    seq,
                    grant.partition,
                    grant.partition_id,
                    grant.priority,
                    grant.failures,
                    grant.attempt,
                    by_seq[seq].message(seq),
                )
            )
    return found


def entry(
    selector: Delivery | str | c.Selector,
    outcome: str = "ack",
    *,
    delay: float | None = None,
    error: str | None = None,
    error_type: str | None = None,
    trace: str | None = None,
) -> c.Settlement:
    """A settle entry for a delivery, a delivery id or any selector."""
    if isinstance(selector, Delivery):
        selector = c.ByDelivery(selector.id)
    elif isinstance(selector, str):
        selector = c.ByDelivery(selector)
    return c.Settlement(
        selector=selector,
        outcome=Outcome(outcome),
        delay=None if delay is None else round(delay * MICROS),
        error=error,
        error_type=error_type,
        trace=trace,
    )


class StoreHarness:
    """Talks to one store with one clock. Everything goes to queue `q` unless told otherwise."""

    def __init__(self, store: DatabaseStore, clock: ManualClock) -> None:
        self.store, self.clock = store, clock

    def do(self, command: c.Command[A]) -> A:
        """Run one command, raise its refusal."""
        answer: A | AckwiseError = self.store.transact([command])[0]
        if isinstance(answer, AckwiseError):
            raise answer
        return answer

    def together(self, *commands: c.Command) -> list[Any]:
        """Run commands in one commit; refusals come back as answers."""
        return self.store.transact(commands)

    # queues and groups

    def configure(self, queue: str = "q", **policy: Any) -> QueueInfo:
        answer: QueueInfo = self.do(c.ConfigureQueue(queue=queue, policy=policy))
        return answer

    def seek(self, to: Any, group: str = QUEUE_MODE, **rest: Any) -> None:
        self.do(c.SeekGroup(queue="q", group=group, to=to, **rest))

    # pushing

    def push(
        self,
        *bodies: str,
        queue: str = "q",
        partition: str = DEFAULT_PARTITION,
        priority: int = 0,
        delay: float = 0.0,
        txid: str | None = None,
    ) -> list[Receipt]:
        wait = round(delay * MICROS)
        return self.send(
            [
                NewMessage(b.encode(), partition=partition, priority=priority, delay=wait, transaction_id=txid)
                for b in bodies
            ],
            queue,
        )

    def send(self, messages: list[NewMessage], queue: str = "q") -> list[Receipt]:
        return list(self.do(c.Push(queue=queue, messages=messages)))

    def number(self, count: int, **where: Any) -> list[Receipt]:
        """Push "0", "1", ... with those transaction ids."""
        partition = where.pop("partition", DEFAULT_PARTITION)
        priority = where.pop("priority", 0)
        batch = [
            NewMessage(str(i).encode(), transaction_id=f"t{i}", partition=partition, priority=priority)
            for i in range(count)
        ]
        return self.send(batch, **where)

    # claiming

    def claim(self, most: int = 10, *, queue: str | None = "q", seconds: float | None = None, **rest: Any) -> Hand:
        lease = None if seconds is None else round(seconds * MICROS)
        claimed = self.complete(c.Claim(queue=queue, most=most, lease=lease, **rest))
        return Hand(claimed, deliveries(self.store, claimed))

    def complete(self, command: c.Command[A]) -> A:
        """Run a command and continue it in later turns, as a broker does."""
        answer = self.do(command)
        while (rest := c.next_command(command, answer)) is not None:
            answer = self.do(rest)
        return answer

    def take(self, **rest: Any) -> Delivery:
        """Exactly one delivery."""
        (delivery,) = self.claim(1, **rest).deliveries
        return delivery

    # settling

    def settle(self, *entries: c.Settlement, atomic: bool = False) -> list[Settled]:
        answers: list[Settled] = self.do(c.Settle(entries=list(entries), atomic=atomic))
        return answers

    def _all(self, outcome: str, what: Sequence[Delivery | str | c.Selector], **rest: Any) -> list[str]:
        return [s.verdict.value for s in self.settle(*(entry(one, outcome, **rest) for one in what))]

    def ack(self, *what: Delivery | str | c.Selector) -> list[str]:
        return self._all("ack", what)

    def retry(self, *what: Delivery | str | c.Selector, **rest: Any) -> list[str]:
        return self._all("retry", what, **rest)

    def reject(self, *what: Delivery | str | c.Selector, **rest: Any) -> list[str]:
        return self._all("reject", what, **rest)

    def release(self, *what: Delivery | str | c.Selector) -> list[str]:
        return self._all("release", what)

    # time

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def sweep(self, *duties: str, limit: int = 1000) -> dict[str, int]:
        swept: Swept = self.do(c.Sweep(duties=duties, limit=limit) if duties else c.Sweep(limit=limit))
        return swept.done

    # looking

    def group(self, name: str = QUEUE_MODE, queue: str = "q") -> GroupStats:
        (stats,) = self.store.ask(q.ListGroups(queue=queue, group=name))
        return stats

    def dead(self, **filters: Any) -> list[DeadLetter]:
        return self.store.ask(q.ListDead(**filters)).letters

    def redrive(self, *letters: DeadLetter) -> Redriven:
        answer: Redriven = self.do(c.Redrive(ids=[letter.id for letter in letters]))
        return answer

    def states(self, group: str = QUEUE_MODE, **rest: Any) -> list[str | None]:
        return [b.state for b in self.store.ask(q.Browse(queue="q", group=group, **rest))]

    def everything(self) -> dict[str, object]:
        """All that callers can see, to compare before and after something that must change nothing."""
        queues = self.store.ask(q.ListQueues())
        return {
            "audit": self.store.audit(),
            "queues": queues,
            "stats": [self.store.ask(q.QueueStats(queue=info.name)) for info in queues],
            "leases": self.store.ask(q.ListLeases(live_only=False)),
            "dead": self.store.ask(q.ListDead(limit=1000)),
            "messages": [self.store.ask(q.Browse(queue=info.name, limit=1000)) for info in queues],
        }


def counts(stats: GroupStats) -> dict[str, int]:
    """A group's counts that are not zero."""
    names = ("acked", "dead", "skipped", "expired", "held", "unread")
    return {name: n for name in names if (n := getattr(stats, name))}
