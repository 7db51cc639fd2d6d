"""MEW is an extra: queues work without it, and what needs it names the extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from ackwise.connect import open_store
from ackwise.core import extras
from tests.patience import PATIENCE
from tests.server.running import Running

WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(("lark", "re2")))
"""
QUEUE = """
import ackwise
with ackwise.connect(sys.argv[1]) as queue:
    queue.push("orders", {"id": 1})
    with queue.claim("orders")[0] as delivery:
        delivery.ack()
    assert queue.groups("orders")[0].acked == 1
"""
LOADED = 'print(*[name for name in sys.modules if name.startswith("ackwise.graph") or name in ("lark", "re2")])'


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_queues_load_neither_graph_nor_parser(tmp_path: Path) -> None:
    done = python("import sys" + QUEUE + LOADED, f"sqlite:///{tmp_path}/queue.db")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_queues_work_without_the_packages_of_mew(tmp_path: Path) -> None:
    done = python(WITHOUT + QUEUE, f"sqlite:///{tmp_path}/queue.db")
    assert (done.returncode, done.stderr) == (0, "")


def test_queues_of_a_store_with_a_graph_work_without_mew(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    open_store(url, graph=True).close()
    done = python(WITHOUT + QUEUE, url)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("code", ["import ackwise.mew", "import ackwise.graph.language"])
def test_import_of_mew_without_its_packages_names_the_extra(code: str) -> None:
    done = python(WITHOUT + code)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("MissingExtra: MEW needs lark; install it with: pip install 'ackwise[mew]'")


def test_command_without_the_packages_of_mew_prints_one_line() -> None:
    done = python(WITHOUT + 'sys.argv = ["ackwise", "mew", "-"]\nfrom ackwise.cli import main\nmain()')
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "ackwise: MEW needs lark; install it with: pip install 'ackwise[mew]'\n"


def test_server_without_mew_has_no_graph_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda package: package != "lark")
    url = f"sqlite:///{tmp_path}/queue.db"
    with Running(url) as server, httpx2.Client(base_url=server.url) as client:
        answer = client.post("/mew", json={"session": "x", "text": "node J { n: Int }"})
        assert (answer.status_code, answer.json()["code"]) == (501, "missing_extra")
        assert "pip install 'ackwise[mew]'" in answer.json()["error"]
        assert client.post("/v1/push", json={"queue": "q", "messages": [{"payload": 1}]}).status_code == 200
    store = open_store(url)
    assert not store.has_tables("mew")
    store.close()


def test_server_with_mew_adds_the_graph(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    with Running(url):
        pass
    store = open_store(url)
    assert store.has_tables("mew")
    store.close()
