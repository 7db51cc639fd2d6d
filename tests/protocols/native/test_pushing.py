"""Messages go in as rows or columns and keep every byte."""

from __future__ import annotations

import base64

import msgspec
import pytest

from tests.protocols.native.native_api import NativeApi

ODD = [
    b'{"a": 1.0,  "b":[ ]}',
    b'{"n":123456789012345678901234567890,"e":1e999,"z":-0.0,"f":1.10}',
    b'{"a":1,"a":2,"":null}',
    '{"é":"ü\\u00fc 🎉","\\u0000":"\\\\\\"/"}'.encode(),
    b" [1 ,\t2,\n3\r] ",
    b'"text % %s %d"',
    b"null",
    b"false",
    b"-1.5E-7",
]


def test_rows_have_options(native: NativeApi) -> None:
    status, answer = native.call(
        "/v1/push",
        {
            "queue": "q",
            "partition": "eu",
            "messages": [
                {"payload": 1},
                {"payload": 2, "partition": "us", "priority": 3, "transaction_id": "t", "headers": {"a": "b"}},
                {"payload": 3, "delay_seconds": 1.5},
            ],
        },
    )
    assert (status, set(answer)) == (200, {"receipts"})
    assert [(r["status"], r["partition"], r["seq"]) for r in answer["receipts"]] == [
        ("queued", "eu", 0),
        ("queued", "us", 0),
        ("scheduled", "eu", None),
    ]
    assert answer["receipts"][1]["transaction_id"] == "t"
    assert answer["receipts"][0]["transaction_id"] == answer["receipts"][0]["message_id"]
    found = {m["payload"]: m for m in native.claim("q", max=9)["messages"]}
    assert sorted(found) == [1, 2]
    assert (found[2]["partition"], found[2]["priority"], found[2]["headers"]) == ("us", 3, {"a": "b"})
    native.clock.advance(2)
    assert [m["payload"] for m in native.claim("q", max=9)["messages"]] == [3]


def test_columns_are_answered_as_one_run(native: NativeApi) -> None:
    run = native.ok("/v1/push", {"queue": "q", "payloads": [1, 2, 3], "transaction_ids": ["a", "b", "c"]})["run"]
    assert (run["count"], run["first_seq"], run["partition"]) == (3, 0, "Default")
    found = native.claim("q", max=3)["messages"]
    assert [m["transaction_id"] for m in found] == ["a", "b", "c"]
    first = int(run["first_message_id"].replace("-", ""), 16)
    assert [int(m["message_id"].replace("-", ""), 16) for m in found] == [first, first + 1, first + 2]
    assert {m["partition_id"] for m in found} == {run["partition_id"]}


def test_columns_with_duplicates_are_answered_one_by_one(native: NativeApi) -> None:
    native.ok("/v1/push", {"queue": "q", "payloads": [1], "transaction_ids": ["a"]})
    again = native.ok("/v1/push", {"queue": "q", "payloads": [1, 2], "transaction_ids": ["a", "b"]})
    assert [r["status"] for r in again["receipts"]] == ["duplicate", "queued"]


def test_columns_without_ids_and_empty_pushes(native: NativeApi) -> None:
    assert native.ok("/v1/push", {"queue": "q", "payloads": [1, 2]})["run"]["count"] == 2
    assert native.ok("/v1/push", {"queue": "q", "payloads": []}) == {"receipts": []}
    assert native.ok("/v1/push", {"queue": "q", "messages": []}) == {"receipts": []}


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_every_byte_of_a_payload_is_kept(native: NativeApi, form: str) -> None:
    if form == "rows":
        body = b'{"queue":"q","messages":[%b]}' % b",".join(b'{"payload":%b}' % one for one in ODD)
    else:
        body = b'{"queue":"q","payloads":[%b]}' % b",".join(ODD)
    assert native.raw("/v1/push", body).status_code == 200
    kept = [one.strip() for one in ODD]
    stored = [base64.b64decode(row["message"]["payload"]) for row in native.ask("browse", queue="q")]
    assert stored == kept
    answer = native.raw("/v1/claim", b'{"queue":"q","max":99}').content
    rows = msgspec.json.decode(whole(answer)["messages"], type=list[dict[str, msgspec.Raw]])
    assert [bytes(row["payload"]) for row in rows] == kept
    answer = native.raw("/v1/claim", b'{"queue":"q","group":"g","max":99,"columns":true}').content
    assert list(map(bytes, msgspec.json.decode(whole(answer)["payloads"], type=list[msgspec.Raw]))) == kept


def whole(answer: bytes) -> dict[str, msgspec.Raw]:
    """An answer that the client has not read yet."""
    return msgspec.json.decode(answer, type=dict[str, msgspec.Raw])


def test_bytes_travel_in_base64_with_their_type(native: NativeApi) -> None:
    wrapped = {"$base64": base64.b64encode(b"\x00\xff<a/>").decode()}
    native.push("q", wrapped, content_type="text/xml")
    native.ok("/v1/push", {"queue": "q", "payloads": [wrapped], "content_type": "application/octet-stream"})
    found = native.claim("q", max=9)["messages"]
    assert [(m["payload"], m["content_type"]) for m in found] == [
        (wrapped, "text/xml"),
        (wrapped, "application/octet-stream"),
    ]
    assert [base64.b64decode(row["message"]["payload"]) for row in native.ask("browse", queue="q")] == [
        b"\x00\xff<a/>"
    ] * 2


def test_json_that_looks_wrapped_is_json(native: NativeApi) -> None:
    native.push("q", {"$base64": "not base64 at all"})
    (found,) = native.claim("q")["messages"]
    assert (found["payload"], found["content_type"]) == ({"$base64": "not base64 at all"}, "application/json")


def test_queue_is_made_with_a_policy_or_not_at_all(native: NativeApi) -> None:
    native.ok("/v1/push", {"queue": "q", "payloads": [1], "create": {"retry_limit": 7}})
    assert native.ask("get_queue", queue="q")["policy"]["retry_limit"] == 7
    status, answer = native.call("/v1/push", {"queue": "other", "payloads": [1], "create": None})
    assert (status, answer["code"]) == (404, "unknown_queue")


@pytest.mark.parametrize("path", ["/v1/push", "/v1/messages", "/api/v1/push", "/api/v1/push in maintenance"])
def test_push_copies_the_trace_context_into_messages(native: NativeApi, path: str) -> None:
    path, _, maintenance = path.partition(" ")
    native.http.post("/v1/queues", json={"queue": "q"}).raise_for_status()
    switch = "/api/v1/system/maintenance"
    if maintenance:
        native.http.post(switch, json={"enabled": True}).raise_for_status()
    parent, state = f"00-{'a' * 32}-{'b' * 16}-01", "vendor=1"
    item = {"queue": "q", "payload": 1, "traceId": "t"}
    body = {"items": [item]} if path.startswith("/api") else {"queue": "q", "messages": [{"payload": 1}]}
    for headers in ({"traceparent": parent, "tracestate": state}, {"traceparent": "nonsense"}, {}):
        native.http.post(path, json=body, headers=headers).raise_for_status()
    if maintenance:
        native.http.post(switch, json={"enabled": False}).raise_for_status()
    contexts: list[dict[str, str]] = []
    while len(contexts) < 3:
        contexts += [message["headers"] for message in native.claim("q", max=3, wait_seconds=5)["messages"]]
    shown = [(headers.get("traceparent"), headers.get("tracestate")) for headers in contexts]
    assert shown == [(parent, state), (None, None), (None, None)]
