"""Leases: renewed, lost, and who may still settle then."""

from __future__ import annotations

import asyncio
from datetime import datetime

from tests.protocols.queen_clients.stage import PATIENCE, Message, Stage, bodies, scenario


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


@scenario()
async def a_lease_is_renewed_by_message_and_by_id(stage: Stage) -> None:
    await stage.create(lease_time=10)
    await stage.push("a")
    message = await stage.only()
    by_message = await stage.queen.renew(message)
    by_id = await stage.queen.renew(message["leaseId"])
    assert (by_message["success"], by_id["success"]) == (True, True)
    assert instant(by_message["newExpiresAt"]) <= instant(by_id["newExpiresAt"])
    assert (instant(by_id["newExpiresAt"]) - instant(message["createdAt"])).total_seconds() > 50
    assert (await stage.queen.ack(message))["success"] is True


@scenario()
async def one_renewal_covers_every_partition_of_a_pop(stage: Stage) -> None:
    for partition in ("a", "b"):
        await stage.push(partition, partition=partition)
    found = await stage.queue().batch(10).partitions(2).wait(False).pop()
    results = await stage.queen.renew(found)
    assert [(result["leaseId"], result["success"]) for result in results] == [(found[0]["leaseId"], True)]


@scenario()
async def a_lease_that_is_over_is_not_renewed(stage: Stage) -> None:
    await stage.push("a")
    message = await stage.only()
    assert (await stage.queen.ack(message))["success"] is True
    result = await stage.queen.renew(message)
    assert result["newExpiresAt"] is None
    assert result["success"] is (stage.version == "0.15.0")  # that client does not look


@scenario()
async def a_slow_handler_keeps_its_message_by_renewing(stage: Stage) -> None:
    await stage.create(lease_time=3)
    await stage.push("slow")
    seen: list[str] = []

    async def handle(message: Message) -> None:
        seen.append(message["data"])
        rival = await stage.queue().batch(1).wait(True).timeout_millis(4000).pop()
        seen.extend(bodies(rival))

    await stage.queue().batch(1).renew_lease(True, 100).limit(1).consume(handle)
    assert seen == ["slow"]
    assert await stage.pop() == []
    assert await stage.dead() == []


@scenario()
async def a_lease_that_ran_out_gives_the_message_to_the_next(stage: Stage) -> None:
    await stage.create(lease_time=1)
    await stage.push("crash")
    lost = await stage.only()
    await stage.create(lease_time=300)
    again = (await stage.await_pop())[0]
    assert (again["data"], again["transactionId"]) == ("crash", lost["transactionId"])
    assert again["leaseId"] != lost["leaseId"]
    late = await stage.queen.ack(lost)
    assert (late["success"], "lease" in late["error"].lower()) == (False, True)
    assert (await stage.queen.ack(again))["success"] is True


@scenario()
async def a_late_nack_does_not_touch_the_new_holder(stage: Stage) -> None:
    await stage.create(lease_time=1)
    await stage.push("crash")
    lost = await stage.only()
    await stage.create(lease_time=300)
    again = (await stage.await_pop())[0]
    assert (await stage.queen.ack(lost, False, {"error": "too late"}))["success"] is False
    assert (await stage.queen.renew(again))["success"] is True
    assert (await stage.queen.ack(again))["success"] is True
    assert await stage.pop() == []


@scenario()
async def only_what_was_not_acked_comes_again_after_expiry(stage: Stage) -> None:
    await stage.push(*range(5))
    found = await stage.pop(5)
    for message in found[:2]:
        assert (await stage.queen.ack(message))["success"] is True
    await stage.end_lease_soon(found[0])
    assert bodies(await stage.await_pop(5)) == [2, 3, 4]


@scenario()
async def a_crash_costs_an_attempt_only_in_seed_mode(stage: Stage) -> None:
    await stage.create(lease_time=1)
    await stage.push("crash")
    await stage.only()
    (again,) = await stage.await_pop()
    assert again["retryCount"] == (1 if stage.seed else 0)


@scenario()
async def a_pop_may_ask_for_its_own_lease_time(stage: Stage) -> None:
    """Neither client has a word for it; its users give the parameter themselves."""
    await stage.push("short")
    http = stage.queen._http_client
    held = await http.get(f"/api/v1/pop/queue/{stage.name}?batch=1&leaseSeconds=1")
    (message,) = held["messages"]
    (again,) = await stage.await_pop()
    late = await stage.queen.ack(message)
    assert (late["success"], "lease" in late["error"].lower()) == (False, True)
    assert (await stage.queen.ack(again))["success"] is True


@scenario()
async def a_waiting_poll_gets_what_another_gives_back(stage: Stage) -> None:
    await stage.push("ball")
    held = await stage.only()
    waiting = asyncio.ensure_future(stage.queue().batch(1).wait(True).timeout_millis(PATIENCE).pop())
    await stage.queen.admin.health()
    assert (await stage.queen.ack(held, "retry"))["success"] is True
    assert bodies(await waiting) == ["ball"]
