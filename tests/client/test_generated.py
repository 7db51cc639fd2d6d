"""The synchronous client is the asynchronous one, translated."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import ackwise
from ackwise import amps
from ackwise.client import aio, sync
from tools import async_to_sync

ROOT = Path(__file__).resolve().parents[2]


def test_generated_modules_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "tools/async_to_sync.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), "run python tools/async_to_sync.py"


def test_drift_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "aio", tmp_path / "sync"
    source.mkdir()
    target.mkdir()
    (source / "a.py").write_text("async def f(x: AsyncThing) -> None:\n    await x.go()\n")
    (target / "old.py").write_text("")
    monkeypatch.setattr(async_to_sync, "ROOMS", (tmp_path,))
    stale = async_to_sync.stale()
    assert stale[target / "a.py"].endswith("def f(x: Thing) -> None:\n    x.go()\n")
    assert "do not edit" in stale[target / "a.py"].splitlines()[0]


@pytest.mark.parametrize("name", ["Connection", "Delivery", "Batch", "Transaction", "Client", "Subscription"])
def test_sync_class_has_the_names_and_arguments_of_async(name: str) -> None:
    rooms = (amps.aio, amps.sync) if hasattr(amps.sync, name) else (aio, sync)
    source, twin = getattr(rooms[0], f"Async{name}"), getattr(rooms[1], name)
    public = {n for n in dir(source) if not n.startswith("_")}
    assert public == {n for n in dir(twin) if not n.startswith("_")}
    for method in public:
        if inspect.isfunction(getattr(source, method)):
            theirs = inspect.signature(getattr(twin, method)).parameters
            assert list(inspect.signature(getattr(source, method)).parameters) == list(theirs)


def test_twin_awaits_nothing() -> None:
    for path in (ROOT / "src/ackwise").glob("*/sync/*.py"):
        text = path.read_text()
        assert "await" not in text, path
        assert "Async" not in text, path
        assert not any(word in text for word in ("async def", "async with", "async for")), path


def test_public_names_exist_without_internal_ones() -> None:
    assert all(hasattr(ackwise, name) for name in ackwise.__all__)
    assert not hasattr(ackwise, "ManualClock")
