"""The hostile campaign can fail: it notices failures that no delivery explains, and runs every kind of fault."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackwise.clock import ManualClock
from ackwise.core.answers import Claimed
from ackwise.core.commands import ByLease, Claim, Push, Settle, Settlement
from ackwise.core.messages import NewMessage
from ackwise.core.settlement import Outcome
from ackwise.store.sqlite import SQLiteStore
from tests.faults.hostile.account import Account
from tests.faults.hostile.campaign import Hostile, schedule
from tests.faults.hostile.sabotage import Sabotage
from tests.faults.hostile.store_account import Stolen, places_of_claims, stolen_by

KINDS = ["kill", "pause", "fsync", "full"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    opened = SQLiteStore(f"sqlite:///{tmp_path}/q.db", clock=ManualClock())
    opened.transact([Push(queue="work", messages=[NewMessage(b"%d" % number) for number in range(4)])])
    yield opened
    opened.close()


def claim(store: SQLiteStore, group: str, most: int = 1, key: str | None = None) -> Claimed:
    (claimed,) = store.transact([Claim(queue="work", group=group, most=most, key=key, exclusivity="none")])
    assert isinstance(claimed, Claimed)
    return claimed


def settle(store: SQLiteStore, claimed: Claimed, outcome: Outcome) -> None:
    store.transact([Settle(entries=[Settlement(selector=ByLease(claimed.lease_id), outcome=outcome)])])


@pytest.mark.parametrize("count", [1, 4, 6, 12])
def test_schedule_has_every_kind_of_fault(count: int) -> None:
    for seed in range(50):
        names = schedule(KINDS, count, random.Random(seed))
        assert set(names) == set(KINDS)
        assert len(names) == max(count, len(KINDS))
        assert max(Counter(names).values()) - min(Counter(names).values()) <= 1


def test_failure_beyond_the_deliveries_is_a_violation() -> None:
    account = Account()
    account.offered.add("a")
    account.receive("a", (1, 0), 0, 0.0)
    account.receive("a", (1, 0), 1, 0.0)
    assert account.unexplained == []
    account.receive("a", (1, 0), 3, 0.0)
    assert account.explain_failures(Counter()) == 0
    assert account.violations == ["a has 3 failures after 2 deliveries and 0 lost claims"]


def test_lost_claim_explains_only_its_own_messages(store: SQLiteStore) -> None:
    lane = claim(store, "honest", 2, key="lost").grants[0].lane
    lost = places_of_claims(store, "work", "honest", ["lost", "never granted"])
    assert lost == {(lane, 0): 1, (lane, 1): 1}
    account = Account()
    account.offered |= {"held", "free"}
    account.receive("held", (lane, 1), 1, 0.0)
    account.receive("free", (lane, 2), 1, 0.0)
    assert account.explain_failures(lost) == 1
    assert account.violations == ["free has 1 failures after 0 deliveries and 0 lost claims"]


def test_failures_of_thieves_are_counted(store: SQLiteStore) -> None:
    settle(store, claim(store, "thief-1", 2), Outcome.RELEASE)
    claim(store, "thief-2")
    assert stolen_by(store, "work", "thief-") == Stolen(messages=3, deliveries=3, failures=0)
    settle(store, claim(store, "thief-3"), Outcome.RETRY)
    settle(store, claim(store, "honest"), Outcome.RETRY)
    assert stolen_by(store, "work", "thief-").failures == 1
    settle(store, claim(store, "thief-2"), Outcome.REJECT)
    assert stolen_by(store, "work", "thief-").failures == 2


def test_disk_faults_that_cannot_run_are_announced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    hostile = Hostile.__new__(Hostile)
    hostile._sabotage, hostile._database_fault, hostile.notes = Sabotage(tmp_path / "sabotage"), None, []
    hostile._check_disk_faults()
    assert hostile.notes == ["!!! DISK FAULTS NOT RUN (fsync errors, full disk): no C compiler, cc or gcc !!!"]
    assert set(hostile._kinds()) == {"kill of a server", "SIGSTOP past the lease"}


def test_disk_fault_without_a_failed_call_is_a_violation(tmp_path: Path) -> None:
    hostile = Hostile.__new__(Hostile)
    hostile._sabotage, hostile._database_fault = Sabotage(tmp_path / "sabotage"), None
    hostile.account, hostile.notes = Account(), []
    hostile._sabotage.available = True
    (tmp_path / "sabotage" / "full.hit").touch()
    hostile._check_disk_faults()
    assert hostile.account.violations == ["fsync errors: no call of a server failed, so the fault proves nothing"]
