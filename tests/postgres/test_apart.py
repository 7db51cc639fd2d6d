"""One queue's slow transaction never blocks another queue; a ring of waits is broken and run again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest

from ackwise.core.commands import Claim, ConfigureGroup, Push
from ackwise.core.errors import StoreLocked
from ackwise.core.messages import QUEUE_MODE
from tests.patience import PATIENCE
from tests.postgres.conftest import Opener, Raw
from tests.postgres.support import claim, lock_partition, push, text, until, waiting


def test_uncommitted_turn_blocks_its_own_queue_only(opened: Opener) -> None:
    store = opened()
    push(store, text("x"), queue="slow")
    open_turn = store.prepare([Push(queue="slow", messages=[text("y")])], 0)
    push(store, text("z"), queue="fast", shard=1)
    assert claim(store, Claim(queue="fast"), shard=1).count == 1
    open_turn.commit()
    assert claim(store, Claim(queue="slow", most=9)).count == 2


def test_foreign_slow_transaction_blocks_its_own_queue_only(opened: Opener, raw: Raw) -> None:
    store = opened()
    push(store, text("x"), queue="slow")
    slow = raw()
    lock_partition(slow, "p")
    with ThreadPoolExecutor(1) as threads:
        held_up = threads.submit(push, store, text("y"), queue="slow")
        until(lambda: waiting(raw))
        push(store, text("z"), queue="fast", shard=1)
        assert not held_up.done()
        slow.commit()
        assert held_up.result(PATIENCE)[0].status == "queued"


def test_wildcard_claim_goes_round_what_others_have(opened: Opener, raw: Raw) -> None:
    store = opened()
    push(store, text("1", partition="busy"), text("2", partition="free"))
    store.transact([ConfigureGroup(queue="q", group=QUEUE_MODE)])
    slow = raw()
    lock_partition(slow, "busy")
    assert [g.partition for g in claim(store, Claim(queue="q", most=9)).grants] == ["free"]


def test_caller_that_waits_too_long_gets_an_error(opened: Opener, raw: Raw) -> None:
    store = opened("busy_timeout=0.05")
    push(store, text("x"))
    slow = raw()
    lock_partition(slow, "p")
    with pytest.raises(StoreLocked, match="busy_timeout"):
        push(store, text("y"))
    slow.rollback()
    assert push(store, text("y"))[0].seq == 1


def test_command_that_waits_too_long_fails_alone(opened: Opener, raw: Raw) -> None:
    store = opened("busy_timeout=0.05")
    push(store, text("x", partition="a"), text("x", partition="b"))
    slow = raw()
    lock_partition(slow, "a")
    one, other = store.transact(
        [Push(queue="q", messages=[text("y", partition="a")]), Push(queue="q", messages=[text("y", partition="b")])]
    )
    assert isinstance(one, StoreLocked)
    assert other[0].status == "queued"


def test_deadlock_is_broken_and_the_commands_run_again(opened: Opener, raw: Raw) -> None:
    store = opened()
    push(store, text("x", partition="a"), text("x", partition="b"))
    other = raw()
    lock_partition(other, "b")
    with ThreadPoolExecutor(1) as threads:
        commands = [Push(queue="q", messages=[text("y", partition=name)]) for name in "ab"]
        ours = threads.submit(store.transact, commands)
        until(lambda: waiting(raw))
        with suppress(psycopg.errors.DeadlockDetected):  # on a busy machine it may be the other that is broken off
            lock_partition(other, "a")
        other.rollback()
        assert [result[0].status for result in ours.result(PATIENCE)] == ["queued", "queued"]
