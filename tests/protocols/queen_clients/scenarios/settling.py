"""ack() in all its forms."""

from __future__ import annotations

from typing import Any

from tests.protocols.queen_clients.stage import Message, Stage, bodies, scenario


def marked(message: Message, status: Any, error: str | None = None) -> Message:
    """As the client wants it in a list with a status each."""
    return {**message, "_status": status, "_error": error}


@scenario()
async def an_ack_says_that_it_was_done(stage: Stage) -> None:
    await stage.push("a", "b")
    first, second = await stage.pop()
    answer = await stage.queen.ack(first)
    assert (answer["success"], answer["message"], answer["leaseReleased"]) == (True, "acknowledged", False)
    answer = await stage.queen.ack(second)
    assert (answer["success"], answer["message"], answer["leaseReleased"]) == (True, "acknowledged", True)
    assert answer["transactionId"] == second["transactionId"]


@scenario()
async def an_ack_without_a_partition_does_not_leave_the_client(stage: Stage) -> None:
    answer = await stage.queen.ack({"transactionId": "a"})
    assert (answer["success"], "partitionId" in answer["error"]) == (False, True)


@scenario()
async def a_second_ack_is_harmless(stage: Stage) -> None:
    await stage.push("a")
    message = await stage.only()
    assert (await stage.queen.ack(message))["success"] is True
    again = await stage.queen.ack(message)
    if stage.seed:
        assert (again["success"], "not_found" in again["error"]) == (False, True)
    else:
        assert (again["success"], again["noop"]) == (True, True)
    assert await stage.pop() == []


@scenario()
async def a_nack_after_the_ack_is_refused(stage: Stage) -> None:
    await stage.push("a")
    message = await stage.only()
    assert (await stage.queen.ack(message))["success"] is True
    late = await stage.queen.ack(message, False, {"error": "too late"})
    assert late["success"] is False
    assert ("not_found" if stage.seed else "committed") in late["error"]
    assert await stage.pop() == []


@scenario()
async def an_unknown_message_is_refused(stage: Stage) -> None:
    await stage.push("a")
    message = await stage.only()
    answer = await stage.queen.ack({**message, "transactionId": "never-pushed"})
    assert (answer["success"], "unresolv" in answer["error"]) == (False, True)
    assert (await stage.queen.ack(message))["success"] is True


@scenario()
async def an_ack_may_leave_out_the_lease(stage: Stage) -> None:
    await stage.push("a")
    message = await stage.only()
    assert (await stage.queen.ack({k: v for k, v in message.items() if k != "leaseId"}))["success"] is True
    assert await stage.pop() == []


@scenario()
async def a_list_is_acked_at_once(stage: Stage) -> None:
    await stage.push(*range(10))
    found = await stage.pop()
    answer = await stage.queen.ack(found)
    assert answer["success"] is True
    assert [result["transactionId"] for result in answer["results"]] == [m["transactionId"] for m in found]
    assert {result["success"] for result in answer["results"]} == {True}
    assert await stage.pop() == []


@scenario()
async def an_empty_list_is_nothing_to_do(stage: Stage) -> None:
    assert (await stage.queen.ack([]))["results"] == []


@scenario()
async def each_of_a_list_may_have_its_own_status(stage: Stage) -> None:
    await stage.push(*range(3))
    first, second, third = await stage.pop()
    answer = await stage.queen.ack([marked(first, True), marked(second, False, "bad"), marked(third, True)])
    assert [result["success"] for result in answer["results"]] == [True, True, True]
    assert [result["message"] for result in answer["results"]][:2] == ["acknowledged", "failed_retry"]
    found = await stage.await_pop()
    assert bodies(found) == ([1] if stage.seed else [1, 2])
    assert [message["retryCount"] for message in found] == ([1] if stage.seed else [1, 0])


@scenario()
async def a_refusal_in_a_list_undoes_all_of_it_only_in_seed_mode(stage: Stage) -> None:
    await stage.push("a", "b")
    first, second = await stage.pop()
    foreign = {**second, "transactionId": "never-pushed"}
    answer = await stage.queen.ack([first, foreign])
    assert [result["success"] for result in answer["results"]] == [not stage.seed, False]
    again = await stage.queen.ack(first)
    assert again["success"] is True
    assert bool(again.get("noop")) is not stage.seed


@scenario()
async def a_nacked_message_is_the_first_to_come_again(stage: Stage) -> None:
    await stage.push("a", "b", "c")
    first = (await stage.pop(1))[0]
    answer = await stage.queen.ack(first, False, {"error": "bad"})
    assert (answer["success"], answer["message"]) == (True, "failed_retry")
    assert bodies(await stage.await_pop()) == ["a", "b", "c"]


@scenario()
async def retry_gives_back_without_counting(stage: Stage) -> None:
    await stage.create(retry_limit=1)
    await stage.push("patient")
    for _ in range(4):
        (message,) = await stage.await_pop()
        assert message["retryCount"] == 0
        assert (await stage.queen.ack(message, "retry"))["success"] is True
    assert await stage.dead() == []


@scenario()
async def acks_of_groups_need_their_group(stage: Stage) -> None:
    await stage.push("a")
    message = await stage.only(group="g")
    assert (await stage.queen.ack([message], True, {"group": "g"}))["success"] is True
    assert await stage.pop(group="g") == []
    assert bodies(await stage.pop()) == ["a"]
