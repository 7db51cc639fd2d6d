"""Write the data of this folder with the code of today: `python -m tests.data.before_18.make_data`.

The data is of the version before. Running the script again with later code makes the tests pointless: check out the
commit that README.md names, and run the script there.
"""

from __future__ import annotations

import lzma
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from ackwise import Backoff, connect
from ackwise.broker import Broker
from ackwise.client import Connection
from ackwise.clock import ManualClock
from ackwise.connect import open_store
from ackwise.core.commands import ConfigureQueue, Sweep
from ackwise.mew import Session
from ackwise.spark import pipeline, session
from ackwise.store.sqlite import SQLiteStore
from ackwise.wire.store_url import parse
from tests.data.before_18.contents import (
    BATCH,
    BLOCK,
    ENDED,
    FOLDER,
    ORDERS,
    SESSION,
    STARTED,
    Expected,
    bill,
    pack,
)
from tests.pg import OwnServer
from tests.server.running import Running

TEN_MINUTES = 600
PATIENCE = 180.0


def opened(url: str, clock: ManualClock) -> Connection:
    """A connection. On SQLite it seals transaction ids after every few of them, so that sealed ones exist."""
    if not url.startswith("sqlite:"):
        return connect(url, clock=clock)
    return Connection(Broker(SQLiteStore(parse(url), clock=clock, dedupe_generation=1)))


def fill(url: str, names: Path) -> None:
    """Rows of every kind. The process ends without closing the store, as a crash does: a close would release leases."""
    clock = ManualClock(STARTED)
    queue = opened(url, clock)
    queue.create_queue("orders", lease_seconds=60, retry_limit=2, backoff=Backoff(kind="exponential", seconds=30))
    queue.create_queue("letters", namespace="post", task="print", exclusivity="partition", on_failure="rewind")
    queue.create_queue("parcels", max_wait_seconds=60, window_seconds=5, delay_seconds=1)
    queue.create_queue("adverts", dead_letters=False)
    queue.create_queue("done", completed_retention_seconds=1)
    queue.create_group("orders", "audit", retry_limit=None)
    queue.create_group("orders", "newcomers", start="new")
    for number in range(12):
        queue.push(
            "orders",
            {"id": number},
            partition="eu" if number % 2 else "us",
            priority=number % 3,
            transaction_id=f"order-{number}",
            headers={"number": str(number)},
        )
    queue.push("orders", b"\x00\xff", partition="raw", content_type="image/png")
    queue.push("orders", {"id": 100}, delay=TEN_MINUTES, transaction_id="later")
    queue.push_many("letters", [{"page": page} for page in range(4)], partition="a")
    queue.push("parcels", {"weight": 1})
    queue.push("adverts", {"colour": "red"})
    queue.push("adverts", {"colour": "blue"})
    queue.push("done", {"id": 1}, transaction_id="done-1")
    queue.claim("adverts", group="readers")[0].reject("not wanted")
    queue.claim("done", group="readers")[0].ack()
    # billing: two acked, one rejected, one dead by its retry limit, one waiting for its retry, one held.
    for delivery in queue.claim("orders", group="billing", max=2, partitions=["us"]):
        delivery.ack()
    queue.claim("orders", group="billing", partitions=["us"])[0].reject("no such customer")
    for _ in range(2):
        queue.claim("orders", group="billing", partitions=["us"])[0].retry(delay=0, error="no stock")
    queue.claim("orders", group="billing", partitions=["us"])[0].retry(delay=TEN_MINUTES, error=ValueError("no stock"))
    held = queue.claim("orders", group="billing", partitions=["us"], lease=TEN_MINUTES)[0]
    keyed = queue.claim("orders", group="audit", max=3, key="nightly/1", owner="auditor", lease=TEN_MINUTES)
    queue.claim("letters", group="readers", max=2, lease=TEN_MINUTES)
    queue.claim("letters", group="writers", max=3, auto_ack=True)
    queue.claim("orders", group="expiring", max=1, lease=1)
    queue.transport.send(ConfigureQueue(queue="letters", policy={"notes": {"colour": "blue"}}))
    queue.pause_queue("parcels")
    clock.set(ENDED)
    queue.transport.send(Sweep())
    queue.transport.store.flush_ledger()  # type: ignore[attr-defined]
    delivered = fill_graph(url, clock)
    assert open_store(url, clock=clock).audit() == []
    expected = Expected(held.id, keyed[0].lease_id, delivered)
    names.write_bytes(msgspec.json.format(msgspec.json.encode(expected)) + b"\n")
    os._exit(0)


