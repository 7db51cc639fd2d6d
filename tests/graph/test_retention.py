"""Cancelled watches: their nodes stay for a week."""

from __future__ import annotations

from contextlib import closing

import apsw
import pytest

from ackwise.core.commands import Sweep
from ackwise.graph.engine import session_commands
from ackwise.mew import Session
from tests.mew.prompt import Prompt

WEEK = 7 * 24 * 3600
COUNTS = "MATCH {} RETURN COUNT({}) AS n"


@pytest.fixture
def jobs(prompt: Prompt) -> Prompt:
    prompt.ok("node Job { n: Int = 1 }")
    return prompt


def sweep(session: Session) -> None:
    session._backend.broker.send(Sweep(duties=("graph",)))  # type: ignore[union-attr]


def count(jobs: Prompt, pattern: str) -> int:
    (row,) = jobs.rows(COUNTS.format(pattern, pattern.split(":")[0] if ":" in pattern else "e"))
    found: int = row[0]
    return found


def test_node_of_cancelled_watch_goes_after_a_week(jobs: Prompt) -> None:
    jobs.ok("v = WATCH w: _Watch RETURN w.mode, w.status")
    other = jobs.session.another()
    other.run("w = WATCH j: Job [mode: consume, max_redeliveries: 1] RETURN j SPAWN j: Job")
    (event,) = [event for event in other.events() if event.delivery_id]
    other.nack(event)
    other.close()
    jobs.clock.advance(WEEK)
    sweep(jobs.session)
    assert count(jobs, "w: _Watch") == 2
    assert count(jobs, "s: _Session") == 2
    jobs.clock.advance(1)
    sweep(jobs.session)
    jobs.fetch()
    assert [(event["type"], event["match"]["w.mode"]) for event in jobs.events] == [("removed", "consume")]
    assert count(jobs, "w: _Watch") == 1
    assert count(jobs, "s: _Session") == 1
    assert jobs.rows("MATCH _session_has_watch(s, w) AS e RETURN COUNT(e)") == [[1]]
    assert jobs.rows("MATCH _watch_dead_letter(w, l) AS e RETURN COUNT(e)") == [[0]]
    assert count(jobs, "l: _DeadLetter") == 1  # what failed stays on record


def test_live_session_keeps_its_node_and_other_watches(jobs: Prompt) -> None:
    jobs.ok("v = WATCH j: Job RETURN j w = WATCH j: Job RETURN j CANCEL WATCH #v")
    jobs.clock.advance(WEEK + 1)
    sweep(jobs.session)
    assert jobs.rows("MATCH w: _Watch RETURN w.status") == [["active"]]
    assert count(jobs, "s: _Session") == 1
    jobs.refused("RESUME WATCH #v", "E8002")
    jobs.ok("SPAWN j: Job")
    assert [event["watch"] for event in jobs.events] == ["#w"]


def test_watch_with_a_live_delivery_stays(jobs: Prompt, graph_url: str) -> None:
    gone = Session(graph_url, clock=jobs.clock)
    gone.run("w = WATCH j: Job [mode: consume, ack_timeout: 30d] RETURN j SPAWN j: Job")
    (event,) = [event for event in gone.events() if event.delivery_id]
    gone._backend.broker.close()  # type: ignore[union-attr]
    jobs.clock.advance(61)
    sweep(jobs.session)  # cancels the watches of the dead broker; their deliveries keep their deadlines
    assert jobs.rows("MATCH w: _Watch RETURN w.status") == [["cancelled"]]
    jobs.clock.advance(WEEK + 1)
    sweep(jobs.session)
    assert count(jobs, "w: _Watch") == 1
    assert jobs.session.ack(event).done.deleted == 1
    sweep(jobs.session)
    assert count(jobs, "w: _Watch") == 0


def test_sweep_removes_a_bounded_number(jobs: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MOST_REMOVED", 3), ("REMOVAL_SECONDS", 100.0)):
        monkeypatch.setattr(session_commands, name, value)
    other = jobs.session.another()
    other.run(" ".join("WATCH j: Job RETURN j" for _ in range(4)))
    other.close()
    jobs.clock.advance(WEEK + 1)
    left = []
    for _ in range(4):
        sweep(jobs.session)
        left.append(count(jobs, "w: _Watch"))
    assert left == [3, 1, 0, 0]
    assert count(jobs, "s: _Session") == 1  # the session that looks


def test_watch_cancelled_before_the_upgrade_stays_a_week(lite: Prompt) -> None:
    lite.ok("node Job { n: Int = 1 } v = WATCH j: Job RETURN j CANCEL WATCH #v")
    path = lite.session._url.removeprefix("sqlite:///").partition("?")[0]
    with closing(apsw.Connection(path)) as database:
        database.execute("UPDATE mew_watch SET cancelled_at = NULL")
    for seconds, left in ((2 * WEEK, 1), (WEEK, 1), (1, 0)):
        lite.clock.advance(seconds)
        sweep(lite.session)
        assert count(lite, "w: _Watch") == left
