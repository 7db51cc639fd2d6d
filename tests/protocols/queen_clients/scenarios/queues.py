"""Making, changing and deleting queues, and what their options do."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from tests.protocols.queen_clients.stage import Message, Stage, bodies, scenario


@scenario()
async def a_queue_is_made_with_its_options(stage: Stage) -> None:
    options = {"lease_time": 60, "retry_limit": 5, "priority": 7, "max_size": 1000}
    answer = await stage.queue().namespace("shop").task("orders").config(options).create()
    assert (answer["configured"], answer["queue"]) == (True, stage.name)
    assert (answer["namespace"], answer["task"]) == ("shop", "orders")
    shown = answer["options"]
    assert (shown["leaseTime"], shown["retryLimit"], shown["priority"]) == (60, 5, 7)
    assert (shown["maxSize"], shown["encryptionEnabled"]) == (1000, False)
    assert (shown["delayedProcessing"], shown["windowBuffer"], shown["retentionSeconds"]) == (0, 0, 0)


@scenario()
async def a_queue_is_made_with_defaults(stage: Stage) -> None:
    answer = await stage.queue().create()
    assert (answer["options"]["leaseTime"], answer["options"]["retryLimit"]) == (300, 3)


@scenario()
async def a_queue_is_changed_by_configuring_it_again(stage: Stage) -> None:
    await stage.create(retry_limit=0)
    await stage.create(retry_limit=9, lease_time=11)
    answer = await stage.create(retry_limit=8, lease_time=11)
    assert (answer["options"]["retryLimit"], answer["options"]["leaseTime"]) == (8, 11)
    await stage.push("a")
    (message,) = await stage.pop()
    assert (await stage.queen.ack(message, False))["message"] == "failed_retry"


@scenario()
async def success_and_errors_of_create_are_called_back(stage: Stage) -> None:
    told: list[Any] = []

    async def success(answer: Any) -> None:
        told.append(answer["configured"])

    async def error(problem: Exception) -> None:
        told.append(str(problem))

    await stage.queue().create().on_success(success)
    answer = await stage.queue().config({"lease_time": -1}).create().on_error(error)
    assert told[0] is True
    assert answer == {"success": False, "error": told[1]}


@scenario()
async def a_deleted_queue_is_gone_and_may_come_back(stage: Stage) -> None:
    await stage.push("old")
    held = await stage.only()
    answer = await stage.queue().delete()
    assert (answer["deleted"], answer["queue"], answer["existed"]) == (True, stage.name, True)
    assert (await stage.queen.ack(held))["success"] is False
    assert await stage.pop() == []
    await stage.push("new")
    assert bodies(await stage.pop()) == ["new"]


@scenario()
async def deleting_what_is_not_there_is_no_error(stage: Stage) -> None:
    answer = await stage.queue().delete()
    assert answer["existed"] is False


def waited(message: Message) -> float:
    return time.time() - datetime.fromisoformat(message["createdAt"]).timestamp()


@scenario()
async def delayed_processing_holds_a_message_back(stage: Stage) -> None:
    await stage.create(delayed_processing=2)
    await stage.push("later")
    (message,) = await stage.await_pop()
    assert message["data"] == "later"
    assert waited(message) >= 2


@scenario()
async def a_window_gathers_a_burst(stage: Stage) -> None:
    await stage.create(window_buffer=2)
    await stage.push("one", "two")
    await stage.push("three")
    found = await stage.await_pop()
    assert bodies(found) == ["one", "two", "three"]
    assert waited(found[-1]) >= 2


@scenario()
async def a_pushed_queue_needs_no_making(stage: Stage) -> None:
    await stage.queen.queue(f"{stage.name}.task.rest").push([{"data": 1}])
    shown = await stage.queen.admin.get_queue(f"{stage.name}.task.rest")
    assert (shown["namespace"], shown["task"]) == (stage.name, "task")
