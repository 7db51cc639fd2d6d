"""Pushing: alone, in lists, through a buffer, and twice."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from tests.protocols.queen_clients.stage import Stage, bodies, eventually, scenario


@scenario()
async def a_pushed_message_comes_out_as_it_went_in(stage: Stage) -> None:
    payload = {"text": "grüße 🐝", "number": 1.5, "big": 2**53, "none": None, "list": [1, [2, {"deep": True}]], "": ""}
    (result,) = await stage.queue().push([{"data": payload}])
    (message,) = await stage.pop()
    assert message["data"] == payload
    assert message["id"] == result["message_id"]
    assert message["transactionId"] == result["transaction_id"]
    assert message["partitionId"] == result["partition_id"]
    assert (message["partition"], message["queue"], message["traceId"]) == ("Default", stage.name, None)
    assert message["leaseId"]
    assert message["createdAt"].endswith("Z")
    assert (await stage.queen.ack(message))["success"] is True


@scenario()
async def one_item_need_not_be_in_a_list(stage: Stage) -> None:
    await stage.queue().push({"data": {"n": 1}})
    await stage.queue().push({"payload": {"n": 2}})
    await stage.queue().push({"n": 3})
    assert bodies(await stage.pop()) == [{"n": 1}, {"n": 2}, {"n": 3}]


@scenario()
async def a_payload_may_be_any_json(stage: Stage) -> None:
    payloads: list[Any] = [None, 0, False, "", "text", [], {}, [None], 1e300]
    await stage.push(*payloads)
    assert bodies(await stage.pop()) == payloads


@scenario()
async def a_list_keeps_its_order(stage: Stage) -> None:
    await stage.push(*range(50))
    assert bodies(await stage.pop(50)) == list(range(50))


@scenario()
async def a_thousand_items_in_one_push(stage: Stage) -> None:
    await stage.push(*({"n": n} for n in range(1000)))
    found = await stage.pop(1000)
    assert bodies(found) == [{"n": n} for n in range(1000)]
    results = (await stage.queen.ack(found))["results"]
    assert [result["success"] for result in results] == [True] * 1000
    assert await stage.pop() == []


@scenario()
async def two_megabytes_in_one_message(stage: Stage) -> None:
    payload = {"blob": "0123456789abcdef" * (128 << 10)}
    await stage.push(payload)
    message = await stage.only()
    assert message["data"] == payload
    assert (await stage.queen.ack(message))["success"] is True


@scenario()
async def a_transaction_id_is_queued_once_per_partition(stage: Stage) -> None:
    told: list[Any] = []

    async def duplicate(items: list[Any], _: Exception) -> None:
        told.extend(item["result"] for item in items)

    item = {"data": "first", "transactionId": "order-1"}
    (first,) = await stage.queue().push([item])
    (second,) = await stage.queue().push([{**item, "data": "second"}]).on_duplicate(duplicate)
    (elsewhere,) = await stage.queue().partition("other").push([item])
    assert (first["status"], second["status"], elsewhere["status"]) == ("queued", "duplicate", "queued")
    assert second["message_id"] == first["message_id"]
    assert told == [second]
    assert bodies(await stage.pop()) == ["first"]


@scenario()
async def a_repeat_inside_one_push_is_a_duplicate_of_the_first(stage: Stage) -> None:
    items = [{"data": n, "transactionId": id} for n, id in enumerate(["a", "b", "a"])]
    results = await stage.queue().push(items)
    assert [result["status"] for result in results] == ["queued", "queued", "duplicate"]
    assert results[2]["message_id"] == results[0]["message_id"]
    assert bodies(await stage.pop()) == [0, 1]


@scenario()
async def of_eight_pushes_of_one_id_at_once_one_wins(stage: Stage) -> None:
    pushes = [stage.queue().push([{"data": n, "transactionId": "same"}])._execute() for n in range(8)]
    results = [result for (result,) in await asyncio.gather(*pushes)]
    assert sorted(result["status"] for result in results) == ["duplicate"] * 7 + ["queued"]
    assert len({result["message_id"] for result in results}) == 1
    assert len(await stage.pop()) == 1


@scenario()
async def a_trace_id_travels_along(stage: Stage) -> None:
    trace = str(uuid.uuid4())
    (result,) = await stage.queue().push([{"data": 1, "traceId": trace}])
    assert result["trace_id"] == trace
    assert (await stage.only())["traceId"] == trace


@scenario()
async def success_is_called_back(stage: Stage) -> None:
    told: list[Any] = []

    async def success(items: list[Any]) -> None:
        told.extend(item["payload"] for item in items)

    await stage.queue().push([{"data": 1}, {"data": 2}]).on_success(success)
    assert told == [1, 2]


@scenario()
async def a_refused_push_is_called_back_as_an_error(stage: Stage) -> None:
    told: list[str] = []

    async def error(_: list[Any], problem: Exception) -> None:
        told.append(str(problem))

    await stage.queen.queue("x" * 5000).push([{"data": 1}]).on_error(error)
    assert len(told) == 1
    assert told[0]


@scenario()
async def a_buffer_is_flushed_by_hand(stage: Stage) -> None:
    buffered = stage.queue().buffer({"message_count": 1000, "time_millis": 600_000})
    for n in range(5):
        assert await buffered.push([{"data": n}]) == {"buffered": True, "count": 1}
    assert await stage.pop() == []
    await stage.queue().flush_buffer()
    assert bodies(await stage.pop()) == [0, 1, 2, 3, 4]


@scenario()
async def a_full_buffer_flushes_itself(stage: Stage) -> None:
    buffered = stage.queue().buffer({"message_count": 10, "time_millis": 600_000})
    await buffered.push([{"data": n} for n in range(10)])
    assert bodies(await stage.await_pop()) == list(range(10))


@scenario()
async def an_old_buffer_flushes_itself(stage: Stage) -> None:
    await stage.queue().buffer({"message_count": 1000, "time_millis": 50}).push([{"data": n} for n in range(3)])
    assert bodies(await stage.await_pop()) == [0, 1, 2]


@scenario()
async def all_buffers_are_flushed_at_once(stage: Stage) -> None:
    client = stage.new_client()
    for partition in ("a", "b"):
        queue = client.queue(stage.name).partition(partition).buffer({"message_count": 100, "time_millis": 600_000})
        await queue.push([{"data": partition}])
    await client.flush_all_buffers()
    assert client.get_buffer_stats()["totalBufferedMessages"] == 0
    found = await stage.queue().batch(10).partitions(2).wait(False).pop()
    assert sorted(bodies(found)) == ["a", "b"]
    await client.close()


@scenario()
async def closing_the_client_flushes_its_buffers(stage: Stage) -> None:
    async with stage.new_client() as client:
        await (
            client.queue(stage.name)
            .buffer({"message_count": 1000, "time_millis": 600_000})
            .push([{"data": n} for n in range(250)])
        )
    assert bodies(await stage.pop(300)) == list(range(250))


@scenario()
async def many_buffered_messages_arrive_once_and_in_order(stage: Stage) -> None:
    buffered = stage.queue().buffer({"message_count": 100, "time_millis": 100})
    for n in range(1000):
        await buffered.push([{"data": n}])
    await stage.queue().flush_buffer()
    seen: list[Any] = []

    async def more() -> bool:
        found = await stage.pop(1000)
        if found:
            await stage.queen.ack(found)
        seen.extend(bodies(found))
        return len(seen) >= 1000

    await eventually(more)
    assert sorted(seen) == list(range(1000))
