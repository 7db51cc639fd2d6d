"""Who works on the broker that will be killed: pushers, consumers of every habit, and one that moves messages on."""

from __future__ import annotations

import random
from collections.abc import Iterable

from ackwise.core import ids
from ackwise.core.answers import Claimed, Handed, Receipts, Settled, TransactionDone
from ackwise.core.commands import (
    ByDelivery,
    ByLease,
    ByRange,
    ByTransaction,
    Claim,
    Extend,
    Push,
    Selector,
    Settle,
    Settlement,
    Transaction,
)
from ackwise.core.messages import QUEUE_MODE, Message, NewMessage, PlainBatch
from ackwise.core.settlement import Outcome
from tests.faults.worker import Actor, ActorBroker, Event, Job, Voice

PARTITIONS = tuple(f"p{i}" for i in range(6))
GROUPS = ("orders/g1", "orders/move", f"jobs/{QUEUE_MODE}")
SECOND = 1_000_000
_WAIT = 0.05


def cast(job: Job) -> list[Actor]:
    """The same people for the same seed, each with dice of their own."""

    def dice(name: str) -> random.Random:
        return random.Random(f"{job.seed}/{name}")

    return [
        Pusher(job.prefix + "a", "orders", dice("a")).work,
        Pusher(job.prefix + "b", "jobs", dice("b")).work,
        Consumer("orders", "g1", dice("c")).work,
        Consumer("orders", "g1", dice("d")).work,
        Consumer("jobs", QUEUE_MODE, dice("e")).work,
        Consumer("jobs", QUEUE_MODE, dice("f")).work,
        Mover(dice("g")).work,
    ]


class Pusher:
    """Pushes singles and batches, some delayed, some a second time."""

    def __init__(self, name: str, queue: str, dice: random.Random) -> None:
        self._name, self._queue, self._dice = name, queue, dice
        self._old: list[str] = []

    async def work(self, broker: ActorBroker, voice: Voice) -> None:
        while True:
            txids = self._txids()
            push = broker.send(Push(queue=self._queue, messages=self._messages(txids), create=None))
            await voice.tell("push", [self._queue, txids], push, lambda r: [pushed(self._queue, r)], broker)

    def _txids(self) -> list[str]:
        """New ones for one partition or several; sometimes with one that was pushed before."""
        dice = self._dice
        size = dice.choice((1, 1, 1, 4, 10, 60))
        parts = [dice.choice(PARTITIONS)] * size if dice.random() < 0.7 else dice.choices(PARTITIONS, k=size)
        txids = [f"{part}.{self._name}{len(self._old) + i}" for i, part in enumerate(parts)]
        if dice.random() < 0.1 and self._old:
            same = [t for t in self._old[-200:] if home(t) == parts[0]]
            txids[:1] = same[-1:] or txids[:1]
        self._old += txids
        return txids

    def _messages(self, txids: list[str]) -> list[NewMessage] | PlainBatch:
        dice = self._dice
        if dice.random() < 0.5 and len({home(t) for t in txids}) == 1:
            return PlainBatch([body(t) for t in txids], txids, home(txids[0]))
        delay = dice.choice((0, 0, 0, 0, 30_000, 30 * SECOND))
        return [NewMessage(body(t), home(t), dice.choice((0, 0, 1)), t, {"h": "x"}, delay=delay) for t in txids]


def home(txid: str) -> str:
    """The partition that a transaction id of ours belongs to."""
    return txid.partition(".")[0]


def body(txid: str) -> bytes:
    return b'"' + txid.encode() * 8 + b'"'


def pushed(queue: str, receipts: Receipts) -> Event:
    return ["pushed", queue, [[r.transaction_id, r.message_id] for r in receipts]]


