"""consume(): one by one and in batches, how it ends, and what happens when a handler fails."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.protocols.queen_clients.stage import IDLE, PATIENCE, Message, Stage, bodies, scenario


@scenario()
async def each_hands_over_one_message_at_a_time(stage: Stage) -> None:
    await stage.push(*range(20))
    seen: list[Any] = []

    async def handle(message: Message) -> None:
        seen.append(message["data"])

    await stage.queue().batch(8).each().limit(20).consume(handle)
    assert seen == list(range(20))
    assert await stage.pop() == []


@scenario()
async def without_each_a_batch_comes_as_a_list(stage: Stage) -> None:
    await stage.push(*range(30))
    seen: list[list[Any]] = []

    async def handle(messages: list[Message]) -> None:
        seen.append(bodies(messages))

    await stage.queue().batch(10).limit(30).consume(handle)
    assert seen == [list(range(0, 10)), list(range(10, 20)), list(range(20, 30))]
    assert await stage.pop() == []


@scenario()
async def a_batch_of_one_comes_as_a_message(stage: Stage) -> None:
    await stage.push("a", "b")
    seen: list[Any] = []

    async def handle(message: Message) -> None:
        seen.append(message["data"])

    await stage.queue().batch(1).limit(2).consume(handle)
    assert seen == ["a", "b"]


@scenario()
async def consume_ends_when_nothing_came_for_a_while(stage: Stage) -> None:
    await stage.push(*range(3))
    seen: list[Any] = []

    async def handle(message: Message) -> None:
        seen.append(message["data"])

    await stage.queue().batch(1).each().timeout_millis(200).idle_millis(IDLE).consume(handle)
    assert seen == [0, 1, 2]


@scenario()
async def consume_without_waiting_polls(stage: Stage) -> None:
    await stage.push(*range(3))
    seen: list[Any] = []

    async def handle(message: Message) -> None:
        seen.append(message["data"])

    await stage.queue().batch(1).each().wait(False).idle_millis(IDLE).consume(handle)
    assert seen == [0, 1, 2]


@scenario()
async def consume_ends_when_it_is_told_to(stage: Stage) -> None:
    await stage.push(*range(5))
    enough = asyncio.Event()
    seen: list[Any] = []

    async def handle(message: Message) -> None:
        seen.append(message["data"])
        if len(seen) == 2:
            enough.set()

    await stage.queue().batch(1).consume(handle, signal=enough)
    assert seen == [0, 1]
    assert bodies(await stage.pop()) == [2, 3, 4]


@scenario()
async def several_workers_share_the_partitions(stage: Stage) -> None:
    for partition in range(8):
        await stage.push(*((partition, n) for n in range(10)), partition=f"p{partition}")
    seen: list[tuple[int, int]] = []
    complete = asyncio.Event()

    async def handle(messages: list[Message]) -> None:
        seen.extend((partition, n) for partition, n in bodies(messages))
        if len(seen) == 80:
            complete.set()

    await stage.queue().batch(5).concurrency(4).timeout_millis(200).consume(handle, signal=complete)
    assert sorted(seen) == [(partition, n) for partition in range(8) for n in range(10)]
    for partition in range(8):
        assert [n for p, n in seen if p == partition] == list(range(10))


@scenario()
async def a_consumer_that_waits_is_woken_by_a_push(stage: Stage) -> None:
    got: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def handle(message: Message) -> None:
        got.set_result(message["data"])

    consuming = asyncio.ensure_future(
        stage.queue().batch(1).timeout_millis(600_000).limit(1).consume(handle)._execute()
    )
    await stage.queen.admin.health()
    await stage.push("wake up")
    assert await got == "wake up"
    await consuming


@scenario()
async def a_poll_that_waits_is_woken_by_a_push(stage: Stage) -> None:
    waiting = asyncio.ensure_future(stage.queue().batch(1).wait(True).timeout_millis(600_000).pop())
    await stage.queen.admin.health()
    await stage.push("wake up")
    assert bodies(await waiting) == ["wake up"]


@scenario()
async def a_poll_in_vain_ends_at_its_timeout(stage: Stage) -> None:
    await stage.create()
    assert await stage.queue().batch(1).wait(True).timeout_millis(100).pop() == []


@scenario()
async def a_failed_handler_gets_the_message_again(stage: Stage) -> None:
    await stage.push("flaky")
    tries: list[int] = []

    async def handle(message: Message) -> None:
        tries.append(message["retryCount"])
        if len(tries) < 3:
            raise RuntimeError("not yet")

    await stage.queue().batch(1).limit(3).consume(handle)
    assert tries == [0, 1, 2]
    assert await stage.pop() == []
    assert await stage.dead() == []


@scenario()
async def a_failed_batch_comes_again(stage: Stage) -> None:
    await stage.push(*range(5))
    seen: list[list[Any]] = []

    async def handle(messages: list[Message]) -> None:
        seen.append(bodies(messages))
        if len(seen) == 1:
            raise RuntimeError("not yet")

    await stage.queue().batch(5).limit(10).consume(handle)
    assert seen == [[0, 1, 2, 3, 4]] * 2
    assert await stage.pop() == []


async def consume_with_one_failure(stage: Stage, builder: Any) -> None:
    """Client 0.15 continues with its batch after a nack. Client 2.6 leaves the batch and pops again. Upstream mode then
    returns the rest of the batch. In seed mode the lease stays."""
    await stage.push(*range(5))
    done: list[Any] = []
    failed: list[Any] = []

    async def handle(message: Message) -> None:
        if message["data"] == 1 and not failed:
            failed.append(message["data"])
            raise RuntimeError("once")
        done.append(message["data"])

    await builder.each().timeout_millis(300).idle_millis(IDLE).consume(handle)
    if stage.seed and stage.version.startswith("2."):
        assert (done, await stage.pop()) == ([0], [])
    else:
        assert sorted(set(done)) == [0, 1, 2, 3, 4], done
    assert await stage.dead() == []


@scenario()
async def a_failure_among_each_leaves_nothing_behind(stage: Stage) -> None:
    await consume_with_one_failure(stage, stage.queue().batch(5))


@scenario()
async def a_failure_among_each_of_a_sized_pop_leaves_nothing_behind(stage: Stage) -> None:
    await consume_with_one_failure(stage, stage.queue().batch(5).partitions(1))


@scenario()
async def callbacks_settle_by_themselves(stage: Stage) -> None:
    await stage.push("good", "bad")
    tries: list[str] = []

    async def handle(message: Message) -> str:
        if message["data"] == "bad" and "bad" not in tries:
            tries.append("bad")
            raise RuntimeError("once")
        return str(message["data"])

    async def success(message: Message, result: str) -> None:
        assert (await stage.queen.ack(message))["success"] is True
        tries.append(f"done {result}")

    async def error(message: Message, problem: Exception) -> None:
        assert (await stage.queen.ack(message, False, {"error": str(problem)}))["success"] is True

    await stage.queue().batch(1).each().limit(3).consume(handle).on_success(success).on_error(error)
    assert tries == ["done good", "bad", "done bad"]
    assert await stage.pop() == []


@scenario()
async def without_auto_ack_the_handler_settles(stage: Stage) -> None:
    await stage.push("kept", "acked")
    seen: list[Message] = []

    async def handle(messages: list[Message]) -> None:
        seen.extend(messages)

    await stage.queue().batch(2).partitions(1).auto_ack(False).limit(2).consume(handle)
    assert await stage.pop() == []
    assert (await stage.queen.ack(seen[0], "retry"))["success"] is True
    if stage.seed:
        assert (await stage.queen.ack(seen[1]))["success"] is True
    assert bodies(await stage.await_pop()) == (["kept"] if stage.seed else ["kept", "acked"])


@scenario(versions=("2.6.0",))
async def commit_on_delivery_needs_no_ack(stage: Stage) -> None:
    (result,) = await stage.push("fire and forget")
    message = (await stage.queue().batch(1).wait(False).commit_on_delivery().pop())[0]
    assert (message["data"], message["leaseId"]) == ("fire and forget", "")
    assert await stage.pop() == []
    shown = await stage.queen.admin.get_message(result["partition_id"], result["transaction_id"])
    assert [(group["consumed"], group["leaseExpiresAt"]) for group in shown["consumerGroups"]] == [(True, None)]


@scenario(versions=("2.6.0",))
async def the_server_sizes_a_pop_that_does_not_say(stage: Stage) -> None:
    await stage.push(*range(5))
    seen: list[Any] = []

    async def handle(message: Message) -> None:
        seen.append(message["data"])

    await stage.queue().each().limit(5).consume(handle)
    assert seen == [0, 1, 2, 3, 4]
    result = await stage.queue().wait(False).pop_result()
    assert result.messages == []


@scenario()
async def two_clients_compete_for_a_queue(stage: Stage) -> None:
    for partition in range(6):
        await stage.push(*((partition, n) for n in range(5)), partition=f"p{partition}")
    seen: list[tuple[int, int]] = []
    complete = asyncio.Event()

    async def handle(message: Message) -> None:
        partition, n = message["data"]
        seen.append((partition, n))
        if len(seen) == 30:
            complete.set()

    async with stage.new_client() as other:
        await asyncio.gather(
            *(
                client.queue(stage.name).batch(2).each().timeout_millis(200).consume(handle, signal=complete)._execute()
                for client in (stage.queen, other)
            )
        )
    assert sorted(seen) == [(partition, n) for partition in range(6) for n in range(5)]


@scenario()
async def a_poll_is_answered_within_the_clients_patience(stage: Stage) -> None:
    """Many polls at once, each for its own partition, and each gets its own message."""
    polls = [
        asyncio.ensure_future(stage.queue().partition(f"p{n}").batch(1).wait(True).timeout_millis(PATIENCE).pop())
        for n in range(10)
    ]
    await stage.queen.admin.health()
    for n in reversed(range(10)):
        await stage.push(n, partition=f"p{n}")
    assert [bodies(found) for found in await asyncio.gather(*polls)] == [[n] for n in range(10)]
