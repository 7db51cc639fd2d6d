"""Random consumers of a graph, a model that knows where each item must be, and an observer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw
import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from ackwise.clock import ManualClock
from ackwise.connect import open_store
from ackwise.core.commands import Beat
from ackwise.mew import Event, MewError, Session
from tests.graph.following import Follower, found

TIMEOUT = 30
GRAPH = """
node Box { name: String }
node Job { n: Int, state: String = "pending" }
edge at(job: Job, box: Box)
"""
PENDING = 'j.state = "pending"'
CONSUME = "mode: consume, max_redeliveries: $limit"
WATCHES = {
    "plain": f'WATCH j: Job WHERE {PENDING} [{CONSUME}, group: "g"] RETURN j',
    "buried": f'WATCH j: Job WHERE {PENDING} [{CONSUME}, group: "g", dead_letter: #dlq] RETURN j',
    "alone": f"WATCH j: Job WHERE {PENDING} [{CONSUME}, ordering: attribute(j.n DESC)] RETURN j",
    "joined": f"WATCH j: Job, at(j, #inbox) WHERE {PENDING} [{CONSUME}, dead_letter: #lost] RETURN j",
    "gone": f"WATCH j: Job WHERE {PENDING} and exists(at(j, b)) [{CONSUME}, dead_letter: #nowhere] RETURN j",
}
HANDLES = tuple(WATCHES)
FAILING = ("NACK", "NACK", "NACK no_retry")
SEEN = (
    "j: Job, at(j, b) RETURN j.id, j.state, b.name",
    "j: Job WHERE not exists(at(j, b)) RETURN j.id, j.n",
    "_dead_letter_item(b, j) RETURN j.id, b.name",
    "l: _DeadLetter RETURN l.id, l.failure_reason",
)
"""What the one who looks on watches: what it is told must always add up to what a MATCH finds."""


class Item:
    """One job, as the model knows it."""

    def __init__(self, found: str, box: str | None) -> None:
        self.id, self.box = found, box
        self.alive, self.held = True, False
        self.failures = self.deliveries = 0
        self.pending: str | None = None


class Delivery:
    def __init__(self, item: Item, watch: str, deadline: int) -> None:
        self.item, self.watch, self.deadline = item, watch.removeprefix("#"), deadline
        self.kind = self.watch
        """By which of the watches it was handed out, whatever became of that."""


class Consumers(RuleBasedStateMachine):
    """Each item is at any moment exactly one of acked, dead, available and pending."""

    def __init__(self, fresh: Callable[[], str]) -> None:
        super().__init__()
        self.url = fresh()
        self.clock = ManualClock()
        self.session = Session(self.url, clock=self.clock).__enter__()
        self.items: dict[str, Item] = {}
        self.live: dict[str, Delivery] = {}
        self.spent: set[str] = set()
        self.notices: dict[tuple[str, str], str] = {}
        """What is still to be told, by code and delivery, and which watch is to tell it."""
        self.dead = self.count = 0
        self.standing: set[str] = set()

    jobs: Bundle[str] = Bundle("jobs")

    @initialize(target=jobs, first=st.sampled_from(HANDLES), limit=st.integers(1, 3))
    def begin(self, first: str, limit: int) -> MultipleResults[str]:
        self.limit = limit
        self.session.run(GRAPH)
        boxes = [self.session.run(f'SPAWN {name}: Box {{ name = "{name}" }}')[0] for name in ("inbox", "lost", "dlq")]
        self.boxes = {name: found for result in boxes for name, found in result.done.bindings.items()}
        self.look_on()
        self.watch(first)
        return multiple(*(self.spawn_job("pending", box) for box in ("inbox", "inbox", None)))

    def look_on(self) -> None:
        self.onlooker = self.session.another()
        self.followers = [Follower() for _ in SEEN]
        for number, pattern in enumerate(SEEN):
            option = "[visibility: immediate]" if number % 2 else ""
            self.onlooker.run(f"s{number} = WATCH {pattern.replace('RETURN', option + ' RETURN')}")

    def with_boxes(self, text: str) -> str:
        for name, one in self.boxes.items():
            text = text.replace(f"#{name}", f'#"{one}"')
        return text

    # what happens

    @rule(
        target=jobs, state=st.sampled_from(["pending"] * 3 + ["parked"]), box=st.sampled_from([None, "inbox", "inbox"])
    )
    def spawn(self, state: str, box: str | None) -> str:
        return self.spawn_job(state, box)

    def spawn_job(self, state: str, box: str | None) -> str:
        self.count += 1
        job = "SPAWN {} {{ n = $n, state = $state }}"
        text = f"LINK at({job.format('Job')} AS j, #inbox)" if box else job.format("j: Job")
        done = self.session.run(self.with_boxes(text), n=self.count, state=state)[0].done
        one = done.bindings["j"]
        self.items[one] = Item(one, box)
        return one

    @rule(job=jobs, how=st.sampled_from(["pending", "parked", "inbox", "lost", "nowhere", "killed"]))
    def edit(self, job: str, how: str) -> None:
        item = self.items[job]
        if not item.alive:
            return
        if how in ("pending", "parked"):
            self.session.run(f'SET #"{job}".state = $state', state=how)
        elif how == "killed":
            self.session.run(f'KILL #"{job}"')
            item.alive = False
        else:
            item.box = None if how == "nowhere" else how
            text = f'MATCH j: Job, at(j, b) AS e WHERE j.id = #"{job}" UNLINK e'
            self.session.run(self.with_boxes(f'{text}; LINK at(#"{job}", #{how})' if item.box else text))

    @precondition(lambda self: any(item.alive and item.held for item in self.items.values()))
    @rule(data=st.data())
    def redrive(self, data: st.DataObject) -> None:
        held = sorted(item.id for item in self.items.values() if item.alive and item.held)
        job = data.draw(st.sampled_from(held))
        self.session.run(f'UNLINK _dead_letter_item(_, #"{job}")')
        self.items[job].held = False

    @precondition(lambda self: len(self.standing) < len(HANDLES))
    @rule(data=st.data())
    def stand(self, data: st.DataObject) -> None:
        self.watch(data.draw(st.sampled_from([handle for handle in HANDLES if handle not in self.standing])))

    def watch(self, handle: str) -> None:
        if handle not in self.standing:
            self.session.run(self.with_boxes(f"{handle} = {WATCHES[handle]}"), limit=self.limit)
            self.standing.add(handle)
            if handle == "gone":
                assert "does not exist yet" in self.session.notices.pop().message

    @precondition(lambda self: self.standing)
    @rule(most=st.integers(1, 4), verb=st.sampled_from(["", "", "ACK", *FAILING]))
    def fetch(self, most: int, verb: str) -> None:
        """Take some; what was taken before the last is settled at once, or nothing is."""
        before = set(self.live)
        self.take(self.session.events(most))
        for name in sorted(self.live.keys() - before)[1:] if verb else ():
            self.settle(name, verb)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), verb=st.sampled_from(["ACK", *FAILING]))
    def settle_some(self, data: st.DataObject, verb: str) -> None:
        self.settle(data.draw(st.sampled_from(sorted(self.live))), verb)

    def settle(self, chosen: str, verb: str) -> None:
        delivery = self.end(chosen)
        item = delivery.item
        text = "NACK $id [no_retry]" if verb.endswith("no_retry") else f"{verb} $id"
        final = verb.endswith("no_retry") or (verb == "NACK" and item.failures + 1 >= self.limit)
        if final and item.alive and delivery.kind == "gone":
            # It takes effect, and is an error all the same.
            with pytest.raises(MewError, match="node not found") as refused:
                self.session.run(text, id=chosen)
            assert refused.value.word == "E8007"
            self.fail(delivery, final=True, outcome="dead_lettered")
            return
        done = self.session.run(text, id=chosen)[0].done
        if verb == "ACK":
            assert (done.outcome, done.deleted) == ("acked", int(item.alive))
            item.alive = False
        elif not item.alive:
            assert done.outcome == "deleted"
        else:
            self.fail(delivery, final=verb.endswith("no_retry"), outcome=done.outcome)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), verb=st.sampled_from(["ACK", "NACK"]))
    def settle_and_take_back(self, data: st.DataObject, verb: str) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.live)))
        delivery = self.live[chosen]
        final = verb == "NACK" and delivery.item.failures + 1 >= self.limit
        if final and delivery.item.alive and delivery.kind == "gone":
            with pytest.raises(MewError, match="node not found"):
                self.session.run(f"BEGIN {verb} $id", id=chosen)
        else:
            self.session.run(f"BEGIN {verb} $id", id=chosen)
        self.session.run("ROLLBACK")
        # Who does not wait for the commit has seen what never was.
        self.onlooker.close()
        self.look_on()

    @precondition(lambda self: self.spent)
    @rule(data=st.data(), verb=st.sampled_from(["ACK $id", "NACK $id", "NACK $id [no_retry]"]))
    def settle_again(self, data: st.DataObject, verb: str) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.spent)))
        with pytest.raises(MewError) as refused:
            self.session.run(verb, id=chosen)
        assert refused.value.word == "E8004"

    @precondition(lambda self: self.live)
    @rule(seconds=st.sampled_from([1, 5, TIMEOUT, TIMEOUT]))
    def pass_time(self, seconds: float) -> None:
        self.wait(seconds)

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for name, delivery in list(self.live.items()):
            if delivery.deadline <= self.clock.now():
                self.end(name)
                told = delivery.watch in self.standing
                if told:
                    self.notices["E8003", name] = delivery.watch
                if delivery.item.alive:
                    held = delivery.item.held
                    self.fail(delivery, final=False, outcome=None)
                    if told and delivery.kind == "gone" and delivery.item.held and not held:
                        self.notices["E8007", name] = delivery.watch
        self.session.events(0)

    @precondition(lambda self: self.standing)
    @rule(
        data=st.data(),
        how=st.sampled_from(["cancelled", "ended", "lost", "restarted", "restarted as another"]),
    )
    def interrupt(self, data: st.DataObject, how: str) -> None:
        if how == "cancelled":
            self.cancel(data.draw(st.sampled_from(sorted(self.standing))))
        elif how.startswith("restarted"):
            self.restart(same=how == "restarted")
        else:
            self.reconnect(lost=how == "lost")

    def cancel(self, handle: str) -> None:
        if handle in self.standing:
            self.session.run(f"CANCEL WATCH #{handle}")
            self.standing.discard(handle)
            self.notices = {key: watch for key, watch in self.notices.items() if watch != handle}
            for name, delivery in list(self.live.items()):
                if delivery.watch == handle:
                    self.end(name)

    def reconnect(self, lost: bool) -> None:
        """A session ends, cleanly or not; what it was handed in another life keeps its deadline."""
        self.onlooker.close()
        self.session.close(lost=lost)
        for name, delivery in list(self.live.items()):
            if delivery.watch in self.standing:
                self.end(name)
                if lost and delivery.item.alive:
                    self.fail(delivery, final=False, outcome=None)
        self.forget_life()
        self.session = Session(self.url, clock=self.clock).__enter__()
        self.look_on()

    def restart(self, same: bool) -> None:
        """As after kill -9: no session is closed; deliveries keep their ids, counters and deadlines. A session that
        comes back finds its watches, by their names."""
        broker = self.session._backend.broker  # type: ignore[union-attr]
        broker.send(Beat(instance=broker.store.instance))
        broker.close()
        found = self.session.id if same else None
        if not same:
            self.forget_life()
        self.session = Session(self.url, clock=self.clock, session=found).__enter__()
        assert self.session.run("TICK")
        assert self.standing <= self.session.names.keys()
        self.look_on()

    # what the model does

    def forget_life(self) -> None:
        for delivery in self.live.values():
            delivery.watch = "of another life"
        self.standing.clear()
        self.notices.clear()

    def take(self, events: list[Event]) -> None:
        while self.session.notices:
            note = self.session.notices.popleft()
            watch = self.notices.pop((note.code, note.delivery_id or ""), None)
            assert watch is not None, f"no watch expects {note}"
            assert note.watch == f"#{watch}"
        for event in events:
            if event.type != "consumed":
                continue
            assert event.match is not None
            assert event.delivery_id is not None
            item = self.items[event.match["id"]]
            assert item.alive
            assert not item.held
            assert item.pending is None, "two live ids for one item"
            assert event.delivery_id not in self.spent
            item.deliveries += 1
            assert (event.attempt, event.failures, event.limit) == (item.deliveries, item.failures, self.limit)
            item.pending = event.delivery_id
            self.live[event.delivery_id] = Delivery(item, event.watch, self.clock.now() + TIMEOUT * 1_000_000)

    def end(self, name: str) -> Delivery:
        delivery = self.live.pop(name)
        self.spent.add(name)
        delivery.item.pending = None
        return delivery

    def fail(self, delivery: Delivery, *, final: bool, outcome: str | None) -> None:
        item = delivery.item
        item.failures += not final
        if not final and item.failures < self.limit:
            assert outcome in (None, "requeued")
            return
        self.dead += 1
        if delivery.kind in ("plain", "alone"):
            item.alive = False
            assert outcome in (None, "deleted")
            return
        assert outcome in (None, "dead_lettered")
        item.failures = item.deliveries = 0
        if delivery.kind == "joined" and item.box == "inbox":
            item.box = "lost"  # moved, and free to be handed out from there
        else:
            item.held = True

    # what always holds

    @invariant()
    def the_graph_is_as_the_model_says(self) -> None:
        if not self.count:
            return
        rows = self.session.query("MATCH j: Job RETURN j.id")
        assert {row["j.id"] for row in rows} == {item.id for item in self.items.values() if item.alive}
        rows = self.session.query("MATCH j: Job, at(j, b) RETURN j.id, b.name")
        boxed = {item.id: item.box for item in self.items.values() if item.alive and item.box}
        assert {row["j.id"]: row["b.name"] for row in rows} == boxed
        letters = self.session.query("MATCH l: _DeadLetter RETURN COUNT(l) AS n")
        assert letters == [{"n": self.dead}]
        stored = deliveries(self.url)
        assert all(fails < self.limit for _, fails, _ in stored), "a failure above the limit"
        assert sum(lease is not None for lease, _, _ in stored) == len(self.live)
        held = sum(item.alive and item.held for item in self.items.values())
        assert sum(dead for _, _, dead in stored) == held

    @invariant()
    def what_was_told_adds_up(self) -> None:
        if not self.count:
            return
        for event in self.onlooker.events(1000):
            self.followers[int(event.watch[2:])].hear(event.as_object())
        for pattern, follower in zip(SEEN, self.followers, strict=True):
            assert follower.rows == found(self.session, pattern), pattern

    def teardown(self) -> None:
        """Everything that is left is available or pending: it can be consumed, once each."""
        try:
            if self.count:
                self.finish()
        finally:
            self.session.close()
            store = open_store(self.url)
            problems = store.audit()
            store.close()
        assert problems == []

    def finish(self) -> None:
        self.wait(TIMEOUT)
        self.session.run('MATCH j: Job SET j.state = "pending"')
        self.watch("alone")
        self.wait(1)
        left = {item.id for item in self.items.values() if item.alive and not item.held}
        taken: set[str] = set()
        while events := self.session.events(100):
            for event in events:
                if event.match is not None and event.delivery_id is not None:
                    assert event.match["id"] not in taken
                    taken.add(event.match["id"])
                    assert self.session.ack(event).done.deleted == 1
        assert taken == left
        self.take([])
        assert self.notices == {}, "something was not told"


def deliveries(url: str) -> list[tuple[Any, ...]]:
    """Lease, failures and whether it is a dead letter, of everything that was ever handed out and is there."""
    text = "SELECT lease, fails, dead FROM {}mew_delivery"
    if url.startswith("postgresql"):
        with psycopg.connect(url) as postgres:
            return postgres.execute(text.format("ackwise.").encode()).fetchall()
    path = url.removeprefix("sqlite:///").partition("?")[0]
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute(text.format("")).fetchall()
    finally:
        connection.close()
