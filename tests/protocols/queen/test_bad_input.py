"""Whatever is sent to the routes that carry messages: a 4xx that says why, nothing taken, nothing lost."""

from __future__ import annotations

import json
import os
import re
from typing import Any
from unittest.mock import Mock
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ackwise.broker import AsyncBroker
from ackwise.protocols import pushpop
from ackwise.protocols.pushpop.sinks import Sinks
from ackwise.server.server import all_routes
from ackwise.server.settings import Settings
from tests.protocols.queen.queen_api import Message, QueenApi, bodies, named
from tests.server.anything import any_body
from tests.server.wire import Wire

ELSEWHERE = "00000000-0000-7000-8000-000000000000"
DEEPLY = os.environ.get("ACKWISE_HYPOTHESIS") == "deep"
NESTED = b"[" * 100_000 + b"]" * 100_000


@pytest.fixture
def held(queen: QueenApi) -> Message:
    """One of three messages is in hand."""
    queen.push("q", 1, 2, 3)
    (message,) = queen.pop("q")
    return message


def state(queen: QueenApi) -> Any:
    """Everything that a refused request must leave as it is."""
    overview = queen.get("/api/v1/resources/overview")
    queues = queen.get("/api/v1/resources/queues")
    return overview, queues, queen.get("/api/v1/consumer-groups"), queen.get("/api/v1/dlq")["total"]


def refuse(queen: QueenApi, method: str, path: str, content: bytes | None = None, status: int = 400) -> str:
    """Send what must be refused; why it was."""
    answer = queen.http.request(method, path, content=content)
    assert answer.status_code == status, (path, (content or b"")[:100], answer.text)
    told = answer.json()
    assert told["error"], told
    assert told["code"], told
    text: str = told["error"]
    return text


# bodies that are not what they should be

MALFORMED = [
    b"",
    b" ",
    b"{",
    b"nul",
    b"null",
    b"7",
    b'"text"',
    b"[]",
    b"{} {}",
    b"\xff\xfe",
    b'{"items":[{"queue":"q","payload":1}],}',
    b"{'items': []}",
    NESTED,
]
POSTS = ["/api/v1/push", "/api/v1/ack", "/api/v1/ack/batch", "/api/v1/transaction", "/api/v1/configure"]


def test_body_that_is_not_an_object_is_refused(queen: QueenApi, held: Message) -> None:
    before = state(queen)
    for path in POSTS:
        for content in MALFORMED:
            refuse(queen, "POST", path, content)
    for content in (b"{", b"[]", b"7", b"\xff", NESTED):
        refuse(queen, "POST", f"/api/v1/lease/{held['leaseId']}/extend", content)
    assert state(queen) == before


ITEM: Message = {"queue": "q", "payload": 1}
WRONG_VALUES: dict[str, list[Any]] = {
    "queue": [None, 5, "", "a\0b", "x" * 300, ["q"]],
    "partition": [5, "", "a\0b", "x" * 300, {}],
    "transactionId": [5, "a\0b", "x" * 600, []],
    "traceId": [5, "a\0b", {}],
    "delaySeconds": [-1, "5", 1e300, 10**400, []],
}
WRONG_ITEMS: list[Any] = [
    {},
    {"items": None},
    {"items": {}},
    {"items": "q"},
    {"items": [None]},
    {"items": [1]},
    {"items": [{}]},
    {"items": [{"payload": 1}]},
    *({"items": [ITEM, {**ITEM, name: value}]} for name, values in WRONG_VALUES.items() for value in values),
]


def test_push_with_one_bad_item_pushes_nothing(queen: QueenApi, held: Message) -> None:
    before = state(queen)
    for wrong in WRONG_ITEMS:
        refuse(queen, "POST", "/api/v1/push", json.dumps(wrong).encode())
    assert state(queen) == before


def test_words_of_a_refused_push(queen: QueenApi) -> None:
    assert refuse(queen, "POST", "/api/v1/push", b"{}") == "items array is required"


def test_payload_that_is_not_json_is_not_stored(queen: QueenApi, held: Message) -> None:
    before = state(queen)
    for payload in (b"{bad}", b"[1,]", b"01", b"NaN", b"'text'", b'"\xff"', b'"\xed\xa0\x80"', b'"\n"', b""):
        refuse(queen, "POST", "/api/v1/push", b'{"items":[{"queue":"q","payload":%b}]}' % payload)
    assert state(queen) == before


