"""Random work on a store, with the model doing the same beside it."""

from __future__ import annotations

import copy
from typing import Any, Protocol

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ackwise.clock import ManualClock
from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.answers import Claimed, Settled
from ackwise.core.errors import AckwiseError, ClaimConflict
from ackwise.core.messages import NewMessage
from ackwise.core.policy import QueuePolicy
from ackwise.core.settlement import Outcome
from ackwise.core.validation import MICROS
from ackwise.engine import queue_purge
from ackwise.store.database_store import DatabaseStore
from tests.engine.store_harness import deliveries
from tests.properties.checks import QUEUE, check_everything
from tests.properties.claims import Judge
from tests.properties.model import LaneKey, Lease, Model, Waiting

PARTITIONS = ("p0", "p1", "p2")
picks = st.integers(0, 10**6)
delays = st.sampled_from([None, 0, 5])
outcomes = st.sampled_from(["ack", "ack", "retry", "reject", "release"])
messages = st.tuples(
    st.sampled_from(PARTITIONS),
    st.sampled_from([0, 0, 1]),
    st.sampled_from([None, "t0", "t1", "t2", "t3"]),
    st.sampled_from([0, 0, 0, 3, 30]),
)
policies = st.fixed_dictionaries(
    {
        "retry_limit": st.sampled_from([3, 0, 1, 2, None]),
        "retry_counting": st.sampled_from(["failures", "retries"]),
        "delivery_limit": st.sampled_from(["auto", 1, 2, 4, None]),
        "expiry_counts": st.booleans(),
        "dead_letters": st.sampled_from([True, True, False]),
        "dedupe_seconds": st.sampled_from([20, 0]),
        "retention_seconds": st.sampled_from([None, 25]),
        "completed_retention_seconds": st.sampled_from([None, 10]),
        "order": st.sampled_from([None, None, "strict", "relaxed"]),
    }
)


class Disk(Protocol):
    """Where a machine's stores live."""

    def open(self, clock: ManualClock) -> DatabaseStore:
        """One more broker on the same data."""
        ...

    def crash(self, store: DatabaseStore) -> None:
        """Drop a broker without letting it finish anything."""
        ...

    def clear(self) -> None:
        """Remove the data."""
        ...


