"""Settlement in bulk: ranges where neighbours are acked, bundles where there are outputs, and nothing twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwise.core import commands as c
from ackwise.core import ids
from ackwise.core.answers import Claimed
from ackwise.core.messages import NewMessage
from ackwise.core.settlement import Outcome
from ackwise.spark import settling
from ackwise.spark.settling import Row, Settler, gathered
from tests.spark.stores import Desk, desk, local_desk, local_url, url

__all__ = ["desk", "local_desk", "local_url", "url"]


def claimed(desk: Desk, count: int, **more: Any) -> list[str]:
    """Delivery ids, in order."""
    answer: Claimed = desk.do(c.Claim(queue="q", group="g", most=count, **more))
    return [
        ids.delivery_id(answer.lease_no, answer.tag, grant.lane, seq)
        for grant in answer.grants
        for seq in range(grant.lo, grant.hi)
    ]


def output(name: str, payload: bytes = b"1", partition: str = "Default") -> NewMessage:
    return NewMessage(payload, partition, transaction_id=name)


def settle(desk: Desk, rows: list[Row], produce: str | None = None) -> dict[str, int]:
    return dict(Settler(desk.transport, produce).settle(rows))


def test_each_gets_its_outcome(desk: Desk) -> None:
    desk.configure(retry_limit=3)
    desk.number(20)
    one = claimed(desk, 20)
    rows = [Row(delivery) for delivery in one]
    rows[3] = Row(one[3], Outcome.RETRY, 3_600_000_000, "no", "ValueError")
    rows[7] = Row(one[7], Outcome.REJECT, None, "never", "Bad")
    rows[8] = Row(one[8], Outcome.RELEASE)
    assert settle(desk, rows) == {"acked": 17, "retried": 1, "dead": 1, "released": 1}
    assert desk.counts() == {"acked": 17, "dead": 1, "held": 2}
    (letter,) = desk.dead()
    assert (letter.transaction_id, letter.error, letter.error_type) == ("t7", "never", "Bad")


def test_again_settles_nothing(desk: Desk) -> None:
    desk.number(10)
    rows = [Row(delivery) for delivery in claimed(desk, 10)]
    rows[5] = Row(rows[5].delivery_id, Outcome.REJECT)
    assert settle(desk, rows[2:6]) == {"acked": 3, "dead": 1}
    assert settle(desk, rows) == {"acked": 6, "already": 4}
    assert settle(desk, rows) == {"already": 10}
    assert desk.counts() == {"acked": 9, "dead": 1}


def test_too_late_settles_nothing(desk: Desk) -> None:
    desk.number(10)
    rows = [Row(delivery) for delivery in claimed(desk, 10)]
    settle(desk, rows[:2])
    desk.expire()
    late = settle(desk, rows)
    assert late["stale"] >= 8
    assert sum(late.values()) == 10
    assert desk.counts() == {"unread": 10}


def test_deliveries_that_never_were(desk: Desk) -> None:
    desk.number(3)
    one = claimed(desk, 3)
    strange = ["", "x", "L1", one[0] + "z", one[0].swapcase(), "Lzzz-00000000.1.0", "é"]
    assert settle(desk, [Row(name) for name in strange]) == {"unknown": len(strange)}
    assert desk.counts() == {"held": 3}


def test_two_leases_and_lanes_at_once(desk: Desk) -> None:
    for partition in ("a", "b"):
        desk.number(5, partition=partition)
    rows = [Row(delivery) for delivery in claimed(desk, 4) + claimed(desk, 6)]
    assert settle(desk, rows[::-1]) == {"acked": 10}


def test_one_that_fails_and_is_acked_as_well_is_not_acked(desk: Desk) -> None:
    desk.number(3)
    one = claimed(desk, 3)
    rows = [Row(one[0]), Row(one[1]), Row(one[1], Outcome.REJECT), Row(one[2]), Row(one[2])]
    assert settle(desk, rows) == {"acked": 2, "dead": 1, "already": 2}


def test_outputs_go_with_their_record(desk: Desk) -> None:
    desk.number(6)
    one = claimed(desk, 6)
    rows = [
        Row(one[0], outputs=[output("a"), output("b")]),
        Row(one[1]),
        Row(one[2], Outcome.RETRY, None, "no"),
        Row(one[3], outputs=[output("c", partition="p")]),
        Row(one[4], outputs=[output("d")]),
        Row(one[5], Outcome.REJECT),
    ]
    assert settle(desk, rows, "out") == {"acked": 4, "outputs": 4, "retried": 1, "dead": 1}
    assert len(desk.payloads("out")) == 4
    assert settle(desk, rows, "out") == {"already": 6, "outputs_before": 4}
    assert len(desk.payloads("out")) == 4


def test_a_record_that_was_settled_meanwhile_takes_its_outputs_with_it(desk: Desk) -> None:
    desk.number(5)
    one = claimed(desk, 5)
    settle(desk, [Row(one[1]), Row(one[3], Outcome.REJECT)])
    rows = [Row(delivery, outputs=[output(f"o{at}", b"%d" % at)]) for at, delivery in enumerate(one)]
    assert settle(desk, rows, "out") == {"acked": 3, "outputs": 3, "already": 2, "outputs_before": 2}
    assert sorted(desk.payloads("out")) == [b"0", b"2", b"4"]


def test_outputs_of_a_lost_lease_are_not_pushed(desk: Desk) -> None:
    desk.configure("out")
    desk.number(5)
    one = claimed(desk, 5)
    desk.expire()
    rows = [Row(delivery, outputs=[output(f"o{at}")]) for at, delivery in enumerate(one)]
    assert settle(desk, rows, "out") == {"stale": 5}
    assert desk.payloads("out") == []


def test_a_record_that_comes_twice_is_done_once(desk: Desk) -> None:
    desk.number(2)
    one = claimed(desk, 2)
    rows = [Row(one[0], outputs=[output("a")]), Row(one[1], outputs=[output("b")]), Row(one[0], outputs=[output("c")])]
    assert settle(desk, rows, "out") == {"acked": 2, "outputs": 2, "already": 1, "outputs_before": 1}
    assert len(desk.payloads("out")) == 2


def test_an_output_that_was_pushed_before_is_not_there_twice(desk: Desk) -> None:
    desk.number(2)
    one = claimed(desk, 2)
    desk.send([output("a", b'"before"')], "out")
    rows = [Row(one[0], outputs=[output("a", b'"again"')]), Row(one[1], outputs=[output("b")])]
    counts = settle(desk, rows, "out")
    assert counts["acked"] == 2
    assert sorted(desk.payloads("out")) == [b'"before"', b"1"]


def test_an_output_that_cannot_be_pushed_is_its_records_fault_alone(desk: Desk) -> None:
    desk.configure("out", max_payload_bytes=10)
    desk.number(7)
    one = claimed(desk, 7)
    rows = [Row(delivery, outputs=[output(f"o{at}")]) for at, delivery in enumerate(one)]
    rows[2] = Row(one[2], outputs=[output("big", b'"%b"' % (b"x" * 20))])
    rows[5] = Row(one[5], outputs=[output("fine"), output("y" * 600)])
    assert settle(desk, rows, "out") == {"acked": 5, "outputs": 5, "dead": 2}
    letters = {letter.transaction_id: letter for letter in desk.dead()}
    assert letters["t2"].error.startswith("the output cannot be pushed: ")
    assert "transaction_id is longer than 512 characters" in letters["t5"].error
    assert len(desk.payloads("out")) == 5


def test_more_than_fits_into_one_commit(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "MOST_ROWS", 7)
    monkeypatch.setattr(settling, "MOST_BUNDLES", 4)
    desk.number(50)
    one = claimed(desk, 50)
    rows = [Row(delivery, outputs=[output(f"o{at}")] if at >= 25 else ()) for at, delivery in enumerate(one)]
    assert settle(desk, rows, "out") == {"acked": 50, "outputs": 25}
    assert len(desk.payloads("out")) == 25


def test_many_at_once(desk: Desk) -> None:
    desk.number(3000)
    one = claimed(desk, 3000)
    rows = [
        Row(delivery, Outcome.RETRY, 3_600_000_000, "no") if at % 10 == 0 else Row(delivery)
        for at, delivery in enumerate(one)
    ]
    assert settle(desk, rows) == {"acked": 2700, "retried": 300}
    assert desk.counts() == {"acked": 2700, "held": 300}


deliveries = st.builds(lambda lane, seq: ids.delivery_id(3, 4, lane, seq), st.integers(1, 3), st.integers(0, 12))


@given(st.lists(st.builds(Row, deliveries, st.sampled_from(Outcome)), max_size=40))
def test_what_is_gathered_is_what_was_given(rows: list[Row]) -> None:
    stretches, single = gathered(rows)
    again = Counter((row.delivery_id, row.outcome) for row in single)
    again.update((row.delivery_id, row.outcome) for one in stretches for row in one.rows)
    assert again == Counter((row.delivery_id, row.outcome) for row in rows)
    assert all(row.outcome is not Outcome.ACK for row in single)


def test_neighbours_are_one_range() -> None:
    rows = [Row(ids.delivery_id(3, 4, 5, seq)) for seq in (4, 2, 3, 9, 1)]
    stretches, single = gathered(rows)
    assert [(one.lo, one.hi) for one in stretches] == [(1, 5), (9, 10)]
    assert single == []
