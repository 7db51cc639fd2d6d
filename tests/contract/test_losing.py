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
from ackwise.store import instances
from ackwise.store.port import Store
from ackwise.store.postgres import PostgresStore
from tests.contract.support import Desk, counts


def own(store: Store, number: int = 1, instance: str | None = None) -> str:
    return ids.connection_owner(instance or store.instance, number)  # type: ignore[attr-defined]


def test_a_broken_lease_gives_back_at_once_and_costs_a_failure(desk: Desk) -> None:
    desk.number(3)
    lost = desk.claim(3)
    assert desk.do(c.Break(lease_ids=[lost.lease_id])).count == 1
    again = desk.claim(3)
    assert again.bodies == ["0", "1", "2"]
    assert [(d.failures, d.attempt) for d in again.deliveries] == [(1, 2)] * 3
    assert desk.ack(*lost.deliveries) == ["stale"] * 3
    assert desk.ack(*again.deliveries) == ["acked"] * 3


def test_what_was_settled_before_stays_so(desk: Desk) -> None:
    desk.number(3)
    lost = desk.claim(3)
    desk.ack(lost.deliveries[1])
    desk.do(c.Break(lease_ids=[lost.lease_id]))
    assert desk.claim(3).bodies == ["0", "2"]
    assert counts(desk.group()) == {"acked": 1, "held": 2}


def test_a_message_that_is_alone_when_its_holders_are_lost_dies(desk: Desk) -> None:
    desk.configure(retry_limit=2)
    desk.push("poison")
    for _ in range(2):
        desk.do(c.Break(lease_ids=[desk.claim(1).lease_id]))
    (letter,) = desk.dead(queue="q")
    assert (letter.reason, letter.error, letter.failures) == ("retry_limit", "connection lost", 2)
    assert [event["error"] for event in letter.history] == ["connection lost"] * 2


def test_in_company_it_goes_on_probation_instead(desk: Desk) -> None:
    desk.configure(retry_limit=1)
    desk.number(2)
    desk.do(c.Break(lease_ids=[desk.claim(2).lease_id]))
    assert desk.dead(queue="q") == []
    assert len(desk.claim(2)) == 1


def test_unknown_ended_and_repeated_leases_are_left_alone(desk: Desk) -> None:
    desk.number(2)
    done, held = desk.claim(1), desk.claim(1)
    desk.ack(*done.deliveries)
    forged = held.lease_id[:-1] + ("0" if held.lease_id[-1] != "0" else "1")
    before = desk.everything()
    assert desk.do(c.Break(lease_ids=[done.lease_id, "L999-00000000", "nonsense", forged])).count == 0
    assert desk.everything() == before
    assert desk.do(c.Break(lease_ids=[held.lease_id, held.lease_id])).count == 1
    with pytest.raises(BadInput):
        desk.do(c.Break(lease_ids="L1"))  # type: ignore[arg-type]


def test_the_next_holder_gets_it_in_the_same_turn(desk: Desk) -> None:
    desk.push("a")
    lost = desk.claim(1)
    _, claimed = desk.together(c.Break(lease_ids=[lost.lease_id]), c.Claim(queue="q"))
    assert claimed.count == 1


def test_a_silent_brokers_connections_are_broken_and_nothing_else_of_it(desk: Desk, store: Store) -> None:
    desk.number(3)
    desk.do(c.Beat(instance="other"))
    me = store.instance  # type: ignore[attr-defined]
    desk.claim(1, owner=own(store), seconds=3600)
    desk.claim(1, owner="somebody", seconds=3600)
    desk.advance(29)
    desk.do(c.Beat(instance="other"))
    desk.do(c.Beat(instance=me))
    desk.advance(29)
    desk.do(c.Beat(instance="other"))
    assert len(store.list_leases(q.ListLeases())) == 2
    desk.advance(1)
    desk.do(c.Beat(instance="other"))
    assert [lease.owner for lease in store.list_leases(q.ListLeases())] == ["somebody"]
    assert desk.take().failures == 1


def test_a_broker_that_is_known_to_be_dead_need_not_be_waited_for(desk: Desk, store: Store) -> None:
    desk.push("a")
    former = type(store)(store.url, clock=desk.clock)  # type: ignore[call-arg, attr-defined]
    if isinstance(former, PostgresStore):
        assert former._news.wait_until_listening(30)
    there = Desk(former, desk.clock)
    there.do(c.Beat(instance=former.instance))  # type: ignore[attr-defined]
    there.claim(1, owner=own(former), seconds=3600)
    desk.do(c.Beat(instance="newcomer"))
    assert len(store.list_leases(q.ListLeases())) == 1, "it lives"
    former.close()
    desk.do(c.Beat(instance="newcomer"))
    assert len(store.list_leases(q.ListLeases())) == 1, "only a broker that begins looks so closely"
    desk.do(c.Beat(instance=store.instance))  # type: ignore[attr-defined]
    assert desk.take().failures == 1


def test_names_of_brokers_say_whether_their_process_is_there() -> None:
    name = instances.mint()
    assert not instances.gone_here(name)
    ended = subprocess.run(
        [sys.executable, "-c", "from ackwise.store import instances; print(instances.mint())"],
        capture_output=True, text=True, check=True, env=os.environ,
    ).stdout.strip()  # fmt: skip
    assert instances.gone_here(ended)
    elsewhere = "-".join([ended.split("-")[0], "00000000", "abcd"])
    assert not any(map(instances.gone_here, (elsewhere, "given-by-hand", f"{os.getppid()}-{name.split('-')[1]}-x")))
    instances.closed(name)
    assert instances.gone_here(name)