def fill_graph(url: str, clock: ManualClock) -> str:
    """Types, nodes, edges, a consuming watch with open, failed and dead deliveries, and a watch with events."""
    graph = Session(url, session=SESSION, clock=clock)
    graph.run(
        """
        node Tray { name: String [required, unique] }
        node Job { payload: String [required], status: String [in: ["pending", "running"]] = "pending", size: Int = 1 }
        edge depends(after: Job, before: Job) { why: String }
        SPAWN tray: Tray { name = "jobs to look at" };
        jobs = WATCH j: Job WHERE j.status = "pending"
          [mode: consume, group: "workers", ack_timeout: 10m, max_redeliveries: 2, dead_letter: #tray]
          [delivery: reliable] RETURN j.payload, j.size
        seen = WATCH j: Job WHERE j.size > 1 [delivery: reliable] RETURN j.payload
        """
    )
    graph.run(
        """
        SPAWN a: Job { payload = "a" };
        SPAWN b: Job { payload = "b", size = 2 };
        SPAWN c: Job { payload = "c", size = 3 };
        SPAWN d: Job { payload = "d" };
        SPAWN e: Job { payload = "e", status = "running" };
        LINK depends(#b, #a) { why = "order" }
        """
    )
    one, two, three, four = (event for event in graph.events(5, watch="#jobs") if event.type == "consumed")
    graph.ack(one)
    graph.nack(two, retry=False)
    graph.nack(four)
    assert three.delivery_id is not None
    return three.delivery_id


def in_process(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", __spec__.name, *arguments], check=True, timeout=PATIENCE)


def make_sqlite(folder: Path) -> None:
    path = folder / "store.db"
    in_process("fill", f"sqlite:///{path}", str(FOLDER / "sqlite.json"))
    open_store(f"sqlite:///{path}", clock=ManualClock(ENDED)).close()
    pack("store", folder)


def make_postgres() -> None:
    server = OwnServer(f"before-18-{os.getpid()}")
    server.start()
    try:
        url = server.url()
        in_process("fill", url, str(FOLDER / "postgres.json"))
        options = ("--inserts", "--no-owner", "--no-privileges", "--no-comments", "--schema=ackwise", url)
        dump = [str(server.bin_path / "pg_dump"), *options]
        text = subprocess.run(dump, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout
    finally:
        server.cleanup()
    # Commands of psql are not SQL, and another version of PostgreSQL may not know these settings.
    skipped = ("\\", "SET ", "SELECT pg_catalog.set_config")
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith(skipped)]
    with lzma.open(FOLDER / "postgres.sql.xz", "wt", preset=9) as file:
        file.writelines(lines)


def make_pipeline(folder: Path) -> None:
    """A pipeline whose driver was killed in its second batch, with its checkpoint and its store."""
    store, flag = folder / "pipeline.db", folder.parent / "blocked"
    with Running(f"sqlite:///{store}", ManualClock(STARTED)) as server:
        with connect(server.url) as queue:
            queue.push_many("orders", [{"id": number} for number in range(ORDERS)])
        command = [sys.executable, "-m", __spec__.name, "work", server.url, str(folder / "checkpoint")]
        child = subprocess.Popen(command, env={**os.environ, BLOCK: str(flag)}, start_new_session=True)
        end = time.monotonic() + PATIENCE
        while not flag.exists():
            assert time.monotonic() < end, "the pipeline did not reach its second batch"
            assert child.poll() is None, "the pipeline ended"
            time.sleep(0.05)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    pack("pipeline", folder)


def work(url: str, checkpoint: str) -> None:
    spark = session("before_18", master="local[1]")
    steps = pipeline(spark, url).consume("orders", "billing", max_rows=BATCH)
    steps.map(bill, returns="order long, cents long").produce("invoices").start(checkpoint).await_termination()


def make_archive(folder: Path) -> None:
    """Six orders of two days and two partitions, and two mails that are not JSON."""
    url = f"sqlite:///{folder.parent}/archived.db"
    clock = ManualClock(STARTED)
    with connect(url, clock=clock) as queue:
        for name in ("orders", "mail"):
            queue.create_queue(name, completed_retention_seconds=None)
        for number in range(6):
            queue.push("orders", {"n": number}, partition=f"p{number % 2}", priority=number % 2)
            clock.advance(6 * 3600)
        queue.push("mail", b"\xff\x00", headers={"to": "x"}, content_type="image/png")
        queue.push("mail", b"{broken", content_type="application/json")
        for name, count in (("orders", 6), ("mail", 2)):
            queue.claim(name, group="all", max=count).ack()
    command = [str(Path(sys.executable).parent / "ackwise"), "archive", str(folder), "--url", url]
    subprocess.run(command, check=True, timeout=PATIENCE)
    for path in folder.rglob(".*.crc"):
        path.unlink()
    pack("archive", folder)


def main() -> None:
    match sys.argv[1:]:
        case ["fill", url, names]:
            fill(url, Path(names))
        case ["work", url, checkpoint]:
            work(url, checkpoint)
        case wanted:
            makers = {"store": make_sqlite, "pipeline": make_pipeline, "archive": make_archive}
            for name, make in makers.items():
                if not wanted or name in wanted:
                    with tempfile.TemporaryDirectory() as folder:
                        inside = Path(folder) / name
                        inside.mkdir()
                        make(inside)
            if not wanted or "postgres" in wanted:
                make_postgres()


if __name__ == "__main__":
    main()
