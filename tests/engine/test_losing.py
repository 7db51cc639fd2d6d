"""Holders that are lost: a connection that broke, and the connections to a broker that died."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ackwise.core import commands as c
from ackwise.core import ids
from ackwise.core import queries as q
from ackwise.core.errors import BadInput
from ackwise.store import broker_instances
from ackwise.store.database_store import DatabaseStore
from ackwise.store.postgres import PostgresStore
from tests.engine.store_harness import StoreHarness, counts


def own(store: DatabaseStore, number: int = 1, instance: str | None = None) -> str:
    return ids.connection_owner(instance or store.instance, number)


def test_broken_lease_gives_back_at_once_and_costs_a_failure(harness: StoreHarness) -> None:
    harness.number(3)
    lost = harness.claim(3)
    assert harness.do(c.Break(lease_ids=[lost.lease_id])).count == 1
    again = harness.claim(3)
    assert again.bodies == ["0", "1", "2"]
    assert [(d.failures, d.attempt) for d in again.deliveries] == [(1, 2)] * 3
    assert harness.ack(*lost.deliveries) == ["stale"] * 3
    assert harness.ack(*again.deliveries) == ["acked"] * 3


def test_break_keeps_messages_that_were_settled_before(harness: StoreHarness) -> None:
    harness.number(3)
    lost = harness.claim(3)
    harness.ack(lost.deliveries[1])
    harness.do(c.Break(lease_ids=[lost.lease_id]))
    assert harness.claim(3).bodies == ["0", "2"]
    assert counts(harness.group()) == {"acked": 1, "held": 2}


def test_message_that_is_alone_when_its_holders_are_lost_dies(harness: StoreHarness) -> None:
    harness.configure(retry_limit=2)
    harness.push("poison")
    for _ in range(2):
        harness.do(c.Break(lease_ids=[harness.claim(1).lease_id]))
    (letter,) = harness.dead(queue="q")
    assert (letter.reason, letter.error, letter.failures) == ("retry_limit", "connection lost", 2)
    assert [event["error"] for event in letter.history] == ["connection lost"] * 2


def test_broken_batch_at_its_limit_goes_on_probation(harness: StoreHarness) -> None:
    harness.configure(retry_limit=1)
    harness.number(2)
    harness.do(c.Break(lease_ids=[harness.claim(2).lease_id]))
    assert harness.dead(queue="q") == []
    assert len(harness.claim(2)) == 1


def test_unknown_ended_and_repeated_leases_are_left_alone(harness: StoreHarness) -> None:
    harness.number(2)
    done, held = harness.claim(1), harness.claim(1)
    harness.ack(*done.deliveries)
    forged = held.lease_id[:-1] + ("0" if held.lease_id[-1] != "0" else "1")
    before = harness.everything()
    assert harness.do(c.Break(lease_ids=[done.lease_id, "L999-00000000", "nonsense", forged])).count == 0
    assert harness.everything() == before
    assert harness.do(c.Break(lease_ids=[held.lease_id, held.lease_id])).count == 1
    with pytest.raises(BadInput):
        harness.do(c.Break(lease_ids="L1"))  # type: ignore[arg-type]


def test_broken_lease_is_claimable_in_the_same_turn(harness: StoreHarness) -> None:
    harness.push("a")
    lost = harness.claim(1)
    _, claimed = harness.together(c.Break(lease_ids=[lost.lease_id]), c.Claim(queue="q"))
    assert claimed.count == 1


def test_silent_broker_loses_its_connections_only(harness: StoreHarness, store: DatabaseStore) -> None:
    harness.number(3)
    harness.do(c.Beat(instance="other"))
    me = store.instance
    harness.claim(1, owner=own(store), seconds=3600)
    harness.claim(1, owner="worker", seconds=3600)
    harness.advance(29)
    harness.do(c.Beat(instance="other"))
    harness.do(c.Beat(instance=me))
    harness.advance(29)
    harness.do(c.Beat(instance="other"))
    assert len(store.ask(q.ListLeases())) == 2
    harness.advance(1)
    harness.do(c.Beat(instance="other"))
    assert [lease.owner for lease in store.ask(q.ListLeases())] == ["worker"]
    assert harness.take().failures == 1


def test_known_dead_broker_is_not_waited_for(harness: StoreHarness, store: DatabaseStore) -> None:
    harness.push("a")
    former = type(store)(store.url, clock=harness.clock)  # type: ignore[call-arg, attr-defined]
    if isinstance(former, PostgresStore):
        assert former._notifier.wait_until_listening(30)
    there = StoreHarness(former, harness.clock)
    there.do(c.Beat(instance=former.instance))
    there.claim(1, owner=own(former), seconds=3600)
    harness.do(c.Beat(instance="newcomer"))
    assert len(store.ask(q.ListLeases())) == 1, "it lives"
    former.close()
    harness.do(c.Beat(instance="newcomer"))
    assert len(store.ask(q.ListLeases())) == 1, "only a broker that begins looks so closely"
    harness.do(c.Beat(instance=store.instance))
    assert harness.take().failures == 1


def test_names_of_brokers_say_whether_their_process_is_there() -> None:
    name = broker_instances.new_name()
    assert not broker_instances.is_dead(name)
    ended = subprocess.run(
        [sys.executable, "-c", "from ackwise.store import broker_instances; print(broker_instances.new_name())"],
        capture_output=True, text=True, check=True, env=os.environ,
    ).stdout.strip()  # fmt: skip
    assert broker_instances.is_dead(ended)
    elsewhere = "-".join([ended.split("-")[0], "00000000", "abcd"])
    assert not any(
        map(broker_instances.is_dead, (elsewhere, "given-by-hand", f"{os.getppid()}-{name.split('-')[1]}-x"))
    )
    broker_instances.mark_closed(name)
    assert broker_instances.is_dead(name)
