"""Claims over HTTP: rows, columns, several at once, and those that wait."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ackwise.clock import ManualClock
from ackwise.connect import open_store
from ackwise.core.commands import Push
from ackwise.core.messages import NewMessage
from tests.patience import PATIENCE
from tests.protocols.native.native_api import ARROW, NativeApi
from tests.server.running import Running

ROW = {
    "delivery_id",
    "message_id",
    "transaction_id",
    "queue",
    "partition",
    "priority",
    "seq",
    "attempt",
    "payload",
    "headers",
    "created_at",
    "partition_id",
    "failures",
    "content_type",
}


def test_row_tells_all_about_its_message(native_anywhere: NativeApi) -> None:
    native = native_anywhere
    (receipt,) = native.push(
        "shop 100%", {"n": 1}, partition='p"%d', priority=2, transaction_id='t"\\é', headers={"a": "%"}
    )
    claim = native.claim("shop 100%", group="g", lease_seconds=10)
    assert set(claim) == {"lease_id", "group", "deadline", "empty", "until", "messages"}
    (row,) = claim["messages"]
    assert set(row) == ROW
    assert row == {
        "delivery_id": row["delivery_id"],
        "message_id": receipt["message_id"],
        "transaction_id": 't"\\é',
        "queue": "shop 100%",
        "partition": 'p"%d',
        "partition_id": receipt["partition_id"],
        "priority": 2,
        "seq": 0,
        "attempt": 1,
        "failures": 0,
        "payload": {"n": 1},
        "headers": {"a": "%"},
        "content_type": "application/json",
        "created_at": "2023-11-14T22:13:20.000000Z",
    }
    assert row["delivery_id"].startswith(claim["lease_id"])
    assert (claim["deadline"], claim["empty"]) == ("2023-11-14T22:13:30.000000Z", None)


@pytest.mark.parametrize("odd", ['say "hi"', "back\\slash", "%s %% %d", "tab\t", "é\u2028", "new\nline"])
def test_transaction_ids_come_out_as_they_went_in(native: NativeApi, odd: str) -> None:
    native.ok("/v1/push", {"queue": "q", "payloads": [1, 2, 3], "transaction_ids": ["plain", odd, f"{odd} "]})
    assert [m["transaction_id"] for m in native.claim("q", max=3)["messages"]] == ["plain", odd, f"{odd} "]


def test_ids_of_rows_are_those_that_settle(native: NativeApi) -> None:
    """The ids of a run are written together; each must be the one its message is known by."""
    for _ in range(3):
        native.ok("/v1/push", {"queue": "q", "payloads": list(range(900))})
    claim = native.claim("q", max=2700)
    assert [m["seq"] for m in claim["messages"]] == list(range(2700))
    verdicts = native.settle(*({"delivery_id": m["delivery_id"], "outcome": "ack"} for m in claim["messages"]))
    assert {v["verdict"] for v in verdicts} == {"acked"}
    assert native.group("q")["acked"] == 2700
    browsed = native.rows("messages", queue="q", limit=2700)
    assert [m["message_id"] for m in browsed] == [m["message_id"] for m in claim["messages"]]


def test_empty_claim_says_why_and_until(native: NativeApi) -> None:
    native.push("q", 1)
    native.claim("q", exclusivity="partition", lease_seconds=5)
    claim = native.claim("q", exclusivity="partition")
    assert (claim["messages"], claim["lease_id"], claim["empty"]) == ([], None, "locked")
    assert claim["until"] == "2023-11-14T22:13:25.000000Z"
    native.admin("pause_queue", queue="q")
    assert native.claim("q")["empty"] == "paused"


def test_filters_and_options(native: NativeApi) -> None:
    native.ok(
        "/v1/push",
        {
            "queue": "shop.mail",
            "messages": [{"payload": f"{p}{n}", "partition": p, "priority": n} for p in "abc" for n in (0, 5)],
        },
    )

    def had(**more: Any) -> list[str]:
        return sorted(m["payload"] for m in native.claim("shop.mail", max=9, **more)["messages"])

    assert had(group="1", partitions=["a", "b"], priorities=[5]) == ["a5", "b5"]
    assert len({payload[0] for payload in had(group="2", max_partitions=2)}) == 2
    assert had(group="3", start="new") == []
    assert len(had(group="4", start="2000-01-01T00:00:00Z")) == 6
    assert len(had(group="5", auto_ack=True)) == 6
    assert native.group("shop.mail", "5")["acked"] == 6
    by_tag = native.ok("/v1/claim", {"namespace": "shop", "group": "6", "max": 9})
    assert len(by_tag["messages"]) == 6
    native.claim("shop.mail", group="7", owner="me", exclusivity="queue")
    assert native.claim("shop.mail", group="7", owner="me", exclusivity="queue")["messages"]
    assert native.claim("shop.mail", group="7", owner="you")["empty"] == "locked"
    assert native.claim("new", create={"retry_limit": 9})["empty"] == "empty"
    assert native.ask("get_queue", queue="new")["policy"]["retry_limit"] == 9


def test_auto_ack_rows_have_nothing_to_settle(native: NativeApi) -> None:
    native.push("q", 1)
    claim = native.claim("q", auto_ack=True)
    assert (claim["lease_id"], claim["deadline"], claim["messages"][0]["delivery_id"]) == (None, None, "")


def test_key_is_the_same_claim_again(native: NativeApi) -> None:
    native.push("q", 1, 2)
    first, again = native.claim("q", key="job"), native.claim("q", key="job")
    assert first["lease_id"] != again["lease_id"]
    assert [m["seq"] for m in first["messages"]] == [m["seq"] for m in again["messages"]]
    status, answer = native.call("/v1/claim", {"queue": "q", "key": "job", "partitions": ["x"]})
    assert (status, answer["code"], answer["details"]) == (409, "claim_conflict", {"key": "job"})


GRANT = {"queue", "partition", "partition_id", "lane", "priority", "lo", "hi", "failures", "attempt"}


def test_grants_without_their_messages(native_anywhere: NativeApi) -> None:
    native = native_anywhere
    (receipt, *_) = native.push("q", 1, 2, 3, partition="p", priority=2)
    claim = native.claim("q", group="g", max=2, lease_seconds=10, grants_only=True)
    assert set(claim) == {"lease_id", "group", "deadline", "empty", "until", "grants"}
    (grant,) = claim["grants"]
    assert set(grant) == GRANT
    assert (grant["partition"], grant["partition_id"], grant["priority"]) == ("p", receipt["partition_id"], 2)
    assert (grant["lo"], grant["hi"], grant["failures"], grant["attempt"]) == (0, 2, 0, 1)
    assert claim["deadline"] == "2023-11-14T22:13:30.000000Z"
    (lane,) = native.ask("list_lanes", queue="q")
    assert (lane["lane"], lane["start"], lane["head"]) == (grant["lane"], 0, 3)
    held = native.ask("list_held", lease_id=claim["lease_id"])
    assert held == [{"lane": lane["lane"], "lo": 0, "hi": 2, "failures": 0, "attempt": 1}]
    assert native.settle({"lease_id": claim["lease_id"], "outcome": "ack"})[0]["verdict"] == "acked"
    assert native.claim("q", group="g", grants_only=True, columns=True)["grants"][0]["lo"] == 2
    empty = native.claim("q", group="g", grants_only=True)
    assert (empty["grants"], empty["lease_id"], empty["empty"]) == ([], None, "empty")


def test_grants_are_given_without_reading_a_message(
    native: NativeApi, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    native.push("q", 1)
    read: list[object] = []
    monkeypatch.setattr(server.server.runtime.broker().store, "read", read.append)
    assert native.claim("q", grants_only=True)["grants"]
    assert read == []


def test_grants_are_not_arrow(native: NativeApi) -> None:
    native.push("q", 1)
    answer = native.raw("/v1/claim", b'{"queue":"q","grants_only":true}', accept=ARROW)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_input")
    assert native.rows("leases") == []


def test_server_that_leaves_grants_nothing(native: NativeApi, server: Running) -> None:
    native.push("q", 1)
    server.server.runtime.broker().stop_claims()
    assert native.claim("q", grants_only=True)["empty"] == "draining"
    assert native.rows("leases") == []


def test_settling_and_claiming_in_one_call(native: NativeApi) -> None:
    native.push("q", 1, 2)
    first = native.claim("q")
    entry = {"delivery_id": first["messages"][0]["delivery_id"], "outcome": "ack"}
    second = native.claim("q", settle=[entry])
    assert second["verdicts"] == [{"delivery_id": entry["delivery_id"], "verdict": "acked"}]
    assert [m["payload"] for m in second["messages"]] == [2]
    third = native.claim("q", settle=[{"lease_id": second["lease_id"], "outcome": "ack"}, entry], wait_seconds=0.01)
    assert [v["verdict"] for v in third["verdicts"]] == ["acked", "already"]
    assert (third["messages"], native.group("q")["acked"]) == ([], 2)


def test_refused_claim_says_what_was_settled_before(native: NativeApi) -> None:
    native.push("q", 1)
    lease = native.claim("q")["lease_id"]
    body = {"queue": "nowhere", "settle": [{"lease_id": lease, "outcome": "ack"}]}
    status, answer = native.call("/v1/claim", body)
    assert (status, answer["code"]) == (404, "unknown_queue")
    assert [one["verdict"] for one in answer["details"]["settled"]] == ["acked"]
    assert native.group("q")["acked"] == 1


def test_claim_ahead_returns_several_batches(native: NativeApi) -> None:
    native.push("q", *range(25))
    answer = native.ok("/v1/claim", {"queue": "q", "max": 10, "ahead": 4})
    assert [len(claim["messages"]) for claim in answer["claims"]] == [10, 10, 5]
    assert len({claim["lease_id"] for claim in answer["claims"]}) == 3
    entries = [{"lease_id": claim["lease_id"], "outcome": "ack"} for claim in answer["claims"]]
    again = native.ok("/v1/claim", {"queue": "q", "max": 10, "ahead": 2, "settle": entries})
    assert ([v["verdict"] for v in again["verdicts"]], again["claims"]) == (["acked"] * 3, [])


def test_stored_bytes_that_are_no_json_are_sent_as_base64(
    native: NativeApi, store_url: str, clock: ManualClock
) -> None:
    """A store takes any bytes; one that is not JSON must not break the answer for the others, nor change its shape."""
    store = open_store(store_url, clock=clock)
    try:
        odd = [b'1,"x":2', b"", b'"\xff"', b"{", b'"]}']
        store.transact([Push(queue="q", messages=[NewMessage(one) for one in [*odd, b"[1]"]])])
    finally:
        store.close()
    found = native.claim("q", max=9)["messages"]
    assert [m["content_type"] for m in found] == ["application/octet-stream"] * 5 + ["application/json"]
    assert found[0]["payload"] == {"$base64": "MSwieCI6Mg=="}
    assert found[-1]["payload"] == [1]
    columns = native.claim("q", group="g", max=9, columns=True)
    assert columns["payloads"] == [m["payload"] for m in found]


def test_poll_wakes_for_a_push(native: NativeApi) -> None:
    native.admin("configure_queue", queue="q")
    answers: list[Any] = []
    poll = threading.Thread(target=lambda: answers.append(native.claim("q", wait_seconds=30)))
    poll.start()
    native.push("q", "hello")
    poll.join(PATIENCE)
    assert [m["payload"] for m in answers[0]["messages"]] == ["hello"]


def test_poll_that_is_stopped_comes_back_empty(native: NativeApi) -> None:
    native.admin("configure_queue", queue="q")
    answers: list[Any] = []
    poll = threading.Thread(target=lambda: answers.append(native.claim("q", wait_seconds=60, poll="mine")))
    poll.start()
    while not native.ok("/v1/stop", {"polls": ["other", "mine"]})["stopped"]:
        assert poll.is_alive()
    poll.join(PATIENCE)
    assert (answers[0]["messages"], answers[0]["empty"]) == ([], "draining")
    native.push("q", 1)
    assert native.claim("q")["messages"], "nobody may hold what was pushed after the poll was stopped"
    assert native.ok("/v1/stop", {"polls": ["mine"]}) == {"stopped": 0}


def test_poll_that_is_asked_again_takes_the_place_of_the_first(native: NativeApi, server: Running) -> None:
    """A proxy may hold the connection of a client that has long gone elsewhere."""
    native.admin("configure_queue", queue="q")
    answers: dict[str, Any] = {}

    def ask(name: str) -> None:
        answers[name] = native.claim("q", wait_seconds=60, poll="mine", key="k")

    first, again = (threading.Thread(target=ask, args=(name,)) for name in ("first", "again"))
    first.start()
    server.until_waiting()
    again.start()
    first.join(PATIENCE)
    assert answers["first"]["empty"] == "draining"
    native.push("q", 1)
    again.join(PATIENCE)
    assert [m["payload"] for m in answers["again"]["messages"]] == [1]


@pytest.mark.parametrize("wait", [0, 0.01])
def test_poll_that_finds_nothing_ends(native: NativeApi, wait: float) -> None:
    native.admin("configure_queue", queue="q")
    assert native.claim("q", wait_seconds=wait)["empty"] == "empty"
