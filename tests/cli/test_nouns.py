"""What each command says and how it ends."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from ackwise import connect
from tests.cli.conftest import Ackwise
from tests.server.running import Running


def fill(url: str) -> None:
    """A queue with one dead letter of three messages."""
    with connect(url) as queue:
        queue.push_many("orders", [{"n": n} for n in range(3)])
        queue.claim("orders", group="billing")[0].reject("no such customer")


def test_version_option_prints_the_version(ackwise: Ackwise) -> None:
    assert ackwise("--version") == (0, f"ackwise {version('ackwise')}\n", "")


def test_queue_from_birth_to_death(ackwise: Ackwise) -> None:
    assert ackwise("queue", "create", "orders", "--set", "retry_limit=5", "--set", "order=strict").code == 0
    (listed,) = ackwise("queue", "list", "--json").json
    assert (listed["name"], listed["policy"]["retry_limit"], listed["policy"]["order"]) == ("orders", 5, "strict")
    assert ackwise("queue", "pause", "orders").code == 0
    assert ackwise("queue", "show", "orders").out.startswith("orders (paused): 0 messages")
    assert ackwise("queue", "resume", "orders").code == 0
    assert ackwise("queue", "show", "orders", "--json").json["paused"] is False
    assert ackwise("queue", "delete", "orders", "--yes").code == 0
    assert ackwise("queue", "list", "--json").json == []


def test_errors_are_one_line_and_tell_failure_from_misuse(ackwise: Ackwise, url: str) -> None:
    fill(url)
    failed = ackwise("queue", "show", "nowhere")
    assert (failed.code, failed.out, failed.err.count("\n")) == (1, "", 1)
    assert "nowhere" in failed.err
    assert ackwise("queue", "create", "orders").code == 1
    assert ackwise("queue", "create", "new", "--set", "retries=1").code == 2
    assert ackwise("queue", "create", "new", "--set", "retry_limit").code == 2
    assert ackwise("queue", "list", "--url", "sqlte:///x.db").code == 2
    assert ackwise("queue", "list", "--nonsense").code == 2


def test_reading_command_creates_no_store(ackwise: Ackwise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACKWISE_URL", f"sqlite:///{tmp_path}/none.db")
    said = ackwise("queue", "list")
    assert (said.code, "there is no store at" in said.err) == (1, True)
    assert ackwise("check").code == 1


@pytest.mark.parametrize(
    "command",
    [
        ("queue", "delete", "orders"),
        ("group", "delete", "orders", "billing"),
        ("group", "seek", "orders", "billing", "--to", "start"),
        ("dlq", "purge", "--queue", "orders"),
        ("dlq", "redrive", "--queue", "orders"),
    ],
)
def test_destructive_command_without_yes_changes_nothing(ackwise: Ackwise, url: str, command: tuple[str, ...]) -> None:
    fill(url)
    before = ackwise("queue", "show", "orders", "--json").json
    assert ackwise(*command).code == 1
    assert ackwise("queue", "show", "orders", "--json").json == before


def test_group_commands_list_and_seek(ackwise: Ackwise, url: str) -> None:
    fill(url)
    (group,) = ackwise("group", "list", "--json").json
    assert (group["group"], group["lag"], group["dead"]) == ("billing", 2, 1)
    assert ackwise("group", "seek", "orders", "billing", "--to", "end", "--yes").code == 0
    assert ackwise("group", "list", "orders", "--json").json[0]["lag"] == 0
    assert ackwise("group", "seek", "orders", "billing", "--to", "2020-01-01", "--yes").code == 0
    assert ackwise("group", "seek", "orders", "billing", "--to", "1", "--partition", "Default", "--yes").code == 0
    assert ackwise("group", "list", "orders", "--json").json[0]["unread"] == 2
    assert ackwise("group", "seek", "orders", "billing", "--to", "noon", "--yes").code == 2
    assert "billing" in ackwise("group", "list").out
    assert ackwise("group", "delete", "orders", "billing", "--yes").code == 0
    assert ackwise("group", "list", "--json").json == []


def test_lease_oldest_lists_live_leases_oldest_first(ackwise: Ackwise, url: str) -> None:
    with Running(url) as server, connect(server.url) as connection:
        at = ("--url", server.url)
        claimed = []
        for queue in ("orders", "bills", "orders"):
            connection.push(queue, 1)
            claimed.append(connection.claim(queue, group="g").lease_id)
        assert [row["lease_id"] for row in ackwise("lease", "oldest", "--json", *at).json] == claimed
        assert [row["queue"] for row in ackwise("lease", "oldest", "--queue", "bills", "--json", *at).json] == ["bills"]
        assert len(ackwise("lease", "oldest", "--limit", "2", "--json", *at).json) == 2
        assert claimed[0] in ackwise("lease", "oldest", *at).out
        assert ackwise("lease", "oldest", "--limit", "1001", *at).code == 2


def test_dlq_commands_list_and_redrive(ackwise: Ackwise, url: str) -> None:
    fill(url)
    (letter,) = ackwise("dlq", "list", "--queue", "orders", "--json").json
    assert (letter["reason"], letter["error"]) == ("rejected", "no such customer")
    assert letter["payload"] == {"n": 0}
    assert letter["id"] in ackwise("dlq", "list").out
    assert ackwise("dlq", "redrive", "--group", "billing", "--dry-run").out == "would redrive 1 dead letter\n"
    assert ackwise("dlq", "redrive", letter["id"], "--yes").out == "redriven 1 dead letter\n"
    refused = ackwise("dlq", "redrive", letter["id"], "--yes")
    assert (refused.code, "there is no dead letter" in refused.err) == (1, True)
    assert ackwise("dlq", "purge").code == 2


def test_dlq_purge_removes_dead_letters(ackwise: Ackwise, url: str) -> None:
    fill(url)
    assert ackwise("dlq", "purge", "--queue", "orders", "--dry-run").out == "would purge 1 dead letter\n"
    (letter,) = ackwise("dlq", "list", "--json").json
    assert ackwise("dlq", "list", "--kind", letter["kind"], "--json").json == [letter]
    assert ackwise("dlq", "list", "--kind", "another error", "--json").json == []
    assert ackwise("dlq", "purge", "--queue", "orders", "--yes").out == "purged 1 dead letter\n"


def test_check_is_content_and_shows_what_is_in_force(ackwise: Ackwise, url: str) -> None:
    fill(url)
    found = ackwise("check", "--json").json
    assert (found["store"], found["durability"], found["queues"], found["problems"]) == ("sqlite", "normal", 1, [])
    said = ackwise("check")
    assert (said.code, said.out.splitlines()[-1]) == (0, "sound")


def test_check_hides_passwords() -> None:
    from ackwise.wire.store_url import without_password

    assert without_password("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"
    assert without_password("postgresql://host/db?password=secret&a=b") == "postgresql://host/db?password=***&a=b"
    assert without_password("postgresql://me@host/db") == "postgresql://me@host/db"
    assert without_password("no answer at nats://me:s@host:1, nats://token@b: x") == (
        "no answer at nats://me:***@host:1, nats://***@b: x"
    )


def test_nouns_speak_to_a_server_as_well(ackwise: Ackwise, url: str) -> None:
    with Running(url) as server:
        at = ("--url", server.url)
        assert ackwise("queue", "create", "orders", "--set", "retry_limit=1", *at).code == 0
        fill(server.url)
        assert ackwise("queue", "show", "orders", "--json", *at).json["policy"]["retry_limit"] == 1
        assert ackwise("group", "list", "--json", *at).json[0]["dead"] == 1
        (letter,) = ackwise("dlq", "list", "--json", *at).json
        assert (letter["payload"], letter["error"]) == ({"n": 0}, "no such customer")
        assert ackwise("dlq", "redrive", "--queue", "orders", "--yes", *at).out == "redriven 1 dead letter\n"
        said = ackwise("check", *at)
        assert (said.code, "the store itself" in said.err) == (2, True)
    gone = ackwise("queue", "list", *at)
    assert (gone.code, server.url in gone.err, gone.err.count("\n")) == (1, True, 1)


def test_vacuum_says_the_bytes_before_and_after(ackwise: Ackwise, url: str) -> None:
    fill(url)
    said = ackwise("vacuum")
    assert (said.code, "bytes before" in said.out) == (0, True)
    done = ackwise("vacuum", "--json").json
    assert (done["after"] > 0, done["converted"]) == (True, False)
    assert ackwise("check", "--json").json["notes"] == []
    assert ackwise("vacuum", "--url", "http://127.0.0.1:1").code == 2


def test_vacuum_of_a_store_in_use_is_refused(ackwise: Ackwise, url: str) -> None:
    fill(url)
    with Running(url):
        said = ackwise("vacuum")
    assert (said.code, "open in another process" in said.err) == (1, True)
