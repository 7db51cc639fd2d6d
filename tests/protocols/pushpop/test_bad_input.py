"""What is not well formed is refused with one flat 400, and nothing is taken, pushed or made."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.protocols.pushpop.pushpop_api import INVALID, PushPopApi
from tests.server.anything import any_body
from tests.server.running import Running
from tests.server.wire import Wire

PUSHES = {
    "no body": b"",
    "not JSON": b'{"item": {"n": 1}',
    "two values": b'{"item": {}} {}',
    "not UTF-8": b'{"item": {"n": "\xff"}}',
    "an array": [{"n": 1}],
    "null": b"null",
    "no item": {},
    "only a priority": {"priority": 1},
    "item null": {"item": None},
    "item a string": {"item": "x"},
    "item a number": {"item": 1},
    "item an array": {"item": [{"n": 1}]},
    "item true": {"item": True},
    "item broken": b'{"item": {"n": }}',
    "priority negative": {"item": {}, "priority": -1},
    "priority a float": {"item": {}, "priority": 1.5},
    "priority a whole float": {"item": {}, "priority": 1.0},
    "priority with an exponent": b'{"item": {}, "priority": 1e2}',
    "priority a string": {"item": {}, "priority": "3"},
    "priority true": {"item": {}, "priority": True},
    "priority null": {"item": {}, "priority": None},
    "priority too large": {"item": {}, "priority": 2**31},
    "priority far too large": {"item": {}, "priority": 10**30},
    "priority not a number": b'{"item": {}, "priority": NaN}',
    "items empty": {"items": []},
    "items too many": {"items": [{"item": {}}] * 1001},
    "items an object": {"items": {"item": {}}},
    "items of strings": {"items": ["x"]},
    "one of items without item": {"items": [{"item": {}}, {"priority": 1}]},
    "one of items no object": {"items": [{"item": {}}, {"item": 7}]},
    "one of items with a bad priority": {"items": [{"item": {}}, {"item": {}, "priority": False}]},
    "item and items": {"item": {}, "items": [{"item": {}}]},
    "a number beyond a double": b'{"item": {"a": 1e999}}',
    "a negative one": b'{"item": {"a": [{"b": -1.8E+308}]}}',
    "many digits": b'{"item": {"a": ' + b"9" * 309 + b"}}",
    "many digits and an exponent": b'{"item": {"a": ' + b"9" * 250 + b"e99}}",
    "so many digits that no number has": b'{"item": {"a": ' + b"9" * 5000 + b"}}",
    "one of items beyond a double": b'{"items": [{"item": {}}, {"item": {"a": 1e309}}]}',
    "nearly too deep": b'{"item": ' + b'{"a":' * 950 + b"1" + b"}" * 951,
    "deep beyond reason": b'{"item": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
}
POPS = {
    "require_ack": ["maybe", "", "2", "tru", "null"],
    "allow_competing_consumers": ["maybe", ""],
    "ttl_seconds": ["abc", "", "1.5", "30s", "true", "1e3", "0x10", "٣", " 5", "1_0"],
    "count": ["0", "-1", "101", "abc", "", "1.0", "true", "9" * 5000],
}


def flat(answer: Any) -> None:
    assert answer.status == 400
    assert set(answer.body) == {"success", "message"}
    assert answer.body["success"] is False
    assert isinstance(answer.body["message"], str)
    assert answer.body["message"]


@pytest.mark.parametrize("body", PUSHES.values(), ids=PUSHES.keys())
def test_push_that_is_wrong(pushpop: PushPopApi, body: Any) -> None:
    flat(pushpop.post("push", body))
    assert pushpop.queue not in [one["queue_id"] for one in pushpop.http.get("/queue").json()["queues"]]
    pushpop.push(1)
    flat(pushpop.post("push", body))
    assert pushpop.depth == {"0": 1}


@pytest.mark.parametrize(
    "item",
    [
        b'{"a":1e308,"b":1.7976931348623157e+308,"c":0e999,"d":1e-999,"e":0.0001e310}',
        b'{"a":"1e999","1e999":"' + b"9" * 400 + b'"}',
        b'{"a":123456789012345678901234567890}',
        b'{"a":' + b"[" * 800 + b"]" * 800 + b"}",
        b'{"a":[' + b",".join([b"[]"] * 3000) + b"]}",
    ],
    ids=["large numbers", "text", "a large integer", "deep", "wide"],
)
def test_readable_item_is_returned_byte_for_byte(pushpop: PushPopApi, item: bytes) -> None:
    assert pushpop.post("push", b'{"item":' + item + b"}").status == 200
    answer = pushpop.http.post(f"/queue/{pushpop.queue}/pop")
    assert answer.content == b'{"items":[' + item + b'],"count":1}'


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in POPS.items() for text in texts])
@pytest.mark.parametrize("held", [True, False], ids=["with ack", "plain"])
def test_option_that_cannot_be_read(pushpop: PushPopApi, name: str, text: str, held: bool) -> None:
    pushpop.push(1, 2)
    flat(pushpop.post("pop", **{"require_ack": str(held).lower(), name: text}))
    if text.strip() == text and text.isascii() and text:
        flat(pushpop.post("pop", headers={"require_ack": str(held).lower(), name: text}))
    assert pushpop.depth == {"0": 2}
    assert pushpop.look()["lock"] is None
    assert pushpop.pop() == [1]


@pytest.mark.parametrize("verb", ["push", "pop", "acknowledge", "extend-lock", "deadletter", "", "metadata"])
@pytest.mark.parametrize("queue", ["a" * 65, "a.b", "a%20b", "a%2Fb", "%C3%A9", "a%00", "%FF", "a:b", "~"])
def test_queue_ids_are_letters_digits_and_two_signs(http: httpx2.Client, queue: str, verb: str) -> None:
    method = "GET" if verb in ("", "metadata") else "POST"
    answer = http.request(method, f"/queue/{queue}/{verb}".rstrip("/"), content=b'{"item": {}, "lock_id": "x"}')
    assert answer.status_code == 400
    assert set(answer.json()) == {"success", "message"}
    assert answer.json()["success"] is False


@pytest.mark.parametrize("path", ["/queue//push", "/queue//pop", "/queue//metadata", "/queue//sink/http/register"])
def test_empty_queue_id(server: Running, path: str) -> None:
    with Wire(server.address) as wire:
        wire.ask("GET" if path.endswith("metadata") else "POST", path, b'{"item": {}}')
        answer = wire.reply()
    assert answer is not None
    assert (answer.status, set(answer.json), answer.json["success"]) == (400, {"success", "message"}, False)
    assert "queue_id" in answer.json["message"]


def test_paths_and_methods_that_are_not_there(pushpop: PushPopApi) -> None:
    assert pushpop.post("shove") == (404, {"success": False, "message": "The path does not exist."})
    assert pushpop.post("push/twice").status == 404
    answer = pushpop.http.get(f"/queue/{pushpop.queue}/pop")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json() == {"success": False, "message": "GET is not allowed here"}
    answer = pushpop.http.options(f"/queue/{pushpop.queue}/pop")
    assert (answer.status_code, answer.headers["allow"]) == (204, "POST")
    for path in ("/elsewhere", "/queues/x"):
        assert set(pushpop.http.get(path).json()) == {"error", "code"}


@pytest.mark.parametrize("queue", ["a", "Z9", "-", "_", "a-b_c", "a" * 64])
def test_other_queue_ids_are_good(pushpop: PushPopApi, queue: str) -> None:
    named = PushPopApi(pushpop.http, pushpop.clock, queue)
    named.push(1)
    assert named.pop() == [1]


@pytest.mark.parametrize("verb", ["acknowledge", "extend-lock", "deadletter"])
@pytest.mark.parametrize("lock_id", ["x" * 129, "x" * 100_000, "\0", "a\nb", "\ud800"], ids=lambda text: repr(text)[:9])
def test_lock_ids_that_no_lock_can_have(pushpop: PushPopApi, verb: str, lock_id: str) -> None:
    pushpop.push(1)
    assert pushpop.post(verb, {"lock_id": lock_id}).status == 400
    held = pushpop.lock()
    answer = pushpop.post(verb, {"lock_id": lock_id})
    flat(answer)
    assert pushpop.ack(held["lock_id"]).status == 200


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"\xff", b'{"lock_id": "a"} x'])
@pytest.mark.parametrize("verb", ["acknowledge", "extend-lock", "deadletter"])
def test_lock_bodies_that_are_no_objects(pushpop: PushPopApi, verb: str, body: bytes) -> None:
    pushpop.push(1)
    held = pushpop.lock()
    flat(pushpop.post(verb, body))
    assert pushpop.ack(held["lock_id"]).status == 200


@pytest.mark.parametrize("verb", ["acknowledge", "extend-lock", "deadletter"])
def test_strange_but_possible_id_is_only_not_found(pushpop: PushPopApi, verb: str) -> None:
    pushpop.push(1)
    pushpop.lock()
    for lock_id in ("L1-00000000", " ", "é", "x" * 128, "'; DROP TABLE lease; --"):
        assert pushpop.post(verb, {"lock_id": lock_id}) == (400, INVALID)


@pytest.mark.parametrize("added", [0, -1, 1.5, "30", True, None, 86401, 10**30, [1]])
def test_extensions_that_are_no_time(pushpop: PushPopApi, added: Any) -> None:
    pushpop.push(1)
    held = pushpop.lock()
    answer = pushpop.post("extend-lock", {"lock_id": held["lock_id"], "additional_ttl_seconds": added})
    assert (answer.status, answer.body["error_code"]) == (400, "INVALID_TTL")
    assert pushpop.look()["lock"]["expires_at"] == held["lock_expires_at"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/xml", ""])
def test_json_is_read_whatever_the_content_type(pushpop: PushPopApi, kind: str) -> None:
    headers = {"content-type": kind}
    body = json.dumps({"item": {"n": 1}}).encode()
    assert pushpop.post("push", body, headers=headers).status == 200
    lock_id = pushpop.lock()["lock_id"]
    assert pushpop.post("acknowledge", json.dumps({"lock_id": lock_id}).encode(), headers=headers).status == 200


def test_item_over_the_limit_is_refused(pushpop: PushPopApi) -> None:
    answer = pushpop.post("push", {"item": {"n": "x" * (9 << 20)}})
    assert answer.status == 413
    assert set(answer.body) == {"success", "message"}
    assert pushpop.depth == {}


def test_thousand_items_are_taken_and_one_more_is_not(pushpop: PushPopApi) -> None:
    assert pushpop.post("push", {"items": [{"item": {"n": n}} for n in range(1000)]}).body["items_pushed"] == 1000
    assert pushpop.depth == {"0": 1000}
    assert pushpop.drained() == list(range(1000))


# anything at all

VERBS = (
    "push", "pop", "acknowledge", "extend-lock", "deadletter", "sink/http/register", "sink/http/unregister",
)  # fmt: skip
NAMES = ("item", "items", "priority", "lock_id", "additional_ttl_seconds", "url", "max_concurrency", "lock_ttl_seconds")
OPTIONS = ("require_ack", "ttl_seconds", "count", "allow_competing_consumers")
WORDS = ["", "x", "true", "\0", "é", "x" * 300, "http://127.0.0.1/", "http://example.com/", "L1-00000000"]
CONTENT = any_body(NAMES, WORDS)


@settings(
    max_examples=150,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    verb=st.sampled_from(VERBS),
    content=CONTENT,
    options=st.dictionaries(
        st.sampled_from(OPTIONS), st.sampled_from(["true", "1", "7", "0", "-1", "x", ""]), max_size=3
    ),
)
def test_random_post_is_done_or_changes_nothing(
    pushpop: PushPopApi, verb: str, content: bytes, options: dict[str, str]
) -> None:
    before = pushpop.metadata(), pushpop.look()
    status, body = pushpop.post(verb, content, **options)
    assert status in (200, 400, 404, 423), body
    if status == 423:
        assert set(body) == {"message", "lock_expires_at"}
    elif status != 200:
        assert set(body) - {"error_code"} == {"success", "message"}
        assert body["success"] is False
    if status != 200:
        assert (pushpop.metadata(), pushpop.look()) == before
    if verb.startswith("sink") and status == 200:
        pushpop.post("sink/http/unregister")
    pushpop.clock.advance(400)
