"""MEW: statements, look-ups and deliveries of a graph, alone and beside many watches."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ackwise.broker import Broker
from ackwise.connect import open_store
from ackwise.graph import ast as s
from ackwise.graph.commands import RunGraph, Step
from ackwise.mew import Session
from benchmarks.report import Report

TABLE = "MEW, SQLite: a graph with queues in it"
ONTOLOGY = 'node Job { title: String [indexed], customer: String = "none", state: String = "pending", size: Int = 1 }'
SPAWN = "SPAWN j: Job { title = $title, customer = $customer }"
CONSUME = 'WATCH j: Job WHERE j.state = "pending" [mode: consume, group: "workers"] RETURN j'
LOOKUPS = 2000
JOBS = 2000
CHUNK = 1000


def everything(report: Report, folder: Path, nodes: int) -> None:
    statements(report, folder)
    lookups(report, folder, nodes)
    deliveries(report, folder)
    beside_watches(report, folder)


def opened(folder: Path, name: str, durability: str = "full") -> Session:
    session = Session(f"sqlite:///{folder}/{name}.db?durability={durability}")
    session.run(ONTOLOGY)
    return session


def statements(report: Report, folder: Path) -> None:
    with opened(folder, "spawn") as session:
        started = time.perf_counter()
        for number in range(JOBS):
            session.run(SPAWN, title=f"t{number}", customer="c")
        alone = JOBS / (time.perf_counter() - started)
        report.add(TABLE, "SPAWN, 1 session", alone, "/s")
        took = together(session, 8, lambda one: [one.run(SPAWN, title="x", customer="c") for _ in range(JOBS // 4)])
        report.add(TABLE, "SPAWN, 8 sessions", 2 * JOBS / took, "/s", versus="1 session", base=alone)


def together(session: Session, count: int, work: Callable[[Session], object]) -> float:
    """Seconds that so many sessions of one store take, each in a thread of its own."""
    sessions = [session.another() for _ in range(count)]
    threads = [threading.Thread(target=work, args=(one,)) for one in sessions]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - started
    for one in sessions:
        one.close()
    return took


def lookups(report: Report, folder: Path, nodes: int) -> None:
    small = lookup(folder, 10_000)
    report.add(TABLE, "MATCH by type and attribute, 10,000 nodes", small, "us", metric="p50")
    large = lookup(folder, nodes)
    title = f"MATCH by type and attribute, {nodes:,} nodes"
    report.add(TABLE, title, large, "us", metric="p50", versus="10,000 nodes", base=small, aim="<= 1.5")


def lookup(folder: Path, nodes: int) -> float:
    name = f"lookup{nodes}"
    opened(folder, name).close()
    fill(f"sqlite:///{folder}/{name}.db?durability=normal", nodes)
    took = []
    with Session(f"sqlite:///{folder}/{name}.db") as session:
        for number in range(LOOKUPS):
            title = f"t{number * 7919 % nodes}"
            started = time.perf_counter()
            found = session.query("MATCH j: Job WHERE j.title = $title RETURN j.size", title=title)
            took.append(time.perf_counter() - started)
            assert found == [{"j.size": 1}]
    return statistics.median(took[LOOKUPS // 10 :]) * 1e6


def fill(url: str, nodes: int) -> None:
    """Create nodes in chunks, from syntax trees, without parsing text."""
    broker = Broker(open_store(url))
    try:
        for begin in range(0, nodes, CHUNK):
            items = tuple(
                s.SpawnItem(None, "Job", (("title", s.Literal("string", f"t{number}")),))
                for number in range(begin, min(nodes, begin + CHUNK))
            )
            broker.send(RunGraph(session="fill", steps=(Step(s.Spawn(items), 10**15 + begin * 10),)))
    finally:
        broker.close()


def deliveries(report: Report, folder: Path) -> None:
    with opened(folder, "consume") as session:
        spawn_jobs(session, JOBS)
        alone = consume_all(session, 1)
        report.add(TABLE, "consume + ACK, 1 consumer", alone, "/s")
        spawn_jobs(session, JOBS)
        eight = consume_all(session, 8)
        report.add(TABLE, "consume + ACK, 8 consumers", eight, "/s", versus="1 consumer", base=alone)


def beside_watches(report: Report, folder: Path) -> None:
    """Measure beside watches of the same type, each for another customer. Without fsync, which hides their cost."""
    costs = []
    for others in (1, 1000):
        with opened(folder, f"beside{others}", "normal") as session, session.another() as onlooker:
            for number in range(others):
                onlooker.run(f'WATCH j: Job WHERE j.customer = "c{number}" RETURN j.title')
            started = time.perf_counter()
            spawn_jobs(session, JOBS)
            consume_all(session, 1)
            costs.append((time.perf_counter() - started) / JOBS * 1e6)
    report.add(TABLE, "SPAWN + consume + ACK, no fsync, beside 1 watch", costs[0], "us", metric="mean")
    report.add(
        TABLE,
        "SPAWN + consume + ACK, no fsync, beside 1,000 watches",
        costs[1],
        "us",
        metric="mean",
        versus="1 watch",
        base=costs[0],
        aim="<= 2",
    )


def spawn_jobs(session: Session, count: int) -> None:
    for number in range(count):
        session.run(SPAWN, title=f"t{number}", customer=f"c{number % 1000}")


def consume_all(session: Session, consumers: int) -> float:
    """Jobs per second until none is left."""
    done: list[int] = []

    def work(one: Session) -> None:
        for event in one.watch(CONSUME, wait=0.5 if consumers > 1 else 0):
            if event.delivery_id is not None:
                one.ack(event)
                done.append(1)
                ended[0] = time.perf_counter()

    ended = [0.0]
    started = time.perf_counter()
    together(session, consumers, work)
    assert session.query("MATCH j: Job RETURN COUNT(j) AS n") == [{"n": 0}]
    return len(done) / (ended[0] - started)
