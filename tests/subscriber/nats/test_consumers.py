"""The consumer and stream that a subscription gets, and the options that the app sets on them."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from nats.js import JetStreamContext, api

from ackwise import errors
from ackwise.core.policy import Backoff
from ackwise.subscriber import AckPolicy, App
from ackwise.subscriber.feeds.jetstream.consumer import covers
from tests.patience import PATIENCE
from tests.subscriber.conftest import until
from tests.subscriber.nats.conftest import Order, info, js_of, keep, run


async def handle(order: Order) -> None:
    """Any handler."""


async def started(app: App) -> None:
    async with app:
        pass


def within(app: App, job: Any) -> None:
    """Beside an app that is not started yet."""

    async def go() -> None:
        async with asyncio.timeout(PATIENCE), App(app.url) as other:
            await job(js_of(other))

    asyncio.run(go())


def test_ephemeral_subscriber_gets_what_is_new(app: App, nats_url: str, subject: str) -> None:
    orders = app.publisher(subject, Order)
    runs: list[list[int]] = []

    async def once(number: int) -> None:
        seen: list[int] = []
        runs.append(seen)
        again = App(nats_url)

        @again.subscriber(subject)
        async def handle(order: Order) -> None:
            seen.append(order.id)

        async with again:
            await orders.publish(Order(number))
            await until(lambda: seen)

    async def job(app: App, js: JetStreamContext) -> None:
        for number in range(3):
            await once(number)
        assert runs == [[0], [1], [2]]

    run(app, job)


def test_ephemeral_consumers_get_everything_durable_ones_share(app: App, nats_url: str, subject: str) -> None:
    apps = [App(nats_url), App(nats_url)]
    alone: list[list[int]] = [[], []]
    shared: list[int] = []
    for one, seen in zip(apps, alone, strict=True):

        async def mine(order: Order, seen: list[int] = seen) -> None:
            seen.append(order.id)

        async def ours(order: Order) -> None:
            shared.append(order.id)

        one.subscriber(subject)(mine)
        one.subscriber(subject, durable="d")(ours)
    orders = app.publisher(subject, Order)

    async def job(app: App, js: JetStreamContext) -> None:
        async with apps[0], apps[1]:
            for number in range(5):
                await orders.publish(Order(number))
            await until(lambda: len(alone[0]) == len(alone[1]) == 5)
            await until(lambda: len(shared) == 5)
        assert (sorted(alone[0]), sorted(alone[1]), sorted(shared)) == (list(range(5)),) * 3

    run(app, job)


def test_durable_name_on_two_subjects_is_refused(app: App, subject: str) -> None:
    app.subscriber(f"{subject}.new", durable="billing")(handle)
    app.subscriber(f"{subject}.old", durable="billing")(handle)

    async def job(js: JetStreamContext) -> None:
        await js.add_stream(name=subject, subjects=[f"{subject}.>"])
        with pytest.raises(errors.BadInput) as refused:
            await app.start()
        assert str(refused.value) == (
            f"handle: the consumer 'billing' of stream {subject} hands out {subject}.new, not {subject}.old; "
            "give this subscriber another durable name"
        )
        assert (await info(js, subject, "billing")).config.filter_subject == f"{subject}.new"

    within(app, job)


@pytest.mark.parametrize(
    ("filters", "subscribed", "says"),
    [
        ({}, ".>", None),
        ({}, ".a", "refused"),
        ({"filter_subject": ".a"}, ".a", None),
        ({"filter_subject": ".a"}, ".*", "warned"),
        ({"filter_subject": ".>"}, ".a", "refused"),
        ({"filter_subjects": [".a", ".b"]}, ".*", "warned"),
        ({"filter_subjects": [".a", ".b"]}, ".a", "refused"),
    ],
)
def test_existing_consumer_with_foreign_subjects_is_refused(
    app: App,
    subject: str,
    filters: dict[str, Any],
    subscribed: str,
    says: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    app.subscriber(subject + subscribed, durable="d", stream=subject)(handle)
    full: dict[str, Any] = {
        name: subject + value if isinstance(value, str) else [subject + one for one in value]
        for name, value in filters.items()
    }

    async def job(js: JetStreamContext) -> None:
        await js.add_stream(name=subject, subjects=[f"{subject}.>"])
        await js.add_consumer(subject, api.ConsumerConfig(durable_name="d", **full))
        if says == "refused":
            with pytest.raises(errors.BadInput, match="hands out"):
                await app.start()
        else:
            await started(app)
        assert ("which is not all of" in caplog.text) == (says == "warned")

    within(app, job)


@pytest.mark.parametrize(
    ("pattern", "subject", "true"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a.*", "a.b", True),
        ("a.*", "a.*", True),
        ("a.*", "a.>", False),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a.>", True),
        ("a.>", "a", False),
        ("a.b", "a.*", False),
        (">", "a", True),
    ],
)
def test_subject_covers_another(pattern: str, subject: str, true: bool) -> None:
    assert covers(pattern, subject) is true


def test_subscriber_options_are_applied_to_existing_consumer(nats_url: str, subject: str) -> None:
    async def settings(**options: Any) -> tuple[Any, ...]:
        app = App(nats_url)
        app.subscriber(subject, durable="d", **options)(handle)
        async with asyncio.timeout(PATIENCE), app:
            config = (await info(js_of(app), subject)).config
            return config.ack_wait, config.max_deliver, config.backoff, config.max_ack_pending

    async def job() -> None:
        assert await settings() == (30, -1, None, 1000)
        assert await settings(lease=5, retry_limit=3) == (5, 3, None, 1000)
        # What it does not say stays as it is.
        assert await settings() == (5, 3, None, 1000)
        assert await settings(backoff=(1, 2, 4, 8), max_pending=7) == (1, 3, [1, 2], 7)
        assert await settings(lease=60) == (1, 3, [1, 2], 7)
        assert await settings(retry_limit=None, backoff=(2, 9)) == (2, -1, [2, 9], 7)
        assert await settings(backoff=Backoff(), lease=9) == (9, -1, None, 7)

    asyncio.run(job())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ack": AckPolicy.FIRST},
        {"lease": 5, "retry_limit": 3, "max_pending": 7},
        {"lease": 5, "backoff": (1, 2, 2), "retry_limit": 9},
        {"backoff": (1, 2), "retry_limit": 1},
        {"backoff": Backoff(), "retry_limit": None},
    ],
)
def test_consumer_declared_again_is_not_changed(
    nats_url: str, subject: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def job() -> None:
        for _ in range(2):
            app = App(nats_url)
            app.subscriber(subject, durable="d", **options)(handle)
            await started(app)
        assert "changes the consumer" not in caplog.text

    asyncio.run(job())


@pytest.mark.parametrize(
    ("backoff", "steps"),
    [
        (Backoff(kind="fixed", seconds=3), [3]),
        (Backoff(kind="exponential", seconds=1, factor=2, cap=10), [1, 2, 4, 8, 10]),
        (Backoff(kind="exponential", seconds=1, factor=3, cap=5, jitter=0.5), [1, 3, 5]),
        ((4, 4, 4), [4]),
        (Backoff(), None),
    ],
)
def test_every_kind_of_backoff_is_told(app: App, subject: str, backoff: Any, steps: list[float] | None) -> None:
    app.subscriber(subject, durable="d", backoff=backoff)(handle)

    async def job(app: App, js: JetStreamContext) -> None:
        assert (await info(js, subject)).config.backoff == steps

    run(app, job)


def test_options_that_jetstream_lacks_are_refused(nats_url: str, subject: str) -> None:
    async def job(js: JetStreamContext) -> None:
        async def refused(why: str, **options: Any) -> None:
            app = App(nats_url)
            app.subscriber(subject, **options)(handle)
            with pytest.raises(errors.BadInput, match=why):
                await app.start()

        await js.add_stream(name=subject, subjects=[subject])
        await js.add_consumer(subject, api.ConsumerConfig(durable_name="pushed", deliver_subject="there"))
        await refused("is a push consumer; a subscriber needs a pull consumer", durable="pushed")
        await refused("a backoff step must be more than 0 seconds", durable="d", backoff=(0, 5))
        await refused("consumer", durable="with.dots")
        await js.add_consumer(subject, api.ConsumerConfig(durable_name="acks", filter_subject=subject))
        await refused("ack policy can not be updated", durable="acks", ack=AckPolicy.FIRST)
        assert {one.name for one in await js.consumers_info(subject)} == {"pushed", "acks"}

    within(App(nats_url), job)


def test_each_subscriber_is_on_the_stream_that_it_names(app: App, nats_url: str, subject: str) -> None:
    """Also when another one, or a publisher, found another stream for the same subject."""
    seen = keep(app, subject)
    mirrored: list[int] = []

    @app.subscriber(subject, durable="m", stream=f"{subject}-mirror")
    async def mirror(order: Order) -> None:
        mirrored.append(order.id)

    orders = app.publisher(subject, Order)

    async def job() -> None:
        async with asyncio.timeout(PATIENCE):
            async with App(nats_url) as other:
                js = js_of(other)
                await js.add_stream(name=subject, subjects=[subject])
                await js.add_stream(name=f"{subject}-mirror", mirror=api.StreamSource(name=subject))
            async with app:
                assert await orders.publish(Order(1)) == f"{subject}.1"
                await until(lambda: seen and mirrored)
                assert seen[0].id == f"{subject}.1"
                assert (await info(js_of(app), f"{subject}-mirror", "m")).stream_name == f"{subject}-mirror"
                assert await seen[0].ack()

    asyncio.run(job())


def test_subject_in_several_streams_needs_a_name(app: App, subject: str) -> None:
    app.subscriber(f"{subject}.*", durable="d")(handle)

    async def job(js: JetStreamContext) -> None:
        for part in ("a", "b"):
            await js.add_stream(name=f"{subject}{part}", subjects=[f"{subject}.{part}"])
        with pytest.raises(
            errors.BadInput, match=rf"is in the streams {subject}a, {subject}b; choose one with stream="
        ):
            await app.start()

    within(app, job)


def test_defaults_are_jetstreams_own(app: App, subject: str) -> None:
    app.subscriber(subject, durable="d")(handle)
    app.subscriber(subject)(handle)
    app.subscriber(subject, durable="first", ack=AckPolicy.FIRST)(handle)

    async def job(app: App, js: JetStreamContext) -> None:
        for one in await js.consumers_info(subject):
            config = one.config
            if one.name == "first":
                assert config.ack_policy == "none"
            else:
                assert (config.ack_policy, config.ack_wait, config.max_deliver, config.max_ack_pending) == (
                    "explicit",
                    30,
                    -1,
                    1000,
                )
                assert (config.deliver_policy, config.durable_name) == (
                    ("all", "d") if one.name == "d" else ("new", None)
                )

    run(app, job)


@pytest.mark.parametrize("bound", [{"max_batch": 4}, {"max_expires": 2_000_000_000}])
def test_bounds_that_an_operator_set_for_one_ask_are_kept(
    app: App, subject: str, bound: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    numbers: list[int] = []
    go_on = asyncio.Event()

    async def operator() -> None:
        async with App(app.url) as other:
            await js_of(other).add_stream(name=subject, subjects=[subject])
            config = {"durable_name": "d", "ack_policy": "explicit", **bound}
            asked = json.dumps({"stream_name": subject, "config": config}).encode()
            client = other.link().client  # type: ignore[attr-defined]
            answer = await client.request(f"$JS.API.CONSUMER.DURABLE.CREATE.{subject}.d", asked)
            assert "error" not in json.loads(answer.data)

    @app.subscriber(subject, durable="d", concurrency=8)
    async def handle(order: Order) -> None:
        numbers.append(order.id)
        await go_on.wait()

    async def job(app: App, js: JetStreamContext) -> None:
        orders = app.publisher(subject, Order)
        for number in range(12):
            await orders.publish(Order(number))
        await until(lambda: len(numbers) == 8)
        go_on.set()
        await until(lambda: sorted(numbers) == list(range(12)))

    asyncio.run(operator())
    run(app, job)
    assert "Exceeded" not in caplog.text
