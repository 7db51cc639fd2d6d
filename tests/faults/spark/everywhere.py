"""The long version: every way to a store, on this machine first and then on a cluster that loses a worker each time.
A server is killed as well, and comes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType

from tests.faults.campaign import Tally
from tests.faults.postgres import PostgresFaults, own_server
from tests.faults.spark.campaign import PipelineCampaign
from tests.faults.spark.lives import Life
from tests.server.process import ServerProcess
from tests.spark import class_archive
from tests.spark.cluster import Cluster

BATCHES = 5
BREAKS = 10

Tell = Callable[[str], None]


def kill_everywhere(seed: int, messages: int, kills: int, folder: Path, tell: Tell) -> dict[str, Tally]:
    """`kills` drivers and a worker of a cluster per store; what came of it, by the name of the store."""
    class_archive.switch_on()
    found: dict[str, Tally] = {}
    with own_server(f"spark-{seed}-{time.time_ns()}") as owned, Cluster(_made(folder / "cluster")) as cluster:
        postgres = PostgresFaults(owned)
        for number, way in enumerate(("SQLite", "PostgreSQL", "HTTP")):
            store = f"sqlite:///{folder}/queues.db" if way == "SQLite" else postgres.fresh_url()
            with ExitStack() as stack:
                server = stack.enter_context(Server(store)) if way == "HTTP" else None
                campaign = PipelineCampaign(
                    seed + number,
                    store if server is None else server.url,
                    _made(folder / way),
                    count=messages,
                    rows=messages // BATCHES,
                    break_every=messages // BREAKS - 1,
                    files=way == "HTTP",
                )
                stack.enter_context(campaign)
                _live(campaign, kills, cluster, server, partial(_told, tell, way))
            found[f"Spark, {way}"] = campaign.check(store)
    return found


def _told(tell: Tell, way: str, what: str) -> None:
    tell(f"{way}: {what}")


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


class Server:
    """One that is at the same address again after it was killed."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._process = ServerProcess(store)
        self.url = self._process.url

    def kill(self) -> None:
        with self._process as killed:
            killed.kill()
        self._process = ServerProcess(self._store, "--port", str(killed.port))

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.__exit__(kind, problem, trace)


def _live(campaign: PipelineCampaign, kills: int, cluster: Cluster, server: Server | None, tell: Tell) -> None:
    """Half of the drivers work here and half of them on the cluster, each from where the one before was killed."""

    def lose_others(life: Life) -> None:
        campaign.reach(life, "working")
        tell("a worker of the cluster is killed")
        campaign.kill(cluster.workers[-1].kill)
        if server is not None:
            tell("the server is killed")
            campaign.kill(server.kill)
        cluster.add_worker()

    there = kills // 2
    try:
        tell(f"{kills - there} drivers are killed")
        campaign.strike(kills - there, until=0.4)
        tell(f"{there} drivers on the cluster are killed")
        campaign.strike(there, cluster.url, share=0.5, until=0.75)
        campaign.finish(cluster.url, lose_others)
    except AssertionError as problem:
        campaign.tally.violations.append(str(problem))
