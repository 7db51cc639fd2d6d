"""Settling, dead letters, transactions and queues in Queen's words."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ackwise import errors
from ackwise.clock import ManualClock
from ackwise.fluent import AsyncClient, Client


def test_ack_and_nack_of_what_is_no_longer_ours(client: Client, clock: ManualClock) -> None:
    client.push("q", None, [{"data": 1}, {"data": 2}])
    first, second = client.queue("q").group("g").batch(2).wait(0).pop()
    assert client.ack(first) == "acked"
    assert client.ack(first) == "already"
    assert client.nack(first, "it stays acked") == "already"
    clock.advance(30)
    with pytest.raises(errors.LeaseLost, match="invalid_lease"):
        client.ack(second)
    with pytest.raises(errors.LeaseLost, match="invalid_lease"):
        client.nack(second, "too late")
    unknown = {"transaction_id": "nobody", "partition_id": first.partition_id, "consumer_group": "g"}
    with pytest.raises(errors.MessageNotFound, match="not_found"):
        client.ack(unknown)
    with pytest.raises(errors.MessageNotFound, match="not_found"):
        client.nack(unknown, "who")


def test_ack_after_other_end_of_delivery_is_no_ack(client: Client) -> None:
    client.queue("q").config(retry_limit=2).create()
    client.push("q", None, {"data": 1})
    (message,) = client.queue("q").wait(0).pop()
    assert client.nack(message, "no") == "retried"
    assert client.nack(message, "the same again") == "already"
    with pytest.raises(errors.LeaseLost, match="ended before and is not acked"):
        client.ack(message)
    (message,) = client.queue("q").wait(0).pop()
    client.connection.release(message.lease_id)
    with pytest.raises(errors.LeaseLost, match="invalid_lease"):
        client.ack(message)
    (message,) = client.queue("q").wait(0).pop()
    assert client.nack(message, "no") == "dead"
    named = {"transaction_id": message.transaction_id, "partition_id": message.partition_id}
    for dead in (message, named):
        with pytest.raises(errors.LeaseLost, match="invalid_lease"):
            client.ack(dead)


def test_ack_of_acked_and_redelivered_message_is_not_denied(client: Client) -> None:
    client.push("q", None, {"data": 1})
    (message,) = client.queue("q").group("g").pop()
    assert (client.ack(message), client.ack(message)) == ("acked", "already")
    client.connection.seek("q", "g", to="start")
    assert len(client.queue("q").group("g").pop()) == 1
    with pytest.raises(errors.LeaseLost, match="ended before and is not acked; the message comes again"):
        client.ack(message)


def test_ack_by_transaction_id_needs_the_partition(client: Client) -> None:
    client.push("q", None, {"data": 1, "transaction_id": "tx-1"})
    (message,) = client.queue("q").group("g").wait(0).pop()
    named = {"transaction_id": "tx-1", "lease_id": message.lease_id, "consumer_group": "g"}
    with pytest.raises(errors.BadInput, match="partition_id is required to ensure message uniqueness"):
        client.ack(named)
    with pytest.raises(errors.BadInput, match="transaction_id is required"):
        client.ack({"partition_id": message.partition_id})
    with pytest.raises(errors.BadInput, match="unknown field"):
        client.ack({**named, "partitionId": message.partition_id})
    with pytest.raises(errors.BadInput, match="acknowledge a message"):
        client.ack("tx-1")  # type: ignore[arg-type]
    assert client.ack({**named, "partition_id": message.partition_id}) == "acked"


def test_batch_with_its_own_outcome_for_each(client: Client) -> None:
    client.push("q", None, [{"data": number} for number in range(5)])
    one, two, three, four, five = client.queue("q").group("g").batch(5).wait(0).pop()

    def named(message: object, **more: str) -> dict[str, str]:
        return {
            "transaction_id": message.transaction_id,  # type: ignore[attr-defined]
            "partition_id": message.partition_id,  # type: ignore[attr-defined]
            "consumer_group": "g",
            **more,
        }

    answers = client.ack_batch(
        [
            one,
            named(two),
            named(three, status="failed", error="Validation error"),
            named(four, status="dlq"),
            named(five, status="retry"),
        ]
    )
    assert [answer.verdict.value for answer in answers] == ["acked", "acked", "retried", "dead", "released"]
    with pytest.raises(errors.BadInput, match="status"):
        client.ack_batch([named(one, status="perhaps")])


def test_batch_is_all_or_none_unless_it_is_told_otherwise(client: Client, clock: ManualClock) -> None:
    client.push("q", None, [{"data": number} for number in range(2)])
    (lost,) = client.queue("q").group("g").lease(1).wait(0).pop()
    (held,) = client.queue("q").group("g").lease(60).wait(0).pop()
    clock.advance(5)
    with pytest.raises(errors.RolledBack, match="entry 1 was refused: invalid_lease") as refusal:
        client.ack_batch([held, lost])
    assert refusal.value.details["verdicts"] == ["rolled_back", "stale"]
    with pytest.raises(errors.RolledBack, match="invalid_lease"):
        client.ack_batch([lost])
    nobody = {"transaction_id": "nobody", "partition_id": held.partition_id, "consumer_group": "g"}
    with pytest.raises(errors.RolledBack, match="not_found"):
        client.ack_batch([held, nobody])
    assert [one.verdict.value for one in client.ack_batch([held, lost], atomic=False)] == ["acked", "stale"]
    assert [one.verdict.value for one in client.ack_batch([held])] == ["already"]
    (again,) = client.queue("q").group("g").wait(0).pop()
    client.nack(again, "no")
    client.push("q", None, {"data": 2})
    (good,) = [one for one in client.queue("q").group("g").batch(2).wait(0).pop() if one.data == 2]
    with pytest.raises(errors.RolledBack, match="entry 2 was refused: invalid_lease: it ended before") as refusal:
        client.ack_batch([held, good, again])
    assert refusal.value.details["verdicts"] == ["already", "rolled_back", "already"]
    assert client.ack(good) == "acked"


def test_dead_letters_are_counted_and_read(client: Client) -> None:
    client.queue("q").config(retry_limit=1, dlq_after_max_retries=True).create()
    client.push("q", "p", [{"data": {"id": number}} for number in range(5)])
    for message in client.queue("q").group("g").batch(5).wait(0).pop():
        client.nack(message, f"Timeout: {message.data['id']}")
    found = client.get_dlq("q", limit=2)
    assert (found.total, len(found), found.limit, found.offset) == (5, 2, 2, 0)
    letter = found.messages[0]
    assert (letter.partition, letter.queue, letter.consumer_group, letter.reason) == ("p", "q", "g", "retry_limit")
    assert letter.error_message.split(":")[0] == "Timeout"
    assert [one.data for one in client.get_dlq("q")][-1] == {"id": 0}
    assert client.get_dlq("q", consumer_group="other").total == 0
    assert letter.original_created_at <= letter.moved_to_dlq_at


def test_message_acked_at_delivery_is_not_settleable(client: Client) -> None:
    client.push("q", None, [{"data": 1}, {"data": 2}])
    (acked,) = client.queue("q").auto_ack(True).wait(0).pop()
    (held,) = client.queue("q").wait(0).pop()
    for settle in (client.ack, client.nack, lambda one: client.ack_batch([held, one]), client.transaction().ack):
        with pytest.raises(errors.NotSettleable, match="not_settleable"):
            settle(acked)
    assert client.ack(held) == "acked"


def test_drain_does_not_wait_for_ack_by_transaction_id(client: Client) -> None:
    client.push("q", None, [{"data": 1}, {"data": 2}])
    for lease in (True, False):
        (message,) = client.queue("q").wait(0).pop()
        named = {"transaction_id": message.transaction_id, "partition_id": message.partition_id}
        client.ack({**named, "lease_id": message.lease_id} if lease else named)
    assert (len(client.connection._held), client.drain(20)) == (0, 0)


def test_transaction_acks_and_pushes_or_does_neither(client: Client, clock: ManualClock) -> None:
    client.push("q", None, [{"data": 1}, {"data": 2}])
    first, second = client.queue("q").group("g").batch(2).wait(0).pop()
    client.transaction().ack(first).queue("next").partition("w").push([{"data": {"processed": True}}]).commit()
    (forwarded,) = client.queue("next").wait(0).pop()
    assert (forwarded.data, forwarded.partition) == ({"processed": True}, "w")
    clock.advance(30)
    with pytest.raises(errors.RolledBack):
        client.transaction().ack(second).queue("next").push([{"data": 2}]).commit()
    assert [one.partition for one in client.queue("next").batch(9).wait(0).pop()] == ["w"]
    client.transaction().nack(client.queue("q").group("g").wait(0).pop()[0], "again").commit()
    with pytest.raises(errors.BadInput, match="no operations"):
        client.transaction().commit()
    with pytest.raises(errors.BadInput, match="queue"):
        client.transaction().push([{"data": 1}])


def test_transaction_is_used_once_and_forwards_once(client: Client) -> None:
    client.push("q", None, [{"data": 1, "transaction_id": "t"}, {"data": 2}])
    first, second = client.queue("q").batch(2).wait(0).pop()
    named = {"transaction_id": "t", "partition_id": first.partition_id}
    steps = client.transaction().ack(named).queue("next").push([{"data": 1}])
    steps.commit()
    for again in (steps.commit, lambda: steps.ack(second), lambda: steps.push({"data": 2})):
        with pytest.raises(errors.BadInput, match="is committed already"):
            again()
    with pytest.raises(errors.RolledBack, match="already"):
        client.transaction().ack(named).queue("next").push([{"data": 1}]).commit()
    client.nack(second, "no")
    with pytest.raises(errors.RolledBack, match="already"):
        client.transaction().ack(second).queue("next").push([{"data": 2}]).commit()
    (third,) = client.queue("q").wait(0).pop()
    client.push("next", None, {"data": 0, "transaction_id": "known"})
    with pytest.raises(errors.RolledBack, match="duplicate"):
        client.transaction().ack(third).queue("next").push([{"data": 3, "transaction_id": "known"}]).commit()
    assert client.connection.stats("next").messages == 2


def test_items_are_checked(client: Client) -> None:
    for bad, why in (({"dat": 1}, '"data"'), ({"data": 1, "delay": 3}, "unknown field 'delay'")):
        with pytest.raises(errors.BadInput, match=why):
            client.push("q", None, bad)
    with pytest.raises(errors.BadInput, match="delay"):
        client.push("q", None, {"data": 1, "delay_seconds": -1})
    for nonsense in (5, "text", ["text"], None):
        with pytest.raises(errors.BadInput, match='"data"'):
            client.push("q", None, nonsense)  # type: ignore[arg-type]
    assert client.connection.queues() == []


def test_delayed_item_waits_and_a_repeated_one_is_stored_once(client: Client, clock: ManualClock) -> None:
    client.push("q", None, {"data": 1, "transaction_id": "a", "delay_seconds": 60})
    (again,) = client.push("q", None, {"data": 1, "transaction_id": "a", "delay_seconds": 60})
    assert again.status == "duplicate"
    assert client.queue("q").wait(0).pop() == []
    clock.advance(60)
    assert [one.data for one in client.queue("q").batch(5).wait(0).pop()] == [1]


def test_options_are_checked_and_contradictions_refused(client: Client) -> None:
    queue = client.queue("q")
    for call in (
        lambda: queue.batch(0),
        lambda: queue.concurrency(0),
        lambda: queue.group(""),
        lambda: queue.renew_lease(True, -1),
        lambda: queue.limit(0),
        lambda: queue.subscription_mode("sometimes"),  # type: ignore[arg-type]
        lambda: queue.config(lease_time=10, lease_seconds=20).create(),
        lambda: queue.config(nonsense=1).create(),
        lambda: queue.config(retry_limit=-1).create(),
        lambda: queue.config(ttl="long").create(),
    ):
        with pytest.raises(errors.BadInput):
            call()


def test_zero_is_off_as_in_queen(client: Client, clock: ManualClock) -> None:
    queue = client.queue("q").config(retention_seconds=0, completed_retention_seconds=0, max_wait_time_seconds=0)
    stored = queue.create().policy
    assert [stored[f"{name}_seconds"] for name in ("retention", "completed_retention", "max_wait")] == [None] * 3
    client.push("q", None, [{"data": 1}, {"data": 2}])
    clock.advance(3600)
    assert len(client.queue("q").batch(9).wait(0).pop()) == 2
    assert client.get_dlq("q").total == 0


def test_retention_is_on_when_given_and_off_when_disabled(client: Client) -> None:
    days = client.queue("plain").create().policy.get("completed_retention_seconds", "as it is by default")
    made = client.queue("q").config(retention_seconds=timedelta(hours=1)).create()
    assert made.policy["retention_seconds"] == 3600
    assert made.policy.get("completed_retention_seconds", "as it is by default") == days
    made = client.queue("q").config(retention_enabled=False).create()
    assert made.policy.get("retention_seconds") is None


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        ({"dlq_after_max_retries": False}, True),
        ({"dead_letter_queue": False}, True),
        ({"dead_letter_queue": True, "dlq_after_max_retries": False}, True),
        ({"dead_letter_queue": False, "dlq_after_max_retries": False}, False),
    ],
)
def test_dead_letters_are_kept_unless_both_flags_are_off(client: Client, flags: dict[str, bool], kept: bool) -> None:
    assert client.queue("q").config(**flags).create().policy.get("dead_letters", True) is kept
    for name, value in flags.items():
        last = client.queue("one by one").config(**{name: value}).create()
    assert last.policy.get("dead_letters", True) is kept


def test_options_of_queen_that_only_it_has(client: Client) -> None:
    made = client.queue("q").config(retry_delay=2000, dedup_window_seconds=60, max_size=9, ttl=5, priority=1).create()
    assert made.policy["backoff"] == {"kind": "fixed", "seconds": 2}
    assert made.policy["dedupe_seconds"] == 60
    assert client.queue("q").config(retry_limit=None).create().policy["retry_limit"] is None


def test_queue_is_made_changed_and_deleted(client: Client) -> None:
    made = client.queue("q").config(lease_time=300, retry_limit=3, max_wait_time_seconds=3600).create()
    assert (made.policy["lease_seconds"], made.policy["max_wait_seconds"]) == (300, 3600)
    assert client.queue("q").config(retry_limit=5).create().policy["lease_seconds"] == 300
    client.queue("q").delete()
    assert client.connection.queues() == []


def test_bytes_stay_bytes(client: Client) -> None:
    client.push("q", None, {"data": b"\x00\xff", "headers": {"a": "b"}})
    (message,) = client.queue("q").wait(0).pop()
    assert (message.data, message.headers, message.retry_count) == (b"\x00\xff", {"a": "b"}, 0)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_client_that_is_not_open_says_so(kind: type) -> None:
    with pytest.raises(RuntimeError, match="not open"):
        _ = kind("sqlite:///x.db").connection
