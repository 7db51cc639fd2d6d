"""What each verb prints at 80 and 120 columns, compared with approved text, on a store and on a server.

`APPROVE=1 .venv/bin/python -m pytest -q tests/cli/test_approved.py` writes the files. Read the difference before you
commit it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ackwise.clock import ManualClock
from ackwise.connect import connect
from tests.cli.conftest import Ackwise, Said
from tests.server.running import Running

APPROVED = Path(__file__).parent / "approved"
NOW = round(datetime(2030, 1, 31, 12, 0, 30, tzinfo=UTC).timestamp() * 1_000_000)
LONG = "warehouse.shipments.international.express-and-registered-mail"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
TAG = re.compile(r"\b(L\d+-)[0-9a-f]{8}\b")

Step = tuple[str, tuple[str, ...], str]
STEPS: list[Step] = [
    ("help", ("--help",), ""),
    ("message-help", ("message", "-h"), ""),
    ("queue-list", ("queue", "list"), ""),
    ("queue-show", ("queue", "show", "orders"), ""),
    ("group-list", ("group", "list"), ""),
    ("group-show", ("group", "show", "orders", "billing"), ""),
    ("group-show-default", ("group", "show", "orders", "(default)"), ""),
    ("lease-list", ("lease", "list"), ""),
    ("lease-list-all", ("lease", "list", "--all"), ""),
    ("lease-oldest", ("lease", "oldest"), ""),
    ("consumer-list", ("consumer", "list"), ""),
    ("dlq-list", ("dlq", "list"), ""),
    ("dlq-show", ("dlq", "show", "{letter}"), ""),
    ("dlq-report", ("dlq", "report"), ""),
    ("lag", ("lag",), ""),
    ("lag-partitions", ("lag", "--partitions"), ""),
    ("metrics", ("metrics",), ""),
    ("top", ("top", "--once"), ""),
    ("message-peek", ("message", "peek", "orders", "--group", "billing"), ""),
    ("message-tail", ("message", "tail", "orders", "-n", "2"), ""),
    ("message-show", ("message", "show", "orders", "order-0"), ""),
    ("message-export", ("message", "export", "orders", "--partition", "us"), ""),
    ("message-push", ("message", "push", "new", '{"n": 1}', "--transaction-id", "first"), ""),
    ("message-push-lines", ("message", "push", "new"), '{"n": 2}\n{"n": 3}\n'),
    ("message-import", ("message", "import", "new"), '{"payload": 1, "transaction_id": "one"}\n'),
    ("message-pop", ("message", "pop", "new"), ""),
    ("message-pop-empty", ("message", "pop", "empty"), ""),
    ("queue-set", ("queue", "set", "new", "retry_limit=4", "lease_seconds=9"), ""),
    ("queue-purge-dry-run", ("queue", "purge", "new", "--dry-run"), ""),
    ("queue-purge-refused", ("queue", "purge", "new"), ""),
    ("queue-purge", ("queue", "purge", "new", "--yes"), ""),
    ("queue-pause", ("queue", "pause", "new"), ""),
    ("queue-delete-dry-run", ("queue", "delete", "new", "--dry-run"), ""),
    ("queue-delete", ("queue", "delete", "new", "--yes"), ""),
    ("lease-extend", ("lease", "extend", "{lease}", "--for", "10m"), ""),
    ("lease-release", ("lease", "release", "{lease}"), ""),
    ("lease-release-missing", ("lease", "release", "{lease}"), ""),
    ("group-seek-dry-run", ("group", "seek", "orders", "billing", "--to", "end", "--dry-run"), ""),
    ("group-seek", ("group", "seek", "orders", "billing", "--to", "end", "--yes"), ""),
    ("group-delete", ("group", "delete", "orders", "billing", "--yes"), ""),
    ("dlq-redrive-dry-run", ("dlq", "redrive", "--queue", LONG, "--dry-run"), ""),
    ("dlq-redrive", ("dlq", "redrive", "--queue", LONG, "--yes"), ""),
    ("dlq-purge", ("dlq", "purge", "--queue", "orders", "--yes"), ""),
    ("dlq-show-missing", ("dlq", "show", "{letter}"), ""),
    ("dlq-list-empty", ("dlq", "list"), ""),
    ("queue-show-missing", ("queue", "show", "nowhere"), ""),
    ("message-show-missing", ("message", "show", "orders", "nothing"), ""),
    ("group-show-missing", ("group", "show", "orders", "nobody"), ""),
    ("message-peek-empty", ("message", "peek", "empty"), ""),
    ("context-list-empty", ("context", "list"), ""),
    ("context-add", ("context", "add", "production", "postgresql://me:secret@db/queues"), ""),
    ("context-use", ("context", "use", "production"), ""),
    ("context-list", ("context", "list"), ""),
    ("context-use-missing", ("context", "use", "staging"), ""),
]


STREAMS = {"message-export", "message-pop", "message-tail"}
"""Output of a line for each message: it does not fold."""


def fill(url: str, clock: ManualClock) -> dict[str, str]:
    """Queues, groups, a live lease, an ended one and three dead letters. Returns ids that steps name."""
    with connect(url, clock=clock) as connection:
        connection.create_queue("empty", namespace="shop", task="nothing")
        connection.create_queue("orders", retry_limit=2)
        for number in range(6):
            connection.push("orders", {"order": number}, partition="eu", transaction_id=f"order-{number}")
        connection.push("orders", {"note": "x" * 100}, partition="us", headers={"source": "web"}, transaction_id="note")
        connection.push("orders", b"\x00\x01", partition="us", delay=3600)
        connection.push(LONG, {"shipment": 1})
        batch = connection.claim("orders", group="billing", max=3, partitions=["eu"], owner="worker-1")
        clock.advance(2)
        batch[0].reject(
            "customer 17 of 'acme' does not exist, and this message is long enough to fold at eighty columns"
        )
        batch[1].reject(
            "customer 18 of 'acme' does not exist, and this message is long enough to fold at eighty columns"
        )
        batch[2].ack()
        connection.claim(LONG)[0].reject("no \x1b[31mred\x1b[0m\nsecond line")
        held = connection.claim(
            "orders", group="billing", max=2, partitions=["eu"], owner="worker-2", key="k", lease=300
        )
        connection.claim("orders", partitions=["us"])[0].ack()
        letter = connection.dead_letters("orders")[0].id
        clock.advance(1)
        return {"lease": held.lease_id, "letter": letter}


@pytest.fixture(params=["store", "server"])
def place(
    request: pytest.FixtureRequest, url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, ManualClock]]:
    """A store, and a server in front of it, on a clock that stands still. Commands use the same clock."""
    clock = ManualClock(NOW)

    def on_clock(target: str, **options: Any) -> Any:
        return connect(target, **{**options, "clock": clock})

    monkeypatch.setattr(sys.modules["ackwise.connect"], "connect", on_clock)
    if request.param == "store":
        yield url, clock
        return
    with Running(url, clock) as server:
        yield server.url, clock


class Normalised:
    """Replaces random ids by numbered ones of the same length."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        text = UUID.sub(self._numbered, text)
        return TAG.sub(r"\g<1>00000000", text)

    def _numbered(self, match: re.Match[str]) -> str:
        return self._ids.setdefault(match[0], f"01a00000-0000-7000-8000-{len(self._ids):012d}")


