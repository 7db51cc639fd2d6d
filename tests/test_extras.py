"""A light install: embedded queues need two packages, and every other part names the extra that it needs."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import ackwise
from ackwise.core.extras import EXTRAS

OPTIONAL = sorted({package for packages in EXTRAS.values() for package in packages})

EMBEDDED = """
import ackwise
with ackwise.connect("sqlite:///queue.db") as queue:
    queue.push("orders", {"id": 1})
    for delivery in queue.consume("orders", stop_when_empty=True):
        with delivery:
            print(delivery.json())
"""


def run_without(packages: list[str], code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a Python in which these packages cannot be imported."""
    hide = f"import sys\nsys.modules.update(dict.fromkeys({packages!r}))\n"
    return subprocess.run([sys.executable, "-c", hide + code], cwd=folder, capture_output=True, text=True, timeout=60)


def needs_of(package: str) -> set[str]:
    """The packages that a package installs without extras, and itself."""
    names = {package}
    for line in metadata.requires(package) or []:
        requirement, _, marker = line.partition(";")
        if "extra ==" not in marker and "python_version" not in marker:
            match = re.match(r"[A-Za-z0-9._-]+", requirement)
            assert match is not None
            names |= needs_of(match[0])
    return names


def test_bare_install_brings_at_most_four_packages() -> None:
    assert needs_of("ackwise") == {"ackwise", "apsw", "msgspec"}


def test_extras_table_matches_the_package() -> None:
    declared = set(metadata.metadata("ackwise").get_all("Provides-Extra") or ())
    assert EXTRAS.keys() <= declared
    assert declared - EXTRAS.keys() == {"all", "build", "dev", "docs", "test"}


def test_embedded_queue_runs_without_any_extra(tmp_path: Path) -> None:
    done = run_without(OPTIONAL, EMBEDDED, tmp_path)
    assert (done.stdout, done.stderr) == ("{'id': 1}\n", "")


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ("client", "import ackwise; ackwise.connect('http://127.0.0.1:1')"),
        ("client", "import asyncio, ackwise; asyncio.run(ackwise.connect_async('http://127.0.0.1:1')._open())"),
        ("postgres", "import ackwise; ackwise.connect('postgresql://127.0.0.1:1/x')"),
        ("mew", "from ackwise.mew import Session; Session('sqlite:///g.db')"),
        (
            "nats",
            "import asyncio; from ackwise.subscriber.links import _open; asyncio.run(_open('nats://x', None, False))",
        ),
        ("spark", "import ackwise.spark; ackwise.spark.pipeline"),
        ("spark", "import ackwise.spark.jobs"),
        ("spark", "from ackwise.spark.reports import write_lag_report"),
        ("spark", "import ackwise.spark.types"),
        ("server", "import ackwise.server.server"),
        ("arrow", "import ackwise.arrow.message_pages"),
    ],
    ids=[
        "client",
        "async client",
        "postgres",
        "mew",
        "nats",
        "spark",
        "jobs",
        "reports",
        "types",
        "server",
        "arrow",
    ],
)
def test_part_names_its_extra(extra: str, code: str, tmp_path: Path) -> None:
    done = run_without(OPTIONAL, code, tmp_path)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(
        rf".*(MissingExtra|SparkMissing): .+ needs \w+; install it with: pip install 'ackwise\[{extra}\]'", last
    )


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [("cli", "queue list"), ("server", "serve"), ("mew", "mew -"), ("client", "queue list --url http://127.0.0.1:1")],
)
def test_command_names_its_extra_in_one_line(extra: str, arguments: str, tmp_path: Path) -> None:
    hidden = OPTIONAL if extra == "cli" else [name for name in OPTIONAL if name not in EXTRAS["cli"]]
    code = f"from ackwise.cli import main\nsys.argv[1:] = {arguments.split()!r}\nmain()"
    done = run_without(hidden, code, tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(rf"ackwise: .+ needs \w+; install it with: pip install 'ackwise\[{extra}\]'\n", done.stderr)


@pytest.mark.parametrize("hidden", [OPTIONAL, ["pyspark"], ["jinja2"]], ids=["all", "spark", "templates"])
def test_demo_names_its_extra_in_one_line(hidden: list[str], tmp_path: Path) -> None:
    code = "import runpy\nrunpy.run_module('ackwise.demo', run_name='__main__')"
    done = run_without(hidden, code, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"ackwise: .+ needs \w+; install it with: pip install 'ackwise\[spark\]'\n", done.stderr)


def test_commands_on_a_store_need_only_the_command_line(tmp_path: Path) -> None:
    hidden = [name for name in OPTIONAL if name not in EXTRAS["cli"]]
    create = (
        "from ackwise.cli import main\nsys.argv[1:] = ['queue', 'create', 'orders', '--url', 'sqlite:///q.db']\nmain()"
    )
    done = run_without(hidden, create, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_other_missing_modules_are_not_blamed_on_an_extra(tmp_path: Path) -> None:
    done = run_without(
        ["ackwise.store.postgres.locks"], "import ackwise; ackwise.connect('postgresql://x/y')", tmp_path
    )
    assert "MissingExtra" not in done.stderr
    assert "ackwise.store.postgres.locks" in done.stderr


def test_package_is_pickled_by_its_name() -> None:
    """A function for Spark may use `ackwise`."""
    assert pickle.loads(pickle.dumps(ackwise)) is ackwise  # noqa: S301
