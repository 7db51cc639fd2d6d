"""Whatever is sent: a 4xx that says why, nothing taken, and a server that goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.protocols.native.native_api import ARROW, NativeApi

MALFORMED = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"7",
    b'"text"',
    b"\xff\xfe",
    b'{"queue":"q"} x',
    b'{"queue":"\xff"}',
    b'{"queue":"q","messages":[{"payload":"\xff"}]}',
    b'{"queue":"q","payloads":["\xed\xa0\x80"]}',
    b'{"queue":"q","payloads":["\\ud800"]}',
    b'{"queue":"q","payloads":[' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
    b'{"queue":"q","payloads":[1,]}',
    b'{"queue":"q","payloads":[NaN]}',
    b'{"unheard_of":1}',
]
POSTS = ["push", "claim", "settle", "extend", "release", "transaction", "stop", "admin", "ask"]


@pytest.mark.parametrize("route", POSTS)
def test_malformed_body_is_400_on_every_route(native: NativeApi, route: str) -> None:
    for body in MALFORMED:
        answer = native.raw(f"/v1/{route}", body)
        assert answer.status_code == 400, (body[:80], answer.text)
        assert set(answer.json()) == {"error", "code", "type", "title", "status"}, answer.text
    assert native.ask("list_queues") == []


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("claim", {"queue": "f", "group": "late", "start": "9999-12-31T23:59:59-23:00"}),
    ("push", {}),
    ("push", {"queue": "new"}),
    ("push", {"queue": "new", "messages": [], "payloads": []}),
    ("push", {"queue": "new", "messages": [{"payload": 1}], "transaction_ids": ["a"]}),
    ("push", {"queue": "new", "payloads": [1, 2], "transaction_ids": ["a"]}),
    ("push", {"queue": "new", "payloads": [1], "content_type": "text/plain"}),
    ("push", {"queue": "new", "messages": [{"payload": "plain", "content_type": "text/plain"}]}),
    ("push", {"queue": "new", "messages": [{"payload": {"$base64": "%"}, "content_type": "text/plain"}]}),
    ("push", {"queue": "new", "messages": [{}]}),
    ("push", {"queue": "new", "messages": [{"payload": 1, "delay_seconds": -1}]}),
    ("push", {"queue": "new", "messages": [{"payload": 1, "delay_seconds": 1e300}]}),
    ("push", {"queue": "new", "messages": [{"payload": 1, "priority": -1}]}),
    ("push", {"queue": "new", "messages": [{"payload": 1, "priority": 2**70}]}),
    ("push", {"queue": "new", "messages": [{"payload": 1, "transaction_id": ""}]}),
    ("push", {"queue": "new", "messages": [{"payload": 1, "headers": {"a": 1}}]}),
    ("push", {"queue": "new", "messages": [{"payload": 1, "delay": 5}]}),
    ("push", {"queue": "new\0", "payloads": [1]}),
    ("push", {"queue": "", "payloads": [1]}),
    ("push", {"queue": "new", "partition": "x" * 300, "payloads": [1]}),
    ("push", {"queue": "new", "payloads": [1], "create": {"retry_limit": -1}}),
    ("push", {"queue": "new", "payloads": [1], "create": {"retries": 3}}),
    ("claim", {}),
    ("claim", {"queue": "q", "max": 0}),
    ("claim", {"queue": "q", "max": 10**9}),
    ("claim", {"queue": "q", "max": "1"}),
    ("claim", {"queue": "q", "lease_seconds": 0}),
    ("claim", {"queue": "q", "lease_seconds": 10**6}),
    ("claim", {"queue": "q", "wait_seconds": -1}),
    ("claim", {"queue": "q", "wait_seconds": "5"}),
    ("claim", {"queue": "q", "exclusivity": "all"}),
    ("claim", {"queue": "q", "order": "random"}),
    ("claim", {"queue": "q", "start": "yesterday"}),
    ("claim", {"queue": "q", "start": "2030-01-01T00:00:00"}),
    ("claim", {"queue": "q", "start": "1930-01-01T00:00:00Z"}),
    ("claim", {"queue": "q", "group": ""}),
    ("claim", {"queue": "q", "owner": "a\0b"}),
    ("claim", {"queue": "q", "priorities": [-1]}),
    ("claim", {"queue": "q", "key": "k", "auto_ack": True}),
    ("claim", {"queue": "q", "ahead": 0}),
    ("claim", {"queue": "q", "ahead": 10**6}),
    ("claim", {"queue": "q", "ahead": 1, "wait_seconds": 1}),
    ("claim", {"queue": "q", "settle": [{"outcome": "ack"}]}),
    ("claim", {"queue": "q", "maximum": 1}),
    ("claim", {"queue": "q", "grants_only": True, "auto_ack": True}),
    ("claim", {"queue": "q", "grants_only": True, "wait_seconds": 1}),
    ("claim", {"queue": "q", "grants_only": True, "ahead": 1}),
    ("claim", {"queue": "q", "grants_only": True, "settle": []}),
    ("settle", {}),
    ("settle", {"entries": [{"outcome": "ack"}]}),
    ("settle", {"entries": [{"delivery_id": "x"}]}),
    ("settle", {"entries": [{"delivery_id": "x", "outcome": "done"}]}),
    ("settle", {"entries": [{"delivery_id": 5, "outcome": "ack"}]}),
    ("settle", {"entries": [{"delivery_id": "x", "lease_id": "y", "outcome": "ack"}]}),
    ("settle", {"entries": [{"delivery_id": "x", "outcome": "retry", "delay_seconds": -1}]}),
    ("settle", {"entries": [{"delivery_id": "x", "outcome": "retry", "delay_seconds": 1e300}]}),
    ("settle", {"entries": [{"delivery_id": "x", "outcome": "retry", "delay": 1}]}),
    ("settle", {"entries": [{"selector": {"type": "nothing"}, "outcome": "ack"}]}),
    ("settle", {"entries": [{"selector": {"type": "range", "lease_id": "x", "lane": 1, "lo": 2, "hi": 1},
        "outcome": "ack"}]}),
    ("extend", {"lease_id": "x"}),
    ("extend", {"lease_id": "x", "lease_seconds": 1, "add_seconds": 1}),
    ("extend", {"lease_id": "x", "lease_seconds": -1}),
    ("extend", {"lease_id": "x", "lease_seconds": 10**9}),
    ("release", {"lease_id": 5}),
    ("transaction", {"pushes": [{"queue": "new"}]}),
    ("transaction", {"on_duplicate": "maybe"}),
    ("transaction", {"settlements": [{"outcome": "ack"}], "pushes": [{"queue": "new", "payloads": [1]}]}),
    ("admin", {"type": "push", "queue": "new"}),
    ("admin", {"type": "sweep"}),
    ("admin", {"type": "configure_queue", "queue": "new", "policy": {"retries": 1}}),
    ("admin", {"type": "configure_queue", "queue": "new", "policy": {"retry_limit": "3"}}),
    ("admin", {"type": "configure_queue", "queue": "new", "polcy": {}}),
    ("admin", {"type": "seek_group", "queue": "q", "group": "g", "to": "middle"}),
    ("admin", {"type": "advance_group", "queue": "q", "group": "g", "lanes": {"99": 0}}),
    ("admin", {"type": "advance_group", "queue": "q", "group": "g", "lanes": {"1": 2}}),
    ("admin", {"type": "advance_group", "queue": "q", "group": "g", "lanes": {"one": 1}}),
    ("admin", {"type": "advance_group", "queue": "q", "group": "g", "lanes": {str(2**70): 1}}),
    ("admin", {"type": "advance_group", "queue": "q", "group": "g"}),
    ("ask", {"type": "list_everything"}),
    ("ask", {"type": "browse", "queue": "q", "limit": -1}),
    ("ask", {"type": "get_queue"}),
]  # fmt: skip


def test_wrong_calls_are_refused_and_change_nothing(native: NativeApi) -> None:
    native.push("q", 1)
    for route, body in REFUSED:
        status, answer = native.call(f"/v1/{route}", body)
        assert status == 400, (route, body, answer)
        members = {"error", "code", "type", "title", "status"}
        assert (set(answer), answer["code"]) == (members, "bad_input"), (route, body, answer)
    assert [row["name"] for row in native.ask("list_queues")] == ["q"]
    assert (native.rows("groups"), native.rows("leases")) == ([], [])
    assert len(native.rows("messages", queue="q")) == 1


SOUND: list[tuple[str, dict[str, Any]]] = [
    ("push", {"queue": "f", "messages": [{"payload": 1, "partition": "p", "priority": 1, "transaction_id": "t",
        "headers": {"a": "b"}, "content_type": "application/json", "delay_seconds": 0.1}], "create": {}}),
    ("push", {"queue": "f", "payloads": [1], "transaction_ids": ["u"], "partition": "p",
        "content_type": "application/json"}),
    ("claim", {"queue": "f", "group": "g", "max": 1, "max_partitions": 1, "partitions": ["p"], "priorities": [1],
        "lease_seconds": 1, "wait_seconds": 0, "exclusivity": "none", "order": "strict", "owner": "o", "key": "k",
        "auto_ack": False, "bulk": False, "start": "all", "create": {}, "settle": [], "atomic": False, "detail": True,
        "columns": True, "poll": "x"}),
    ("claim", {"namespace": "n", "task": "t", "ahead": 1}),
    ("claim", {"queue": "f", "group": "g", "key": "only", "owner": "o", "grants_only": True}),
    ("settle", {"entries": [{"delivery_id": "L1-00000001.1.1", "outcome": "retry", "delay_seconds": 1, "error": "e",
        "error_type": "t"}], "atomic": False, "detail": False}),
    ("settle", {"entries": [{"lease_id": "L1-00000001", "outcome": "ack"}]}),
    ("settle", {"entries": [{"selector": {"type": "range", "lease_id": "L1-00000001", "lane": 1, "lo": 0, "hi": 1},
        "outcome": "ack"}]}),
    ("settle", {"entries": [{"selector": {"type": "transaction", "partition_id": "p", "transaction_id": "t",
        "group": "g", "lease_id": None}, "outcome": "ack"}]}),
    ("extend", {"lease_id": "L1-00000001", "lease_seconds": 1, "keep_later": False}),
    ("release", {"lease_id": "L1-00000001"}),
    ("transaction", {"settlements": [], "pushes": [{"queue": "f", "payloads": [1]}], "required_leases": [],
        "on_duplicate": "ok", "on_already": "ok", "detail": False}),
    ("stop", {"polls": ["x"]}),
    ("admin", {"type": "configure_queue", "queue": "f", "policy": {"retry_limit": 1, "lease_seconds": 5, "order": None,
        "backoff": {"kind": "fixed", "seconds": 1}, "notes": []}, "namespace": "n", "task": "t", "partition": "p"}),
    ("admin", {"type": "pause_queue", "queue": "f", "paused": False}),
    ("admin", {"type": "configure_group", "queue": "f", "group": "g", "start": 5, "policy": {"retry_limit": 1}}),
    ("admin", {"type": "seek_group", "queue": "f", "group": "g", "to": 1, "partition": "p", "by": "seq"}),
    ("admin", {"type": "advance_group", "queue": "f", "group": "g", "lanes": {"1": 0}}),
    ("admin", {"type": "redrive", "ids": ["x"]}),
    ("admin", {"type": "replay", "ids": ["x"], "queue": "f", "partition": "p"}),
    ("admin", {"type": "purge_dead", "ids": ["x"], "queue": "f", "group": "g"}),
    ("admin", {"type": "delete_group", "queue": "f", "group": "g"}),
    ("ask", {"type": "list_queues", "namespace": "n", "task": "t"}),
    ("ask", {"type": "browse", "queue": "f", "partition": "p", "group": "g", "after": [1, 1], "limit": 5}),
    ("ask", {"type": "find_message", "partition_id": "p", "transaction_id": "t"}),
    ("ask", {"type": "list_dead", "queue": "f", "group": "g", "partition": "p", "reason": "rejected", "after_at": 1,
        "before_at": 2, "ids": ["x"], "limit": 5, "offset": 0}),
    ("ask", {"type": "list_groups", "queue": "f", "group": "g"}),
    ("ask", {"type": "list_cursors", "queue": "f", "group": "g"}),
    ("ask", {"type": "list_places", "queue": "f", "group": "g", "unfinished_since": 1, "last_done": True}),
    ("ask", {"type": "list_partitions", "queue": "f"}),
    ("ask", {"type": "list_lanes", "queue": "f"}),
    ("ask", {"type": "list_leases", "queue": "f", "group": "g", "instance": "i", "key_prefix": "k", "live_only": True,
        "limit": 5}),
    ("admin", {"type": "purge_queue", "queue": "f", "until": 1, "one_turn": True, "behind": {"until": 1, "lane": 1}}),
    (
        "admin",
        {
            **{"type": "report_pipeline", "id": "p", "queue": "f", "group": "g"},
            "report": {"state": "running", "started_at": 1, "rows": 2, "last_error": "e", "ui_url": "http://h/"},
        },
    ),
    ("ask", {"type": "preview_purge", "queue": "f"}),
    ("ask", {"type": "preview_seek", "queue": "f", "group": "g", "to": 5, "partition": "p", "by": "seq"}),
    (
        "ask",
        {
            **{"type": "browse_newest", "queue": "f", "partition": "p", "group": "g", "state": "ready", "after_at": 1},
            **{"before_at": 9, "headers": {"a": "b"}, "filter": "/a > 1", "transaction_text": "t", "after": [1, 2, 3]},
        },
    ),
    ("ask", {"type": "message_timeline", "partition_id": "p", "transaction_id": "t"}),
    ("ask", {"type": "message_timeline", "lane": 1, "seq": 2}),
    ("ask", {"type": "count_dead", "queue": "f", "group": "g", "partition": "p", "reason": "r", "kind": "k"}),
    ("ask", {"type": "count_dead_by_time", "after_at": 1, "before_at": 9, "buckets": 3, "queue": "f", "kind": "k"}),
    ("ask", {"type": "list_dead_kinds", "queue": "f", "group": "g", "after": [1, "f", "k"], "limit": 5}),
    ("ask", {"type": "ledger_series", "after_at": 1, "before_at": 9, "buckets": 3, "queue": "f", "group": "g"}),
    ("ask", {"type": "list_pipelines", "queue": "f", "after": [1, "p"], "limit": 5}),
    ("ask", {"type": "list_oldest_leases", "queue": "f", "after": [1, "L1-00000001"], "limit": 5}),
    ("ask", {"type": "list_consumers", "queue": "f", "group": "g", "recent": 5, "after": ["f", "g", "c"], "limit": 5}),
    ("ask", {"type": "get_group", "queue": "f", "group": "g"}),
    ("ask", {"type": "get_lease", "lease_id": "L1-00000001"}),
    ("ask", {"type": "list_held", "lease_id": "L1-00000001"}),
    ("ask", {"type": "read_ledger", "queue": "f", "group": "g", "after_at": 1, "before_at": 2}),
    ("ask", {"type": "queue_stats", "queue": "f"}),
    ("ask", {"type": "list_stats", "namespace": "n", "task": "t"}),
    ("admin", {"type": "delete_queue", "queue": "f"}),
]  # fmt: skip
NASTY: list[Any] = [
    None, True, -1, 0, 2**63, 2**200, 0.5, 1e308, "", "a\0b", "x" * 600, "é\u2028", "%s", [], {}, [[]], [None],
    {"a": []},
]  # fmt: skip


def places(body: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a body where something else could stand."""
    for key, value in body.items() if isinstance(body, dict) else enumerate(body):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def altered(body: dict[str, Any], path: tuple[Any, ...], value: Any) -> bytes:
    copy = json.loads(json.dumps(body))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return json.dumps(copy).encode()


