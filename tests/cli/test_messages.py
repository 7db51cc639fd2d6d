"""`ackwise message`, on a store and on a server."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest

from ackwise import connect
from ackwise.cli import message
from tests.cli.conftest import Ackwise, Said


def parsed(said: Said) -> list[Any]:
    """The lines of an answer."""
    assert said.code == 0, said.err
    return [json.loads(line) for line in said.out.splitlines()]


def lag(url: str, queue: str, group: str) -> int:
    with connect(url) as connection:
        return connection.lag(queue, group)


def test_pushed_message_is_peeked_popped_and_acked(anywhere: Ackwise, any_url: str) -> None:
    said = anywhere("message", "push", "orders", '{"n":1}', "--partition", "eu", "--header", "a=b", "--priority", "2")
    assert said.out.startswith("pushed 1 message ")
    (peeked,) = anywhere("message", "peek", "orders", "--json").json
    assert (peeked["payload"], peeked["partition"], peeked["headers"], peeked["priority"]) == (
        {"n": 1},
        "eu",
        {"a": "b"},
        2,
    )
    assert peeked["id"] in anywhere("message", "peek", "orders").out
    (popped,) = parsed(anywhere("message", "pop", "orders", "--group", "g"))
    assert (popped["id"], popped["group"], popped["attempt"]) == (peeked["id"], "g", 1)
    assert lag(any_url, "orders", "g") == 0


def test_push_of_lines_stores_one_message_each(anywhere: Ackwise) -> None:
    said = anywhere("message", "push", "orders", stdin='1\n\n"two"\n{"three": 3}')
    assert said[:2] == (0, "pushed 3 messages\n")
    assert [row["payload"] for row in anywhere("message", "peek", "orders", "--json").json] == [1, "two", {"three": 3}]
    assert "nothing was pushed" in anywhere("message", "push", "orders").out


def test_push_of_a_bad_line_names_the_line(anywhere: Ackwise) -> None:
    said = anywhere("message", "push", "orders", stdin="1\n{nonsense\n")
    assert (said.code, said.out, "line 2 is not JSON" in said.err) == (2, "", True)
    assert anywhere("message", "push", "orders", "text").code == 2
    assert anywhere("message", "push", "orders", "1", "--header", "x").code == 2
    assert anywhere("message", "push", "orders", "--transaction-id", "t", stdin="1").code == 2


def test_push_with_transaction_id_stores_once(anywhere: Ackwise) -> None:
    again = ("message", "push", "orders", "1", "--transaction-id", "t", "--json")
    assert anywhere(*again).json["pushed"] == 1
    assert (anywhere(*again).json["pushed"], anywhere(*again).json["duplicates"]) == (0, 1)


def test_pop_with_no_ack_releases(anywhere: Ackwise, any_url: str) -> None:
    anywhere("message", "push", "orders", stdin="1\n2\n3")
    once = parsed(anywhere("message", "pop", "orders", "-n", "2", "--no-ack", "--group", "g"))
    again = parsed(anywhere("message", "pop", "orders", "-n", "2", "--group", "g"))
    assert [row["id"] for row in once] == [row["id"] for row in again]
    assert [row["failures"] for row in again] == [0, 0]
    assert lag(any_url, "orders", "g") == 1
    assert anywhere("message", "pop", "orders", "--all", "--no-ack").code == 2


def test_pop_of_all_takes_more_than_one_claim(anywhere: Ackwise) -> None:
    numbers = list(range(message.CLAIMED + 5))
    anywhere("message", "push", "orders", stdin="\n".join(map(str, numbers)))
    assert [row["payload"] for row in parsed(anywhere("message", "pop", "orders", "--all"))] == numbers
    empty = anywhere("message", "pop", "orders")
    assert (empty.code, empty.out, "no message to take: empty" in empty.err) == (0, "", True)


def test_pop_into_a_broken_pipe_releases(ackwise: Ackwise, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ackwise("message", "push", "orders", stdin="1\n2")
    reader, writer = os.pipe()
    os.close(reader)
    broken = os.fdopen(writer, "w")
    monkeypatch.setattr(sys, "stdout", broken)
    said = ackwise("message", "pop", "orders", "-n", "2", "--group", "g")
    monkeypatch.undo()
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), writer)
    broken.close()
    assert said.code == 1
    with connect(url) as connection:
        assert connection.lag("orders", "g") == 2
        assert [delivery.failures for delivery in connection.claim("orders", group="g", max=2)] == [0, 0]


def test_pop_settles_only_after_its_flush(ackwise: Ackwise, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ackwise("message", "push", "orders", "1")
    lags: list[int] = []

    class Checked:
        """A stdout whose flush looks at the group."""

        def write(self, data: bytes) -> int:
            return len(data)

        def flush(self) -> None:
            with connect(url) as connection:
                lags.append(connection.lag("orders", "g"))

    monkeypatch.setattr("ackwise.cli.message_lines.stdout", Checked)
    assert ackwise("message", "pop", "orders", "--group", "g").code == 0
    assert (lags, lag(url, "orders", "g")) == ([1], 0)


def test_export_then_import_keeps_messages(anywhere: Ackwise, any_url: str) -> None:
    with connect(any_url) as connection:
        connection.push("orders", b"\x00\xff", partition="eu", headers={"h": "v"})
        connection.push("orders", {"$base64": "no bytes"}, transaction_id="mine", priority=3)
    exported = anywhere("message", "export", "orders")
    assert anywhere("message", "import", "copy", stdin=exported.out).out == "imported 2 messages\n"
    assert anywhere("message", "import", "copy", stdin=exported.out).out == "imported 0 messages, 2 duplicates\n"
    with connect(any_url) as connection:
        first, second = sorted(connection.browse("copy"), key=lambda row: row.partition, reverse=True)
        original = {row.transaction_id for row in connection.browse("orders")}
    assert (first.payload, first.partition, first.headers) == (b"\x00\xff", "eu", {"h": "v"})
    assert (second.json(), second.transaction_id, second.priority) == ({"$base64": "no bytes"}, "mine", 3)
    assert {first.transaction_id, second.transaction_id} == original


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("{}", "line 1"),
        ('{"payload": 1}', "names no queue"),
        ('{"payload": 1, "queue": "q", "color": 2}', "line 1"),
        ('{"payload": 1, "queue": "q", "content_type": "text/plain"}', "line 1"),
        ("\xff", "line 1"),
    ],
)
def test_import_of_a_bad_line_stores_nothing(ackwise: Ackwise, line: str, error: str) -> None:
    said = ackwise("message", "import", stdin=line)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert error in said.err
    assert ackwise("queue", "list", "--json").json == []


def test_tail_shows_the_last_messages_of_all_lanes(anywhere: Ackwise, any_url: str) -> None:
    with connect(any_url) as connection:
        for number in range(6):
            connection.push("orders", number, partition=f"p{number % 2}")
    assert [row["payload"] for row in parsed(anywhere("message", "tail", "orders", "-n", "3", "--json"))] == [3, 4, 5]
    assert len(anywhere("message", "tail", "orders", "--partition", "p1").out.splitlines()) == 3


def test_tail_with_follow_prints_new_messages(ackwise: Ackwise, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ackwise("message", "push", "orders", stdin="0\n1")
    pushes = iter([["a"], [], ["b", "c"]])

    def wait() -> None:
        for payload in next(pushes, [None]):
            if payload is None:
                raise KeyboardInterrupt
            with connect(url) as connection:
                connection.push("orders", payload, partition=payload)

    monkeypatch.setattr(message, "wait_for_more", wait)
    said = ackwise("message", "tail", "orders", "-n", "1", "-f", "--json")
    monkeypatch.undo()
    assert [row["payload"] for row in parsed(said)] == [1, "a", "b", "c"]


def test_message_is_shown_by_id_and_transaction_id(anywhere: Ackwise, any_url: str) -> None:
    with connect(any_url) as connection:
        receipt = connection.push("orders", {"n": 1}, partition="eu", transaction_id="mine")
        connection.claim("orders")[0].retry(error="boom")
    for name in ("mine", receipt.message_id):
        shown = anywhere("message", "show", "orders", name, "--json").json
        assert (shown["id"], shown["payload"], shown["partition"]) == (receipt.message_id, {"n": 1}, "eu")
    assert shown["groups"][0]["group"] == "__QUEUE_MODE__"
    assert "group (default)" in anywhere("message", "show", "orders", "mine").out
    missing = anywhere("message", "show", "orders", "nothing")
    assert (missing.code, missing.err) == (1, "ackwise: queue 'orders' has no message 'nothing'\n")


@pytest.mark.parametrize("verb", ["peek", "tail", "export", "pop"])
def test_message_verb_without_its_queue_fails(anywhere: Ackwise, any_url: str, verb: str) -> None:
    connect(any_url).close()
    said = anywhere("message", verb, "nowhere")
    assert (said.code, said.out, said.err.count("\n"), "nowhere" in said.err) == (1, "", 1, True)


def test_message_reads_of_an_empty_queue_say_so(anywhere: Ackwise) -> None:
    anywhere("queue", "create", "orders")
    assert "has no messages; push one" in anywhere("message", "peek", "orders").out
    assert anywhere("message", "peek", "orders", "--json").json == []
    assert anywhere("message", "tail", "orders", "--json").json == []
    assert "has no messages" in anywhere("message", "export", "orders").err


def test_default_group_is_accepted_as_people_see_it(anywhere: Ackwise, any_url: str) -> None:
    anywhere("message", "push", "orders", stdin="1\n2")
    anywhere("message", "pop", "orders", "--group", "(default)")
    assert lag(any_url, "orders", "__QUEUE_MODE__") == 1
    assert "(default)" in anywhere("group", "list").out
    assert anywhere("group", "list", "--json").json[0]["group"] == "__QUEUE_MODE__"
    assert anywhere("group", "show", "orders", "(default)", "--json").json["lag"] == 1
    assert anywhere("group", "delete", "orders", "(default)", "--yes").out == "deleted (default)\n"
