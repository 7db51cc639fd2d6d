"""A turn that fails as a whole: its commands run one by one, with the same effects on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from ackwise.broker import AsyncBroker
from ackwise.core.commands import Claim, Command, release_command
from ackwise.core.errors import AckwiseError
from ackwise.core.events import RequestsRefused, TurnCommitted, TurnFellBack
from ackwise.engine import runner
from ackwise.engine.turn import Turn
from ackwise.store.port import Store
from tests.engine.store_harness import StoreHarness
from tests.event_log import EventLog

PARTITIONS = ("p1", "p2", "p3")


@pytest.fixture
def turns_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every turn with several commands fails after its statements."""
    run = runner.run

    def run_or_fail(turn: Turn, commands: Sequence[Command]) -> list[Any]:
        results = run(turn, commands)
        if len(commands) > 1:
            raise RuntimeError("a bug")
        return results

    monkeypatch.setattr(runner, "run", run_or_fail)


def leases_of_all_partitions(harness: StoreHarness) -> list[str]:
    for partition in PARTITIONS:
        harness.push("a", partition=partition)
    return [harness.claim(1, partitions=(partition,)).claimed.lease_id for partition in PARTITIONS]


@pytest.mark.usefixtures("turns_fall_back")
def test_fallback_adds_the_woken_counts(harness: StoreHarness) -> None:
    releases = [release_command([lease]) for lease in leases_of_all_partitions(harness)]
    prepared = harness.store.prepare(releases)
    prepared.commit()
    answers: list[Any] = prepared.results
    assert [answer[0].count for answer in answers] == [1, 1, 1]
    assert prepared.woken == {"q": 3}


@pytest.mark.usefixtures("turns_fall_back")
def test_fallback_emits_its_cause_and_each_commit(harness: StoreHarness) -> None:
    leases = leases_of_all_partitions(harness)
    with EventLog(harness.store.events) as log:
        harness.store.prepare([release_command([lease]) for lease in leases]).commit()
    assert log.of(TurnFellBack) == [TurnFellBack(3, "RuntimeError: a bug")]
    assert [turn.commands for turn in log.of(TurnCommitted)] == [1, 1, 1]


def test_fallback_emits_the_commands_that_fail(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    leases = leases_of_all_partitions(harness)

    def fail(turn: Turn, commands: Sequence[Command]) -> list[Any]:
        raise RuntimeError("a bug")

    monkeypatch.setattr(runner, "run", fail)
    with EventLog(harness.store.events) as log:
        prepared = harness.store.prepare([release_command([lease]) for lease in leases])
    monkeypatch.undo()
    assert [str(answer) for answer in prepared.results] == ["unexpected RuntimeError: a bug"] * 3
    assert log.of(RequestsRefused) == [RequestsRefused(AckwiseError.code, 1)] * 3


@pytest.mark.usefixtures("turns_fall_back")
def test_three_releases_that_fall_back_wake_three_claims(harness: StoreHarness, store: Store) -> None:
    leases = leases_of_all_partitions(harness)

    async def release_under_parked_claims() -> list[int]:
        broker = await AsyncBroker.start(store, background=False)
        claims = [asyncio.create_task(broker.claim(Claim(queue="q", most=1), 60.0)) for _ in leases]
        while len(broker.long_polls) < len(claims):
            await asyncio.sleep(0.001)
        await broker.send_all([release_command([lease]) for lease in leases])
        handed = await asyncio.wait_for(asyncio.gather(*claims), 20.0)
        return [len(one.claimed.grants) for one in handed]

    assert asyncio.run(release_under_parked_claims()) == [1, 1, 1]
