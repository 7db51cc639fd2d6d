"""Bells ring for those who listen, by name."""

from __future__ import annotations

from ackwise.broker.bells import Bells


def test_who_listens_is_rung_until_it_leaves() -> None:
    bells, rung = Bells(), []

    def one() -> None:
        rung.append("one")

    def two() -> None:
        rung.append("two")

    bells.listen("a", one)
    bells.listen("b", two)
    bells.ring(["a", "nobody"])
    assert rung == ["one"]
    bells.ring_all()
    assert sorted(rung) == ["one", "one", "two"]
    bells.leave("a", one)
    bells.ring(["a"])
    assert len(rung) == 3
    assert len(bells) == 1
