"""The official clients, each in its own environment, use the server as their users do.

One process plays all scenarios of one combination of client, store and mode.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.protocols.queen_clients.scenarios import SCENARIOS
from tests.protocols.queen_clients.stage import MODES, VERSIONS
from tests.server.process import ServerProcess, clean_env

ROOT = Path(__file__).resolve().parent.parent.parent.parent
QUIET = "the_client_swallowed_no_error"
Results = dict[str, str | None]


class Combination(NamedTuple):
    version: str
    store: str
    mode: str

    def __str__(self) -> str:
        return "-".join(self)

    @property
    def names(self) -> list[str]:
        return [one.name for one in SCENARIOS if self.version in one.versions] + [QUIET]


COMBINATIONS = [
    Combination(version, store, mode) for version in VERSIONS for store in ("sqlite", "postgres") for mode in MODES
]


def drive(combination: Combination, store: str) -> Results:
    python = ROOT / f".venv-queen-{combination.version}" / "bin" / "python"
    if not python.exists():
        raise RuntimeError(f"{python} is not there; `make clients` makes it")
    with ServerProcess(store, "--queen-defaults", combination.mode) as server:
        module = "tests.protocols.queen_clients.drive"
        run = subprocess.run(
            [str(python), "-m", module, server.url, combination.mode],
            cwd=ROOT,
            env=clean_env(),
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    results = {line["scenario"]: line["problem"] for line in map(json.loads, run.stdout.splitlines())}
    assert run.returncode == any(results.values()), run.stderr
    assert sorted(results) == sorted(combination.names), run.stderr
    return results


class Reports:
    """What each combination's process reported; it runs once in the whole test run, on whichever worker comes first."""

    def __init__(self, shared: Path, store_url: Callable[[str], str]) -> None:
        self._shared, self._store_url = shared, store_url

    def of(self, wanted: Combination) -> Results:
        for one in (wanted, *COMBINATIONS):
            if self._file(wanted).exists():
                break
            self._play(one, fcntl.LOCK_NB)  # what another worker is playing now is not waited for yet
        self._play(wanted)
        found: Results = json.loads(self._file(wanted).read_text())
        return found

    def _file(self, combination: Combination) -> Path:
        return self._shared / f"official-{combination}.json"

    def _play(self, combination: Combination, how: int = 0) -> None:
        file = self._file(combination)
        with file.with_suffix(".lock").open("w") as lock, contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | how)
            if not file.exists():
                results = drive(combination, self._store_url(combination.store))
                whole = file.with_suffix(".new")
                whole.write_text(json.dumps(results))
                whole.rename(file)


@pytest.fixture
def reports(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Reports:
    base = tmp_path_factory.getbasetemp()

    def store_url(store: str) -> str:
        if store == "sqlite":
            return f"sqlite:///{tmp_path}/{uuid.uuid4()}.db"
        url: str = request.getfixturevalue("pg_url_factory")()
        return url

    return Reports(base if worker_id == "master" else base.parent, store_url)


@pytest.mark.timeout(900)  # the first test of a combination plays all of its scenarios, and perhaps others meanwhile
@pytest.mark.parametrize(
    ("combination", "name"),
    [pytest.param(one, name, id=f"{one}-{name}") for one in COMBINATIONS for name in one.names],
)
def test_official_client_plays_its_scenario(combination: Combination, name: str, reports: Reports) -> None:
    problem = reports.of(combination)[name]
    if problem is not None:
        pytest.fail(problem, pytrace=False)
