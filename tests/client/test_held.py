"""What a connection remembers of its leases."""

from __future__ import annotations

from ackwise.client.settlements import HeldLeases
from ackwise.core.answers import Claimed, Settled
from ackwise.core.commands import ByDelivery, ByLease, ByTransaction
from ackwise.core.settlement import Verdict


def claimed(number: int, deadline: int = 10) -> Claimed:
    return Claimed("g", [], lease_no=number, tag=1, deadline=deadline)


def test_lease_is_forgotten_when_a_settlement_ends_it() -> None:
    held = HeldLeases()
    for number in range(1, 5):
        held.add(claimed(number), now=0)
    held.note(ByDelivery("L1-00000001.1.1"), Settled(Verdict.ACKED, 1, lease_ended=False))
    assert len(held) == 4
    held.note(ByDelivery("L1-00000001.1.2"), Settled(Verdict.ACKED, 1, lease_ended=True))
    held.note(ByLease("L2-00000001"), Settled(Verdict.STALE))
    held.note(ByDelivery("L3-00000001.1.1"), Settled(Verdict.STALE))
    held.note(ByTransaction("p", "t"), Settled(Verdict.ACKED, 1, lease_ended=True))
    assert len(held) == 2
    held.note(ByTransaction("p", "t"), Settled(Verdict.ACKED, 1, lease_ended=True, lease_id="L3-00000001"))
    held.note(ByTransaction("p", "t", lease_id="L4-00000001"), Settled(Verdict.ACKED, 1, lease_ended=True))
    assert len(held) == 0


def test_held_leases_are_released_in_one_command() -> None:
    held = HeldLeases()
    assert held.release() is None
    held.add(claimed(1), now=0)
    held.add(claimed(2), now=0)
    command = held.release()
    assert command is not None
    assert [entry.selector for entry in command.entries] == [ByLease("L1-00000001"), ByLease("L2-00000001")]
    assert len(held) == 0


def test_leases_that_ran_out_are_tidied_away() -> None:
    held = HeldLeases()
    for number in range(1, 2000):
        held.add(claimed(number, deadline=number + 5), now=number)
    assert len(held) < 1030
    held.add(claimed(5000, deadline=10_000), now=5000)
    held.extended("L1-00000001", 99)
    held.extended("Lzz-00000001", 99)


def test_late_extension_keeps_the_later_deadline() -> None:
    held = HeldLeases()
    held.add(claimed(1), now=0)
    held.extended("L1-00000001", 20, keep_later=True)
    held.extended("L1-00000001", 15, keep_later=True)
    assert held.live(now=19) == 1
    held.extended("L1-00000001", 15)
    assert held.live(now=19) == 0
