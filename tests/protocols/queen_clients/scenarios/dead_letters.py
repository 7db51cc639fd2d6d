"""The way into the dead letter queue, and what can be asked of it."""

from __future__ import annotations

from typing import Any

from tests.protocols.queen_clients.stage import Message, Stage, bodies, eventually, scenario


async def fail(stage: Stage, times: int, group: str | None = None) -> dict[str, Any]:
    """Nack whatever comes first, so many times; the last answer."""
    answer: dict[str, Any] = {}
    for n in range(times):
        (message,) = await stage.await_pop(1, group=group)
        context = {"error": f"attempt {n + 1} failed", **({"group": group} if group else {})}
        answer = await stage.queen.ack(message, False, context)
        assert answer["success"] is True
    return answer


@scenario()
async def the_last_failure_is_the_limit_or_one_more(stage: Stage) -> None:
    await stage.create(retry_limit=3)
    await stage.push("poison")
    last = 3 if stage.seed else 4
    answer = await fail(stage, last - 1)
    assert (answer["message"], answer["dlq"]) == ("failed_retry", False)
    assert await stage.dead() == []
    answer = await fail(stage, 1)
    assert (answer["message"], answer["dlq"], answer["leaseReleased"]) == ("failed_dlq", True, True)
    (letter,) = await stage.dead()
    assert letter["data"] == "poison"
    assert "attempt 1 failed" in letter["errorMessage"]
    assert letter["retryCount"] == last
    assert await stage.pop() == []


@scenario()
async def no_retries_means_dead_at_the_first_failure(stage: Stage) -> None:
    await stage.create(retry_limit=0)
    await stage.push("once")
    assert (await fail(stage, 1))["dlq"] is True
    assert bodies(await stage.dead()) == ["once"]


@scenario()
async def a_handler_that_always_fails_ends_in_the_dead_letter_queue(stage: Stage) -> None:
    await stage.create(retry_limit=1)
    await stage.push("poison", "fine")
    tries: list[Any] = []

    async def handle(message: Message) -> None:
        tries.append(message["data"])
        if message["data"] == "poison":
            raise ValueError("cannot be done")

    last = 1 if stage.seed else 2
    await stage.queue().group("workers").batch(1).limit(last + 1).consume(handle)
    assert tries == ["poison"] * last + ["fine"]
    (letter,) = await stage.dead("workers")
    assert (letter["data"], letter["consumerGroup"]) == ("poison", "workers")
    if stage.version != "0.15.0":  # that client sends no reason
        assert "cannot be done" in letter["errorMessage"]


@scenario()
async def what_comes_after_a_poison_has_its_own_count(stage: Stage) -> None:
    await stage.create(retry_limit=2)
    await stage.push("poison", "next")
    await fail(stage, 2 if stage.seed else 3)
    (message,) = await stage.await_pop(1)
    assert (message["data"], message["retryCount"]) == ("next", 0)
    assert (await stage.queen.ack(message, False))["message"] == "failed_retry"


@scenario()
async def dlq_as_a_status_goes_there_at_once(stage: Stage) -> None:
    await stage.push("hopeless", "next")
    (message,) = await stage.pop(1)
    answer = await stage.queen.ack(message, "dlq", {"error": "no such customer"})
    assert (answer["success"], answer["dlq"]) == (True, True)
    (letter,) = await stage.dead()
    assert (letter["messageId"], letter["errorMessage"]) == (message["id"], "no such customer")
    assert bodies(await stage.await_pop()) == ["next"]


@scenario()
async def letters_are_paged_and_counted(stage: Stage) -> None:
    await stage.push(*range(5))
    found = await stage.pop(5)
    for message in found if stage.seed else reversed(found):
        await stage.queen.ack({**message, "leaseId": None}, "dlq", {"error": "bad"})
    total = len(await stage.dead())
    pages = [await stage.queue().dlq().limit(2).offset(at).get() for at in range(0, total, 2)]
    assert {page["total"] for page in pages} == {total}
    ids = [letter["id"] for page in pages for letter in page["messages"]]
    assert (len(ids), len(set(ids))) == (total, total)
    assert [page["limit"] for page in pages] == [2] * len(pages)
    if stage.seed:
        assert total == 5


@scenario()
async def letters_are_asked_for_by_time_group_and_partition(stage: Stage) -> None:
    await stage.create(retry_limit=0)
    await stage.push("a", partition="east")
    await fail(stage, 1, group="g")
    assert await stage.dead("others") == []
    assert len(await stage.dead("g")) == 1
    query = stage.queue().partition("east").dlq("g")
    (letter,) = (await query.get())["messages"]
    day = letter["movedToDlqAt"][:10]
    assert (await stage.queue().dlq().from_(day).to(day).get())["total"] == 1
    assert (await stage.queue().dlq().from_("2000-01-01").to("2000-12-31").get())["total"] == 0
    assert (await stage.queue().partition("west").dlq().get())["total"] == 0


@scenario()
async def a_letter_is_sent_again_as_a_new_message(stage: Stage) -> None:
    await stage.create(retry_limit=0)
    await stage.push("second chance")
    message = (await stage.pop())[0]
    await stage.queen.ack(message, False, {"error": "bad"})
    answer = await stage.queen.admin.retry_message(message["partitionId"], message["transactionId"])
    assert (answer["success"], answer["result"]) == (True, "moved")
    assert await stage.dead() == []
    assert bodies(await stage.await_pop()) == ["second chance"]


@scenario()
async def a_letter_is_pushed_again_by_hand(stage: Stage) -> None:
    """The seed's way to reprocess."""
    await stage.create(retry_limit=0)
    await stage.push("again", partition="p")
    await fail(stage, 1)
    (letter,) = await stage.dead()
    item = {"data": letter["data"], "transactionId": f"reprocess-{letter['transactionId']}"}
    (result,) = await stage.queue().partition(letter["partition"]).push([item])
    assert result["status"] == "queued"
    assert bodies(await stage.pop()) == ["again"]


@scenario()
async def what_waits_too_long_is_a_dead_letter(stage: Stage) -> None:
    await stage.create(max_wait_time_seconds=1, dead_letter_queue=True)
    await stage.push("stale")
    (letter,) = await eventually(stage.dead)
    assert letter["data"] == "stale"
    assert await stage.pop() == []


@scenario()
async def without_dead_letters_the_last_failure_drops(stage: Stage) -> None:
    await stage.create(retry_limit=0, dead_letter_queue=False, dlq_after_max_retries=False)
    await stage.push("gone", "next")
    await fail(stage, 1)
    assert await stage.dead() == []
    assert bodies(await stage.await_pop()) == ["next"]
