"""`/api/v1/consumer-groups`: lag, cursors, moving and deleting groups."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.broker import AsyncBroker
from ackwise.core.errors import StoreFull
from ackwise.protocols import streamed_lists
from ackwise.protocols.queen import groups
from tests.protocols.queen.queen_api import QueenApi, bodies, named

GROUPS = "/api/v1/consumer-groups"
START = "2023-11-14T22:13:20.000000Z"


def listed(queen: QueenApi) -> dict[str, dict[str, Any]]:
    return {group["name"]: group for group in queen.get(GROUPS)["groups"]}


def at_three_times(queen: QueenApi, queue: str = "orders") -> None:
    """1, 2 and 3, a minute apart."""
    for number in (1, 2, 3):
        queen.push(queue, number)
        queen.clock.advance(60)


# lag


def test_lag_as_the_seed_shows_it(queen: QueenApi) -> None:
    queen.push("orders", *range(1234 + 5))
    found = queen.pop("orders", "workers", batch=5)
    queen.ack_batch(*map(named, found), consumerGroup="workers")
    queen.clock.advance(120)
    (group,) = queen.get(GROUPS)["groups"]
    seed = {
        "name": "workers",
        "topics": ["orders"],
        "totalLag": 1234,
        "maxTimeLag": 120,
        "state": "Stable",
    }
    assert {name: group[name] for name in seed} == seed


def test_members_hold_a_lease_or_were_seen_within_a_minute(queen: QueenApi) -> None:
    queen.push("orders", 1)
    queen.push("orders", 2, partition="p")
    for _ in range(2):
        queen.pop("orders", "workers")
    assert listed(queen)["workers"]["members"] == 1
    queen.clock.advance(61)
    assert listed(queen)["workers"]["members"] == 1
    queen.clock.advance(300)
    queen.pop("orders", "somebody else")
    assert listed(queen)["workers"]["members"] == 0
    queen.pop("orders", "workers")
    assert listed(queen)["workers"]["members"] == 1


def test_group_list_joins_all_queues_of_a_group(queen: QueenApi) -> None:
    at_three_times(queen, "orders")
    queen.push("mail", 1, 2)
    queen.pop("orders", "workers", autoAck="true")
    queen.pop("mail", "workers", subscriptionMode="new")
    queen.pop("mail")
    groups = listed(queen)
    assert set(groups) == {"workers", "__QUEUE_MODE__"}
    workers = groups["workers"]
    assert workers["topics"] == ["mail", "orders"]
    assert (workers["totalLag"], workers["maxTimeLag"], workers["partitionsWithLag"]) == (2, 120, 1)
    mail, orders = workers["queues"]
    assert (mail["queueName"], mail["totalLag"], mail["maxTimeLag"], mail["partitionsWithLag"]) == ("mail", 0, 0, 0)
    assert (mail["subscriptionMode"], mail["subscriptionTimestamp"]) == ("new", "2023-11-14T22:16:20.000000Z")
    assert (orders["queueName"], orders["totalLag"], orders["totalConsumed"]) == ("orders", 2, 1)
    assert (orders["subscriptionMode"], orders["subscriptionTimestamp"]) == ("all", None)
    assert orders["subscriptionCreatedAt"] == "2023-11-14T22:16:20.000000Z"
    assert groups["__QUEUE_MODE__"]["totalLag"] == 2


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_group_list_of_full_pages_is_valid(queen: QueenApi, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(streamed_lists.pages, "__kwdefaults__", {"rows": 2, "most": None})
    queues = [f"q{number}" for number in range(count)]
    for queue in queues:
        queen.pop(queue, "first")
        queen.pop(queue, "second")
    rows = queen.get(GROUPS, shape="array")
    assert [(row["name"], row["queueName"]) for row in rows] == [(n, q) for n in ("first", "second") for q in queues]
    groups = queen.get(GROUPS, shape="object")["groups"]
    assert [(group["name"], group["topics"]) for group in groups] == [("first", queues), ("second", queues)]


def test_group_state_depends_on_its_lag_and_activity(queen: QueenApi) -> None:
    queen.push("orders", 1)
    queen.pop("orders", "busy", autoAck="true")
    queen.pop("orders", "late")
    queen.pop("orders", "silent", subscriptionMode="new")
    queen.clock.advance(300)
    assert queen.pop("orders", "busy") == []
    assert {name: group["state"] for name, group in listed(queen).items()} == {
        "busy": "Stable",
        "late": "Dead",
        "silent": "Dead",
    }
    queen.clock.advance(1)
    queen.pop("orders", "silent")
    assert {name: group["state"] for name, group in listed(queen).items()} == {
        "busy": "Stable",
        "late": "Lagging",
        "silent": "Stable",
    }


def test_lagging_partitions_are_listed_with_their_lag(queen: QueenApi) -> None:
    queen.push("orders", 1, 2, partition="old")
    queen.clock.advance(7200)
    queen.push("orders", 3, partition="young")
    (message,) = queen.pop("orders", "workers")
    (place,) = queen.get(f"{GROUPS}/lagging")
    assert place == {
        "consumer_group": "workers",
        "queue_name": "orders",
        "partition_name": "old",
        "partition_id": message["partitionId"],
        "worker_id": message["leaseId"],
        "offset_lag": 2,
        "time_lag_seconds": 7200,
        "lag_hours": 2.0,
        "oldest_unconsumed_at": START,
        "last_consumed_at": None,
    }
    assert [one["partition_name"] for one in queen.get(f"{GROUPS}/lagging", minLagSeconds=0)] == ["old", "young"]
    assert queen.get(f"{GROUPS}/lagging", minLagSeconds=7201) == []


# cursors


def test_cursors_of_the_seeds_example(queen: QueenApi) -> None:
    pushed = queen.push("user-events", *[f"msg-{number}" for number in range(1, 103)])
    for group, last in (("email-sender", 100), ("analytics", 98)):
        found = queen.pop("user-events", group, batch=last)
        queen.clock.advance(1)
        queen.ack_batch(*map(named, found), consumerGroup=group)
        (place,) = queen.group(group, "user-events")
        assert place["lastConsumedId"] == pushed[last - 1]["message_id"]
        assert (place["totalMessagesConsumed"], place["totalConsumed"]) == (last, last)
        assert place["lastConsumedCreatedAt"] == START
    assert bodies(queen.pop("user-events", "email-sender")) == ["msg-101"]
    assert bodies(queen.pop("user-events", "analytics")) == ["msg-99"]
    (place,) = queen.group("analytics", "user-events")
    assert place["lastConsumedAt"] == "2023-11-14T22:13:22.000000Z"


def test_lease_columns_of_the_seeds_table(queen: QueenApi) -> None:
    queen.push("orders", *range(12))
    found = queen.pop("orders", "workers", batch=10)
    for acked, message in enumerate(found[:9], 1):
        queen.ack(message)
        (place,) = queen.group("workers", "orders")
        assert (place["batchSize"], place["ackedCount"], place["leaseActive"]) == (10, acked, True)
        assert place["workerId"] == message["leaseId"]
    assert (place["leaseAcquiredAt"], place["leaseExpiresAt"]) == (START, "2023-11-14T22:18:20.000000Z")
    assert (place["offsetLag"], place["consumerGroup"], place["partition"]) == (3, "workers", "Default")
    assert place["partitionId"] == found[0]["partitionId"]
    queen.ack(found[9])
    (place,) = queen.group("workers", "orders")
    released = {
        "leaseExpiresAt": None,
        "leaseAcquiredAt": None,
        "workerId": None,
        "batchSize": 0,
        "ackedCount": 0,
        "leaseActive": False,
    }
    assert {name: place[name] for name in released} == released
    assert (place["totalMessagesConsumed"], place["offsetLag"]) == (10, 2)


def test_lease_that_ran_out_is_not_active(queen: QueenApi) -> None:
    queen.push("orders", 1)
    queen.pop("orders", "workers")
    queen.clock.advance(300)
    (place,) = queen.group("workers", "orders")
    assert (place["leaseActive"], place["workerId"], place["offsetLag"]) == (False, None, 1)
    assert (place["timeLagSeconds"], place["oldestUnconsumedAt"], place["lastConsumedId"]) == (300, START, None)


def test_group_over_queues_and_partitions(queen: QueenApi) -> None:
    queen.push("orders", 1, partition="a")
    queen.push("orders", 2, partition="b")
    queen.push("mail", 3)
    for queue in ("orders", "mail"):
        queen.pop(queue, "workers")
    shown = queen.get(f"{GROUPS}/workers")
    assert {queue: [one["partition"] for one in found["partitions"]] for queue, found in shown.items()} == {
        "mail": ["Default"],
        "orders": ["a", "b"],
    }
    assert queen.get(f"{GROUPS}/nobody") == {}


# deleted


def test_deleted_group_begins_anew(queen: QueenApi) -> None:
    for queue in ("orders", "mail"):
        queen.push(queue, 1, 2)
        queen.pop(queue, "workers", autoAck="true", batch=2)
    status, body = queen.call("DELETE", f"{GROUPS}/workers")
    assert (status, body) == (
        200,
        {"success": True, "consumerGroup": "workers", "deletedPartitions": 2, "metadataDeleted": True},
    )
    assert queen.get(f"{GROUPS}/workers") == {}
    assert bodies(queen.pop("orders", "workers", batch=5)) == [1, 2]
    assert queen.pop("mail", "workers", subscriptionMode="new") == []


def test_deleting_what_is_not_there_succeeds(queen: QueenApi) -> None:
    status, body = queen.call("DELETE", f"{GROUPS}/nobody", deleteMetadata="true")
    assert (status, body["success"], body["deletedPartitions"]) == (200, True, 0)


def test_deleted_in_one_queue(queen: QueenApi) -> None:
    for queue in ("orders", "mail"):
        queen.push(queue, 1)
        queen.pop(queue, "workers", autoAck="true")
    body = queen.call("DELETE", f"{GROUPS}/workers/queues/orders").body
    assert (body["queueName"], body["deletedPartitions"], body["metadataDeleted"]) == ("orders", 1, True)
    assert set(queen.get(f"{GROUPS}/workers")) == {"mail"}
    assert queen.call("DELETE", f"{GROUPS}/workers/queues/nowhere").status == 404


def test_group_without_metadata_returns_to_subscription(queen: QueenApi) -> None:
    at_three_times(queen)
    for group, query in {
        "everything": {},
        "newest": {"subscriptionMode": "new"},
        "since": {"subscriptionFrom": "2023-11-14T22:14:20Z"},
    }.items():
        queen.pop("orders", group, **query)
    queen.clock.advance(1)
    queen.push("orders", 4)
    for group, again in {"everything": [1, 2, 3, 4], "newest": [4], "since": [2, 3, 4]}.items():
        queen.clock.advance(300)
        queen.pop("orders", group, autoAck="true", batch=10)
        assert queen.pop("orders", group) == []
        body = queen.call("DELETE", f"{GROUPS}/{group}", deleteMetadata="false").body
        assert (body["deletedPartitions"], body["metadataDeleted"]) == (1, False)
        assert bodies(queen.pop("orders", group, batch=10, subscriptionMode="all")) == again, group


# moved


def test_new_subscription_moves_no_cursor(queen: QueenApi) -> None:
    at_three_times(queen)
    queen.pop("orders", "workers", autoAck="true")
    status, body = queen.call(
        "POST", f"{GROUPS}/workers/subscription", {"subscriptionTimestamp": "2023-11-14T22:15:20Z"}
    )
    assert (status, body) == (
        200,
        {
            "success": True,
            "consumerGroup": "workers",
            "newTimestamp": "2023-11-14T22:15:20.000000Z",
            "rowsUpdated": 1,
        },
    )
    shown = listed(queen)["workers"]
    assert (shown["subscriptionMode"], shown["subscriptionTimestamp"]) == ("timestamp", "2023-11-14T22:15:20.000000Z")
    assert shown["totalLag"] == 2
    queen.call("DELETE", f"{GROUPS}/workers", deleteMetadata="false")
    assert bodies(queen.pop("orders", "workers", batch=5)) == [3]


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ({"toEnd": True}, []),
        ({"timestamp": "2023-11-14T22:13:19Z"}, [1, 2, 3]),
        ({"timestamp": "2023-11-14T22:14:20Z"}, [3]),
        ({"timestamp": "2023-11-14T22:14:19.999Z"}, [2, 3]),
        ({"timestamp": "9999-12-31"}, []),
    ],
)
def test_seek_sets_the_next_message_of_a_group(queen: QueenApi, body: dict[str, Any], left: list[int]) -> None:
    at_three_times(queen)
    (held,) = queen.pop("orders", "workers")
    status, answer = queen.call("POST", f"{GROUPS}/workers/queues/orders/seek", body)
    assert (status, answer["success"], answer["partitionsUpdated"]) == (200, True, 1)
    assert (answer["seekToEnd"], answer["targetTimestamp"] is None) == (body == {"toEnd": True},) * 2
    assert queen.ack(held)["success"] is False
    assert bodies(queen.pop("orders", "workers", batch=5)) == left


@pytest.mark.parametrize(("content", "left"), [(b"", []), (b"{}", []), (b'{"timestamp": "2023-11-14"}', [1])])
def test_seek_in_one_partition(queen: QueenApi, content: bytes, left: list[int]) -> None:
    queen.push("orders", 1, partition="a")
    queen.push("orders", 2, partition="b")
    queen.pop("orders", "workers", autoAck="true", batch=5, partitions=2)
    queen.push("orders", 3, partition="b")
    path = f"{GROUPS}/workers/queues/orders/partitions/a/seek"
    answer = queen.http.post(path, content=content)
    assert (answer.status_code, answer.json()["partitionName"], answer.json()["updated"]) == (200, "a", True)
    found = queen.pop("orders", "workers", batch=5, partitions=2)
    assert sorted(bodies(found)) == sorted([3, *left])


def test_bad_input_moves_nothing(queen: QueenApi) -> None:
    queen.push("orders", 1, 2)
    queen.pop("orders", "workers", autoAck="true")
    before = queen.get(f"{GROUPS}/workers")
    seek, part = f"{GROUPS}/workers/queues/orders/seek", f"{GROUPS}/workers/queues/orders/partitions"
    refused: list[tuple[str, bytes, int]] = [
        (seek, b"", 400),
        (seek, b"{}", 400),
        (seek, b"[]", 400),
        (seek, b"{", 400),
        (seek, b'{"toEnd": "yes"}', 400),
        (seek, b'{"toEnd": false}', 400),
        (seek, b'{"timestamp": "soon"}', 400),
        (seek, b'{"timestamp": 5}', 400),
        (seek, b'{"timestamp": "1969-01-01"}', 400),
        (seek, b'{"timestamp": "9999-12-31T23:59:59-14:00"}', 400),
        (f"{GROUPS}/workers/queues/nowhere/seek", b'{"toEnd": true}', 404),
        (f"{GROUPS}/nobody/queues/orders/seek", b'{"toEnd": true}', 404),
        (f"{part}/nowhere/seek", b"", 404),
        (f"{part}/Default/seek", b'{"timestamp": []}', 400),
        (f"{GROUPS}/workers/subscription", b"", 400),
        (f"{GROUPS}/workers/subscription", b'{"subscriptionTimestamp": 5}', 400),
        (f"{GROUPS}/workers/subscription", b'{"subscriptionTimestamp": "soon"}', 400),
        (f"{GROUPS}/nobody/subscription", b'{"subscriptionTimestamp": "2024-01-01"}', 404),
        (f"{GROUPS}/%00/subscription", b'{"subscriptionTimestamp": "2024-01-01"}', 400),
    ]
    for path, content, status in refused:
        answer = queen.http.post(path, content=content)
        assert (answer.status_code, set(answer.json())) == (status, {"error", "code"}), (path, content)
    for path in (f"{GROUPS}/%ff", f"{GROUPS}/{'x' * 300}"):
        assert queen.call("GET", path).status == 400
        assert queen.call("DELETE", path).status == 400
    assert queen.get(f"{GROUPS}/workers") == before


# groups with many queues

MANY = [f"q{number}" for number in range(5)]
CHANGES: list[tuple[str, str, dict[str, Any] | None]] = [
    ("DELETE", f"{GROUPS}/workers", None),
    ("DELETE", f"{GROUPS}/workers?deleteMetadata=false", None),
    ("POST", f"{GROUPS}/workers/subscription", {"subscriptionTimestamp": "2023-11-14T22:15:20Z"}),
]


def commands_per_turn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collects the number of commands in each turn of `send_all`."""
    sent: list[int] = []
    original = AsyncBroker.send_all

    async def noted(self: AsyncBroker, commands: Any) -> Any:
        sent.append(len(commands))
        return await original(self, commands)

    monkeypatch.setattr(AsyncBroker, "send_all", noted)
    return sent


