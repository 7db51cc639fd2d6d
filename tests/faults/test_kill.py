"""A few real kills of a broker under load; `make faults` has the many."""

from __future__ import annotations

from pathlib import Path

from tests.faults.__main__ import sqlite_urls
from tests.faults.campaign import Campaign
from tests.faults.postgres import PostgresFaults, own_server


def passed(campaign: Campaign, kills: int) -> bool:
    campaign.close()
    assert campaign.tally.violations == []
    assert campaign.tally.idle == 0
    return campaign.tally.kills >= kills and campaign.tally.in_flight >= kills


def test_killed_brokers_on_sqlite(tmp_path: Path) -> None:
    campaign = Campaign(1, sqlite_urls(tmp_path), every=3)
    campaign.run(4, Campaign.alone)
    campaign.run(1, Campaign.together)
    assert passed(campaign, 6)


def test_killed_brokers_backends_and_server_on_postgresql() -> None:
    with own_server("kill") as server:
        faults = PostgresFaults(server)
        campaign = Campaign(2, faults.fresh_url)
        for life in (Campaign.alone, faults.backends_killed, faults.server_killed):
            campaign.run(1, life)
        assert passed(campaign, 3)
