"""Verbs that change queues, groups, leases and dead letters, and `consumer list` and `top`, on a store and a server."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import sys
import termios

import pytest

from ackwise import connect
from ackwise.cli import arguments
from tests.cli.conftest import Ackwise
from tests.patience import PATIENCE


def fill(url: str) -> str:
    """Three messages, one of them a dead letter, one under a lease that outlives its connection. Returns the lease."""
    with connect(url) as connection:
        connection.push_many("orders", [{"n": number} for number in range(3)])
        connection.claim("orders", group="billing", owner="w1")[0].reject("no such customer")
        return connection.claim("orders", group="billing", owner="w2", key="k", lease=300).lease_id


def test_queue_set_changes_only_the_named_fields(anywhere: Ackwise) -> None:
    anywhere("queue", "create", "orders", "--set", "lease_seconds=7")
    assert anywhere("queue", "set", "orders", "retry_limit=5", "--dry-run").out.startswith("would change retry_limit")
    assert anywhere("queue", "show", "orders", "--json").json["policy"]["retry_limit"] == 8
    assert anywhere("queue", "set", "orders", "retry_limit=5").out == "changed retry_limit from 8 to 5\n"
    policy = anywhere("queue", "show", "orders", "--json").json["policy"]
    assert (policy["retry_limit"], policy["lease_seconds"]) == (5, 7)
    assert anywhere("queue", "set", "orders", "nonsense=1").code == 2
    assert anywhere("queue", "set", "nowhere", "retry_limit=1").code == 1
    assert [row["name"] for row in anywhere("queue", "list", "--json").json] == ["orders"]


def test_queue_list_has_counts_and_rates(anywhere: Ackwise, any_url: str) -> None:
    fill(any_url)
    with connect(any_url) as connection:
        connection.claim("orders", group="billing")[0].ack()
    (row,) = anywhere("queue", "list", "--json").json
    assert (row["messages"], row["dead"], row["groups"], row["processing"]) == (3, 1, 1, 1)
    assert row["pushed_rate"] > row["acked_rate"] > 0


def test_purged_queue_has_no_messages_and_no_lag(anywhere: Ackwise, any_url: str) -> None:
    fill(any_url)
    anywhere("message", "push", "lonely", "1")
    assert anywhere("queue", "purge", "orders").code == 1
    assert "would remove 3 messages" in anywhere("queue", "purge", "orders", "--dry-run").out
    assert anywhere("queue", "show", "orders", "--json").json["messages"] == 3
    anywhere("message", "push", "lonely", "2", "--delay", "1h")
    assert anywhere("queue", "purge", "lonely", "--dry-run").out == (
        "would remove 1 message and 1 scheduled message of lonely\n"
    )
    for name, lags in (("orders", [0]), ("lonely", [])):
        assert anywhere("queue", "purge", name, "--yes").code == 0
        stats = anywhere("queue", "show", name, "--json").json
        assert (stats["messages"], stats["scheduled"], [group["lag"] for group in stats["groups"]]) == (0, 0, lags)
    anywhere("message", "push", "orders", "4")
    assert '"payload":4' in anywhere("message", "pop", "orders", "--group", "billing").out


def test_lease_is_listed_extended_and_released(anywhere: Ackwise, any_url: str) -> None:
    lease = fill(any_url)
    (row,) = anywhere("lease", "list", "--json").json
    assert (row["lease_id"], row["owner"], row["held"]) == (lease, "w2", 1)
    assert len(anywhere("lease", "list", "--all", "--json").json) == 2
    assert anywhere("lease", "extend", lease, "--for", "1h").code == 0
    assert anywhere("lease", "list", "--json").json[0]["deadline"] > row["deadline"]
    assert anywhere("lease", "release", lease).out == f"released {lease}\n"
    assert anywhere("lease", "list", "--json").json == []
    for verb in ("extend", "release"):
        said = anywhere("lease", verb, lease)
        assert (said.code, said.out, said.err.count("\n")) == (1, "", 1)
    assert anywhere("lease", "list", "--queue", "nowhere").code == 1


def test_consumers_are_listed_with_what_they_hold(anywhere: Ackwise, any_url: str) -> None:
    fill(any_url)
    rows = anywhere("consumer", "list", "--json").json
    assert [(row["consumer"], row["leases"], row["held"]) for row in rows] == [("w1", 0, 0), ("w2", 1, 1)]
    assert [row["consumer"] for row in anywhere("consumer", "list", "--recent", "0s", "--json").json] == ["w2"]
    anywhere("message", "push", "other", "1")
    assert anywhere("consumer", "list", "--queue", "other", "--json").json == []
    assert "no consumers" in anywhere("consumer", "list", "--queue", "other").out
    assert anywhere("consumer", "list", "--recent", "2h").code == 2


def test_dead_letter_is_shown_and_missing_ones_are_said(anywhere: Ackwise, any_url: str) -> None:
    fill(any_url)
    (letter,) = anywhere("dlq", "list", "--json").json
    shown = anywhere("dlq", "show", letter["id"], "--json").json
    assert (shown["payload"], shown["error"], shown["history"][0]["owner"]) == ({"n": 0}, "no such customer", "w1")
    assert "no such customer" in anywhere("dlq", "show", letter["id"]).out
    assert anywhere("dlq", "purge", letter["id"], "--yes").code == 0
    for words in (("show", letter["id"]), ("purge", letter["id"], "--yes"), ("redrive", letter["id"], "--yes")):
        assert anywhere("dlq", *words).code == 1
    assert anywhere("dlq", "list", "--json").json == []
    assert anywhere("dlq", "redrive", "--queue", "orders", "--yes")[:2] == (
        0,
        "no dead letters match; nothing was put back\n",
    )


def test_group_that_is_missing_is_said_before_the_question(anywhere: Ackwise, any_url: str) -> None:
    fill(any_url)
    for words in (("show",), ("seek", "--to", "end"), ("delete",)):
        said = anywhere("group", words[0], "orders", "nobody", *words[1:])
        assert (said.code, "no group 'nobody'" in said.err) == (1, True)
    dry_run = anywhere("group", "seek", "orders", "billing", "--to", "end", "--dry-run").out
    assert dry_run.startswith("would move group billing of orders to end\n")
    assert [line.split()[-1] for line in dry_run.splitlines()[1:]] == ["0", "2", "1", "0"]
    assert anywhere("group", "show", "orders", "billing", "--json").json["places"][0]["lag"] == 2


def test_top_prints_one_frame(anywhere: Ackwise, any_url: str) -> None:
    fill(any_url)
    said = anywhere("top", "--once")
    assert (said.code, "1 queue " in said.out, "orders" in said.out) == (0, True, True)
    assert anywhere("top", "--json").json[0]["consumers"] == 2
    assert anywhere("top").code == 2


def read_until(terminal: int, text: bytes) -> bytes:
    """What a program prints on a terminal, up to a text."""
    shown = b""
    while text not in shown:
        ready, _, _ = select.select([terminal], [], [], PATIENCE)
        assert ready, shown
        shown += os.read(terminal, 65536)
    return shown


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_top_on_a_terminal_ends_with_a_key(any_url: str, key: bytes) -> None:
    fill(any_url)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ackwise", "top", "--url", any_url]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as program:  # fmt: skip
        os.close(theirs)
        read_until(ours, b"orders")
        os.write(ours, key)
        assert program.wait(PATIENCE) == 0
    os.close(ours)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("queue", "list"), "no queues; create one"),
        (("group", "list"), "no groups; a claim"),
        (("lease", "list"), "no live leases"),
        (("consumer", "list"), "no consumers"),
        (("dlq", "list"), "no dead letters"),
        (("dlq", "report"), "no dead letters"),
        (("lag",), "no group has read yet"),
        (("metrics",), "no settlements"),
    ],
)
def test_empty_list_says_so_and_is_empty_json(
    anywhere: Ackwise, any_url: str, words: tuple[str, ...], said: str
) -> None:
    connect(any_url).close()
    text = anywhere(*words)
    assert (text.code, text.out.startswith(said)) == (0, True)
    assert anywhere(*words, "--json")[:2] == (0, "[]\n")


def test_queue_names_are_completed(anywhere: Ackwise, any_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(any_url) as connection:
        for name in ("orders", "orders.eu", "bills"):
            connection.create_queue(name)
    monkeypatch.setenv("_ACKWISE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "ackwise queue show or")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert anywhere().out.split() == ["orders", "orders.eu"]
    monkeypatch.setenv("COMP_WORDS", "ackwise queue show orders")
    assert anywhere().out.split() == ["orders", "orders.eu"]
    monkeypatch.setenv("ACKWISE_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(arguments, "_COMPLETION_SECONDS", 0.1)
    assert anywhere().out.strip() == ""
