"""The command line in this process, on a store in a folder of its own."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ackwise.cli import main
from tests.fresh_stores import sqlite_url
from tests.server.running import Running


class Said(NamedTuple):
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Ackwise = Callable[..., Said]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path / "q.db")


@pytest.fixture(params=["store", "server"])
def any_url(request: pytest.FixtureRequest, url: str) -> Iterator[str]:
    """The store itself, and a server in front of it."""
    if request.param == "store":
        yield url
        return
    with Running(url) as server:
        yield server.url


@pytest.fixture
def anywhere(any_url: str, ackwise: Ackwise, monkeypatch: pytest.MonkeyPatch) -> Ackwise:
    """The command line on a store, and on a server."""
    monkeypatch.setenv("ACKWISE_URL", any_url)
    return ackwise


@pytest.fixture
def ackwise(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Ackwise:
    monkeypatch.setenv("ACKWISE_URL", url)

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments: str, stdin: str = "") -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
        monkeypatch.setattr(sys, "argv", ["ackwise", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        code = ended.value.code
        return Said(code if isinstance(code, int) else 0, out, err)

    return run