def test_name_that_is_no_text_is_refused(queen: QueenApi, held: Message) -> None:
    before = state(queen)
    for name in (b'"\\ud800"', b'"\xed\xa0\x80"', b'"\xff"', b'"\\u0000"'):
        refuse(queen, "POST", "/api/v1/push", b'{"items":[{"queue":%b,"payload":1}]}' % name)
        refuse(queen, "POST", "/api/v1/push", b'{"items":[{"queue":"q","payload":1,"transactionId":%b}]}' % name)
        refuse(queen, "POST", "/api/v1/configure", b'{"queue":%b}' % name)
    assert state(queen) == before


def wrong_acks(held: Message) -> list[tuple[Message, str]]:
    right = named(held)
    return [
        ({}, "transactionId is required"),
        ({**right, "transactionId": ""}, "transactionId is required"),
        ({**right, "transactionId": 5}, "transactionId is required"),
        ({**right, "partitionId": None}, "partitionId is required to ensure message uniqueness"),
        ({**right, "partitionId": ""}, "partitionId is required to ensure message uniqueness"),
        ({**right, "partitionId": 5}, "partitionId is required to ensure message uniqueness"),
        ({**right, "partitionId": "not-a-uuid"}, "UUID"),
        ({**right, "partitionId": right["partitionId"] + "0"}, "UUID"),
        ({**right, "partitionId": "' OR 1=1 --"}, "UUID"),
        ({**right, "status": "bogus"}, "status"),
        ({**right, "status": 5}, "status"),
        ({**right, "status": ["completed"]}, "status"),
        ({**right, "leaseId": 5}, "leaseId"),
        ({**right, "leaseId": {}}, "leaseId"),
        ({**right, "consumerGroup": 5}, "consumerGroup"),
        ({**right, "error": {"a": 1}}, "error"),
        ({**right, "status": "failed", "delaySeconds": -1}, "delaySeconds"),
        ({**right, "status": "failed", "delaySeconds": "soon"}, "delaySeconds"),
    ]


def test_ack_that_makes_no_sense_is_refused(queen: QueenApi, held: Message) -> None:
    before = state(queen)
    for wrong, said in wrong_acks(held):
        assert said in refuse(queen, "POST", "/api/v1/ack", json.dumps(wrong).encode()), wrong
    assert state(queen) == before
    assert queen.ack(held)["success"] is True


def test_batch_with_one_bad_ack_acks_nothing(queen: QueenApi, held: Message) -> None:
    before = state(queen)
    for wrong, _ in wrong_acks(held):
        if "consumerGroup" not in wrong:  # an entry's own group is not read
            body = {"acknowledgments": [named(held), wrong]}
            refuse(queen, "POST", "/api/v1/ack/batch", json.dumps(body).encode())
    missing: list[Message] = [{}, {"acknowledgments": None}, {"acknowledgments": {}}, {"acknowledgments": "a"}]
    for one in missing:
        text = refuse(queen, "POST", "/api/v1/ack/batch", json.dumps(one).encode())
        assert text == "acknowledgments array is required"
    for more in ({"consumerGroup": 5}, {"atomic": "yes"}):
        refuse(queen, "POST", "/api/v1/ack/batch", json.dumps({"acknowledgments": [named(held)], **more}).encode())
    assert state(queen) == before
    assert queen.ack(held)["success"] is True


def test_transaction_with_one_bad_operation_does_nothing(queen: QueenApi, held: Message) -> None:
    before = state(queen)
    push = {"type": "push", "items": [ITEM]}
    good = {"type": "ack", **named(held)}
    operations: list[Any] = [
        *({"type": "ack", **wrong} for wrong, _ in wrong_acks(held)),
        *({"type": "push", **wrong} for wrong in WRONG_ITEMS if isinstance(wrong, dict)),
        {},
        5,
        None,
        {"type": "merge"},
        {"type": 5},
        {"type": "push", "queue": 5, "payload": 1},
    ]
    for wrong in operations:
        refuse(queen, "POST", "/api/v1/transaction", json.dumps({"operations": [push, good, wrong]}).encode())
    for body, said in (
        ({}, "operations array required"),
        ({"operations": None}, "operations array required"),
        ({"operations": {}}, "operations array required"),
        ({"operations": []}, "operations array cannot be empty"),
        ({"operations": [push], "requiredLeases": 5}, ""),
        ({"operations": [push], "requiredLeases": [5]}, ""),
    ):
        assert said in refuse(queen, "POST", "/api/v1/transaction", json.dumps(body).encode())
    assert state(queen) == before
    assert queen.ack(held)["success"] is True


