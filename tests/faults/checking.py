"""Opens the store that a killed broker left behind, and holds it to what was answered."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from ackwise.core.answers import Claimed, Receipts, Swept
from ackwise.core.commands import ByLease, Claim, ConfigureGroup, ConfigureQueue, Push, Settle, Settlement, Sweep
from ackwise.core.errors import AckwiseError
from ackwise.core.messages import NewMessage
from ackwise.core.queries import ListDead, ListGroups, QueueStats
from ackwise.core.settlement import Outcome
from ackwise.store.database_store import DatabaseStore
from tests.faults.actors import GROUPS, SECOND, body, home
from tests.faults.ledger import Life

Name = tuple[str, str]
"""A queue and a transaction id in it."""
_SHOWN = 5


@dataclass
class Book:
    """Everything one database was told so far."""

    ids: dict[Name, str] = field(default_factory=dict)
    finished: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    dead: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def prepare(store: DatabaseStore) -> None:
    """The queues and groups that the actors work on."""
    for command in (
        ConfigureQueue(queue="orders"),
        ConfigureQueue(queue="jobs", policy={"exclusivity": "partition"}),
        *(ConfigureGroup(queue=key.split("/")[0], group=key.split("/")[1]) for key in GROUPS),
    ):
        (answer,) = store.transact([command])
        if isinstance(answer, AckwiseError):
            raise answer


def check(store: DatabaseStore, lives: Sequence[Life], book: Book, dice: random.Random) -> list[str]:
    """What is wrong with the store after these lives; afterwards every message in it is finished."""
    problems = [f"audit: {p}" for p in store.audit()]
    answered: dict[Name, str] = {}
    for life in lives:
        problems += life.problems
        for name, message_id in life.pushed.items():
            if answered.setdefault(name, message_id) != message_id:
                problems.append(f"{name} has two message ids")
    maybe = {name for life in lives for name in life.maybe_pushed()} - answered.keys()
    problems += _old_are_known(store, book, dice)
    known, late = _push_again(store, [*answered, *maybe])
    for name, message_id in answered.items():
        if name in late or known[name] != message_id:
            problems.append(f"lost: {name} was answered as {message_id}, and is {known[name]} now, new: {name in late}")
    for key in GROUPS:
        queue = key.split("/")[0]
        mine = {txid for where, txid in known if where == queue}
        problems += _Group(store, key, lives, book).check(mine, late)
    book.ids.update(known)
    problems += [f"audit after: {p}" for p in store.audit()]
    for queue in ("orders", "jobs"):
        stats = store.ask(QueueStats(queue=queue))
        expected = sum(1 for where, _ in book.ids if where == queue)
        if (stats.messages, stats.scheduled) != (expected, 0):
            problems.append(
                f"{queue}: {expected} messages were pushed, {stats.messages} are there, {stats.scheduled} scheduled"
            )
    return problems


def _old_are_known(store: DatabaseStore, book: Book, dice: random.Random) -> list[str]:
    sample = dice.sample(sorted(book.ids), min(100, len(book.ids)))
    known, late = _push_again(store, sample)
    return [f"forgotten: {name}" for name in sample if name in late or known[name] != book.ids[name]]


def _push_again(store: DatabaseStore, names: Sequence[Name]) -> tuple[dict[Name, str], set[Name]]:
    """Message ids by name, and which of them were not there before."""
    known: dict[Name, str] = {}
    late: set[Name] = set()
    for queue in ("orders", "jobs"):
        txids = [txid for where, txid in names if where == queue]
        if not txids:
            continue
        receipts = _do(
            store, Push(queue=queue, messages=[NewMessage(body(t), home(t), 0, t) for t in txids], create=None)
        )
        assert isinstance(receipts, Receipts)
        for txid, receipt in zip(txids, receipts, strict=True):
            known[queue, txid] = receipt.message_id
            if receipt.status != "duplicate":
                late.add((queue, txid))
    return known, late


def _do(store: DatabaseStore, command: Push | Claim | Settle | Sweep) -> object:
    (answer,) = store.transact([command])
    if isinstance(answer, AckwiseError):
        raise answer
    return answer


class _Group:
    """One group's messages, drained and accounted for."""

    def __init__(self, store: DatabaseStore, key: str, lives: Sequence[Life], book: Book) -> None:
        self._store, self._key, self._lives, self._book = store, key, lives, book
        self._queue, self._group = key.split("/")
        self._problems: list[str] = []

    def check(self, pushed: set[str], late: set[Name]) -> list[str]:
        drained = self._drain()
        acked = {txid for life in self._lives for txid in life.acked[self._key]}
        buried = {txid for life in self._lives for txid in life.dead[self._key]}
        dead = self._dead() - self._book.dead[self._key]
        self._expect("acked, but delivered again", acked & drained)
        self._expect("acked, but dead", acked & dead)
        self._expect("answered as dead, but delivered again", buried & drained)
        self._expect("answered as dead, but no dead letter", buried - dead)
        self._expect("finished in an earlier life, but delivered again", drained & self._book.finished[self._key])
        self._expect("delivered, but never pushed", drained - pushed)
        gone = pushed - drained - acked - dead
        unexplained = gone - {txid for life in self._lives for txid in life.maybe_settled(self._key)}
        if len(unexplained) > sum(life.maybe_taken(self._key) for life in self._lives):
            self._expect("pushed, but gone", unexplained)
            self._problems += [f"perhaps: {why}" for life in self._lives for why in life.explain(unexplained)]
        if self._key == "orders/move":
            self._moves(drained | dead, late)
        self._book.dead[self._key] |= dead
        self._book.finished[self._key] |= pushed
        self._counts()
        return self._problems

    def _expect(self, what: str, wrong: set[str]) -> None:
        if wrong:
            self._problems.append(f"{self._key}: {len(wrong)} {what}: {sorted(wrong)[:_SHOWN]}")

    def _drain(self) -> set[str]:
        """Everything that is still to be delivered, acked."""
        while True:
            swept = _do(self._store, Sweep(duties=("expire", "promote")))
            assert isinstance(swept, Swept)
            if not swept.more:
                break
        found: list[str] = []
        while True:
            claimed = _do(self._store, Claim(queue=self._queue, group=self._group, most=5000, lease=600 * SECOND))
            assert isinstance(claimed, Claimed)
            if not claimed.grants:
                break
            for grant, segments in zip(claimed.grants, self._store.read(claimed.ranges), strict=True):
                for segment in segments:
                    for seq in range(max(grant.lo, segment.first), min(grant.hi, segment.last + 1)):
                        message = segment.message(seq)
                        found.append(message.transaction_id)
                        if message.payload != body(message.transaction_id):
                            self._problems.append(f"{self._key}: {message.transaction_id} has another payload")
            entry = Settlement(selector=ByLease(claimed.lease_id), outcome=Outcome.ACK)
            _do(self._store, Settle(entries=[entry], atomic=True))
        self._expect("delivered twice", {txid for txid, times in Counter(found).items() if times > 1})
        return set(found)

    def _dead(self) -> set[str]:
        page = self._store.ask(ListDead(queue=self._queue, group=self._group, limit=100_000))
        return {letter.transaction_id for letter in page.letters}

    def _moves(self, came_back: set[str], late: set[Name]) -> None:
        """An unanswered ack + push happened as a whole or not at all."""
        for life in self._lives:
            for sources, derived in life.unanswered_moves():
                acked = {txid for txid in sources if txid not in came_back}
                there = {txid for txid in derived if ("jobs", txid) not in late}
                if (acked and len(acked) < len(sources)) or there != {f"{txid}>" for txid in acked}:
                    self._problems.append(f"half a transaction: acked {acked}, pushed {there}")

    def _counts(self) -> None:
        (stats,) = self._store.ask(ListGroups(queue=self._queue, group=self._group))
        finished, dead = len(self._book.finished[self._key]), len(self._book.dead[self._key])
        if (stats.acked, stats.dead, stats.lag, stats.leases) != (finished - dead, dead, 0, 0):
            self._problems.append(f"{self._key}: of {finished} finished {dead} are dead, but the store counts {stats}")
