"""A connection that breaks in the middle of a turn: the call says so, trying again is safe, the store goes on."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.faults.cutting import cut_connections


@pytest.mark.parametrize("seed", [1, 2])
def test_retry_after_a_cut_gets_exactly_one(pg_admin_url: str, seed: int) -> None:
    with psycopg.connect(pg_admin_url) as connection:
        row = connection.execute("SELECT split_part(current_setting('unix_socket_directories'), ',', 1)").fetchone()
    assert row is not None
    assert cut_connections(pg_admin_url, Path(row[0].strip()), seed, 15) == []
