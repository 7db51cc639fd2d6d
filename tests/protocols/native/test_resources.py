"""Resources of the native API: queues, groups, leases, messages and dead letters."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from tests.protocols.native.native_api import NativeApi

PROBLEM = "application/problem+json"


class Resources:
    """Short words for calls on resources."""

    def __init__(self, native: NativeApi) -> None:
        self.native, self.http = native, native.http

    def send(self, method: str, path: str, body: Any = None, etag: str | None = None) -> httpx2.Response:
        headers = {} if etag is None else {"if-match": etag}
        return self.http.request(method, path, json=body, headers=headers)

    def ok(self, method: str, path: str, body: Any = None, etag: str | None = None, status: int = 200) -> Any:
        answer = self.send(method, path, body, etag)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def refused(self, method: str, path: str, body: Any = None, etag: str | None = None) -> tuple[int, str]:
        answer = self.send(method, path, body, etag)
        problem = answer.json()
        assert answer.headers["content-type"] == PROBLEM, answer.text
        assert problem["status"] == answer.status_code
        assert problem["type"] == f"/docs/errors#{problem['code']}"
        assert problem["detail"]
        assert problem["title"]
        return answer.status_code, problem["code"]

    def etag(self, path: str) -> str:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.headers["etag"]

    def dead_letter(self, queue: str) -> str:
        """Pushes a message and rejects it. Returns the id of its dead letter."""
        self.native.push(queue, {"n": 1})
        claim = self.native.claim(queue)
        self.native.settle({"lease_id": claim["lease_id"], "outcome": "reject", "error": "no stock"})
        letters: list[dict[str, Any]] = self.http.get("/v1/dead-letters", params={"queue": queue}).json()[
            "dead_letters"
        ]
        return str(letters[0]["id"])


@pytest.fixture
def api(native: NativeApi) -> Resources:
    return Resources(native)


@pytest.fixture
def api_anywhere(native_anywhere: NativeApi) -> Resources:
    return Resources(native_anywhere)


# queues


def test_queue_resource_is_created_changed_and_deleted(api_anywhere: Resources) -> None:
    api = api_anywhere
    made = api.send("POST", "/v1/queues", {"queue": "a/b ü", "policy": {"retry_limit": 2}, "namespace": "shop"})
    path = made.headers["location"]
    assert (made.status_code, path) == (201, f"/v1/queues/{quote('a/b ü', safe='')}")
    shown = api.send("GET", path)
    assert (shown.json(), shown.headers["etag"]) == (made.json(), made.headers["etag"])
    assert shown.json()["policy"]["retry_limit"] == 2
    assert shown.json()["policy"]["backoff"]["kind"] == "exponential"  # as every new queue of the native API
    changed = api.ok("PATCH", path, {"policy": {"lease_seconds": 5}, "task": "mail"}, shown.headers["etag"])
    assert changed["policy"]["retry_limit"] == 2
    assert (changed["policy"]["lease_seconds"], changed["namespace"], changed["task"]) == (5, "shop", "mail")
    assert api.refused("DELETE", path, etag=shown.headers["etag"]) == (412, "precondition_failed")
    api.ok("DELETE", path, etag=api.etag(path), status=204)
    assert api.refused("DELETE", path) == (404, "unknown_queue")
    assert api.refused("GET", path) == (404, "unknown_queue")


def test_queue_with_a_known_name_is_not_created(api: Resources) -> None:
    api.ok("POST", "/v1/queues", {"queue": "q"}, status=201)
    assert api.refused("POST", "/v1/queues", {"queue": "q", "policy": {"retry_limit": 1}}) == (409, "queue_exists")
    assert api.ok("GET", "/v1/queues/q")["policy"]["retry_limit"] == 8


def test_change_of_a_missing_queue_creates_nothing(api: Resources) -> None:
    for etag in (None, "*", '"00ff"'):
        assert api.refused("PATCH", "/v1/queues/q", {"policy": {}}, etag) == (404, "unknown_queue")
        assert api.refused("POST", "/v1/queues/q/pause", etag=etag) == (404, "unknown_queue")
    assert api.ok("GET", "/v1/queues")["queues"] == []


def test_old_version_changes_nothing(api_anywhere: Resources) -> None:
    api = api_anywhere
    api.ok("POST", "/v1/queues", {"queue": "q"}, status=201)
    old = api.etag("/v1/queues/q")
    api.ok("PATCH", "/v1/queues/q", {"policy": {"retry_limit": 1}}, old)
    before = api.ok("GET", "/v1/queues/q")
    for method, path, body in (
        ("PATCH", "/v1/queues/q", {"policy": {"retry_limit": 9}}),
        ("POST", "/v1/queues/q/pause", None),
        ("DELETE", "/v1/queues/q", None),
    ):
        assert api.refused(method, path, body, old) == (412, "precondition_failed")
        assert api.refused(method, path, body, '"*"') == (412, "precondition_failed")
    assert api.ok("GET", "/v1/queues/q") == before
    api.ok("PATCH", "/v1/queues/q", {"policy": {"retry_limit": 9}}, "*")


@pytest.mark.parametrize("tag", ["abc", 'W/"abc"', '"a", "b"', '"' + "a" * 300 + '"'])
def test_if_match_of_another_form_is_bad_input(api: Resources, tag: str) -> None:
    api.ok("POST", "/v1/queues", {"queue": "q"}, status=201)
    assert api.refused("DELETE", "/v1/queues/q", etag=tag) == (400, "bad_input")
    api.ok("GET", "/v1/queues/q")


def test_paused_queue_delivers_nothing_until_resumed(api: Resources) -> None:
    api.native.push("q", 1)
    assert api.ok("POST", "/v1/queues/q/pause")["paused"] is True
    assert api.native.claim("q")["empty"] == "paused"
    assert api.ok("POST", "/v1/queues/q/resume")["paused"] is False
    assert len(api.native.claim("q")["messages"]) == 1


def test_purged_queue_has_nothing_to_claim(api_anywhere: Resources) -> None:
    api = api_anywhere
    api.native.push("q", 1, 2, 3)
    api.ok("POST", "/v1/queues/q/groups", {"group": "g"}, status=201)
    api.ok("POST", "/v1/queues/q/groups", {"group": "h"}, status=201)
    expected = {"queue": "q", "groups": 2, "messages": 6, "removed": 3, "scheduled": 0}
    assert api.ok("POST", "/v1/queues/q/purge", {"dry_run": True}) == {**expected, "dry_run": True}
    assert api.native.group("q", "g")["lag"] == 3
    assert api.ok("POST", "/v1/queues/q/purge") == {**expected, "dry_run": False}
    for group in ("g", "h"):
        assert api.native.claim("q", group=group)["empty"] == "empty"
    api.native.push("q", 4)
    assert [row["payload"] for row in api.native.claim("q", group="g")["messages"]] == [4]


def test_purge_of_a_queue_without_groups_skips_its_messages(api: Resources) -> None:
    api.native.push("q", 1, 2)
    assert api.ok("POST", "/v1/queues/q/purge")["messages"] == 2
    assert api.native.claim("q")["empty"] == "empty"
    assert api.ok("GET", "/v1/queues/q/stats")["pending"] == 0
    assert api.refused("POST", "/v1/queues/none/purge") == (404, "unknown_queue")


# groups


def test_group_resource_is_created_changed_sought_and_deleted(api_anywhere: Resources) -> None:
    api = api_anywhere
    api.native.push("q", 1, 2)
    made = api.send("POST", "/v1/queues/q/groups", {"group": "g", "start": "new"})
    path = made.headers["location"]
    assert (made.status_code, path, made.json()["lag"]) == (201, "/v1/queues/q/groups/g", 0)
    assert api.refused("POST", "/v1/queues/q/groups", {"group": "g"}) == (409, "group_exists")
    old = api.etag(path)
    assert old == made.headers["etag"]
    changed = api.ok("PATCH", path, {"policy": {"retry_limit": 1}}, old)
    assert (changed["policy"], changed["start"]) == ({"retry_limit": 1}, "new")
    assert api.refused("PATCH", path, {"policy": {}}, old) == (412, "precondition_failed")
    second = api.etag(path)
    assert api.ok("POST", f"{path}/seek", {"to": "start"}, second) == {"queue": "q", "group": "g", "lanes": 1}
    assert api.refused("POST", f"{path}/seek", {"to": "end"}, second) == (412, "precondition_failed")
    assert api.refused("DELETE", path, etag=second) == (412, "precondition_failed")
    assert api.ok("GET", path)["lag"] == 2
    api.ok("DELETE", path, etag=api.etag(path), status=204)
    assert api.refused("DELETE", path) == (404, "unknown_group")


def test_version_of_a_group_ignores_its_progress(api: Resources) -> None:
    api.native.push("q", 1, 2)
    claim = api.native.claim("q", group="g")
    before = api.etag("/v1/queues/q/groups/g")
    api.native.settle({"lease_id": claim["lease_id"], "outcome": "ack"})
    assert api.etag("/v1/queues/q/groups/g") == before


def test_seek_to_a_seq_or_a_time_moves_the_group(api: Resources) -> None:
    api.native.push("q", 1, 2, 3, partition="eu")
    path = "/v1/queues/q/groups/g"
    api.ok("POST", "/v1/queues/q/groups", {"group": "g"}, status=201)
    api.ok("POST", f"{path}/seek", {"seq": 2, "partition": "eu"})
    assert api.ok("GET", path)["lag"] == 1
    api.ok("POST", f"{path}/seek", {"to": "2000-01-01T00:00:00Z"})
    assert api.ok("GET", path)["lag"] == 3
    for body in ({}, {"to": "end", "seq": 1}, {"seq": 1}, {"to": "soon"}, {"to": "end", "x": 1}, {"seq": -1}):
        assert api.refused("POST", f"{path}/seek", body) == (400, "bad_input")
    assert api.refused("POST", f"{path}/seek", {"to": "end", "partition": "us"}) == (404, "unknown_partition")
    assert api.refused("POST", "/v1/queues/q/groups/none/seek", {"to": "end"}) == (404, "unknown_group")


def test_groups_of_a_queue_are_listed_by_cursor(api: Resources) -> None:
    for queue in ("q", "r"):
        api.native.push(queue, 1)
        for group in ("a", "b", "c"):
            api.ok("POST", f"/v1/queues/{queue}/groups", {"group": group}, status=201)
    first = api.ok("GET", "/v1/queues/q/groups?limit=2")
    second = api.ok("GET", f"/v1/queues/q/groups?limit=2&cursor={first['next']}")
    rows = first["groups"] + second["groups"]
    assert [(row["queue"], row["group"]) for row in rows] == [("q", "a"), ("q", "b"), ("q", "c")]
    assert api.refused("GET", "/v1/queues/none/groups") == (404, "unknown_queue")
    assert api.refused("GET", "/v1/queues/q/groups?queue=r") == (400, "bad_input")


# leases


def test_lease_resource_is_extended_and_released(api_anywhere: Resources) -> None:
    api = api_anywhere
    api.native.push("q", 1, 2)
    lease = api.native.claim("q", max=2, owner="me")["lease_id"]
    path = f"/v1/leases/{lease}"
    shown = api.ok("GET", path)
    assert (shown["owner"], shown["held"], shown["ended_at"]) == ("me", 2, None)
    extended = api.ok("PATCH", path, {"lease_seconds": 600})
    assert extended["deadline"] > shown["deadline"]
    assert api.refused("PATCH", path, {"lease_seconds": 1}, '"00"') == (400, "bad_input")
    assert api.ok("DELETE", path) == {"lease_id": lease, "messages": 2}
    assert api.refused("DELETE", path) == (409, "lease_lost")
    assert api.refused("PATCH", path, {"add_seconds": 5}) == (409, "lease_lost")
    assert api.ok("GET", path)["ended_at"] is not None
    assert len(api.native.claim("q", max=2)["messages"]) == 2


def test_unknown_lease_is_not_found(api: Resources) -> None:
    for lease in ("L1-00000000", "nonsense", "L1"):
        path = f"/v1/leases/{lease}"
        assert api.refused("GET", path) == (404, "unknown_lease")
        assert api.refused("DELETE", path) == (404, "unknown_lease")
        assert api.refused("PATCH", path, {"lease_seconds": 5}) == (404, "unknown_lease")
    assert api.refused("PATCH", "/v1/leases/L1-00000000", {}) == (400, "bad_input")


# consumers


def test_consumers_are_listed_with_their_leases(api_anywhere: Resources) -> None:
    api = api_anywhere
    api.native.push("q", 1, 2, 3)
    for owner in ("b", "a", "a"):
        api.native.claim("q", group="g", owner=owner)
    first = api.ok("GET", "/v1/consumers?queue=q&limit=1")
    second = api.ok("GET", f"/v1/consumers?queue=q&cursor={first['next']}")
    rows = first["consumers"] + second["consumers"]
    assert [(row["consumer"], row["leases"], row["held"]) for row in rows] == [("a", 2, 2), ("b", 1, 1)]
    assert api.refused("GET", "/v1/consumers?recent_seconds=3601") == (400, "bad_input")
    assert api.refused("GET", "/v1/consumers?nothing=1") == (400, "bad_input")


# webhooks


def test_webhook_errors_are_problem_documents(api: Resources) -> None:
    path = "/v1/queues/q/on-dead"
    assert api.refused("GET", path) == (404, "unknown_queue")
    assert api.refused("DELETE", path) == (404, "unknown_queue")
    assert api.refused("PUT", path, {"url": "http://127.0.0.1:9/x"}) == (404, "unknown_queue")
    api.ok("POST", "/v1/queues", {"queue": "q"}, status=201)
    assert api.refused("GET", path) == (404, "not_found")
    assert api.refused("PUT", path, {"url": "nonsense"}) == (400, "bad_input")
    assert api.refused("PUT", path, {"nothing": 1}) == (400, "bad_input")
    assert api.refused("DELETE", f"{path}?nothing=1") == (400, "bad_input")


# messages


def test_message_resource_shows_its_state_in_each_group(api_anywhere: Resources) -> None:
    api = api_anywhere
    made = api.send(
        "POST", "/v1/messages", {"queue": "q", "messages": [{"payload": {"n": 1}, "transaction_id": "a/b"}]}
    )
    assert made.status_code == 201, made.text
    path = made.headers["location"]
    assert api.ok("GET", path)["groups"] == []
    lease = api.native.claim("q", group="g")["lease_id"]
    shown = api.ok("GET", path)
    assert (shown["payload"], shown["transaction_id"], shown["queue"]) == ({"n": 1}, "a/b", "q")
    assert [(group["group"], group["state"]) for group in shown["groups"]] == [("g", "leased")]
    api.native.settle({"lease_id": lease, "outcome": "reject"})
    assert len(api.ok("GET", path)["dead_letters"]) == 1
    assert api.refused("GET", f"{path}x") == (404, "message_not_found")
    assert api.refused("POST", "/v1/messages", {"queue": "none", "payloads": [1], "create": None})[0] == 404


def test_scheduled_message_has_a_due_time_and_no_seq(api: Resources) -> None:
    body = {"queue": "q", "messages": [{"payload": 1, "delay_seconds": 60}]}
    shown = api.ok("GET", api.send("POST", "/v1/messages", body).headers["location"])
    assert shown["seq"] is None
    assert shown["due_at"] > shown["created_at"]


# dead letters


def test_dead_letter_resource_is_redriven_or_removed(api_anywhere: Resources) -> None:
    api = api_anywhere
    first = api.dead_letter("q")
    path = f"/v1/dead-letters/{first}"
    shown = api.ok("GET", path)
    assert (shown["reason"], shown["error"], shown["payload"]) == ("rejected", "no stock", {"n": 1})
    assert shown["kind"] == "no stock"
    assert api.refused("POST", f"{path}/redrive", etag='"00"') == (412, "precondition_failed")
    assert api.ok("POST", f"{path}/redrive", etag=api.etag(path)) == {"id": first, "result": "redriven"}
    assert api.refused("POST", f"{path}/redrive") == (404, "unknown_dead_letter")
    assert len(api.native.claim("q")["messages"]) == 1
    second = f"/v1/dead-letters/{api.dead_letter('r')}"
    assert api.refused("DELETE", second, etag='"00"') == (412, "precondition_failed")
    api.ok("DELETE", second, etag=api.etag(second), status=204)
    assert api.refused("DELETE", second) == (404, "unknown_dead_letter")


def test_redrive_of_a_deleted_group_is_refused(api: Resources) -> None:
    letter = api.dead_letter("q")
    api.ok("DELETE", "/v1/queues/q/groups/__QUEUE_MODE__", status=204)
    assert api.refused("POST", f"/v1/dead-letters/{letter}/redrive") == (409, "redrive_refused")
    api.ok("GET", f"/v1/dead-letters/{letter}")


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_dead_letters_are_changed_by_id_or_filter(api: Resources, verb: str) -> None:
    path = f"/v1/dead-letters/{verb}"
    done = {"redrive": "redriven", "purge": "purged"}[verb]
    letters = [api.dead_letter(queue) for queue in ("q", "q", "r", "s")]
    dry = api.ok("POST", path, {"queue": "q", "dry_run": True})
    assert (dry["matched"], dry[done], dry["left"]) == (2, 0, 2)
    assert api.ok("GET", "/v1/dead-letters")["total"] == 4
    part = api.ok("POST", path, {"queue": "q", "limit": 1})
    assert (part["matched"], part[done], part["left"]) == (2, 1, 1)
    assert api.ok("POST", path, {"ids": [letters[2], "unknown"]})[done] == 1
    assert api.ok("POST", path, {"queue": "q", "reason": "max_wait"})["matched"] == 0
    assert api.ok("POST", path, {"queue": "q", "kind": "other", "dry_run": True})["matched"] == 0
    assert api.ok("POST", path, {"kind": "no stock", "dry_run": True})["matched"] == 2
    assert api.native.http.get("/v1/dead-letters", params={"kind": "no stock", "limit": 1}).json()["total"] == 2
    assert api.native.http.get("/v1/dead-letters", params={"kind": "other"}).json()["total"] == 0
    assert api.ok("POST", path, {"before": "2000-01-01T00:00:00Z"})["matched"] == 0
    assert api.ok("POST", path, {"all": True})[done] == 2
    assert api.ok("GET", "/v1/dead-letters")["total"] == 0
    assert api.refused("POST", path, {"queue": "none"}) == (404, "unknown_queue")
    for body in (
        {},
        {"all": False},
        {"all": True, "queue": "q"},
        {"ids": ["x"] * 1001},
        {"queue": "q", "limit": 0},
        {"kind": "x" * 301},
    ):
        assert api.refused("POST", path, body) == (400, "bad_input")


# every resource


def test_resources_refuse_unknown_parameters_and_fields(api: Resources) -> None:
    api.native.push("q", 1)
    for method, path in (
        ("GET", "/v1/queues/q?x=1"),
        ("DELETE", "/v1/queues/q?force=true"),
        ("POST", "/v1/queues/q/pause?x="),
        ("GET", "/v1/queues/q/groups?x=1"),
        ("GET", "/v1/leases/L1-00000000?x=1"),
        ("POST", "/v1/dead-letters/purge?all=true"),
    ):
        assert api.refused(method, path) == (400, "bad_input")
    assert api.refused("POST", "/v1/queues", {"queue": "r", "polici": {}}) == (400, "bad_input")
    assert api.refused("PATCH", "/v1/queues/q", {"policy": {"retries": 1}}) == (400, "bad_input")
    assert api.refused("POST", "/v1/queues", {"queue": "x" * 256}) == (400, "bad_input")
    assert api.refused("POST", "/v1/queues", {"queue": "a\0b"}) == (400, "bad_input")
    assert [row["queue"] for row in api.ok("GET", "/v1/queues")["queues"]] == ["q"]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/queues", "GET, POST"),
        ("/v1/queues/q", "DELETE, GET, PATCH"),
        ("/v1/queues/q/groups", "GET, POST"),
        ("/v1/leases/L1-00000000", "DELETE, GET, PATCH"),
        ("/v1/messages", "GET, POST"),
        ("/v1/dead-letters/x/redrive", "POST"),
    ],
)
def test_wrong_method_names_the_allowed_ones(api: Resources, path: str, allowed: str) -> None:
    answer = api.send("PUT", path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.headers["content-type"] == PROBLEM
    assert answer.json()["code"] == "method_not_allowed"


def test_body_of_a_resource_has_the_limit_of_the_server(api: Resources) -> None:
    assert api.refused("POST", "/v1/queues", {"queue": "q", "task": "x" * (65 << 20)}) == (413, "body_too_large")
