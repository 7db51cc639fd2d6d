"""The client's admin calls that look at messages, traces, status and analytics, and its maintenance switches."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.protocols.queen_clients.stage import IDLE, Message, Stage, bodies, eventually, refusal, scenario


@scenario()
async def messages_are_listed_newest_first(stage: Stage) -> None:
    await stage.push("a")
    await stage.push("b")
    listed = await stage.queen.admin.list_messages(queue=stage.name, limit=10)
    assert bodies(listed["messages"]) == ["b", "a"]
    assert [message["status"] for message in listed["messages"]] == ["pending", "pending"]
    await stage.queen.ack(await stage.pop())
    done = await stage.queen.admin.list_messages(queue=stage.name, status="completed")
    assert bodies(done["messages"]) == ["b", "a"]


@scenario()
async def dead_letters_of_a_message_are_deleted(stage: Stage) -> None:
    await stage.create(retryLimit=0)
    await stage.push("a")
    message = await stage.only()
    await stage.queen.ack(message, "dlq", {"error": "no"})
    answer = await stage.queen.admin.delete_message(message["partitionId"], message["transactionId"])
    assert answer["success"] is True
    assert await stage.dead() == []
    again = stage.queen.admin.delete_message(message["partitionId"], message["transactionId"])
    if stage.seed:
        assert (await again)["success"] is False
    else:
        assert "Message not found" in await refusal(again)


@scenario()
async def a_dead_message_is_retried(stage: Stage) -> None:
    await stage.push("a")
    message = await stage.only()
    await stage.queen.ack(message, "dlq", {"error": "no"})
    answer = await stage.queen.admin.retry_message(message["partitionId"], message["transactionId"])
    assert answer["result"] == "moved"
    assert bodies(await stage.await_pop()) == ["a"]


@scenario()
async def a_consumer_traces_its_message(stage: Stage) -> None:
    await stage.push("a")
    told: list[Any] = []
    name = f"{stage.name}-order"

    async def handle(message: Message) -> None:
        told.append(await message["trace"]({"data": {"step": 1}, "traceName": [name, "all"], "eventType": "step"}))
        told.append(await message["trace"]({"data": {"step": 2}, "traceName": name}))
        told.append(message)

    await stage.queue().group("g").each().limit(1).idle_millis(IDLE).consume(handle)
    first, second, message = told
    assert (first["success"], second["success"]) == (True, True)
    admin = stage.queen.admin
    rows = (await admin.get_traces_for_message(message["partitionId"], message["transactionId"]))["traces"]
    assert [(row["data"], row["event_type"], row["consumer_group"]) for row in rows] == [
        ({"step": 1}, "step", "g"),
        ({"step": 2}, "info", "g"),
    ]
    named = await admin.get_traces_by_name(name, limit=1)
    assert (named["total"], [row["data"] for row in named["traces"]]) == (2, [{"step": 2}])
    assert named["traces"][0]["queue_name"] == stage.name
    names = {row["trace_name"]: row for row in (await admin.get_trace_names(limit=100))["trace_names"]}
    assert (names[name]["trace_count"], names[name]["message_count"]) == (2, 1)


@scenario()
async def the_status_counts_pushes(stage: Stage) -> None:
    await stage.push(*range(3))
    status = await stage.queen.admin.get_status(queue=stage.name)
    assert sum(point["ingested"] or 0 for point in status["throughput"]) == 3
    assert [queue["name"] for queue in status["queues"]] == [stage.name]
    stats = await stage.queen.admin.get_queue_stats(queue=stage.name)
    assert stats["queues"][0]["messages"]["total"] == 3
    detail = await stage.queen.admin.get_queue_detail(stage.name)
    assert (detail["queue"]["name"], detail["totals"]["total"]) == (stage.name, 3)
    analytics = await stage.queen.admin.get_analytics(queue=stage.name, interval="day")
    assert sum(point["messages"] or 0 for point in analytics["dataPoints"]) == 3


@scenario()
async def metrics_of_server_and_workers_are_shown(stage: Stage) -> None:
    await stage.push(1)
    system = await stage.queen.admin.get_system_metrics()
    assert system["replicas"][0]["timeSeries"][0]["metrics"]["uptime_seconds"]["last"] >= 0
    workers = await stage.queen.admin.get_worker_metrics()
    assert workers["summary"]["totalPushMessages"] >= 1


@scenario(versions=("0.15.0",))
async def database_statistics_are_shown(stage: Stage) -> None:
    stats = await stage.queen.admin.get_postgres_stats()
    assert {"timestamp", "database", "tableSizes", "bufferUsage"} <= stats.keys()


@scenario()
async def calls_that_upstream_has_not_are_refused(stage: Stage) -> None:
    (result,) = await stage.push(1)
    admin = stage.queen.admin
    assert await refusal(admin.clear_queue(stage.name))
    assert await refusal(admin.move_message_to_dlq(result["partition_id"], result["transaction_id"]))


@scenario(alone=True)
async def pushes_in_maintenance_wait_for_its_end(stage: Stage) -> None:
    http = stage.queen._http_client
    await http.post("/api/v1/system/maintenance", {"enabled": True})
    (result,) = await stage.queue().push([{"data": "kept"}])
    assert result["status"] == "buffered"
    assert await stage.pop() == []
    await http.post("/api/v1/system/maintenance", {"enabled": False})
    assert bodies(await stage.await_pop()) == ["kept"]


@scenario(versions=("0.15.0",), alone=True)
async def maintenance_is_switched_by_the_client(stage: Stage) -> None:
    admin = stage.queen.admin
    assert (await admin.set_maintenance_mode(True))["maintenanceMode"] is True
    await stage.queue().push([{"data": "kept"}])
    shown = await admin.get_maintenance_mode()
    assert (shown["maintenanceMode"], shown["bufferedMessages"]) == (True, 1)
    assert (await admin.set_maintenance_mode(False))["maintenanceMode"] is False

    async def drained() -> bool:
        return bool((await admin.get_maintenance_mode())["bufferedMessages"] == 0)

    await eventually(drained)
    assert (await admin.set_pop_maintenance_mode(True))["popMaintenanceMode"] is True
    async with asyncio.timeout(30):
        assert await stage.await_pop() == []
    assert (await admin.get_pop_maintenance_mode())["popMaintenanceMode"] is True
    assert (await admin.set_pop_maintenance_mode(False))["popMaintenanceMode"] is False
    assert bodies(await stage.await_pop()) == ["kept"]
