"""tests/running_order.py: each test runs once, Spark's tests on one worker."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from tests import running_order


def made(kind: str, module: str = "m") -> Any:
    def marker(name: str) -> object:
        return object() if name == kind else None

    names = ["spark"] if kind == "session" else []
    return SimpleNamespace(kind=kind, module=module, fixturenames=names, get_closest_marker=marker)


def arranged(monkeypatch: pytest.MonkeyPatch, items: list[Any], workers: int) -> list[Any]:
    monkeypatch.setenv(running_order.WORKERS, str(workers))
    result = list(items)
    running_order.arrange(result)
    assert sorted(map(id, result)) == sorted(map(id, items))
    return result


def test_spark_is_first_and_slow_begins_the_other_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [made(kind) for kind in ["fast"] * 21 + ["session", "spark"] * 3]
    random.Random(1).shuffle(items)
    items += [made("slow", module) for module in "aabb"]
    kinds = [(item.kind, item.module) for item in arranged(monkeypatch, items, 3)]
    parts = kinds[:10], kinds[10:20], kinds[20:]
    assert {kind for kind, _ in parts[0][:6]} == {"session", "spark"}
    assert [part[:2] for part in parts[1:]] == [[("slow", "a")] * 2, [("slow", "b")] * 2]
    assert {kind for part in (parts[0][6:], parts[1][2:], parts[2][2:]) for kind, _ in part} == {"fast"}


def test_more_spark_than_a_part_keeps_every_test(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [made(kind) for kind in ["fast", "session", "session", "slow"] * 5]
    assert [item.kind for item in arranged(monkeypatch, items, 3)][:10] == ["session"] * 10


def test_one_worker_keeps_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [made(kind) for kind in ["fast", "slow", "session"]]
    assert arranged(monkeypatch, items, 1) == items
