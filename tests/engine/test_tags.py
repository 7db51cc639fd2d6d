"""Claims by namespace or task: they visit the queues that have something, and no others."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.answers import Claimed
from ackwise.core.lane_selection import EmptyReason
from ackwise.engine import tagged_queues
from ackwise.store.postgres.session import PostgresSession
from ackwise.store.sqlite.session import WriterSession
from tests.engine.store_harness import StoreHarness, deliveries

SHOP: dict[str, Any] = {"queue": None, "namespace": "shop", "group": "g"}


def open_shop(harness: StoreHarness, *names: str) -> None:
    harness.together(*(c.ConfigureQueue(queue=name, namespace="shop", task="mail") for name in names))


def groups(harness: StoreHarness) -> list[str]:
    return [row.queue for row in harness.store.ask(q.ListGroups(group="g"))]


def counted(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch, **where: Any) -> Counter[str]:
    """The statements of one claim, and the rows that they read."""
    seen: Counter[str] = Counter()
    with monkeypatch.context() as patch:
        for kind in (WriterSession, PostgresSession):
            for verb in ("rows", "row", "run"):
                patch.setattr(kind, verb, noting(getattr(kind, verb), seen))
        harness.claim(**where)
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
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch, where: dict[str, Any]
) -> None:
    open_shop(harness, "a", "b")
    harness.number(5, queue="b")
    harness.claim(1, **where)
    few, none = counted(harness, monkeypatch, **where), counted(harness, monkeypatch, **where)
    open_shop(harness, *(f"e{number}" for number in range(200)))
    harness.number(2, queue="b")
    assert sum(few.values()) > 5
    assert counted(harness, monkeypatch, **where).total() <= few.total() + 5
    assert counted(harness, monkeypatch, **where).total() <= none.total() + 5
    assert groups(harness) == ["b"]


def test_claim_by_tag_finds_the_first_message(harness: StoreHarness) -> None:
    open_shop(harness, "a", "b", "c")
    assert harness.claim(**SHOP).why == "empty"
    harness.push("1", queue="b")
    assert harness.claim(**SHOP).bodies == ["1"]
    harness.push("2", queue="c")
    assert harness.claim(**SHOP).bodies == ["2"]
    assert groups(harness) == ["b", "c"]


def test_claim_by_tag_of_new_messages_finds_them(harness: StoreHarness) -> None:
    open_shop(harness, "a", "b")
    harness.push("old", queue="a")
    assert harness.claim(**SHOP, start="new").why == "empty"
    harness.push("1", queue="a")
    harness.push("2", queue="b")
    assert sorted(harness.claim(**SHOP, start="new").bodies + harness.claim(**SHOP, start="new").bodies) == ["1", "2"]


def test_claim_by_tag_from_an_instant_begins_there(harness: StoreHarness) -> None:
    open_shop(harness, "a", "b")
    harness.push("old", queue="a")
    harness.advance(10)
    since = harness.clock.now()
    assert harness.claim(**SHOP, start=since).why == "empty"
    assert groups(harness) == ["a", "b"]
    harness.push("1", queue="a")
    harness.push("2", queue="b")
    harness.advance(10)
    found = [harness.claim(1, **SHOP, start=harness.clock.now()).bodies for _ in range(3)]
    assert sorted(found) == [[], ["1"], ["2"]]


def test_claim_by_tag_joins_queues_in_chunks(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagged_queues, "MOST_JOINED", 2)
    monkeypatch.setattr(tagged_queues, "FEW", 2)
    names = [f"q{number}" for number in range(7)]
    open_shop(harness, *names)
    for name in names:
        harness.push(name, queue=name)
    found = [harness.claim(1, **SHOP).bodies for _ in range(8)]
    assert sorted(found) == [[], *([name] for name in names)]
    assert groups(harness) == names


@pytest.mark.parametrize("start", ["new", 5])
def test_claim_by_tag_joins_empty_queues(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch, start: Any) -> None:
    monkeypatch.setattr(tagged_queues, "MOST_JOINED", 2)
    names = [f"q{number}" for number in range(5)]
    open_shop(harness, *names)
    harness.claim(**SHOP, start=start)
    assert groups(harness) == (names if start == "new" else names[:2])
    for _ in range(2):
        harness.claim(**SHOP, start=start)
    assert groups(harness) == names


def test_claim_by_tag_says_what_is_locked_or_delayed(harness: StoreHarness) -> None:
    open_shop(harness, "a", "b")
    harness.push("1", "2", queue="a")
    held = harness.claim(1, **SHOP, exclusivity="partition", seconds=30)
    again = harness.claim(1, **SHOP, exclusivity="partition")
    assert (again.why, again.claimed.until) == ("locked", held.claimed.deadline)
    harness.advance(31)
    assert harness.claim(2, **SHOP, exclusivity="partition").bodies == ["1", "2"], "a lease that ran out is given back"
    harness.do(c.PauseQueue(queue="b", paused=True))
    harness.push("3", queue="b")
    assert harness.claim(1, queue=None, namespace="shop", group="other", task="mail").bodies
    assert harness.claim(2, queue=None, namespace="shop", group="other", exclusivity="none").bodies == ["2"]
    assert harness.claim(2, queue=None, namespace="shop", group="other", exclusivity="none").why == "paused"


def turns_of(harness: StoreHarness, command: c.Claim) -> list[Claimed]:
    """The answers of all turns of a claim."""
    answers = [harness.do(command)]
    while (rest := c.next_command(command, answers[-1])) is not None:
        assert isinstance(rest, c.Claim)
        answers.append(harness.do(rest))
    return answers


@pytest.mark.parametrize("start", ["new", 5])
def test_claim_by_tag_joins_a_bounded_number_per_turn(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch, start: Any
) -> None:
    monkeypatch.setattr(tagged_queues, "MOST_JOINED", 2)
    names = [f"q{number}" for number in range(5)]
    open_shop(harness, *names)
    command = c.Claim(**SHOP, start=start)
    for name in names:
        harness.push(name, queue=name)
        harness.do(c.PauseQueue(queue=name))
    joined = []
    answer: Claimed = harness.do(command)
    while answer.more is not None:
        joined.append(groups(harness))
        answer = harness.do(cast(c.Claim, c.next_command(command, answer)))
    assert joined == [names[:2], names[:4]]
    assert groups(harness) == names
    assert answer.empty is not None
    assert answer.empty.value == ("empty" if start == "new" else "paused")


def test_claims_by_tag_of_one_turn_share_the_joins(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagged_queues, "MOST_JOINED", 3)
    open_shop(harness, "a", "b")
    claims = [c.Claim(**{**SHOP, "group": group}, start="new") for group in ("one", "two", "three")]
    one, two, three = harness.together(*claims)
    assert (one.more, two.more.joined, three.more.joined) == (None, "a", "")
    assert [row.queue for row in harness.store.ask(q.ListGroups(group="two"))] == ["a"]


def test_spent_joins_leave_complete_groups_complete(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagged_queues, "MOST_JOINED", 2)
    open_shop(harness, "a", "b")
    harness.claim(**SHOP, start="new")
    other, known = harness.together(c.Claim(**{**SHOP, "group": "other"}, start="new"), c.Claim(**SHOP, start="new"))
    assert (other.more is not None, known.more) == (True, None)


def test_claim_by_tag_visits_a_bounded_number_per_turn(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagged_queues, "MOST_FRUITLESS", 3)
    monkeypatch.setattr(tagged_queues, "FEW", 2)
    names = [f"q{number}" for number in range(8)]
    open_shop(harness, *names)
    for name in names:
        harness.push(name, queue=name)
        harness.do(c.PauseQueue(queue=name))
    answers = turns_of(harness, c.Claim(**SHOP))
    assert [answer.more.visited for answer in answers if answer.more] == ["", "q2", "q5"]
    harness.do(c.PauseQueue(queue="q7", paused=False))
    assert harness.claim(**SHOP).bodies == ["q7"]


def test_claims_by_tag_of_one_turn_share_the_visits(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagged_queues, "MOST_FRUITLESS", 3)
    names = ["a", "b"]
    open_shop(harness, *names)
    for name in names:
        harness.push("1", queue=name)
        harness.do(c.PauseQueue(queue=name))
    first, second = harness.together(c.Claim(**SHOP), c.Claim(**SHOP))
    assert (first.more, second.more.visited) == (None, "")
    harness.do(c.PauseQueue(queue="b", paused=False))
    claimed = harness.complete(cast(c.Claim, c.next_command(c.Claim(**SHOP), second)))
    assert [grant.queue for grant in claimed.grants] == ["b"]


def test_claim_from_new_starts_at_its_first_turn(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagged_queues, "MOST_JOINED", 2)
    names = [f"q{number}" for number in range(5)]
    open_shop(harness, *names)
    for name in names:
        harness.push("old", queue=name)
    command = c.Claim(**SHOP, most=10, start="new")
    began = harness.clock.now()
    first: Claimed = harness.do(command)
    harness.advance(1)
    harness.push("fresh", "newer", queue="q4")
    harness.push("other", queue="q4", partition="new")
    harness.advance(1)
    rest = c.next_command(command, first)
    assert rest is not None
    claimed = harness.complete(rest)
    bodies = [delivery.body for delivery in deliveries(harness.store, claimed)]
    assert sorted(bodies) == ["fresh", "newer", "other"]
    assert {row.created_at for row in harness.store.ask(q.ListGroups(group="g"))} == {began}
    assert harness.claim(**SHOP, start="new").why == "empty"


def test_claim_by_tag_finds_messages_pushed_during_its_join(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tagged_queues, "MOST_JOINED", 2)
    names = [f"q{number}" for number in range(5)]
    open_shop(harness, *names)
    command = c.Claim(**SHOP, start="new")
    first: Claimed = harness.do(command)
    harness.advance(1)
    harness.push("1", queue="q0")
    rest = c.next_command(command, first)
    assert rest is not None
    assert harness.complete(rest).count == 1


def test_continued_claim_of_a_used_key_is_ended(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagged_queues, "MOST_JOINED", 2)
    names = [f"q{number}" for number in range(5)]
    open_shop(harness, *names)
    command = c.Claim(**SHOP, start="new", key="k")
    first: Claimed = harness.do(command)
    harness.advance(1)
    harness.push("1", queue="q0")
    harness.push("2", queue="q4")
    assert harness.claim(1, **SHOP, start="new", key="k").bodies == ["1"]
    rest = c.next_command(command, first)
    assert rest is not None
    answer = harness.do(rest)
    assert (answer.count, answer.empty) == (0, EmptyReason.ENDED)


def test_repeated_key_reads_no_other_queues(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"q{number}" for number in range(30)]
    open_shop(harness, *names)
    for name in names:
        harness.push("1", "2", queue=name)
    first = harness.claim(1, **SHOP, key="k")
    statements = counted(harness, monkeypatch, most=1, key="k", **SHOP)
    assert statements["lease_by_key"] == 1
    again = harness.claim(1, **SHOP, key="k")
    assert again.deliveries[0].message.id == first.deliveries[0].message.id
