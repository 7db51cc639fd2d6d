"""Competing consumers, over real sockets and real deaths of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mew.competing import check, compete


@pytest.mark.slow
def test_eight_consumers_share_a_thousand_jobs_over_two_deaths(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/graph.db?durability=normal"
    check(compete(url, jobs=1000, consumers=8, kills=2), url)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_eight_consumers_share_ten_thousand_jobs_over_two_deaths(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/graph.db"
    check(compete(url, jobs=10_000, consumers=8, kills=2), url)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_eight_consumers_share_ten_thousand_jobs_on_postgres(pg_url: str) -> None:
    check(compete(pg_url, jobs=10_000, consumers=8, kills=2), pg_url)
