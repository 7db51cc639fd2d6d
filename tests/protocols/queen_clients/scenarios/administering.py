"""The client's admin calls."""

from __future__ import annotations

from tests.protocols.queen_clients.stage import Stage, bodies, refusal, scenario


@scenario()
async def the_server_says_that_it_is_well(stage: Stage) -> None:
    health = await stage.queen.admin.health()
    assert health["status"] == "healthy"


@scenario()
async def a_client_with_several_addresses_goes_on_without_a_dead_one(stage: Stage) -> None:
    async with stage.new_client("http://127.0.0.1:9") as client:
        for n in range(4):
            await client.queue(stage.name).push([{"data": n}])
        found = await client.queue(stage.name).batch(10).wait(False).pop()
        assert bodies(found) == [0, 1, 2, 3]
        assert (await client.ack(found))["success"] is True


@scenario()
async def queues_are_listed_with_their_counts(stage: Stage) -> None:
    await stage.push(*range(3))
    await stage.pop(1)
    listed = {queue["name"]: queue for queue in (await stage.queen.admin.list_queues())["queues"]}
    shown = listed[stage.name]
    assert shown["partitions"] == 1
    assert shown["messages"]["total"] == 3


@scenario()
async def a_queue_is_shown_with_its_partitions(stage: Stage) -> None:
    await stage.create(retry_limit=0)
    for partition in ("a", "b"):
        await stage.push(1, 2, partition=partition)
    found = await stage.pop(2)
    await stage.queen.ack(found)
    shown = await stage.queen.admin.get_queue(stage.name)
    assert shown["name"] == stage.name
    assert {"a", "b"} <= {partition["name"] for partition in shown["partitions"]}
    assert (shown["totals"]["total"], shown["totals"]["completed"], shown["totals"]["pending"]) == (4, 2, 2)


@scenario()
async def an_unknown_queue_is_not_shown(stage: Stage) -> None:
    assert await refusal(stage.queen.admin.get_queue(stage.name)) == "Queue not found"


@scenario()
async def namespaces_and_tasks_are_listed(stage: Stage) -> None:
    await stage.queue().namespace(f"{stage.name}-ns").task(f"{stage.name}-task").create()
    await stage.push(1)
    spaces = {one["namespace"]: one for one in (await stage.queen.admin.get_namespaces())["namespaces"]}
    tasks = {one["task"]: one for one in (await stage.queen.admin.get_tasks())["tasks"]}
    assert spaces[f"{stage.name}-ns"]["queues"] == 1
    assert tasks[f"{stage.name}-task"]["messages"]["total"] == 1


@scenario()
async def the_overview_counts_everything(stage: Stage) -> None:
    await stage.push(1)
    overview = await stage.queen.admin.get_overview()
    assert overview["queues"] >= 1
    assert overview["messages"]["total"] >= 1


@scenario()
async def partitions_are_listed(stage: Stage) -> None:
    await stage.push(1, partition="a")
    await stage.push(1, partition="b")
    listed = await stage.queen.admin.get_partitions(queue=stage.name)
    assert {"a", "b"} <= {one["name"] for one in listed["partitions"]}


@scenario(versions=("2.6.0",))
async def a_queues_depth_is_told_for_a_group(stage: Stage) -> None:
    await stage.push(*range(3), partition="a")
    await stage.push(*range(2), partition="b")
    depth = await stage.queen.admin.get_queue_depth(stage.name, "g")
    assert (depth["pending"], depth["partitionsPending"]) == (5, 2)
    assert {one["partition"]: one["pending"] for one in depth["partitions"]} == {"a": 3, "b": 2}


@scenario()
async def one_message_is_shown(stage: Stage) -> None:
    (result,) = await stage.push({"n": 1})
    shown = await stage.queen.admin.get_message(result["partition_id"], result["transaction_id"])
    assert (shown["payload"], shown["status"], shown["queue"]) == ({"n": 1}, "pending", stage.name)
    message = await stage.only()
    shown = await stage.queen.admin.get_message(message["partitionId"], message["transactionId"])
    assert shown["status"] == "processing"
    await stage.queen.ack(message)
    shown = await stage.queen.admin.get_message(message["partitionId"], message["transactionId"])
    assert shown["status"] == "completed"


@scenario()
async def groups_are_listed_with_their_lag(stage: Stage) -> None:
    group = f"{stage.name}-group"
    await stage.push(*range(3))
    message = (await stage.pop(1, group=group))[0]
    await stage.queen.ack(message, True, {"group": group})
    listed = await stage.queen.admin.list_consumer_groups()
    groups = listed["groups"] if stage.seed else listed
    (shown,) = [one for one in groups if one["name"] == group]
    assert (shown["topics"], shown["totalLag"], shown["state"]) == ([stage.name], 2, "Stable")


@scenario()
async def an_unknown_group_is_empty(stage: Stage) -> None:
    assert await stage.queen.admin.get_consumer_group(f"{stage.name}-nobody") == {}


@scenario()
async def laggards_are_listed(stage: Stage) -> None:
    group = f"{stage.name}-group"
    await stage.push(1)
    await stage.pop(group=group)
    behind = await stage.queen.admin.get_lagging_consumers(0)
    assert [one["offset_lag"] for one in behind if one["consumer_group"] == group] == [1]
    behind = await stage.queen.admin.get_lagging_consumers(3600)
    assert [one for one in behind if one["consumer_group"] == group] == []


@scenario()
async def a_group_is_moved_to_the_end_and_to_a_time(stage: Stage) -> None:
    await stage.push("a")
    await stage.push("b")
    first, _ = await stage.pop(group="g")
    answer = await stage.queen.admin.seek_consumer_group("g", stage.name, {"toEnd": True})
    assert answer["success"] is True
    assert await stage.pop(group="g") == []
    await stage.queen.admin.seek_consumer_group("g", stage.name, {"timestamp": first["createdAt"]})
    assert bodies(await stage.pop(group="g"))[-1:] == ["b"]
    await stage.queen.admin.seek_consumer_group("g", stage.name, {"timestamp": "2000-01-01T00:00:00Z"})
    assert bodies(await stage.pop(group="g")) == ["a", "b"]


@scenario()
async def a_group_is_deleted_for_one_queue(stage: Stage) -> None:
    group = f"{stage.name}-group"
    for to in ("", "other"):
        await stage.push("a", to=to)
        message = await stage.only(of=to, group=group)
        await stage.queen.ack(message, True, {"group": group})
    answer = await stage.queen.admin.delete_consumer_group_for_queue(group, stage.name)
    assert (answer["success"], answer["queueName"]) == (True, stage.name)
    assert bodies(await stage.pop(group=group)) == ["a"]
    assert await stage.pop(of="other", group=group) == []


@scenario()
async def statistics_are_refreshed_on_request(stage: Stage) -> None:
    assert isinstance(await stage.queen.admin.refresh_consumer_stats(), dict)
