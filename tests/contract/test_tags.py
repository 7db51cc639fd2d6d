"""Claims by namespace or task: they visit the queues that have something, and no others."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.store.postgres.session import PostgresSession
from ackwise.store.sqlite.session import WriterSession
from ackwise.store.turn import tags
from tests.contract.support import Desk

SHOP: dict[str, Any] = {"queue": None, "namespace": "shop", "group": "g"}


def open_shop(desk: Desk, *names: str) -> None:
    desk.together(*(c.ConfigureQueue(queue=name, namespace="shop", task="mail") for name in names))


def groups(desk: Desk) -> list[str]:
    return [row.queue for row in desk.store.list_groups(q.ListGroups(group="g"))]


def counted(desk: Desk, monkeypatch: pytest.MonkeyPatch, **where: Any) -> Counter[str]:
    """The statements of one claim, and the rows that they read."""
    seen: Counter[str] = Counter()
    with monkeypatch.context() as patch:
        for kind in (WriterSession, PostgresSession):
            for verb in ("rows", "row", "run"):
                patch.setattr(kind, verb, noting(getattr(kind, verb), seen))
        desk.claim(**where)
    return seen


def noting(verb: Any, seen: Counter[str]) -> Any:
    def noted(self: Any, name: str, *params: Any) -> Any:
        found = verb(self, name, *params)
        seen[name] += 1
        seen["rows"] += len(found) if isinstance(found, list) else 1
        return found

    return noted


@pytest.mark.parametrize("where", [SHOP, {"queue": None, "task": "mail", "group": "g"}], ids=["namespace", "task"])
def test_claim_by_tag_passes_over_empty_queues(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, where: dict[str, Any]
) -> None:
    open_shop(desk, "a", "b")
    desk.number(5, queue="b")
    desk.claim(1, **where)
    few, none = counted(desk, monkeypatch, **where), counted(desk, monkeypatch, **where)
    open_shop(desk, *(f"e{number}" for number in range(200)))
    desk.number(2, queue="b")
    assert sum(few.values()) > 5
    assert counted(desk, monkeypatch, **where).total() <= few.total() + 5
    assert counted(desk, monkeypatch, **where).total() <= none.total() + 5
    assert groups(desk) == ["b"]


def test_claim_by_tag_finds_the_first_message(desk: Desk) -> None:
    open_shop(desk, "a", "b", "c")
    assert desk.claim(**SHOP).why == "empty"
    desk.push("1", queue="b")
    assert desk.claim(**SHOP).bodies == ["1"]
    desk.push("2", queue="c")
    assert desk.claim(**SHOP).bodies == ["2"]
    assert groups(desk) == ["b", "c"]


def test_claim_by_tag_of_new_messages_finds_them(desk: Desk) -> None:
    open_shop(desk, "a", "b")
    desk.push("old", queue="a")
    assert desk.claim(**SHOP, start="new").why == "empty"
    desk.push("1", queue="a")
    desk.push("2", queue="b")
    assert sorted(desk.claim(**SHOP, start="new").bodies + desk.claim(**SHOP, start="new").bodies) == ["1", "2"]


def test_claim_by_tag_from_an_instant_begins_there(desk: Desk) -> None:
    open_shop(desk, "a", "b")
    desk.push("old", queue="a")
    desk.advance(10)
    since = desk.clock.now()
    assert desk.claim(**SHOP, start=since).why == "empty"
    assert groups(desk) == ["a", "b"]
    desk.push("1", queue="a")
    desk.push("2", queue="b")
    desk.advance(10)
    found = [desk.claim(1, **SHOP, start=desk.clock.now()).bodies for _ in range(3)]
    assert sorted(found) == [[], ["1"], ["2"]]


def test_claim_by_tag_joins_queues_in_chunks(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tags, "CHUNK", 2)
    monkeypatch.setattr(tags, "FEW", 2)
    names = [f"q{number}" for number in range(7)]
    open_shop(desk, *names)
    for name in names:
        desk.push(name, queue=name)
    found = [desk.claim(1, **SHOP).bodies for _ in range(8)]
    assert sorted(found) == [[], *([name] for name in names)]
    assert groups(desk) == names


@pytest.mark.parametrize("start", ["new", 5])
def test_claim_by_tag_joins_empty_queues(desk: Desk, monkeypatch: pytest.MonkeyPatch, start: Any) -> None:
    monkeypatch.setattr(tags, "CHUNK", 2)
    names = [f"q{number}" for number in range(5)]
    open_shop(desk, *names)
    desk.claim(**SHOP, start=start)
    assert groups(desk) == (names if start == "new" else names[:2])
    for _ in range(2):
        desk.claim(**SHOP, start=start)
    assert groups(desk) == names


def test_claim_by_tag_says_what_is_locked_or_delayed(desk: Desk) -> None:
    open_shop(desk, "a", "b")
    desk.push("1", "2", queue="a")
    held = desk.claim(1, **SHOP, exclusivity="partition", seconds=30)
    again = desk.claim(1, **SHOP, exclusivity="partition")
    assert (again.why, again.claimed.until) == ("locked", held.claimed.deadline)
    desk.advance(31)
    assert desk.claim(2, **SHOP, exclusivity="partition").bodies == ["1", "2"], "a lease that ran out is given back"
    desk.do(c.PauseQueue(queue="b", paused=True))
    desk.push("3", queue="b")
    assert desk.claim(1, queue=None, namespace="shop", group="other", task="mail").bodies
    assert desk.claim(2, queue=None, namespace="shop", group="other", exclusivity="none").bodies == ["2"]
    assert desk.claim(2, queue=None, namespace="shop", group="other", exclusivity="none").why == "paused"