def shown(words: tuple[str, ...], said: Said) -> str:
    """A command with its output, errors and exit code."""
    end = f"[exit {said.code}]\n" if said.code else ""
    errors = "".join(f"stderr: {line}\n" for line in said.err.splitlines())
    return f"$ ackwise {' '.join(words)}\n{said.out}{errors}{end}"


def _widest(text: str) -> int:
    return max((len(line) for line in text.splitlines()), default=0)


def _filled(word: str, names: dict[str, str]) -> str:
    return names[word.strip("{}")] if word in ("{lease}", "{letter}") else word


@pytest.mark.parametrize("columns", [80, 120])
def test_verb_prints_its_approved_text(
    ackwise: Ackwise, place: tuple[str, ManualClock], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    url, clock = place
    monkeypatch.setenv("ACKWISE_URL", url)
    monkeypatch.setenv("COLUMNS", str(columns))
    names, normalised = fill(url, clock), Normalised()
    differences = []
    for name, words, stdin in STEPS:
        said = ackwise(*(_filled(word, names) for word in words), stdin=stdin)
        text = normalised(shown(words, said))
        assert name in STREAMS or _widest(said.out) <= columns, text
        file = APPROVED / f"{name}.{columns}.txt"
        if os.environ.get("APPROVE"):
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            differences.append(f"{name}:\n{text}")
    assert not differences, "\n".join(differences)


def test_approved_files_belong_to_steps() -> None:
    expected = {f"{name}.{columns}.txt" for name, _, _ in STEPS for columns in (80, 120)}
    assert {file.name for file in APPROVED.iterdir()} == expected
