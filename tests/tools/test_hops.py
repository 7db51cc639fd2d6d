"""tools/hops.py counts what one message passes through."""

from __future__ import annotations

import sys
import threading

from tools import hops


def test_hops_of_every_walk_are_plausible() -> None:
    before = sys.getprofile(), threading.getprofile()
    walks = hops.count_walks(rounds=1)
    assert set(walks) == set(hops.BUDGETS)
    for walk in walks.values():
        assert walk.functions > len(walk.modules) > 5
        assert walk.functions > walk.crossings >= walk.top_crossings > 0
        assert all(module.startswith("ackwise.") for module in walk.modules)
    for http, embedded in (("push", "push"), ("pop", "claim"), ("ack", "ack")):
        http_modules = walks[f"HTTP {http} (Queen)"].modules
        embedded_modules = walks[f"embedded {embedded}"].modules
        assert len(embedded_modules) < len(http_modules)
        assert any(module.startswith("ackwise.server.") for module in http_modules)
        assert not any(module.startswith("ackwise.server.") for module in embedded_modules)
    assert (sys.getprofile(), threading.getprofile()) == before


def test_walks_stay_within_their_budgets() -> None:
    """The smallest of several rounds counts: background work of the broker adds to single rounds."""
    walks = hops.count_walks()
    over = {
        name: walks[name].counts
        for name, (modules, crossings) in hops.BUDGETS.items()
        if len(walks[name].modules) > modules or walks[name].crossings > crossings
    }
    assert not over
    assert {walks[f"HTTP {walk} (Queen)"].broker_calls for walk in ("push", "pop", "ack")} == {1}


def test_hops_table_has_a_line_per_walk() -> None:
    walks = dict.fromkeys(hops.BUDGETS, hops.Walk(12, {"ackwise.core.ids"}, 4, 3))
    head, *lines = hops.table(walks).splitlines()
    assert head.split()[:4] == ["walk", "functions", "modules", "crossings"]
    assert [line.rsplit(maxsplit=6) for line in lines] == [
        [name, "12", "1", "4", "3", str(modules), str(crossings)] for name, (modules, crossings) in hops.BUDGETS.items()
    ]
