"""Listeners are called by name after a commit."""

from __future__ import annotations

from ackwise.broker.notifications import Listeners


def test_listener_is_called_until_it_is_removed() -> None:
    listeners, called = Listeners(), []

    def first() -> None:
        called.append("first")

    def second() -> None:
        called.append("second")

    listeners.add("a", first)
    listeners.add("b", second)
    listeners.notify(["a", "unknown"])
    assert called == ["first"]
    listeners.notify_all()
    assert sorted(called) == ["first", "first", "second"]
    listeners.remove("a", first)
    listeners.notify(["a"])
    assert len(called) == 3
    assert len(listeners) == 1
