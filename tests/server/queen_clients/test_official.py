"""The official clients, each in its own environment, use the server as their users do.

One process plays all scenarios of one combination; whichever worker needs its results first runs it.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.server.process import ServerProcess, clean_env
from tests.server.queen_clients.scenarios import SCENARIOS
from tests.server.queen_clients.stage import MODES, VERSIONS

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
        module = "tests.server.queen_clients.drive"
        run = subprocess.run(
            [str(python), "-m", module, server.url, combination.mode],
            cwd=ROOT,
            env=clean_env(),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    results = {line["scenario"]: line["problem"] for line in map(json.loads, run.stdout.splitlines())}
    assert run.returncode == any(results.values()), run.stderr
    assert sorted(results) == sorted(combination.names), run.stderr
    return results


@pytest.fixture
def results(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Callable[[Combination], Results]:
    """What a combination's process reported; it runs once in the whole test run."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent

    def find(combination: Combination) -> Results:
        file = shared / f"official-{combination}.json"
        with (shared / f"official-{combination}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                if combination.store == "sqlite":
                    store = f"sqlite:///{tmp_path}/official.db"
                else:
                    store = request.getfixturevalue("pg_url")
                file.write_text(json.dumps(drive(combination, store)))
        found: Results = json.loads(file.read_text())
        return found

    return find


@pytest.mark.parametrize(
    ("combination", "name"),
    [pytest.param(one, name, id=f"{one}-{name}") for one in COMBINATIONS for name in one.names],
)
def test_an_official_client(combination: Combination, name: str, results: Callable[[Combination], Results]) -> None:
    problem = results(combination)[name]
    if problem is not None:
        pytest.fail(problem, pytrace=False)
