"""Queries about the graph as a whole, on both databases."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core.errors import BadInput
from ackwise.core.queries import Query
from ackwise.graph import overview
from ackwise.graph.overview import Bounded, GraphStats, ListGraphDead, ListGraphTypes, ListPools, ListWatches
from tests.mew.prompt import Prompt

CONSUME = 'w = WATCH j: Job [mode: consume, group: "mailers", max_redeliveries: 1] RETURN j.what AS what'


@pytest.fixture
def jobs(prompt: Prompt) -> Prompt:
    prompt.ok('node Job { what: String = "mail" } node Shelf {} edge on(job: Job, shelf: Shelf) type Age = Int [>= 0]')
    return prompt


def ask(prompt: Prompt, query: Query[Any]) -> Any:
    return prompt.session._backend.broker.ask(query)  # type: ignore[union-attr]


def test_types_have_kind_declaration_and_bounded_count(jobs: Prompt) -> None:
    jobs.ok("SPAWN a: Job SPAWN b: Job SPAWN c: Job SPAWN s: Shelf LINK on(a, s)")
    rows = ask(jobs, ListGraphTypes(most=2))
    assert [(row.name, row.kind, row.entities) for row in rows] == [
        ("Age", "type", Bounded(0)),
        ("Job", "node", Bounded(2, True)),
        ("Shelf", "node", Bounded(1)),
        ("on", "edge", Bounded(1)),
    ]
    assert rows[1].declared.startswith("node Job {")
    assert rows[3].slots == ("job", "shelf")
    assert rows.next is None


def test_types_come_in_pages_by_name(jobs: Prompt) -> None:
    first = ask(jobs, ListGraphTypes(limit=3))
    assert [row.name for row in first] == ["Age", "Job", "Shelf"]
    assert [row.name for row in ask(jobs, ListGraphTypes(after=first.next, limit=3))] == ["on"]


def test_watches_are_listed_newest_first_with_their_counts(jobs: Prompt) -> None:
    jobs.session.run('first = WATCH j: Job WHERE j.what = "mail" RETURN j')
    jobs.session.run("second = WATCH s: Shelf RETURN s third = WATCH s: Shelf RETURN s")
    jobs.session.run("PAUSE WATCH #second CANCEL WATCH #third SPAWN j: Job")
    page = ask(jobs, ListWatches(limit=1))
    (second,) = page
    (first,) = ask(jobs, ListWatches(after=page.next))
    assert (second.name, second.status, second.waiting) == ("second", "paused", 1)
    assert (first.name, first.status, first.mode, first.group) == ("first", "active", "watch", None)
    assert first.session == jobs.session.id
    assert (first.waiting, first.pending, first.delivered) == (2, 0, 0)
    assert "WHERE j.what" in first.pattern
    assert first.last_event_at == jobs.clock.now()


def test_pool_counts_members_ready_items_and_deliveries(jobs: Prompt) -> None:
    jobs.session.run(CONSUME)
    other = jobs.session.another()
    other.run(CONSUME)
    jobs.session.run("SPAWN a: Job SPAWN b: Job SPAWN c: Job")
    other.events(1)
    other.events(1)
    (pool,) = ask(jobs, ListPools())
    assert (pool.group, pool.members, pool.pending) == ("mailers", 2, 1)
    assert pool.ready == Bounded(2)
    assert ask(jobs, ListPools(most=1))[0].ready == Bounded(1, True)
    assert [watch.pending for watch in ask(jobs, ListWatches())] == [1, 0]
    other.close()


def test_dead_letters_are_listed_newest_first(jobs: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.session.run(CONSUME)
    for what in ("mail", "x" * 500):
        jobs.session.run("SPAWN j: Job { what = $what }", {"what": what})
        (event,) = [event for event in jobs.session.events() if event.delivery_id]
        jobs.session.nack(event)
    monkeypatch.setattr(overview, "LETTER_BYTES", 400)
    page = ask(jobs, ListGraphDead(limit=1))
    (large,) = page
    (small,) = ask(jobs, ListGraphDead(after=page.next))
    assert (large.match, large.reason, large.dead_at) == (None, None, None)
    assert (small.match, small.reason, small.deliveries) == ('{"what":"mail"}', "max_redeliveries_exceeded", 1)
    assert small.dead_at == jobs.clock.now()
    assert large.watch == small.watch == ask(jobs, ListWatches())[0].id


def test_totals_count_the_whole_graph(jobs: Prompt) -> None:
    jobs.session.run("SPAWN s: Shelf")
    jobs.session.run("w = WATCH j: Job [mode: consume, max_redeliveries: 1, dead_letter: #s] RETURN j")
    for number in range(3):
        jobs.session.run("SPAWN j: Job")
        (event,) = [event for event in jobs.session.events() if event.delivery_id]
        if number < 2:
            jobs.session.nack(event)
    found = ask(jobs, GraphStats(most=1))
    assert (found.types, found.watches, found.pending) == (4, Bounded(1), Bounded(1))
    assert found.dead_letters == found.held == Bounded(1, True)
    assert found.tick > 0


def test_queries_of_an_empty_graph_answer_no_rows(prompt: Prompt) -> None:
    for query in (ListGraphTypes(), ListWatches(), ListPools(), ListGraphDead()):
        page = ask(prompt, query)
        assert (list(page), page.next) == ([], None)


@pytest.mark.parametrize("fields", [{"most": 0}, {"most": 100_001}, {"limit": 101}, {"limit": -1}], ids=str)
def test_bound_outside_its_range_is_refused(lite: Prompt, fields: dict[str, int]) -> None:
    with pytest.raises(BadInput, match="must be"):
        ask(lite, ListPools(**fields))
