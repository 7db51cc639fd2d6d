"""Consumers of a graph at random, beside a model that knows where each item has to be."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from ackwise.connect import open_store
from ackwise.mew import Event, MewError, Session
from ackwise.store.clock import ManualClock

LIMIT = 3
TIMEOUT = 30
HANDLES = ("plain", "buried", "alone")
WATCHES = {
    "plain": 'plain = WATCH j: Job WHERE j.state = "pending" [mode: consume, group: "g"] RETURN j',
    "buried": 'buried = WATCH j: Job WHERE j.state = "pending" [mode: consume, group: "g", dead_letter: #dlq] RETURN j',
    "alone": 'alone = WATCH j: Job WHERE j.state = "pending" [mode: consume, ordering: attribute(j.n DESC)] RETURN j',
}


class Item:
    """One job, as the model knows it."""

    def __init__(self, found: str) -> None:
        self.id = found
        self.alive, self.held = True, False
        self.failures = self.deliveries = 0
        self.pending: str | None = None


class Delivery:
    def __init__(self, item: Item, watch: str, deadline: int) -> None:
        self.item, self.watch, self.deadline = item, watch, deadline
        self.buries = watch == "#buried"


class Consumers(RuleBasedStateMachine):
    """Each item is at any moment exactly one of acked, dead, available and pending."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="ackwise-mew-"))
        self.url = f"sqlite:///{self.folder}/graph.db?durability=normal"
        self.clock = ManualClock()
        self.session = Session(self.url, clock=self.clock).__enter__()
        self.items: dict[str, Item] = {}
        self.live: dict[str, Delivery] = {}
        self.spent: set[str] = set()
        self.acked = self.dead = 0
        self.standing: set[str] = set()
        self.count = 0

    jobs: Bundle[str] = Bundle("jobs")

    @initialize()
    def begin(self) -> None:
        self.session.run('node Box { name: String } node Job { n: Int, state: String = "pending" }')
        self.dlq = self.session.run('SPAWN dlq: Box { name = "dlq" }')[0].done.bindings["dlq"]

    # what happens

    @rule(target=jobs, state=st.sampled_from(["pending", "parked"]))
    def spawn(self, state: str) -> str:
        self.count += 1
        done = self.session.run("SPAWN j: Job { n = $n, state = $state }", n=self.count, state=state)[0].done
        found = done.bindings["j"]
        self.items[found] = Item(found)
        return found

    @rule(job=jobs, state=st.sampled_from(["pending", "parked"]))
    def put(self, job: str, state: str) -> None:
        if self.items[job].alive:
            self.session.run(f'SET #"{job}".state = $state', state=state)

    @rule(job=jobs)
    def kill(self, job: str) -> None:
        if self.items[job].alive:
            self.session.run(f'KILL #"{job}"')
            self.items[job].alive = False

    @rule(handle=st.sampled_from(HANDLES))
    def watch(self, handle: str) -> None:
        if handle not in self.standing:
            self.session.run(f"MATCH b: Box RETURN b.name {WATCHES[handle].replace('#dlq', chr(35) + self.dlq)}")
            self.standing.add(handle)

    @rule(most=st.integers(1, 3))
    def fetch(self, most: int) -> None:
        self.take(self.session.events(most))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), verb=st.sampled_from(["ACK", "NACK", "NACK no_retry"]))
    def settle(self, data: st.DataObject, verb: str) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.live)))
        delivery = self.end(chosen)
        item = delivery.item
        text = "NACK $id [no_retry]" if verb.endswith("no_retry") else f"{verb} $id"
        done = self.session.run(text, id=chosen)[0].done
        if verb == "ACK":
            assert (done.outcome, done.deleted) == ("acked", int(item.alive))
            self.acked += item.alive
            item.alive = False
        elif not item.alive:
            assert done.outcome == "deleted"
        else:
            self.fail(delivery, final=verb.endswith("no_retry"), outcome=done.outcome)

    @precondition(lambda self: self.spent)
    @rule(data=st.data(), verb=st.sampled_from(["ACK $id", "NACK $id", "NACK $id [no_retry]"]))
    def settle_again(self, data: st.DataObject, verb: str) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.spent)))
        with pytest.raises(MewError) as refused:
            self.session.run(verb, id=chosen)
        assert refused.value.word == "E8004"

    @rule(seconds=st.sampled_from([0.5, 5, TIMEOUT]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for name, delivery in list(self.live.items()):
            if delivery.deadline <= self.clock.now():
                self.end(name)
                if delivery.item.alive:
                    self.fail(delivery, final=False, outcome=None)
        self.session.events(0)

    @rule(handle=st.sampled_from(HANDLES))
    def cancel(self, handle: str) -> None:
        if handle in self.standing:
            self.session.run(f"CANCEL WATCH #{handle}")
            self.standing.discard(handle)
            for name, delivery in list(self.live.items()):
                if delivery.watch == f"#{handle}":
                    self.end(name)

    @rule(lost=st.booleans())
    def reconnect(self, lost: bool) -> None:
        """A session ends, cleanly or not; what it was handed in another life keeps its deadline."""
        self.session.close(lost=lost)
        for name, delivery in list(self.live.items()):
            if delivery.watch.removeprefix("#") in self.standing:
                self.end(name)
                if lost and delivery.item.alive:
                    self.fail(delivery, final=False, outcome=None)
        self.standing.clear()
        self.session = Session(self.url, clock=self.clock).__enter__()

    @rule()
    def restart(self) -> None:
        """As after kill -9: nobody says goodbye; deliveries keep their ids, counters and deadlines."""
        self.session._desk.broker.close()  # type: ignore[union-attr]
        for delivery in self.live.values():
            delivery.watch = "of another life"
        self.standing.clear()
        self.session = Session(self.url, clock=self.clock).__enter__()

    # what the model does

    def take(self, events: list[Event]) -> None:
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
            assert event.attempt == item.deliveries
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
        if not final and item.failures < LIMIT:
            assert outcome in (None, "requeued")
            return
        self.dead += 1
        if delivery.buries:
            item.held = True
            item.failures = item.deliveries = 0
            assert outcome in (None, "dead_lettered")
        else:
            item.alive = False
            assert outcome in (None, "deleted")

    # what always holds

    @invariant()
    def the_graph_is_as_the_model_says(self) -> None:
        if not self.count:
            return
        found = {row["j.id"] for row in self.session.query("MATCH j: Job RETURN j.id")}
        assert found == {item.id for item in self.items.values() if item.alive}
        letters = self.session.query("MATCH l: _DeadLetter RETURN COUNT(l) AS n")
        assert letters == [{"n": self.dead}]
        for row in self.stored("SELECT entity, lease, fails, delivs, dead FROM mew_delivery"):
            assert row[2] < LIMIT, "a failure above the limit"

    def stored(self, text: str) -> list[tuple[Any, ...]]:
        connection = apsw.Connection(str(self.folder / "graph.db"), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return connection.execute(text).fetchall()
        finally:
            connection.close()

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
            shutil.rmtree(self.folder)
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