class Consumer:
    """Claims few or many and settles in every way there is; sometimes lets the lease run out."""

    def __init__(self, queue: str, group: str, dice: random.Random) -> None:
        self._queue, self._group, self._dice = queue, group, dice
        self._key = f"{queue}/{group}"

    async def work(self, broker: ActorBroker, voice: Voice) -> None:
        while True:
            if self._dice.random() < 0.1:
                await self._take_for_good(broker, voice)
                continue
            claim = self._claim()
            about = [self._key]
            handed = await voice.tell("claim", about, broker.claim(claim, _WAIT), self._handed, broker)
            while handed is not None and handed.claimed.grants:
                handed = await self._settle(broker, voice, handed)

    def _claim(self) -> Claim:
        lease = self._dice.choice((30 * SECOND, 30 * SECOND, 30 * SECOND, 40_000))
        return Claim(queue=self._queue, group=self._group, most=self._dice.choice((1, 5, 40, 200)), lease=lease)

    def _handed(self, handed: Handed) -> list[Event]:
        return [["handed", self._key, named(handed.messages)]]

    async def _take_for_good(self, broker: ActorBroker, voice: Voice) -> None:
        claim = Claim(queue=self._queue, group=self._group, most=self._dice.choice((1, 8)), auto_ack=True)

        def events(handed: Handed) -> list[Event]:
            return [*self._handed(handed), ["acked", self._key, named(handed.messages)]]

        await voice.tell("auto", [self._key, claim.most], broker.claim(claim), events, broker)

    async def _settle(self, broker: ActorBroker, voice: Voice, handed: Handed) -> Handed | None:
        """One call that settles what was handed out; with the next claim in the same turn, sometimes."""
        dice = self._dice
        if dice.random() < 0.05:
            return None
        if dice.random() < 0.1:
            extend = broker.send(Extend(lease_id=handed.claimed.lease_id, lease=30 * SECOND))
            await voice.tell("extend", [self._key], extend, lambda _: [], broker)
        entries, meant = self._entries(handed)
        settle = Settle(entries=entries, atomic=dice.random() < 0.3)
        about = [self._key, [(outcome, named(messages)) for outcome, messages in meant]]
        if dice.random() < 0.4:

            def both(answer: tuple[list[Settled], Handed]) -> list[Event]:
                return [*self._verdicts(answer[0], meant), *self._handed(answer[1])]

            work = broker.settle_and_claim(settle, self._claim(), _WAIT)
            answer = await voice.tell("settle+claim", about, work, both, broker)
            return answer[1] if answer else None
        await voice.tell("settle", about, broker.send(settle), lambda settled: self._verdicts(settled, meant), broker)
        return None

    def _entries(self, handed: Handed) -> tuple[list[Settlement], list[tuple[str, list[Message]]]]:
        """Settlements and, for each, what it asks for and which messages it means."""
        dice, claimed = self._dice, handed.claimed
        messages = list(handed.messages)
        if dice.random() < 0.3:
            outcome = dice.choice((Outcome.ACK, Outcome.ACK, Outcome.RELEASE))
            return [Settlement(selector=ByLease(claimed.lease_id), outcome=outcome)], [(outcome.value, messages)]
        if dice.random() < 0.3:
            entries, meant = [], []
            for grant in claimed.grants:
                mine = [m for m in messages if m.lane == grant.lane and grant.lo <= m.seq < grant.hi]
                selector = ByRange(claimed.lease_id, grant.lane, grant.lo, grant.hi)
                entries.append(Settlement(selector=selector, outcome=Outcome.ACK))
                meant.append(("ack", mine))
            return entries, meant
        parts: dict[int, str] = {grant.lane: grant.partition_id for grant in claimed.grants}
        entries = [self._one(claimed, message, parts[message.lane]) for message in messages]
        return entries, [(e.outcome.value, [m]) for e, m in zip(entries, messages, strict=True)]

    def _one(self, claimed: Claimed, message: Message, partition_id: str) -> Settlement:
        dice = self._dice
        selector: Selector = ByDelivery(ids.delivery_id(claimed.lease_no, claimed.tag, message.lane, message.seq))
        if dice.random() < 0.2:
            selector = ByTransaction(partition_id, message.transaction_id, self._group, claimed.lease_id)
        roll = dice.random()
        if roll < 0.75:
            return Settlement(selector=selector, outcome=Outcome.ACK)
        if roll < 0.85:
            delay = dice.choice((None, 0, 20_000, 30 * SECOND))
            return Settlement(selector=selector, outcome=Outcome.RETRY, delay=delay, error="not now")
        if roll < 0.9:
            return Settlement(selector=selector, outcome=Outcome.REJECT, error="never")
        return Settlement(selector=selector, outcome=Outcome.RELEASE)

    def _verdicts(self, settled: list[Settled], meant: list[tuple[str, list[Message]]]) -> list[Event]:
        return [
            [answer.verdict.value, self._key, named(messages)]
            for answer, (_, messages) in zip(settled, meant, strict=True)
            if answer.verdict.settled
        ]


class Mover:
    """Acks an order and pushes a job that is derived from it, in one step."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    async def work(self, broker: ActorBroker, voice: Voice) -> None:
        key = "orders/move"
        while True:
            most = self._dice.choice((1, 20))
            claim = Claim(queue="orders", group="move", most=most, lease=30 * SECOND)
            handed = await voice.tell(
                "claim", [key], broker.claim(claim, _WAIT), lambda h: [["handed", key, named(h.messages)]], broker
            )
            if handed is None or not handed.claimed.grants:
                continue
            taken = named(handed.messages)
            derived = [f"{txid}>" for txid in taken]
            step = Transaction(
                settlements=[Settlement(selector=ByLease(handed.claimed.lease_id), outcome=Outcome.ACK)],
                pushes=[
                    Push(queue="jobs", messages=[NewMessage(body(t), home(t), 0, t) for t in derived], create=None)
                ],
                required_leases=(handed.claimed.lease_id,),
            )

            def events(done: TransactionDone, taken: list[str] = taken) -> list[Event]:
                return [["acked", key, taken], *(pushed("jobs", receipts) for receipts in done.pushed)]

            await voice.tell("move", [key, taken, derived], broker.send(step), events, broker)


def named(messages: Iterable[Message]) -> list[str]:
    return [m.transaction_id for m in messages]
