"""Consumers of a group, read in one thread while polls record them in another."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from ackwise.protocols.queen.deliveries import RecentConsumers


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_members_read_while_polls_come_are_whole() -> None:
    members = RecentConsumers()
    members.note("orders", "workers", "c0", 0)

    def poll() -> None:
        for number in range(1, 5000):
            members.note("orders", "workers", f"c{number}", 0)

    polls = threading.Thread(target=poll)
    polls.start()
    sizes = []
    while polls.is_alive():
        sizes.append(len(members.of("orders", "workers", (), 0)))
    polls.join()
    assert sizes == sorted(sizes)
    assert len(members.of("orders", "workers", (), 0)) == 5000
