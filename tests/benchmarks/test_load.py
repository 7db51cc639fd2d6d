"""The bench's load generator against a real server, so that neither rots. What anything takes is no matter here."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import servers
from benchmarks.load.jobs import Acks, Beside, Drain, Idle, Load, Push
from benchmarks.loader import Loader, loader
from benchmarks.process import cpu_seconds, most_resident_mb
from benchmarks.servers import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("load")
    with servers.ackwise(folder, f"sqlite:///{folder}/load.db", "ackwise") as running:
        yield running


@pytest.fixture(scope="module")
def load() -> Iterator[Loader]:
    with loader() as running:
        yield running


def a_load(server: Server, queue: str, connections: int, batch: int, messages: int) -> Load:
    return Load(address=server.address, queue=queue, connections=connections, batch=batch, messages=messages)


def is_empty(server: Server, queue: str) -> bool:
    with urllib.request.urlopen(f"{server.address}/api/v1/pop/queue/{queue}") as answer:  # noqa: S310
        return bool(answer.status == 204)


@pytest.mark.parametrize(("connections", "batch"), [(4, 25), (6, 1)])
def test_loader_drain_acks_all_pushed_messages(server: Server, load: Loader, connections: int, batch: int) -> None:
    job = a_load(server, f"drained-{batch}", connections, batch, 300)
    assert load.run(Push(job)).messages == 300
    assert not is_empty(server, job.queue)
    # That look took a lease, so there is one partition less; another queue shows the count.
    job = a_load(server, f"counted-{batch}", connections, batch, 300)
    assert load.run(Push(job)).messages == 300
    assert load.run(Drain(job)).messages == 300
    assert is_empty(server, job.queue)


@pytest.mark.parametrize("leased", [True, False])
@pytest.mark.parametrize("size", [1, 10, 100])
def test_acks_alone_are_all_accepted(server: Server, load: Loader, size: int, leased: bool) -> None:
    job = a_load(server, f"acked-{size}-{leased}", 2, size, 200)
    assert load.run(Acks(job, leased)).messages == 200
    assert is_empty(server, job.queue)


def test_consumers_beside_pushes_take_some(server: Server, load: Loader) -> None:
    done = load.run(Beside(a_load(server, "beside", 2, 10, 400), consumers=2))
    assert done.messages == 400
    assert 0 <= done.taken <= 400


def test_each_push_reaches_one_waiter_of_its_queue(server: Server, load: Loader) -> None:
    job = Idle(address=server.address, pid=server.pid, queues=3, waiters=12, partitions=9, seconds=0.0, pushes=20)
    assert load.run(job).wrong == 0


def test_job_that_fails_says_why(server: Server, load: Loader) -> None:
    nowhere = Load(address="http://127.0.0.1:1", queue="q", connections=1, batch=1, messages=1)
    with pytest.raises(RuntimeError, match="refused"):
        load.run(Push(nowhere))
    assert load.run(Push(a_load(server, "after", 1, 1, 1))).messages == 1


def test_kernel_knows_the_server(server: Server) -> None:
    assert cpu_seconds(server.pid) > 0
    assert most_resident_mb(server.pid) > 10