class Machine(RuleBasedStateMachine):
    """Two brokers, one queue, two groups."""

    def __init__(self, disk: Disk, exclusivity: str) -> None:
        super().__init__()
        self.disk, self.exclusivity = disk, exclusivity
        self.clock = ManualClock()
        self.latest = self.clock.now()
        self.stores = [disk.open(self.clock), disk.open(self.clock)]
        self.turn = 0
        self.bodies = 0
        self.where: dict[bytes, tuple[LaneKey, int]] = {}
        self.handed: list[tuple[str, int, LaneKey, int]] = []
        self.lane_ids: dict[tuple[int, LaneKey], int] = {}

    @initialize(policy=policies)
    def configure(self, policy: dict[str, Any]) -> None:
        fields = {**policy, "exclusivity": self.exclusivity}
        self.do(c.ConfigureQueue(queue=QUEUE, policy=fields))
        self.model = Model(QueuePolicy(**fields))

    @property
    def now(self) -> int:
        return self.clock.now()

    @property
    def store(self) -> DatabaseStore:
        """The brokers take turns."""
        self.turn += 1
        return self.stores[self.turn % 2]

    def do(self, command: c.Command) -> Any:
        (answer,) = self.store.transact([command])
        return answer

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.disk.clear()

    # pushing

    @rule(batch=st.lists(messages, min_size=1, max_size=4))
    def push(self, batch: list[tuple[str, int, str | None, int]]) -> None:
        sent = []
        for partition, priority, txid, delay in batch:
            self.bodies += 1
            body = f"m{self.bodies}".encode()
            sent.append(NewMessage(body, partition, priority, txid, delay=delay * MICROS))
        receipts = self.do(c.Push(queue=QUEUE, messages=sent))
        for message, receipt in zip(sent, receipts, strict=True):
            self._pushed(message, receipt.status, receipt.seq)

    def _pushed(self, message: NewMessage, status: str, seq: int | None) -> None:
        lane = (message.partition, message.priority)
        self.model.add_lane(lane)
        txid = message.transaction_id
        if txid is not None:
            surely, maybe = self.model.remembered.get((lane[0], txid), (-1, -1))
            assert status == "duplicate" or surely <= self.now, f"{txid} came through twice"
            assert status != "duplicate" or maybe > self.now, f"{txid} is remembered too long"
        if status == "duplicate":
            return
        if txid is not None:
            self.model.remember(lane, txid, self.now)
        if message.delay:
            assert (status, seq) == ("scheduled", None)
            due = self.now + message.delay
            self.model.scheduled.append(Waiting(due, self.bodies, lane, message.payload, txid or ""))
        else:
            assert (status, seq) == ("queued", self.model.append(lane, message.payload, txid or "", self.now))
            self.where[message.payload] = (lane, seq or 0)

    def _housekeeping(self) -> None:
        """Every turn with a claim, and every sweep, applies expiry and promotion first."""
        self.model.expire(self.now)
        due = [one.body for one in self.model.scheduled if one.due <= self.now]
        self.model.promote(self.now)
        for lane, stored in self.model.lanes.items():
            for seq, message in enumerate(stored):
                if message.body in due:
                    self.where[message.body] = (lane, seq)

    # claiming

    @rule(
        group=st.sampled_from(["g1", "g1", "g2"]),
        most=st.sampled_from([1, 2, 3, 10]),
        seconds=st.sampled_from([5, 20]),
        exclusivity=st.sampled_from([None, None, "none", "partition", "queue"]),
        owner=st.sampled_from([None, "o1", "o2"]),
        partitions=st.sampled_from([None, None, ("p0",), ("p1", "p2")]),
        mode=st.sampled_from(["", "", "", "auto_ack", "bulk", "k0", "k1", "k2"]),
    )
    def claim(self, group: str, most: int, seconds: int, mode: str, **rest: Any) -> None:
        command = c.Claim(queue=QUEUE, group=group, most=most, lease=seconds * MICROS, **rest)
        command.auto_ack, command.bulk = mode == "auto_ack", mode == "bulk"
        command.key = mode if mode.startswith("k") else None
        store = self.store
        (answer,) = store.transact([command])
        self._housekeeping()
        self.model.ensure_group(group)
        mine = [x for x in self.model.leases.values() if x.key == command.key and x.group == group and not x.gone]
        old = mine[0] if mine and command.key is not None else None
        if old is not None:
            self._repeated(store, command, old, answer)
            return
        assert isinstance(answer, Claimed), answer
        judge = Judge(self.model, command, self.now)
        if not answer.grants:
            assert answer.empty is not None
            assert not (self._sees_all(command, judge) and judge.something_to_give()), f"{answer.empty}, yet there is"
            return
        taken = judge.check_granted(answer)
        if not command.auto_ack:
            self._lease(answer, command, set(taken), judge.exclusivity, command.owner or f"lease-{answer.lease_no}")
        judge.hand_over(taken, None if command.auto_ack else answer.lease_no)
        self._note(store, answer)

    def _sees_all(self, command: c.Claim, judge: Judge) -> bool:
        """A wildcard goes by when lanes become ready, in the queue's own order and with time going forward."""
        relaxed_in_strict = self.model.policy.effective_order == "strict" and not judge.strict
        return command.partitions is not None or (self.now >= self.latest and not relaxed_in_strict)

    def _repeated(self, store: DatabaseStore, command: c.Claim, old: Lease, answer: Any) -> None:
        if old.filter != (command.partitions, command.owner):
            assert isinstance(answer, ClaimConflict)
            return
        assert isinstance(answer, Claimed), answer
        if old.ended:
            assert (answer.empty, answer.grants) == ("ended", [])
            return
        held = self.model.held_by(old)
        got = [((g.partition, g.priority), seq) for g in answer.grants for seq in range(g.lo, g.hi)]
        assert set(got) == {(lane, seq) for lane, seq, _ in held}
        old.key, old.ended = None, "superseded"
        old.lost |= set(got)
        self._lease(answer, command, set(got), old.exclusivity, old.owner)
        for _, _, cell in held:
            cell.lease = answer.lease_no
            cell.deliveries += 1
        self._note(store, answer)

    def _lease(
        self, answer: Claimed, command: c.Claim, granted: set[tuple[LaneKey, int]], exclusivity: str, owner: str
    ) -> None:
        assert all(answer.lease_no > no for no in self.model.leases), "lease numbers only rise"
        assert answer.deadline == self.now + (command.lease or 0)
        self.model.leases[answer.lease_no] = Lease(
            answer.lease_no, answer.lease_id, command.group, owner, exclusivity, answer.deadline, command.bulk, granted,
            command.key, (command.partitions, command.owner),
        )  # fmt: skip

    def _note(self, store: DatabaseStore, answer: Claimed) -> None:
        """Payloads are the right ones, and every delivery may be settled later."""
        for delivery in deliveries(store, answer):
            lane = (delivery.partition, delivery.priority)
            assert delivery.message.payload == self.model.lanes[lane][delivery.seq].body
            if answer.lease_no:
                self.handed.append((delivery.id, answer.lease_no, lane, delivery.seq))
                self.lane_ids[answer.lease_no, lane] = delivery.lane

    # settling

    @precondition(lambda self: self.handed)
    @rule(
        entries=st.lists(st.tuples(picks, outcomes, delays), min_size=1, max_size=5),
        late=st.booleans(),
        atomic=st.booleans(),
        forged=st.sampled_from([False, False, False, True]),
    )
    def settle(self, entries: list[tuple[int, str, int | None]], late: bool, atomic: bool, forged: bool) -> None:
        pool = self.handed if late else self.handed[-8:]
        chosen = [(*pool[pick % len(pool)], outcome, delay) for pick, outcome, delay in entries]
        asked = [self._entry(c.ByDelivery(text), outcome, delay) for text, _, _, _, outcome, delay in chosen]
        if forged:
            asked.append(self._entry(c.ByDelivery(chosen[0][0][:-3] + "zzz"), "ack", None))
        answers: list[Settled] = self.do(c.Settle(entries=asked, atomic=atomic))
        before = copy.deepcopy(self.model) if atomic else self.model
        expected = [
            self.model.settle_one(self.model.leases[no], lane, seq, outcome, self._micros(delay), self.now)
            for _, no, lane, seq, outcome, delay in chosen
        ] + ["unknown"] * forged
        if atomic and not {"stale", "unknown"}.isdisjoint(expected):
            self.model = before
            expected = [v if v in ("stale", "unknown", "already") else "rolled_back" for v in expected]
        assert [a.verdict.value for a in answers] == expected
        if expected == ["already"]:
            _, no, lane, seq, outcome, _ = chosen[0]
            unacked = outcome == "ack" and self.model.is_unacked(self.model.leases[no], lane, seq)
            assert answers[0].unacked == unacked

    @precondition(lambda self: self.model.leases)
    @rule(pick=picks, outcome=outcomes, delay=delays)
    def settle_lease(self, pick: int, outcome: str, delay: int | None) -> None:
        lease = self._pick_lease(pick)
        held = 0 if lease.gone else len(self.model.held_by(lease))
        (answer,) = self.do(c.Settle(entries=[self._entry(c.ByLease(lease.lease_id), outcome, delay)]))
        verdicts = self.model.settle_lease(lease, outcome, self._micros(delay), self.now)
        assert answer.verdict.value in verdicts
        assert answer.count == (held if answer.verdict.settled else 0)
        if answer.verdict == "already":
            assert answer.unacked == (outcome == "ack" and lease.ended in ("returned", "buried"))

    @precondition(lambda self: self.handed)
    @rule(pick=picks, before=st.integers(0, 2), after=st.integers(1, 3), outcome=outcomes, delay=delays)
    def settle_range(self, pick: int, before: int, after: int, outcome: str, delay: int | None) -> None:
        _, no, lane, seq = self.handed[pick % len(self.handed)]
        lease, lo, hi = self.model.leases[no], max(0, seq - before), seq + after
        selector = c.ByRange(lease.lease_id, self.lane_ids[no, lane], lo, hi)
        (answer,) = self.do(c.Settle(entries=[self._entry(selector, outcome, delay)]))
        verdicts, count = self.model.settle_range(lease, lane, lo, hi, outcome, self._micros(delay), self.now)
        assert answer.verdict.value in verdicts
        assert answer.count == count

    def _pick_lease(self, pick: int) -> Lease:
        numbers = sorted(self.model.leases)[-6:]
        return self.model.leases[numbers[pick % len(numbers)]]

    def _entry(self, selector: c.Selector, outcome: str, delay: int | None) -> c.Settlement:
        return c.Settlement(selector=selector, outcome=Outcome(outcome), delay=self._micros(delay))

    def _micros(self, delay: int | None) -> int | None:
        return None if delay is None else delay * MICROS

    @precondition(lambda self: self.model.leases)
    @rule(pick=picks, seconds=st.sampled_from([1, 30]), add=st.booleans())
    def extend(self, pick: int, seconds: int, add: bool) -> None:
        lease = self._pick_lease(pick)
        span: dict[str, Any] = {"add" if add else "lease": seconds * MICROS}
        answer = self.do(c.Extend(lease_id=lease.lease_id, **span))
        if lease.ended or lease.deadline <= self.now:
            settled = self.model.ended_by_settling(lease)
            assert answer.verdict == ("already" if settled and not lease.returned else "stale")
            assert answer.by_settling == settled
            assert answer.deadline is None
        else:
            lease.deadline = (lease.deadline if add else self.now) + seconds * MICROS
            assert (answer.verdict, answer.deadline) == (None, lease.deadline)

    @precondition(lambda self: self.model.leases)
    @rule(chosen=st.lists(picks, min_size=1, max_size=3))
    def break_leases(self, chosen: list[int]) -> None:
        """Their holder is lost: as if they ran out now."""
        leases = list(dict.fromkeys(self._pick_lease(pick).no for pick in chosen))
        lost = [self.model.leases[no] for no in leases]
        answer = self.do(c.Break(lease_ids=[lease.lease_id for lease in lost]))
        live = [lease for lease in lost if not lease.ended and not lease.gone and lease.deadline > self.now]
        assert answer.count == len(live)
        for lease in live:
            self.model.lose(lease, self.now, "broken")

    # moving, dying, coming back

    @precondition(lambda self: self.model.groups)
    @rule(pick=picks, to=st.sampled_from(["start", "end", 0, 1, 3]), partition=st.sampled_from(PARTITIONS))
    def seek(self, pick: int, to: Any, partition: str) -> None:
        group = sorted(self.model.groups)[pick % len(self.model.groups)]
        lanes = {lane for lane in self.model.lanes if isinstance(to, str) or lane[0] == partition}
        if not lanes:
            return
        where = {} if isinstance(to, str) else {"partition": partition, "by": "seq"}
        store = self.store
        preview = store.ask(q.PreviewSeek(queue=QUEUE, group=group, to=to, **where))  # type: ignore[arg-type]
        before = copy.deepcopy(self.model)
        answer = self.do(c.SeekGroup(queue=QUEUE, group=group, to=to, **where))  # type: ignore[arg-type]
        assert not isinstance(answer, AckwiseError), answer
        ends = {lane: {"start": 0, "end": 1 << 40}.get(to, to) for lane in lanes}
        self.model.seek(group, ends)
        assert (preview.lanes, preview.again, preview.skipped) == (len(lanes), *self.model.moved(before, group))
        held = [lane for lease in before.live(group) for lane, _, _ in before.held_by(lease)]
        assert preview.leased == sum(lane in lanes for lane in held)

    @rule(group=st.sampled_from(["g1", "g2"]), chosen=st.lists(st.tuples(picks, picks), max_size=3))
    def advance(self, group: str, chosen: list[tuple[int, int]]) -> None:
        rows = self.store.ask(q.ListLanes(queue=QUEUE))
        some = [(rows[pick % len(rows)], seq) for pick, seq in chosen if rows]
        answer = self.do(
            c.AdvanceGroup(queue=QUEUE, group=group, lanes={row.lane: seq % (row.head + 1) for row, seq in some})
        )
        targets = {(row.partition, row.priority): seq % (row.head + 1) for row, seq in some}
        assert answer.count == self.model.advance(group, targets)

    @precondition(lambda self: self.model.dead)
    @rule(chosen=st.lists(picks, min_size=1, max_size=3))
    def redrive(self, chosen: list[int]) -> None:
        letters = self.store.ask(q.ListDead(queue=QUEUE, limit=1000)).letters
        some = {letter.id: letter for letter in (letters[pick % len(letters)] for pick in chosen)}
        answer = self.do(c.Redrive(ids=list(some)))
        by_place = sorted(some.values(), key=lambda letter: -letter.seq)
        expected = {}
        for letter in by_place:
            lane, seq = self.where[letter.payload]
            expected[letter.id] = self.model.redrive(lane, seq, letter.group, self.now)
        assert answer.results == expected

    @rule(seconds=st.sampled_from([0.5, 1, 5, 21, -2]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.latest = max(self.latest, self.now)

    @rule(limit=st.sampled_from([1000, 1000, 500]))
    def sweep(self, limit: int) -> None:
        self.do(c.Sweep(limit=limit))
        self._housekeeping()
        self.model.forget(self.now)
        rows = self.store.ask(q.Browse(queue=QUEUE, limit=1000))
        for lane, stored in self.model.lanes.items():
            seqs = [b.message.seq for b in rows if (b.partition, b.priority) == lane]
            start = min(seqs, default=len(stored))
            for seq in range(self.model.starts[lane], start):
                self._check_pruned(lane, seq, stored[seq].created_at)
            self.model.prune(lane, start)

    def _check_pruned(self, lane: LaneKey, seq: int, created_at: int) -> None:
        policy = self.model.policy
        views = [view for (where, _), view in self.model.views.items() if where == lane]
        cells = [view.cells.get(seq) if seq >= view.first else None for view in views]
        assert not any(cell and cell.state in ("leased", "waiting") for cell in cells), "pruned while held"
        age = self.now - created_at
        too_old = policy.retention_seconds is not None and age >= policy.retention_seconds * MICROS
        finished = bool(views) and all(seq < view.next for view in views)
        completed = policy.completed_retention_seconds
        assert too_old or (finished and completed is not None and age >= completed * MICROS), (lane, seq, age)

    @precondition(lambda self: self.now >= self.latest)
    @rule(rows=st.sampled_from([5000, 1, 3]))
    def purge(self, rows: int) -> None:
        """In turns of a few rows: no message is stored meanwhile."""
        preview = self.store.ask(q.PreviewPurge(queue=QUEUE))
        command: c.Command | None = c.PurgeQueue(queue=QUEUE, until=preview.until)
        total: Any = None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(queue_purge, "MOST_ROWS", rows)
            while command is not None:
                total = self.do(command)
                assert not isinstance(total, AckwiseError), total
                command = c.next_command(command, total)
        assert (total.messages, total.scheduled, total.skipped) == (
            preview.messages,
            preview.scheduled,
            preview.skipped,
        )
        assert self.model.purge() == (total.messages, total.scheduled, total.skipped)

    @precondition(lambda self: len(self.model.leases) > 2)
    @rule(really=st.sampled_from([False, False, True]))
    def delete_queue(self, really: bool) -> None:
        if not really:
            return
        policy = self.model.policy
        self.do(c.DeleteQueue(queue=QUEUE))
        leases = self.model.leases
        fields = {name: getattr(policy, name) for name in policy.__struct_fields__}
        self.do(c.ConfigureQueue(queue=QUEUE, policy=fields))
        self.model = Model(policy, leases=leases)
        self.model.void()

    # brokers that die

    @rule(which=st.integers(0, 1))
    def crash(self, which: int) -> None:
        self.disk.crash(self.stores[which])
        self.stores[which] = self.disk.open(self.clock)

    @rule(which=st.integers(0, 1), partition=st.sampled_from(PARTITIONS), pick=picks)
    def abandon(self, which: int, partition: str, pick: int) -> None:
        """A turn that was prepared and never committed did not happen."""
        work: list[c.Command] = [
            c.Push(queue=QUEUE, messages=[NewMessage(b"never", partition, 0, "t1"), NewMessage(b"never", "px")]),
            c.Claim(queue=QUEUE, group="g1", most=5),
            c.Sweep(),
        ]
        if self.handed:
            text = self.handed[pick % len(self.handed)][0]
            work.append(c.Settle(entries=[self._entry(c.ByDelivery(text), "reject", None)]))
        prepared: Any = self.stores[which].prepare(work)
        prepared.abandon()

    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "model"):
            check_everything(self.store, self.model)
