"""Consumers of one group that share jobs while their server is killed; some jobs fail."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter

from ackwise.broker import Broker
from ackwise.connect import open_store
from ackwise.core.errors import StoreError
from ackwise.graph import ast as s
from ackwise.graph.commands import RunGraph, Step
from ackwise.mew import Event, Session
from tests.patience import PATIENCE
from tests.server.process import ServerProcess

LIMIT = 3
BATCH = 20
ONTOLOGY = "node Job { n: Int [unique] }"
WATCH = f'w = WATCH j: Job [mode: consume, group: "workers", ack_timeout: 3s, max_redeliveries: {LIMIT}] RETURN j.n'


def fill(url: str, jobs: int) -> None:
    """So many jobs, a thousand in one statement."""
    with Session(url) as session:
        session.run(ONTOLOGY)
    broker = Broker(open_store(url))
    try:
        for begin in range(0, jobs, 1000):
            numbers = range(begin, min(jobs, begin + 1000))
            items = tuple(s.SpawnItem(None, "Job", (("n", s.Literal("int", n)),)) for n in numbers)
            broker.send(RunGraph(session="fill", steps=(Step(s.Spawn(items), 10**15 + begin * 10),)))
    finally:
        broker.close()


class Workers:
    """What the consumers were told, added up."""

    def __init__(self, url: str, jobs: int) -> None:
        self.url, self.jobs = url, jobs
        self.acked: Counter[int] = Counter()
        self.buried: Counter[int] = Counter()
        self.doubtful: set[int] = set()
        """Jobs whose settlement was in flight when the server died: their outcome is unknown."""
        self.interrupted = 0
        self._lock = threading.Lock()
        self._over = threading.Event()

    @property
    def settled(self) -> int:
        with self._lock:
            return len(self.acked) + len(self.buried)

    def work(self, seed: int) -> None:
        dice = random.Random(seed)
        session = Session(self.url, session=f"worker_{seed}")
        watching = False
        while not self._over.is_set():
            try:
                if not watching:
                    session.run(WATCH)
                    watching = True
                found = session.events(BATCH, watch="#w", wait=0.5)
                events = [event for event in found if event.delivery_id is not None]
            except StoreError:
                self._pause()
                continue
            if events:
                self._settle(session, events, dice)
        session.close()

    def _settle(self, session: Session, events: list[Event], dice: random.Random) -> None:
        verbs = [dice.choices(["ACK $d{}", "NACK $d{}", "NACK $d{} [no_retry]"], [85, 12, 3])[0] for _ in events]
        text = " ".join(verb.format(number) for number, verb in enumerate(verbs))
        params = {f"d{number}": event.delivery_id for number, event in enumerate(events)}
        numbers = {event.delivery_id: event.match["j.n"] for event in events if event.match is not None}
        lines: list[object] = []
        try:
            session.stream(text, lines.append, params, keep_going=True)
        except StoreError:
            with self._lock:
                self.doubtful |= set(numbers.values())
            self._pause()
            return
        with self._lock:
            for line in lines:
                done = getattr(line, "done", None)
                if done is not None and done.outcome == "acked" and done.deleted:
                    self.acked[numbers[done.delivery_id]] += 1
                elif done is not None and done.reason is not None:
                    self.buried[numbers[done.delivery_id]] += 1

    def _pause(self) -> None:
        with self._lock:
            self.interrupted += 1
        self._over.wait(0.1)

    def until(self, enough: int) -> None:
        end = time.monotonic() + PATIENCE
        while self.settled < enough:
            assert time.monotonic() < end, f"only {self.settled} of {enough} in time"
            self._over.wait(0.02)

    def until_none_is_left(self) -> None:
        end = time.monotonic() + PATIENCE
        with Session(self.url) as onlooker:
            while onlooker.query("MATCH j: Job RETURN COUNT(j) AS n") != [{"n": 0}]:
                assert time.monotonic() < end, "jobs are left"
                self._over.wait(0.2)

    def stop(self) -> None:
        self._over.set()


def compete(url: str, jobs: int, consumers: int, kills: int) -> Workers:
    """Everything from the first job to the last, over `kills` deaths of the server; what is stored must add up."""
    fill(url, jobs)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ServerProcess(url))
        port = str(server.port)
        workers = Workers(server.url, jobs)
        threads = [threading.Thread(target=workers.work, args=(seed,)) for seed in range(consumers)]
        try:
            for thread in threads:
                thread.start()
            for number in range(kills):
                workers.until(jobs * (number + 1) // (kills + 2))
                server.kill()
                server = stack.enter_context(ServerProcess(url, "--port", port))
            workers.until_none_is_left()
        finally:
            workers.stop()
            for thread in threads:
                thread.join(PATIENCE)
    return workers


def check(workers: Workers, url: str) -> None:
    """Each job was removed exactly once, or is dead after its limit."""
    everything = set(range(workers.jobs))
    with Session(url) as session:
        letters = session.query("MATCH l: _DeadLetter RETURN l.original_match, l.failure_reason, l.delivery_attempts")
    dead = Counter(int(row["l.original_match"].split(":")[1].rstrip("}")) for row in letters)
    assert set(workers.acked.values()) <= {1}, "an item was removed twice"
    assert set(dead.values()) <= {1}, "an item died twice"
    assert not workers.acked.keys() & dead.keys(), "removed and dead"
    assert workers.buried.keys() <= dead.keys(), "a dead letter that was answered is lost"
    assert everything - workers.acked.keys() - dead.keys() <= workers.doubtful, "an item is lost"
    for row in letters:
        if row["l.failure_reason"] == "max_redeliveries_exceeded":
            assert row["l.delivery_attempts"] >= LIMIT
    assert workers.interrupted, "no kill hit a working consumer"
    store = open_store(url)
    try:
        assert store.audit() == []
    finally:
        store.close()
