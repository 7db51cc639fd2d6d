"""Partitions: order inside one, freedom between them, and several in one pop."""

from __future__ import annotations

from typing import Any

from tests.protocols.queen_clients.stage import Stage, bodies, scenario


@scenario()
async def a_partition_in_hand_is_closed_to_its_group(stage: Stage) -> None:
    await stage.push("a1", "a2", partition="a")
    assert bodies(await stage.pop(1)) == ["a1"]
    assert await stage.pop() == []
    await stage.push("b1", partition="b")
    assert bodies(await stage.pop()) == ["b1"]
    assert bodies(await stage.pop(group="others")) in (["a1", "a2"], ["b1"])


@scenario()
async def acking_the_batch_opens_the_partition(stage: Stage) -> None:
    await stage.push(*range(4))
    first = await stage.pop(2)
    for message in first:
        assert await stage.pop() == []
        assert (await stage.queen.ack(message))["success"] is True
    assert bodies(await stage.pop()) == [2, 3]


@scenario()
async def a_named_partition_is_popped_alone(stage: Stage) -> None:
    await stage.push("a", partition="a")
    await stage.push("b", partition="b")
    found = await stage.queue().partition("b").batch(5).wait(False).pop()
    assert [(message["partition"], message["data"]) for message in found] == [("b", "b")]
    assert await stage.queue().partition("nobody").batch(5).wait(False).pop() == []


@scenario()
async def several_partitions_come_under_one_lease(stage: Stage) -> None:
    for partition in ("a", "b", "c"):
        await stage.push(f"{partition}1", f"{partition}2", partition=partition)
    found = await stage.queue().batch(10).partitions(3).wait(False).pop()
    assert sorted(bodies(found)) == ["a1", "a2", "b1", "b2", "c1", "c2"]
    assert len({message["partitionId"] for message in found}) == 3
    assert len({message["leaseId"] for message in found}) == 1
    results = (await stage.queen.ack(found))["results"]
    assert all(result["success"] for result in results)
    assert await stage.pop() == []


@scenario()
async def the_batch_is_shared_by_the_partitions(stage: Stage) -> None:
    for partition in range(5):
        await stage.push(*range(20), partition=f"p{partition}")
    found = await stage.queue().batch(10).partitions(5).wait(False).pop()
    assert len(found) == 10


@scenario()
async def one_partition_comes_unless_more_are_asked_for(stage: Stage) -> None:
    for partition in range(3):
        await stage.push(partition, partition=f"p{partition}")
    assert len(await stage.queue().batch(10).partitions(1).wait(False).pop()) == 1
    if stage.version == "0.15.0":  # later clients leave the number to the server
        assert len(await stage.queue().batch(10).wait(False).pop()) == 1


@scenario()
async def every_partition_is_served_in_turn(stage: Stage) -> None:
    for partition in range(4):
        await stage.push(*range(3), partition=f"p{partition}")
    seen: list[Any] = []
    for _ in range(4):
        found = await stage.pop(1)
        seen += [message["partition"] for message in found]
        await stage.queen.ack(found)
    assert sorted(seen) == ["p0", "p1", "p2", "p3"]


@scenario()
async def names_with_odd_characters_are_names(stage: Stage) -> None:
    queue = f"{stage.name} grün & co"
    await stage.queen.queue(queue).partition("a b+c").push([{"data": 1}])
    found = await stage.queen.queue(queue).partition("a b+c").batch(5).wait(False).pop()
    assert [(m["queue"], m["partition"]) for m in found] == [(queue, "a b+c")]
    assert (await stage.queen.queue(queue).delete())["deleted"] is True


@scenario()
async def a_namespace_or_a_task_gathers_queues(stage: Stage) -> None:
    space = f"{stage.name}-space"
    for name in ("one", "two"):
        await stage.queue(name).namespace(space).task(f"{stage.name}-{name}").create()
        await stage.push(name, to=name)
    by_task = stage.queen.queue().task(f"{stage.name}-two").batch(5).wait(False)
    assert bodies(await by_task.pop()) == ["two"]
    by_space = stage.queen.queue().namespace(space).batch(5).wait(False).group("g")
    seen = []
    for _ in range(2):
        found = await by_space.pop()
        seen += bodies(found)
        assert (await stage.queen.ack(found, True, {"group": "g"}))["success"] is True
    assert sorted(seen) == ["one", "two"]
    assert await by_space.pop() == []
