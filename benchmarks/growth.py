"""Cost per message with many stored messages and with many lanes."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from ackwise.core.commands import ByLease, Claim, Push, Settle, Settlement
from ackwise.core.messages import NewMessage, PlainBatch
from ackwise.core.settlement import Outcome
from ackwise.store.sqlite import SQLiteStore
from benchmarks.report import Report
from benchmarks.timing import resident_mb

PAYLOAD = b'"' + b"x" * 188 + b'"'
PROBE = 60_000


def stored_messages(report: Report, folder: Path, most: int) -> None:
    """Cost per message (push with own transaction ids, claim, ack) with 50,000 stored and with `most`."""
    store = SQLiteStore(f"sqlite:///{folder}/growth.db")
    _fill(store, 50_000)
    few_push, few_claim = _probe(store)
    _fill(store, most - 50_000 - PROBE)
    many_push, many_claim = _probe(store)
    memory = resident_mb()
    store.close()
    table = f"growth: 50,000 and {most:,} messages with transaction ids stored"
    report.add(table, "push, few stored", 1e9 / few_push, "ns/msg", metric="cost")
    report.add(
        table,
        "push, many stored",
        1e9 / many_push,
        "ns/msg",
        metric="cost",
        versus="few",
        base=1e9 / few_push,
        aim="<= 1.3",
    )
    report.add(table, "claim+ack, few stored", 1e9 / few_claim, "ns/msg", metric="cost")
    report.add(
        table, "claim+ack, many stored", 1e9 / many_claim, "ns/msg", metric="cost", versus="few", base=1e9 / few_claim,
        aim="<= 1.3",
    )  # fmt: skip
    report.add(table, "resident memory", memory, "MB", metric="memory", aim="< 300")


def _fill(store: SQLiteStore, count: int) -> None:
    for _ in range(count // 1000):
        batch = PlainBatch([PAYLOAD] * 1000, [str(uuid.uuid4()) for _ in range(1000)])
        store.transact([Push(queue="growth", messages=batch)])
        store.maintain()
    store.transact([Claim(queue="growth", most=1_000_000, auto_ack=False, lease=1000)])


def _probe(store: SQLiteStore) -> tuple[float, float]:
    batches = [[str(uuid.uuid4()) for _ in range(100)] for _ in range(PROBE // 100)]
    started = time.perf_counter()
    for txids in batches:
        store.transact([Push(queue="probe", messages=PlainBatch([PAYLOAD] * 100, txids))])
    pushed = PROBE / (time.perf_counter() - started)
    return pushed, _consume(store, "probe", 100)


def _consume(store: SQLiteStore, queue: str, most: int, count: int = 1 << 60) -> float:
    done, lease = 0, ""
    started = time.perf_counter()
    while done < count:
        commands = [Claim(queue=queue, most=most)]
        settle = [Settle(entries=[Settlement(selector=ByLease(lease), outcome=Outcome.ACK)])] if lease else []
        claimed = store.transact([*settle, *commands])[-1]
        if not claimed.grants:
            break
        store.read(claimed.ranges)
        lease, done = claimed.lease_id, done + claimed.count
    return done / (time.perf_counter() - started)


def lanes(report: Report, folder: Path, most: int) -> None:
    """Cost per message of wildcard claims, one lane each, over 16 lanes and over `most`."""
    costs = []
    for count in (16, most):
        store = SQLiteStore(f"sqlite:///{folder}/lanes-{count}.db")
        names = [f"p{number}" for number in range(count)]
        for at in range(0, count, 1000):
            batch = [NewMessage(PAYLOAD, name) for name in names[at : at + 1000] for _ in range(max(2, 4000 // count))]
            store.transact([Push(queue="lanes", messages=batch)])
        store.transact([Claim(queue="lanes", most=1)])
        costs.append(1e9 / _consume(store, "lanes", 1, 2000))
        store.close()
    table = f"growth: wildcard claim+ack over 16 and {most:,} lanes"
    report.add(table, "16 lanes", costs[0], "ns/msg", metric="cost")
    report.add(
        table, f"{most:,} lanes", costs[1], "ns/msg", metric="cost", versus="16 lanes", base=costs[0], aim="<= 1.5"
    )
