"""A few kills of a pipeline at work; `make faults` has the many, and the many records."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.spark.campaign import PipelineCampaign
from tests.faults.spark.lives import Life
from tests.server.process import ServerProcess
from tests.spark.cluster import Cluster

pytestmark = pytest.mark.timeout(600)

COUNT = 3000
BREAK_EVERY = 997


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/queues.db"


def campaign_on(url: str, folder: Path, *, seed: int, rows: int, files: bool = False) -> PipelineCampaign:
    return PipelineCampaign(seed, url, folder, count=COUNT, rows=rows, break_every=BREAK_EVERY, files=files)


def passed(campaign: PipelineCampaign, store: str, kills: int) -> bool:
    """Reads `store` when no process works on it any more."""
    tally = campaign.check(store)
    assert tally.violations == []
    assert tally.idle == 0
    assert tally.failed == COUNT // BREAK_EVERY
    return (tally.kills, tally.acked, tally.dead) == (kills, COUNT - COUNT // 100, COUNT // 100)


def test_driver_killed_on_sqlite(sqlite: str, tmp_path: Path) -> None:
    with campaign_on(sqlite, tmp_path, seed=1, rows=2500) as campaign:
        campaign.strike(1)
        campaign.finish()
    assert passed(campaign, sqlite, 1)


def test_killed_driver_then_worker_on_postgresql_lose_nothing(pg_url: str, tmp_path: Path) -> None:
    with campaign_on(pg_url, tmp_path, seed=2, rows=1500, files=True) as campaign:
        # What is settled then is in the files, and a batch that is run again does not have it any more.
        campaign.strike_at("working", 0.2)
        with Cluster(tmp_path) as cluster:

            def lose_a_worker(life: Life) -> None:
                campaign.reach(life, "working")
                campaign.kill(cluster.workers[0].kill)

            campaign.finish(cluster.url, lose_a_worker)
    assert passed(campaign, pg_url, 2)


@pytest.mark.long
def test_drivers_killed_that_work_through_a_server(sqlite: str, tmp_path: Path) -> None:
    with ServerProcess(sqlite) as server, campaign_on(server.url, tmp_path, seed=3, rows=1500) as campaign:
        campaign.strike(1)
        campaign.strike_at("between", 0.3)
        campaign.finish()
    assert passed(campaign, sqlite, 2)