def test_renewal_by_no_time_is_refused(queen: QueenApi, held: Message) -> None:
    before = state(queen)
    seconds: list[Any] = ["soon", {}, [], True, 1e300, 10**400]
    for one in seconds:
        refuse(queen, "POST", f"/api/v1/lease/{held['leaseId']}/extend", json.dumps({"seconds": one}).encode())
    assert state(queen) == before


WRONG_POPS = [
    "q?leaseSeconds=soon",
    "q?leaseSeconds=-1",
    "q?leaseSeconds=0",
    "q?leaseSeconds=nan",
    "q?leaseSeconds=inf",
    "q?leaseSeconds=1e300",
    "q?consumerGroup=g&subscriptionFrom=yesterday",
    "q?consumerGroup=g&subscriptionFrom=1815-12-10",
    "q?consumerGroup=a%00b",
    "q?consumerGroup=%ff",
    f"q?consumerGroup={'x' * 300}",
    "a%00b",
    "%ff",
    "x" * 300,
    "q/partition/a%00b",
    "q/partition/%ff",
]


def test_pop_that_makes_no_sense_takes_and_makes_nothing(queen: QueenApi) -> None:
    queen.push("q", 1)
    before = state(queen)
    for wrong in WRONG_POPS:
        refuse(queen, "GET", f"/api/v1/pop/queue/{wrong}")
    assert state(queen) == before
    assert bodies(queen.pop("q")) == [1]


def test_pop_must_say_from_where(queen: QueenApi) -> None:
    answer = queen.call("GET", "/api/v1/pop")
    assert (answer.status, answer.body["error"], answer.body["messages"]) == (400, "namespace or task is required", [])


@pytest.mark.parametrize(
    "query",
    [
        {"batch": "many"},
        {"batch": -1},
        {"batch": 0},
        {"batch": 10_001},
        {"batch": "9" * 5000},
        {"batch": "1_0"},
        {"batch": "+5"},
        {"batch": " 5"},
        {"batch": "\u0665"},
        {"timeout": "long"},
        {"timeout": -5},
        {"partitions": 0},
        {"partitions": "all"},
        {"leaseSeconds": 0},
        {"leaseSeconds": -1},
        {"leaseSeconds": "nan"},
        {"leaseSeconds": "long"},
        {"leaseSeconds": "1_0"},
        {"leaseSeconds": "\u0665"},
        {"maxBytes": "1_0"},
        {"leaseSeconds": 10**9},
        {"subscriptionMode": "zzz"},
        {"subscriptionFrom": "yesterday"},
        {"batch": ""},
        {"timeout": ""},
        {"leaseSeconds": ""},
        {"partitions": ""},
        {"maxBytes": ""},
        {"clientId": "x" * 300},
    ],
    ids=str,
)
def test_pop_with_a_bad_value_is_refused(queen: QueenApi, query: dict[str, Any]) -> None:
    status, answer = queen.call("GET", "/api/v1/pop/queue/new", consumerGroup="g", **query)
    assert (status, answer["code"]) == (400, "bad_input")
    assert next(iter(query)) in answer["error"] or "lease" in answer["error"]
    assert queen.get("/api/v1/resources/queues")["queues"] == []


def test_pop_with_an_endless_byte_bound_is_served(queen: QueenApi) -> None:
    queen.push("q", 1)
    assert queen.call("GET", "/api/v1/pop/queue/q", maxBytes="0" * 5000).status == 400
    assert bodies(queen.pop("q", maxBytes="9" * 5000)) == [1]


@pytest.mark.parametrize("path", ["dlq?limit=x", "dlq?offset=-1", "consumer-groups/lagging?minLagSeconds=x"])
def test_list_with_a_bad_number_is_refused(queen: QueenApi, path: str) -> None:
    assert queen.call("GET", f"/api/v1/{path}").status == 400


# places and methods


def test_unknown_places_and_methods_are_told(queen: QueenApi, held: Message) -> None:
    before = state(queen)
    for path in ("/api/v1/nothing", "/api/v2/push", "/api/v1/push/more", "/api/v1/pop/queue", "/nowhere"):
        refuse(queen, "POST", path, b"{}", 404)
    for method, path in (("GET", "/api/v1/push"), ("DELETE", "/api/v1/ack"), ("PATCH", "/api/v1/transaction")):
        refuse(queen, method, path, None, 405)
    allowed = queen.http.put("/api/v1/push").headers["allow"]
    assert allowed == "POST"
    assert state(queen) == before


