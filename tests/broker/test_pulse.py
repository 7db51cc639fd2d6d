"""The pulse: a failed beat counts at once, a missing one after ten seconds, and a stuck writer blocks no loop."""

from __future__ import annotations

import asyncio

import pytest

from ackwise.broker import AsyncBroker
from ackwise.broker.write_health import SILENT_AFTER, Pulse
from ackwise.core.errors import StoreFull
from tests.broker.support import CountingStore, push


class Watch:
    """Monotonic seconds that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_pulse_before_the_first_beat_is_not_healthy() -> None:
    assert Pulse(Watch()).health().code == "no_write"


def test_pulse_after_ten_silent_seconds_is_overdue() -> None:
    watch = Watch()
    pulse = Pulse(watch)
    pulse.wrote()
    watch.now += SILENT_AFTER
    assert (pulse.health().error, pulse.health().last_write) == (None, SILENT_AFTER)
    watch.now += 0.5
    health = pulse.health()
    assert (health.code, health.last_write) == ("write_overdue", SILENT_AFTER + 0.5)
    pulse.wrote()
    assert pulse.health().error is None


def test_pulse_after_a_failed_beat_names_the_failure() -> None:
    pulse = Pulse(Watch())
    pulse.wrote()
    pulse.failed(StoreFull("the disk is full"))
    health = pulse.health()
    assert (health.code, health.last_write) == ("store_full", 0.0)
    assert health.error is not None
    assert "the disk is full" in health.error
    pulse.failed(RuntimeError("a bug"))
    assert "RuntimeError" in (pulse.health().error or "")
    pulse.wrote()
    assert pulse.health().error is None


def test_loop_while_the_writer_is_held_stays_free(store: CountingStore) -> None:
    async def main() -> None:
        broker = await AsyncBroker.start(store, background=False)
        store._writer.lock.acquire()
        pushed = asyncio.ensure_future(broker.send(push(b"1")))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not pushed.done()
        store._writer.lock.release()
        assert (await pushed)[0].status == "queued"
        await broker.close()

    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("background", [True, False])
def test_broker_without_duties_never_beats(store: CountingStore, background: bool) -> None:
    async def main() -> None:
        broker = await AsyncBroker.start(store, background=background)
        if background:
            await broker.first_beat()
        assert (broker.pulse.health().error is None) == background
        await broker.close()

    asyncio.run(main())
