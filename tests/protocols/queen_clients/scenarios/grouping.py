"""Consumer groups, and where a new one begins."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.protocols.queen_clients.stage import Message, Stage, bodies, scenario


@scenario()
async def every_group_gets_every_message(stage: Stage) -> None:
    await stage.push(*range(10))
    seen: dict[str, list[Any]] = {"email-sender": [], "analytics": []}
    for group, mine in seen.items():

        async def handle(message: Message, mine: list[Any] = mine) -> None:
            mine.append(message["data"])

        await stage.queue().group(group).batch(4).each().limit(10).consume(handle)
    assert seen == {"email-sender": list(range(10)), "analytics": list(range(10))}
    assert bodies(await stage.pop()) == list(range(10))


@scenario()
async def an_ack_counts_for_its_group_only(stage: Stage) -> None:
    await stage.push("a", "b")
    (first, _) = await stage.pop(group="one")
    await stage.pop(group="two")
    assert (await stage.queen.ack(first, True, {"group": "one"}))["success"] is True
    detail = await stage.queen.admin.get_consumer_group("one")
    (partition,) = detail[stage.name]["partitions"]
    assert (partition["totalConsumed"], partition["offsetLag"], partition["lastConsumedId"]) == (1, 1, first["id"])


@scenario()
async def a_group_goes_on_where_it_was(stage: Stage) -> None:
    await stage.push(*range(4))
    found = await stage.pop(2, group="g")
    assert (await stage.queen.ack(found, True, {"group": "g"}))["success"] is True
    assert bodies(await stage.pop(group="g")) == [2, 3]


@scenario()
async def a_new_group_begins_with_everything(stage: Stage) -> None:
    await stage.push("old")
    assert bodies(await stage.pop(group="plain")) == ["old"]
    assert bodies(await stage.queue().group("said").subscription_mode("all").wait(False).batch(5).pop()) == ["old"]


async def begins_with_what_comes(stage: Stage, group: str, **options: str) -> None:
    builder = stage.queue().group(group).batch(5).wait(False)
    for name, value in options.items():
        builder = getattr(builder, name)(value)
    assert await builder.pop() == []
    await stage.push(f"for {group}")
    assert bodies(await builder.pop())[-1:] == [f"for {group}"]
    assert "old" not in bodies(await builder.pop())


@scenario()
async def a_new_subscription_skips_what_was_there(stage: Stage) -> None:
    await stage.push("old")
    await begins_with_what_comes(stage, "new", subscription_mode="new")
    await begins_with_what_comes(stage, "new-only", subscription_mode="new-only")
    await begins_with_what_comes(stage, "now", subscription_from="now")


@scenario()
async def a_new_subscription_sees_partitions_made_later(stage: Stage) -> None:
    await stage.push("old", partition="first")
    builder = stage.queue().group("late").subscription_mode("new").batch(5).wait(False)
    assert await builder.pop() == []
    await stage.push("fresh", partition="second")
    assert bodies(await builder.pop()) == ["fresh"]


@scenario()
async def a_subscription_may_begin_at_an_instant(stage: Stage) -> None:
    await stage.push("before")
    await stage.push("after")
    before, after = (datetime.fromisoformat(m["createdAt"]) for m in await stage.pop(group="clock"))
    between = (before + (after - before) / 2).isoformat().replace("+00:00", "Z")
    found = await stage.queue().group("from").subscription_from(between).batch(5).wait(False).pop()
    assert bodies(found) == ["after"]


@scenario()
async def queue_mode_begins_with_the_oldest(stage: Stage) -> None:
    await stage.push("old")
    assert bodies(await stage.queue().subscription_mode("new").batch(5).wait(False).pop()) == ["old"]


@scenario()
async def a_deleted_group_begins_again(stage: Stage) -> None:
    group = f"{stage.name}-group"
    assert (await stage.queen.delete_consumer_group(group))["success"] is True
    await stage.push("a")
    assert bodies(await stage.pop(group=group)) == ["a"]
    assert (await stage.queen.delete_consumer_group(group))["success"] is True
    assert bodies(await stage.pop(group=group)) == ["a"]


@scenario()
async def a_groups_subscription_can_be_noted_anew(stage: Stage) -> None:
    group = f"{stage.name}-group"
    await stage.push("a")
    await stage.pop(group=group)
    answer = await stage.queen.update_consumer_group_timestamp(group, "2026-01-02T03:04:05Z")
    assert (answer["success"], answer["consumerGroup"], answer["rowsUpdated"]) == (True, group, 1)
