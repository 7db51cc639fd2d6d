"""Ack and push in one step."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.protocols.queen_clients.stage import PATIENCE, Stage, bodies, refusal, scenario


@scenario()
async def an_ack_and_a_push_are_one_step(stage: Stage) -> None:
    await stage.push("order")
    message = await stage.only()
    result = await (
        stage.queen.transaction()
        .ack(message)
        .queue(stage.name + "next")
        .partition("workflow-1")
        .push([{"data": {"processed": True}}])
        .commit()
    )
    assert (result["success"], len(result["results"])) == (True, 2)
    assert await stage.pop() == []
    (out,) = await stage.pop(of="next")
    assert (out["data"], out["partition"]) == ({"processed": True}, "workflow-1")


@scenario()
async def many_acks_and_pushes_are_one_step(stage: Stage) -> None:
    await stage.push(*range(5))
    found = await stage.pop()
    transaction = stage.queen.transaction().ack(found)
    for to in ("left", "right"):
        transaction = transaction.queue(stage.name + to).push([{"data": n} for n in range(3)])
    result = await transaction.commit()
    assert [one["type"] for one in result["results"]] == ["ack"] * 5 + ["push"] * 6
    assert all(one["success"] for one in result["results"])
    assert bodies(await stage.pop(of="left")) == bodies(await stage.pop(of="right")) == [0, 1, 2]
    assert await stage.pop() == []


@scenario()
async def a_refused_ack_undoes_the_push(stage: Stage) -> None:
    await stage.push("order")
    message = await stage.only()
    stranger = {**message, "transactionId": "never-pushed"}
    transaction = stage.queen.transaction().ack(message).ack(stranger)
    reason = await refusal(transaction.queue(stage.name + "next").push([{"data": 1}]).commit())
    assert "rolled back" in reason
    assert await stage.pop(of="next") == []
    assert (await stage.queen.ack(message))["success"] is True


@scenario()
async def a_message_is_forwarded_once(stage: Stage) -> None:
    await stage.push("order")
    message = await stage.only()

    def forward() -> Any:
        return stage.queen.transaction().ack(message).queue(stage.name + "next").push([{"data": "copy"}])

    assert (await forward().commit())["success"] is True
    if stage.seed:
        assert "rolled back" in await refusal(forward().commit())
        assert bodies(await stage.pop(of="next")) == ["copy"]


@scenario()
async def a_lost_lease_undoes_the_push(stage: Stage) -> None:
    await stage.create(lease_time=1)
    await stage.push("order")
    lost = await stage.only()
    await stage.create(lease_time=300)
    (again,) = await stage.await_pop()
    reason = await refusal(stage.queen.transaction().ack(lost).queue(stage.name + "next").push([{"data": 1}]).commit())
    assert "rolled back" in reason
    assert await stage.pop(of="next") == []
    assert (await stage.queen.ack(again))["success"] is True


@scenario()
async def a_lease_of_its_own_time_fences_too(stage: Stage) -> None:
    await stage.push("order")
    held = await stage.queen._http_client.get(f"/api/v1/pop/queue/{stage.name}?batch=1&leaseSeconds=1")
    (lost,) = held["messages"]
    (again,) = await stage.await_pop()
    push = stage.queen.transaction().ack(lost).queue(stage.name + "next").push([{"data": 1}])
    assert "rolled back" in await refusal(push.commit())
    assert await stage.pop(of="next") == []
    assert (await stage.queen.transaction().ack(again).commit())["success"] is True


@scenario()
async def leases_of_two_pops_are_each_checked(stage: Stage) -> None:
    for partition in ("a", "b"):
        await stage.push(partition, partition=partition)
    (first,), (second,) = await stage.pop(1), await stage.pop(1)
    result = await stage.queen.transaction().ack(first).ack(second).commit()
    assert [one["success"] for one in result["results"]] == [True, True]
    assert await stage.pop() == []


@scenario()
async def a_group_is_acked_in_a_transaction(stage: Stage) -> None:
    await stage.push("a")
    message = await stage.only(group="g")
    transaction = stage.queen.transaction().ack(message, context={"consumer_group": "g"})
    assert (await transaction.queue(stage.name + "next").push([{"data": 1}]).commit())["success"] is True
    assert await stage.pop(group="g") == []
    assert bodies(await stage.pop()) == ["a"]


@scenario(versions=("2.6.0",))
async def a_duplicate_undoes_the_transaction(stage: Stage) -> None:
    await stage.queue("next").push([{"data": 0, "transactionId": "taken"}])
    await stage.push("order")
    message = await stage.only()
    push = (
        stage.queen.transaction().ack(message).queue(stage.name + "next").push([{"data": 1, "transactionId": "taken"}])
    )
    assert "duplicate" in (await refusal(push.commit())).lower()
    assert bodies(await stage.pop(of="next")) == [0]
    assert (await stage.queen.ack(message))["success"] is True


@scenario()
async def a_failure_in_a_transaction_counts(stage: Stage) -> None:
    await stage.create(retry_limit=0)
    await stage.push("bad")
    message = await stage.only()
    transaction = stage.queen.transaction().ack(message, "failed")
    result = await transaction.queue(stage.name + "errors").push([{"data": "seen"}]).commit()
    assert (result["results"][0]["success"], result["results"][0]["dlq"]) == (True, True)
    assert bodies(await stage.dead()) == ["bad"]
    assert bodies(await stage.pop(of="errors")) == ["seen"]


@scenario()
async def an_empty_transaction_does_not_leave_the_client(stage: Stage) -> None:
    assert "no operations" in await refusal(stage.queen.transaction().commit())


@scenario()
async def a_push_in_a_transaction_wakes_a_poll(stage: Stage) -> None:
    waiting = asyncio.ensure_future(stage.queue("next").batch(1).wait(True).timeout_millis(PATIENCE).pop())
    await stage.queen.admin.health()
    await stage.push("order")
    message = await stage.only()
    await stage.queen.transaction().ack(message).queue(stage.name + "next").push([{"data": "go"}]).commit()
    assert bodies(await waiting) == ["go"]