def test_looking_for_headers_takes_no_message(queen: QueenApi) -> None:
    queen.push("q", 1)
    queen.http.head("/api/v1/pop/queue/q")
    assert bodies(queen.pop("q")) == [1]


def test_empty_push_and_empty_ack_batch_succeed(queen: QueenApi) -> None:
    assert queen.call("POST", "/api/v1/push", {"items": []}) == (201, [])
    assert queen.call("POST", "/api/v1/ack/batch", {"acknowledgments": []}) == (200, [])
    assert queen.get("/api/v1/resources/queues")["queues"] == []


def test_empty_pop_has_no_body(queen: QueenApi) -> None:
    answer = queen.http.get("/api/v1/pop/queue/q")
    assert (answer.status_code, answer.content, "content-length" in answer.headers) == (204, b"", False)


# a client that is gone


def test_messages_claimed_for_gone_client_are_free_at_once(queen: QueenApi) -> None:
    """Whenever it hangs up: before, while or after the message is found."""
    host, port = queen.http.base_url.host, queen.http.base_url.port
    assert port is not None
    for number in range(20):
        with Wire((host, port)) as wire:
            wire.ask("GET", "/api/v1/pop/queue/q?wait=true&timeout=60000")
            if number % 2:
                queen.get("/health")
        queen.push("q", number)
        found = queen.pop("q", wait="true", timeout=20_000)
        assert bodies(found) == [number]
        assert found[0]["retryCount"] == 0
        assert queen.ack(found[0])["success"] is True


# anything at all

NAMES = sorted(
    {
        "items", "queue", "partition", "payload", "data", "transactionId", "traceId", "delaySeconds", "partitionId",
        "leaseId", "status", "error", "consumerGroup", "acknowledgments", "atomic", "operations", "type",
        "requiredLeases", "seconds", "options", "namespace", "task", "mode", "leaseTime", "retryLimit", "retryDelay",
        "maxWaitTimeSeconds", "windowBuffer", "timestamp", "toEnd", "subscriptionTimestamp", "messages", "entries",
        "delivery_id", "outcome", "group", "max", "lease_seconds", "verb", "fields", "selector", "policy",
    }
)  # fmt: skip
WORDS = ["q", "Default", "completed", "failed", "ack", "push", "new", ELSEWHERE, "", "\0", "é", "x" * 300]
CONTENT = any_body(NAMES, WORDS)
ROUTES = all_routes(Mock(AsyncBroker), Settings(), Mock(Sinks))
PLACES = sorted({one.path for one in ROUTES if one.method == "POST" and not one.path.startswith(f"/{pushpop.PATHS}/")})


def in_place(path: str, words: list[str]) -> str:
    """The path with something in its braces."""
    left = iter(words)
    return re.sub(r"\{[^}]*\}", lambda _: quote(next(left) or "-", safe=""), path)


@settings(
    max_examples=10_000 if DEEPLY else 150,
    derandomize=not DEEPLY,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(place=st.sampled_from(PLACES), words=st.lists(st.sampled_from(WORDS), min_size=4, max_size=4), content=CONTENT)
def test_random_post_is_done_or_changes_nothing(queen: QueenApi, place: str, words: list[str], content: bytes) -> None:
    before = state(queen)
    answer = queen.http.post(in_place(place, words), content=content)
    assert answer.status_code < 500, (place, content, answer.text)
    if answer.status_code >= 400:
        told = answer.json()
        assert told.get("error") or told["detail"], told  # a resource answers a problem document
        assert told["code"], told
        assert state(queen) == before


def test_payload_may_have_any_keys_also_in_a_transaction(queen: QueenApi) -> None:
    push = {"type": "push", "queue": "q", "payload": {"items": [1]}}
    status, body = queen.call("POST", "/api/v1/transaction", {"operations": [push]})
    assert (status, body["success"]) == (200, True)
    assert bodies(queen.pop("q")) == [{"items": [1]}]


def test_lease_time_out_of_range_says_the_range(queen: QueenApi) -> None:
    status, body = queen.call("GET", "/api/v1/pop/queue/q", leaseSeconds=0)
    assert status == 400
    assert "between" in body["error"]