def fill_many(queen: QueenApi, partitions: int = 1) -> None:
    for queue in MANY:
        for number in range(partitions):
            queen.push(queue, 1, partition=f"p{number}")
        queen.pop(queue, "workers", autoAck="true")


@pytest.mark.parametrize(("method", "path", "body"), CHANGES, ids=["delete", "reset", "subscribe"])
def test_group_changes_some_queues_per_turn(
    queen: QueenApi, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: Any
) -> None:
    fill_many(queen)
    monkeypatch.setattr(groups, "QUEUES_AT_ONCE", 2)
    sent = commands_per_turn(monkeypatch)
    status, answer = queen.call(method, path, body)
    assert (status, sent) == (200, [2, 2, 1])
    assert answer["rowsUpdated" if body else "deletedPartitions"] == 5


def test_group_changes_some_partitions_per_turn(queen: QueenApi, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_many(queen, partitions=2)
    monkeypatch.setattr(groups, "PARTITIONS_AT_ONCE", 5)
    sent = commands_per_turn(monkeypatch)
    assert queen.call("DELETE", f"{GROUPS}/workers").body["deletedPartitions"] == 10
    assert sent == [2, 2, 1]


def test_queue_with_many_partitions_has_its_own_turn(queen: QueenApi, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_many(queen, partitions=2)
    monkeypatch.setattr(groups, "PARTITIONS_AT_ONCE", 1)
    sent = commands_per_turn(monkeypatch)
    assert queen.call("DELETE", f"{GROUPS}/workers").body["deletedPartitions"] == 10
    assert sent == [1, 1, 1, 1, 1]


def test_group_deletion_that_fails_can_be_repeated(queen: QueenApi, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_many(queen)
    monkeypatch.setattr(groups, "QUEUES_AT_ONCE", 2)
    original = AsyncBroker.send_all
    calls: list[int] = []

    async def second_fails(self: AsyncBroker, commands: Any) -> Any:
        calls.append(len(commands))
        if len(calls) == 2:
            raise StoreFull("the disk is full")
        return await original(self, commands)

    monkeypatch.setattr(AsyncBroker, "send_all", second_fails)
    assert queen.call("DELETE", f"{GROUPS}/workers").status == 507
    assert set(queen.get(f"{GROUPS}/workers")) == set(MANY[2:])
    assert queen.call("DELETE", f"{GROUPS}/workers").body["deletedPartitions"] == 3
    assert queen.get(f"{GROUPS}/workers") == {}
