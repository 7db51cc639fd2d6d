"""Errors of commands: output that cannot be written, modules that cannot be imported, names that do not exist."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ackwise import connect
from ackwise.cli import top
from tests.cli.conftest import Ackwise


def fill(url: str) -> list[str]:
    """A queue with a group and two dead letters. Returns their ids."""
    with connect(url) as connection:
        connection.push_many("orders", [1, 2, 3])
        for delivery in connection.claim("orders", group="billing", max=2):
            delivery.reject("no such customer")
        return [letter.id for letter in connection.dead_letters("orders")]


def dead(url: str) -> int:
    with connect(url) as connection:
        return len(connection.dead_letters("orders"))


# output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [("message", "pop", "orders"), ("queue", "list"), ("queue", "list", "--json")])
def test_full_disk_of_the_output_is_one_line(
    ackwise: Ackwise, url: str, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    ackwise("message", "push", "orders", "1")
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        said = ackwise(*words)
        monkeypatch.undo()
    assert said == (1, "", "ackwise: cannot write the output: No space left on device\n")
    with connect(url) as connection:
        assert [delivery.failures for delivery in connection.claim("orders")] == [0]


def test_closed_pipe_of_the_output_exits_1_silently(ackwise: Ackwise, monkeypatch: pytest.MonkeyPatch) -> None:
    ackwise("message", "push", "orders", "1")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as broken:
        monkeypatch.setattr(sys, "stdout", broken)
        said = ackwise("queue", "list")
        monkeypatch.undo()
    assert said == (1, "", "")


def test_os_error_of_a_file_is_not_an_output_error(ackwise: Ackwise, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "/data/archive")

    monkeypatch.setattr("ackwise.cli.app.app", full)
    with pytest.raises(OSError, match="archive"):
        ackwise("queue", "list")


# modules


@pytest.mark.parametrize(
    ("text", "frame", "error"),
    [
        ("1 / 0", "1 / 0", "ZeroDivisionError: division by zero"),
        ("import os\nos.nowhere", "os.nowhere", "AttributeError: module 'os' has no attribute 'nowhere'"),
        ("import no_such_thing", "import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("def broken(:", "def broken(:", "SyntaxError: invalid syntax (badapp.py, line 1)"),
        (
            "from ackwise.subscriber import App\napp = App('sqlite:///q.db')\n@app.subscriber('q')\ndef take(x): pass",
            "@app.subscriber('q')",
            "TypeError: take: x has no type; ",
        ),
    ],
)
def test_run_of_a_broken_module_shows_only_its_frames(
    ackwise: Ackwise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, frame: str, error: str
) -> None:
    (tmp_path / "badapp.py").write_text(f"{text}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "badapp", raising=False)
    said = ackwise("run", "badapp:app")
    *lines, last = said.err.splitlines()
    assert (said.code, said.out) == (1, "")
    assert last.startswith(f"ackwise: module 'badapp' cannot be imported: {error}")
    assert any(frame in line for line in lines)
    assert len(lines) <= 6
    files = [line for line in lines if line.startswith("  File ")]
    assert len(files) == 1
    assert "badapp.py" in files[0]


def test_run_without_an_app_has_no_traceback(ackwise: Ackwise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numberapp.py").write_text("app = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for target in ("numberapp:app", "numberapp:missing", "no_such_module:app"):
        said = ackwise("run", target)
        assert (said.code, said.err.count("\n")) == (2, 1)


# dead letters


@pytest.mark.parametrize(("verb", "done"), [("purge", "deleted"), ("redrive", "put back")])
def test_missing_dead_letter_changes_nothing(anywhere: Ackwise, any_url: str, verb: str, done: str) -> None:
    ids = fill(any_url)
    hint = f"nothing was {done}; list the dead letters with: ackwise dlq list\n"
    for options in ([], ["--yes"], ["--dry-run"]):
        said = anywhere("dlq", verb, ids[0], "nope", *options)
        assert said == (1, "", f"ackwise: there is no dead letter 'nope'; {hint}")
    said = anywhere("dlq", verb, "nope", ids[0], "other", "--yes")
    assert said == (1, "", f"ackwise: these dead letters do not exist: 'nope', 'other'; {hint}")
    assert dead(any_url) == 2
    assert anywhere("dlq", verb, *ids, ids[0], "--yes").code == 0
    assert dead(any_url) == 0


# groups and partitions


GROUP_COMMANDS = [
    ("lease", "list", "--all"),
    ("consumer", "list"),
    ("lag",),
    ("lag", "--partitions"),
    ("metrics",),
    ("dlq", "list"),
    ("dlq", "report"),
    ("dlq", "purge", "--yes"),
    ("dlq", "redrive", "--yes"),
]


def test_unknown_group_is_named_and_exits_1(anywhere: Ackwise, any_url: str) -> None:
    fill(any_url)
    for words in GROUP_COMMANDS:
        said = anywhere(*words, "--group", "nope")
        assert (said.code, said.out, said.err.count("\n")) == (1, "", 1), words
        assert said.err.startswith("ackwise: there is no group 'nope'; "), words
        said = anywhere(*words, "--group", "nope", "--queue", "orders")
        assert (said.code, said.err.startswith("ackwise: queue 'orders' has no group 'nope'; ")) == (1, True), words
    assert dead(any_url) == 2


def test_known_group_without_rows_exits_0(anywhere: Ackwise, any_url: str) -> None:
    fill(any_url)
    with connect(any_url) as connection:
        connection.claim("orders", group="idle").release()
    for words in GROUP_COMMANDS:
        assert anywhere(*words, "--group", "idle").code == 0, words


def test_deleted_group_keeps_its_dead_letters_in_reach(anywhere: Ackwise, any_url: str) -> None:
    fill(any_url)
    anywhere("group", "delete", "orders", "billing", "--yes")
    assert len(anywhere("dlq", "list", "--group", "billing", "--json").json) == 2
    assert anywhere("dlq", "purge", "--group", "billing", "--yes").out == "purged 2 dead letters\n"
    assert anywhere("dlq", "list", "--group", "billing").code == 1


def test_pop_of_an_unknown_partition_exits_1(anywhere: Ackwise) -> None:
    anywhere("message", "push", "orders", "1", "--partition", "eu")
    for options in ([], ["--wait", "0.01s"]):
        said = anywhere("message", "pop", "orders", "--partition", "nope", *options)
        assert said == (1, "", "ackwise: queue 'orders' has no partition 'nope'\n")
    assert anywhere("message", "pop", "orders", "--partition", "eu").code == 0
    assert anywhere("message", "pop", "orders", "--partition", "eu").code == 0


PARTITION_COMMANDS = [
    ("message", "tail", "orders"),
    ("message", "tail", "orders", "--follow"),
    ("message", "peek", "orders"),
    ("message", "export", "orders"),
    ("message", "show", "orders", "id"),
    ("group", "seek", "orders", "billing", "--to", "end", "--yes"),
]


def test_unknown_partition_is_named_and_exits_1(anywhere: Ackwise, any_url: str) -> None:
    fill(any_url)
    for words in PARTITION_COMMANDS:
        said = anywhere(*words, "--partition", "nope")
        assert said == (1, "", "ackwise: queue 'orders' has no partition 'nope'\n"), words


QUEUE_COMMANDS = [
    ("lease", "list"),
    ("lease", "oldest"),
    ("consumer", "list"),
    ("lag",),
    ("metrics",),
    ("dlq", "list"),
    ("dlq", "report"),
    ("dlq", "purge", "--yes"),
    ("dlq", "redrive", "--yes"),
]


def test_unknown_queue_is_named_and_exits_1(anywhere: Ackwise, any_url: str) -> None:
    fill(any_url)
    for words in QUEUE_COMMANDS:
        said = anywhere(*words, "--queue", "nope")
        assert (said.code, said.out) == (1, ""), words
        assert said.err.startswith("ackwise: there is no queue 'nope'; "), words


# texts


def test_head_of_top_drops_parts_that_do_not_fit() -> None:
    parts = ["2030-01-31 12:00:33", "3 queues", "7 pending", "0 processing", "3 dead", "in 0.0968/s", "out 0.0215/s"]
    assert top._head(parts, 200) == "  ".join(parts)
    assert top._head(parts, 80) == "2030-01-31 12:00:33  3 queues  7 pending  3 dead  in 0.0968/s  out 0.0215/s"
    for columns in range(1, 120):
        assert len(top._head(parts, columns)) <= columns
    assert top._head(parts, 12) == "7 pending"


def test_counts_of_one_have_a_singular_noun(ackwise: Ackwise) -> None:
    for _ in range(2):
        said = ackwise("message", "push", "orders", "1", "--transaction-id", "a")
    assert said.out.endswith(", 1 duplicate\n")
    assert ackwise("queue", "show", "orders").out.startswith("orders: 1 message in 1 partition, ")


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        ("retry_limit=abc", "retry_limit must be a whole number or null"),
        ("retry_limit=1.5", "retry_limit must be a whole number or null"),
        ("lease_seconds=long", "lease_seconds must be a number"),
        ("dead_letters=3", "dead_letters must be true or false"),
        ("order=random", "order must be strict, relaxed or null"),
        ("delivery_limit=x", "delivery_limit must be a whole number, auto or null"),
        ("backoff=3", "backoff must be an object"),
        ('backoff={"kind": "x"}', "backoff.kind must be none, fixed, exponential or schedule"),
        ('backoff={"delays": 3}', "backoff.delays must be a list"),
        ('backoff={"kidn": "x"}', "backoff has no field 'kidn'; its fields are kind, "),
    ],
)
def test_policy_value_of_a_wrong_kind_names_the_field(ackwise: Ackwise, setting: str, error: str) -> None:
    ackwise("queue", "create", "orders")
    for words in (
        ("set", "orders", setting),
        ("set", "orders", setting, "--dry-run"),
        ("create", "b", "--set", setting),
    ):
        said = ackwise("queue", *words)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith(f"ackwise: {error}")
    assert ackwise("queue", "set", "orders", 'notes={"a": 1}', "retry_limit=null").code == 0


def test_context_name_has_only_plain_characters(ackwise: Ackwise) -> None:
    for name in ("a b", "", "x" * 65, "a/b", "é"):
        said = ackwise("context", "add", name, "http://a:1")
        assert (said.code, "use 1 to 64 letters, digits, '-', '_' and '.'" in said.err) == (2, True)
    for name in ("x" * 64, "prod-eu_1.b"):
        assert ackwise("context", "add", name, "http://a:1").code == 0