def test_any_value_in_any_place_is_taken_or_refused(native_anywhere: NativeApi) -> None:
    """Nothing is a 500; the server's log is looked at when the test ends."""
    native = native_anywhere
    for route, body in SOUND:
        native.push("f", 1, partition="p")
        native.claim("f", group="g")
        for path in places(body):
            for value in NASTY:
                sent = altered(body, path, value)
                answer = native.raw(f"/v1/{route}", sent)
                assert answer.status_code in (200, 400, 404, 409, 413), (sent[:200], answer.text)
                if answer.status_code != 200:
                    assert {"error", "code"} <= set(answer.json()), answer.text


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("messages", "bad_input"),
        ("messages?queue=nowhere", "unknown_queue"),
        ("messages?queue=q&group=nobody", "unknown_group"),
        ("messages?queue=q&limit=0", "bad_input"),
        ("messages?queue=q&limit=many", "bad_input"),
        ("messages?queue=q&limit=99999999999999999999999", "bad_input"),
        ("messages?queue=q&limit=%C2%B2", "bad_input"),
        ("messages?queue=q&after=5", "bad_input"),
        ("messages?queue=q&after=a.b", "bad_input"),
        ("messages?queue=q&order=strict", "bad_input"),
        ("messages?queue=%ff", "bad_input"),
        ("messages?queue=%00", "bad_input"),
        ("dead_letters?after=yesterday", "bad_input"),
        ("dead_letters?offset=-1", "bad_input"),
        ("leases?live_only=perhaps", "bad_input"),
        ("ledger?before=2030-01-01", "bad_input"),
        ("groups?queue=", "bad_input"),
        ("everything", "unknown_table"),
    ],
)
def test_tables_refuse_what_they_do_not_know(native: NativeApi, query: str, code: str) -> None:
    native.push("q", 1)
    answer = native.http.get(f"/v1/tables/{query}")
    assert (answer.status_code, answer.json()["code"]) == (404 if "unknown" in code else 400, code)


@pytest.mark.parametrize("body", [b"", b"not arrow", b"\xff\xff\xff\xff\x10\x00\x00\x00" + b"\0" * 16, b"\0" * 1000])
def test_body_that_is_no_arrow_stream(native: NativeApi, body: bytes) -> None:
    answer = native.raw("/v1/push?queue=q", body, **{"content-type": ARROW})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_input")
    assert native.ask("list_queues") == []


def test_methods_and_paths_that_are_not_there(native: NativeApi) -> None:
    assert native.http.get("/v1/push").status_code == 405
    assert native.http.post("/v1/tables/messages").status_code == 405
    assert native.http.post("/v1/pull").status_code == 404
