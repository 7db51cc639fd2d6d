"""The shell sessions of the PushPop guide are typed again, into a real shell, and must be answered as shown.

Lock ids stand for whatever comes in their place, the same each time; instants for any; `sleep` moves the clock.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ackwise.clock import ManualClock
from tests.patience import PATIENCE
from tests.pg import FACTORIES
from tests.server.process import ServerProcess
from tests.server.running import Running

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "pushpop.md"
FLOW = ROOT / "examples" / "test_acknowledgement_flow.sh"
COMPOSE = ROOT / "examples" / "compose.yaml"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANSWER = re.compile(r"(\{.*\})( \d{3})?")
SHOWN = "http://localhost:8000"
INSTANTS = ("lock_expires_at", "expires_at", "created_at", "seconds_left")


class Shell:
    def __init__(self, url: str, clock: ManualClock) -> None:
        self._url, self._clock = url, clock
        self._real: dict[str, str] = {}

    def type(self, command: str, shown: str) -> None:
        if command.startswith("sleep "):
            self._clock.advance(float(command.split()[1]))
            assert shown == ""
            return
        assert SHOWN in command, command
        typed = command.replace(SHOWN, self._url)
        for made_up, real in self._real.items():
            typed = typed.replace(made_up, real)
        printed = subprocess.run(
            ["bash", "-c", typed], capture_output=True, text=True, timeout=PATIENCE, check=True
        ).stdout
        wanted, found = ANSWER.fullmatch(shown), ANSWER.fullmatch(printed.strip())
        assert wanted is not None, shown
        assert found is not None, printed
        assert found[2] == wanted[2], printed
        self._compare(json.loads(wanted[1]), json.loads(found[1]), command)

    def _compare(self, shown: Any, real: Any, where: str) -> None:
        if isinstance(shown, list):
            assert len(shown) == len(real), f"{where}: {real}"
            for one, other in zip(shown, real, strict=True):
                self._compare(one, other, where)
        elif isinstance(shown, dict):
            assert list(shown) == list(real), f"{where}: {real}"
            for name, value in shown.items():
                if name == "lock_id":
                    assert self._real.setdefault(value, real[name]) == real[name], where
                    assert len(value) == len(real[name]) == 11
                elif name in INSTANTS:
                    assert isinstance(real[name], float), where
                else:
                    self._compare(value, real[name], where)
        else:
            assert shown == real, f"{where}: {real}"


@pytest.fixture(params=["sqlite", *FACTORIES])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/guide.db"
    url: str = request.getfixturevalue(request.param)()
    return url


def test_every_session_is_answered_as_shown(store: str) -> None:
    clock = ManualClock()
    typed = 0
    with Running(store, clock) as server:
        shell = Shell(server.url, clock)
        for block in BLOCK.findall(GUIDE.read_text()):
            for session in block.split("$ ")[1:]:
                command, _, shown = session.partition("\n")
                shell.type(command, shown.strip())
                typed += 1
    assert typed == 19


def test_guide_has_session_per_example_and_five_practices() -> None:
    text = GUIDE.read_text()
    examples = re.findall(r"^## Example (\d)", text, re.MULTILINE)
    assert examples == ["1", "2", "3", "4"]
    practices = text.partition("## Best practices")[2].partition("\n## ")[0]
    assert re.findall(r"^(\d)\. \*\*", practices, re.MULTILINE) == ["1", "2", "3", "4", "5"]


def test_guide_commands_select_acknowledgement_tests() -> None:
    """By their names, and all of them with one word."""
    fifteen = {
        "pop_with_ack_creates_lock",
        "acknowledge_valid_lock",
        "acknowledge_invalid_lock_id",
        "acknowledge_missing_lock_id",
        "pop_while_locked_returns_locked_status",
        "lock_expiration_returns_items",
        "expired_lock_items_returned_to_queue_on_next_pop",
        "regular_pop_still_works",
        "pop_with_ack_empty_queue",
        "acknowledge_no_active_lock",
        "pop_with_ack_multiple_items_single_lock",
        "pop_with_ack_custom_ttl",
        "pop_with_ack_ttl_bounds",
        "expired_lock_items_return_to_original_priority_single",
        "expired_lock_items_return_to_original_priority_multiple",
    }
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    selected = subprocess.run(
        [*command, "tests/test_actor.py", "-k", "acknowledgement"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    assert fifteen <= set(re.findall(r"::test_(\w+)", selected))
    assert "tests/test_actor.py::test_pop_with_ack_creates_lock" in selected


def run_flow(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", str(FLOW), url], capture_output=True, text=True, timeout=PATIENCE)


def test_flow_runs_against_what_the_compose_file_starts(store: str) -> None:
    """The command of the compose file, with a store and ports of this test."""
    (command,) = re.findall(r"^    command: ackwise serve (.*)$", COMPOSE.read_text(), re.MULTILINE)
    words = command.split()
    assert words[words.index("--store") + 1] == "sqlite:////data/queues.db"
    assert words[words.index("--pushpop-port") + 1] == "8000"
    words[words.index("--pushpop-port") + 1] = "0"
    del words[words.index("--store") : words.index("--store") + 2]
    with ServerProcess(store, *words) as server:
        assert server.process.stdout is not None
        _, url = server.process.stdout.readline().split()
        done = run_flow(url.replace("0.0.0.0", "127.0.0.1"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "the acknowledgement flow works"
    assert done.stdout.count("ok      ") == 16


def test_image_holds_what_is_installed_and_nothing_else(tmp_path: Path) -> None:
    """What the compose file copies is enough to build the package, and is all that may be copied."""
    copied = [line.split()[1:-1] for line in COMPOSE.read_text().splitlines() if line.strip().startswith("COPY ")]
    names = [name for line in copied for name in line]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    assert sorted(names) == sorted(line[1:] for line in ignored if line.startswith("!"))
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True, timeout=PATIENCE)
    assert len(list((tmp_path / "dist").glob("ackwise-*.whl"))) == 1


def test_flow_notices_when_something_is_wrong(store: str) -> None:
    with Running(store, pushpop_default_priority=5) as server:
        done = run_flow(server.url)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "the acknowledgement flow is broken"
    assert "FAILED" in done.stdout
    assert run_flow("http://127.0.0.1:1").returncode != 0
