"""Stores that jobs look at, and the command line beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ackwise import connect
from ackwise.client import Connection
from tests.cli.conftest import ackwise
from tests.fresh_stores import sqlite_url
from tests.server.running import Running

__all__ = ["ackwise"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path / "q.db")


@pytest.fixture(params=["sqlite", "http"])
def any_url(request: pytest.FixtureRequest, url: str) -> Iterator[str]:
    """The store itself, and a server in front of it."""
    if request.param == "sqlite":
        yield url
        return
    with Running(url) as server:
        yield server.url


@pytest.fixture
def queue(url: str) -> Iterator[Connection]:
    with connect(url) as connection:
        yield connection
