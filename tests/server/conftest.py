"""What every folder of server tests may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fresh_stores import Tables, sqlite_url
from tests.pg import FACTORIES


@pytest.fixture(params=["sqlite", *FACTORIES], ids=lambda name: name.replace("pg_url_factory", "postgres"))
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store, for what is shown on each."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "any.db")
    url: str = request.getfixturevalue(request.param)(Tables.GRAPH)
    return url
