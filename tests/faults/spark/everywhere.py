"""The long version: every way to a store, on this machine first and then on a cluster that loses a worker each time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from ackwise.spark.startup import SWITCH
from tests.faults.campaign import Tally
from tests.faults.postgres import PostgresFaults, own_server
from tests.faults.spark.campaign import PipelineCampaign
from tests.faults.spark.lives import Life
from tests.server.process import ServerProcess
from tests.spark.cluster import Cluster

BATCHES = 5
BREAKS = 10
_WAYS = ("SQLite", "PostgreSQL", "HTTP")

Tell = Callable[[str], None]


def kill_everywhere(seed: int, messages: int, kills: int, folder: Path, tell: Tell) -> dict[str, Tally]:
    """`kills` drivers and one worker of a cluster per store; what came of it, by the name of the store."""
    os.environ.setdefault(SWITCH, "1")
    found: dict[str, Tally] = {}
    with own_server(f"spark-{seed}-{time.time_ns()}") as server, Cluster(_made(folder / "cluster")) as cluster:
        postgres = PostgresFaults(server)
        for number, way in enumerate(_WAYS):
            store = f"sqlite:///{folder}/queues.db" if way == "SQLite" else postgres.fresh_url()
            with ExitStack() as stack:
                url = stack.enter_context(ServerProcess(store)).url if way == "HTTP" else store
                campaign = PipelineCampaign(
                    seed + number,
                    url,
                    _made(folder / way),
                    count=messages,
                    rows=messages // BATCHES,
                    break_every=messages // BREAKS - 1,
                    files=way == "HTTP",
                )
                stack.enter_context(campaign)
                try:
                    _live(campaign, kills, cluster, lambda what: tell(f"{way}: {what}"))  # noqa: B023 - called at once
                except AssertionError as problem:
                    campaign.tally.violations.append(str(problem))
            tell(f"{way}: everything is checked")
            found[f"Spark, {way}"] = campaign.check(store)
    return found


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _live(campaign: PipelineCampaign, kills: int, cluster: Cluster, tell: Tell) -> None:
    """Half of the drivers work here and half of them on the cluster, each from where the one before was killed."""
    there = kills // 2
    tell(f"{kills - there} drivers are killed")
    campaign.strike(kills - there, until=0.4)
    tell(f"{there} drivers on the cluster are killed")
    campaign.strike(there, cluster.url, share=0.5, until=0.75)
    tell("a worker of the cluster is killed")

    def lose_a_worker(life: Life) -> None:
        campaign.reach(life, "working")
        campaign.kill(cluster.workers[-1].kill)
        cluster.add_worker()

    campaign.finish(cluster.url, lose_a_worker)
