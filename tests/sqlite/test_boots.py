"""A file after a boot: leases keep what they had left, delays count the downtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackwise.core import commands as c
from ackwise.core.answers import Claimed
from ackwise.core.messages import NewMessage
from ackwise.core.settlement import Outcome
from ackwise.core.validation import MICROS
from ackwise.store.clock_anchor import RECORD_EVERY, AnchoredClock, Reading
from ackwise.store.sqlite import SQLiteStore
from ackwise.store.sqlite import connection as opening
from tests.sqlite.support import push, rows

NOW = 1_790_000_000 * MICROS
MINUTE, YEAR = 60 * MICROS, 365 * 86400 * MICROS


class Machine:
    """A machine that a test boots. Its stores read its clocks."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = path
        self.boots, self.up, self.wall = 1, 300 * MICROS, NOW
        monkeypatch.setattr(opening, "read_machine", lambda: Reading(f"boot {self.boots}", self.up, self.wall))

    def open(self) -> SQLiteStore:
        clock = AnchoredClock(lambda: self.wall * 1000, lambda: self.up * 1000)
        return SQLiteStore(f"sqlite:///{self._path}?durability=normal", clock=clock)

    def pass_time(self, micros: int) -> None:
        self.wall += micros
        self.up += micros

    def boot(self, wall: int) -> None:
        self.boots += 1
        self.up, self.wall = 20 * MICROS, wall


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path / "queues.db", monkeypatch)


@pytest.fixture
def held(machine: Machine) -> Claimed:
    """A lease with one minute left, and a message that is retried in ten minutes, when the machine stops."""
    store = machine.open()
    push(store, "leased", "retried")
    leased, retried = (store.transact([c.Claim(queue="q", most=1, lease=2 * MINUTE)])[0] for _ in range(2))
    retry = c.Settlement(selector=c.ByLease(retried.lease_id), outcome=Outcome.RETRY, delay=11 * MINUTE)
    store.transact([c.Settle(entries=[retry])])
    machine.pass_time(MINUTE)
    push(store, "later", queue="other")  # any write records the time
    store.close()
    assert isinstance(leased, Claimed)
    return leased


def claimable(store: SQLiteStore) -> int:
    """How many messages a claim gets now. They are released again."""
    (claimed,) = store.transact([c.Claim(queue="q", most=10)])
    if claimed.lease_no:
        release = c.Settlement(selector=c.ByLease(claimed.lease_id), outcome=Outcome.RELEASE)
        store.transact([c.Settle(entries=[release])])
    return int(claimed.count)


@pytest.mark.parametrize("wrong", [0, YEAR, -YEAR], ids=["right", "a year ahead", "a year behind"])
def test_lease_after_boot_keeps_what_it_had_left(machine: Machine, held: Claimed, wrong: int) -> None:
    machine.boot(machine.wall + 5 * MINUTE + wrong)
    store = machine.open()
    machine.wall -= wrong  # a time server corrects the clock
    machine.pass_time(MINUTE - MICROS)
    extend = c.Extend(lease_id=held.lease_id, add=MICROS)
    assert store.transact([extend])[0].deadline is not None
    machine.pass_time(2 * MICROS)
    assert store.transact([extend])[0].verdict == "stale"
    store.close()


def test_retry_delay_after_boot_counts_the_downtime(machine: Machine, held: Claimed) -> None:
    machine.boot(machine.wall + 9 * MINUTE)
    store = machine.open()
    assert claimable(store) == 0
    machine.pass_time(MINUTE + MICROS)
    assert claimable(store) == 2
    store.close()


def test_retry_delay_with_a_clock_behind_is_not_longer(machine: Machine, held: Claimed) -> None:
    machine.boot(machine.wall - YEAR)
    store = machine.open()
    machine.pass_time(10 * MINUTE - MICROS)
    assert claimable(store) == 1  # the message of the expired lease
    machine.pass_time(2 * MICROS)
    assert claimable(store) == 2
    store.close()


def test_expired_lease_is_not_revived_by_a_boot(machine: Machine, held: Claimed) -> None:
    store = machine.open()
    machine.pass_time(2 * MINUTE)
    push(store, "later", queue="other")
    store.close()
    machine.boot(machine.wall + MINUTE)
    store = machine.open()
    assert store.transact([c.Extend(lease_id=held.lease_id, add=MICROS)])[0].verdict == "stale"
    store.close()


def test_delayed_push_after_boot_counts_the_downtime(machine: Machine) -> None:
    store = machine.open()
    message = NewMessage(b"{}", delay=10 * MINUTE)
    store.transact([c.Push(queue="q", messages=[message])])
    store.close()
    machine.boot(machine.wall + 10 * MINUTE)
    store = machine.open()
    assert claimable(store) == 1
    store.close()


def test_time_is_recorded_seldom_and_only_with_writes(machine: Machine, tmp_path: Path) -> None:
    def seen() -> object:
        return rows(tmp_path / "queues.db", "SELECT seen FROM anchor")[0][0]

    store = machine.open()

    machine.pass_time(RECORD_EVERY - MICROS)
    push(store, f"{machine.up} {machine.wall}")
    assert seen() == NOW
    machine.pass_time(MICROS)
    store.transact([])
    assert seen() == NOW
    push(store, f"{machine.up} {machine.wall}")
    assert seen() == NOW + RECORD_EVERY
    store.close()


def test_system_without_boot_ids_follows_the_wall_clock(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "read_machine", lambda: None)
    store = machine.open()
    machine.wall += YEAR
    assert (store.clock.now(), store.clock.shift()) == (NOW + YEAR, 0)
    store.close()
