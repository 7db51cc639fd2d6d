"""Brokers correct a step of the database's clock once. In these tests the brokers' time since boot steps instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackwise.clock import boottime
from ackwise.core.commands import Beat, Claim
from ackwise.core.queries import ListLeases
from ackwise.core.validation import MICROS
from ackwise.engine.ports import Params, Row
from ackwise.store.postgres import PostgresStore
from ackwise.store.postgres.clock import DatabaseClock
from ackwise.store.postgres.connection import Database
from ackwise.store.postgres.session import PostgresSession
from ackwise.wire.store_url import parse
from tests.postgres.conftest import Raw
from tests.postgres.support import push, text, together

HOUR, DAY = 3600 * MICROS, 86400 * MICROS
CLOSE = 2 * MICROS


class SteppedBroker:
    """A store whose machine sees the database's clock step."""

    def __init__(self, url: str, name: str) -> None:
        self._stepped = 0
        clock = DatabaseClock(Database(parse(url)), name, self._steady)
        self.store = PostgresStore(url, clock=clock, instance=name)

    def see_step(self, micros: int) -> None:
        """As if the database's clock had stepped by this much."""
        self._stepped += micros

    def _steady(self) -> int:
        return boottime() - self._stepped

    def offset(self) -> int:
        """How far the anchored clock is ahead of the machine's time since boot."""
        return self.now() - self._steady()

    def now(self) -> int:
        """The anchored clock after a turn."""
        self.store.transact([])
        return self.store.clock.now()

    def beat(self) -> None:
        self.store.transact([Beat(instance=self.store.instance)])


Broker = Callable[[str], SteppedBroker]


@pytest.fixture
def broker(url: str) -> Iterator[Broker]:
    brokers: list[SteppedBroker] = []

    def make(name: str) -> SteppedBroker:
        brokers.append(SteppedBroker(url, name))
        return brokers[-1]

    yield make
    for each in brokers:
        each.store.close()


def row(raw: Raw) -> tuple[int, int]:
    """Shift and steps of the row that the brokers share."""
    with raw() as connection:
        shift, steps = connection.execute("SELECT shift, steps FROM anchor").fetchall()[0]
    assert isinstance(shift, int)
    assert isinstance(steps, int)
    return shift, steps


@pytest.mark.parametrize("step", [-HOUR, DAY])
def test_step_of_database_is_taken_back(broker: Broker, raw: Raw, step: int) -> None:
    first = broker("first")
    push(first.store, text("x"))
    (claimed,) = first.store.transact([Claim(queue="q", lease=60 * MICROS)])
    offset = first.offset()
    first.see_step(step)
    assert abs(first.offset() - offset) < CLOSE
    shift, steps = row(raw)
    assert abs(shift + step) < CLOSE
    assert steps == 1
    assert abs(first.store.ask(ListLeases())[0].deadline - (claimed.deadline + step)) < CLOSE


def test_two_brokers_correct_one_step_once(broker: Broker, raw: Raw) -> None:
    brokers = [broker(name) for name in ("first", "second", "third")]
    for each in brokers:
        each.see_step(DAY)
    together(3, lambda number: brokers[number].now())
    assert row(raw)[1] == 1
    nows = [each.now() for each in brokers]
    assert max(nows) - min(nows) < CLOSE
    assert row(raw)[1] == 1


def test_broker_that_stood_still_corrects_nothing(broker: Broker, raw: Raw) -> None:
    first, second = broker("first"), broker("second")
    second.beat()
    first.now()
    first.see_step(HOUR)  # its machine was paused: to it the database's clock seems to be ahead
    second.beat()
    first.now()
    assert row(raw) == (0, 0)


def test_broker_opened_after_a_step_is_no_witness(broker: Broker, raw: Raw) -> None:
    first = broker("first")
    expected = first.now()
    first.see_step(DAY)
    second = broker("second")
    with raw() as connection:  # a broker that started by the clock after the step
        beat = "INSERT INTO instance VALUES ('second', %s, %s)"
        connection.execute(beat, (expected + CLOSE, expected + CLOSE))
        connection.commit()
    first.now()
    assert row(raw)[1] == 1
    second.now()
    second.now()
    assert row(raw)[1] == 1


def test_clock_set_back_while_closed_continues(broker: Broker, raw: Raw) -> None:
    first = broker("first")
    last = first.now() + HOUR
    with raw() as connection:
        connection.execute("INSERT INTO instance VALUES ('gone', %s, %s)", (last, last))
        connection.commit()
    second = broker("second")
    assert second.now() >= last
    shift, steps = row(raw)
    assert abs(shift - HOUR) < CLOSE
    assert steps == 1


def test_reading_the_clock_costs_one_statement(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    first = broker("first")
    names: list[str] = []
    rows = PostgresSession.rows

    def note(session: PostgresSession, name: str, params: Params = {}) -> list[Row]:  # noqa: B006
        names.append(name)
        return rows(session, name, params)

    monkeypatch.setattr(PostgresSession, "rows", note)
    first.now()
    assert names == ["clock"]
