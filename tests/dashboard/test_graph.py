"""The graph page: lists, the statement box, its stream of events, read-only dashboards, a server without MEW."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from ackwise.dashboard.guard import TOKEN_FIELD
from ackwise.mew import Session
from tests.dashboard.site import Shown, Site
from tests.patience import PATIENCE
from tests.server.running import Running

HOSTILE = '<script>alert("x")</script>\u202e" onload=1'
JOBS = "node Job { what: String, n: Int = 1 } edge next(first: Job, second: Job) "
CONSUME = 'w = WATCH j: Job [mode: consume, group: "workers", max_redeliveries: 1] RETURN j.what'


class Box:
    """The statement box of one page."""

    def __init__(self, site: Site) -> None:
        self._site = site
        page = site.get("/graph")
        (self.session,) = page.values("session")
        (self.token,) = page.values(TOKEN_FIELD)

    def run(self, text: str, *, script: bool = False, **fields: Any) -> Shown:
        data = {TOKEN_FIELD: self.token, "session": self.session, "text": text, **fields}
        headers = {"hx-request": "true"} if script else {}
        return Shown(self._site.client.post("/dashboard/graph", data=data, headers=headers))

    def events(self) -> Iterator[str]:
        """The messages of the stream: the event's name and its data."""
        url = f"/dashboard/graph/events?session={self.session}"
        with self._site.client.stream("GET", url, timeout=PATIENCE) as stream:
            message = ""
            for line in stream.iter_lines():
                message += line + "\n"
                if not line:
                    if message.startswith("event: "):
                        yield message
                    message = ""


@pytest.fixture
def box(site: Site) -> Box:
    return Box(site)


@pytest.fixture
def graph(server: Running) -> Iterator[Session]:
    with Session(server.url) as session:
        session.run(JOBS)
        yield session


def test_empty_graph_says_what_to_do_next(site: Site) -> None:
    text = site.get("/graph").text
    for words in ("No types are declared yet", "No watch is active", "No consumer is active", "No item has failed"):
        assert words in text
    assert 'mode: consume, group: "workers"' in text


def test_lists_show_types_watches_pools_and_letters(site: Site, graph: Session) -> None:
    graph.run(CONSUME)
    for _ in range(2):
        graph.run("SPAWN j: Job { what = $what }", what=HOSTILE)
    graph.nack(graph.events(2)[-1])
    page = site.get("/graph")
    assert "Job node 1 node Job {" in page.text
    assert "#w active consume workers" in page.text
    assert "workers 1" in page.text
    assert "max_redeliveries_exceeded 1" in page.text
    assert "<script>alert" not in page.source
    assert "onload=1" in page.text
    assert re.search(r'href="/dashboard/graph\?text=MATCH\+x%3A\+Job\+RETURN\+x\+LIMIT\+20"', page.source)
    assert "text=MATCH+next%28first%2C+second%29+AS+e" in page.source


def test_text_in_the_url_fills_the_box_and_does_not_run(site: Site, graph: Session) -> None:
    page = site.get("/graph?text=SPAWN+j%3A+Job+%7B+what+%3D+%22x%22+%7D</textarea>")
    assert "SPAWN j: Job { what = &#34;x&#34; }&lt;/textarea&gt;</textarea>" in page.source
    assert graph.query("MATCH j: Job RETURN COUNT(j) AS n") == [{"n": 0}]


def test_result_is_a_table_of_bounded_text(box: Box, graph: Session) -> None:
    graph.run("SPAWN a: Job { what = $what, n = 2 } SPAWN b: Job { what = $long }", what=HOSTILE, long="y" * 5000)
    page = box.run("MATCH j: Job RETURN j.what AS what, j.n AS n ORDER BY n")
    assert "MATCH, line 1: 2 rows what n" in page.text
    assert "<script>alert" not in page.source
    assert "y" * 2000 + "…" in page.source
    assert "y" * 2001 not in page.source


def test_error_shows_line_column_and_source(box: Box) -> None:
    page = box.run("node Job {}\n  SPAWN a: Jib")
    assert "NODE line 1" in page.text
    assert "constraint at line 2, column 9: there is no node type 'Jib'" in page.text
    assert "  SPAWN a: Jib\n        ^</pre>" in page.source


def test_run_without_a_script_shows_the_first_events(box: Box, graph: Session) -> None:
    page = box.run('w = WATCH j: Job RETURN j.what SPAWN j: Job { what = "mail" }')
    assert "Live events" not in page.text
    assert "2 #w added 3" in page.text or "added" in page.text
    assert '"j.what":"mail"' in page.text
    assert "end in half a minute" in page.text


def test_events_of_a_watch_come_as_blocks(box: Box, graph: Session) -> None:
    page = box.run(CONSUME, script=True)
    assert f'sse-connect="/dashboard/graph/events?session={box.session}"' in page.source
    stream = box.events()
    assert "initial" in next(stream)
    graph.run("SPAWN j: Job { what = $what }", what=HOSTILE)
    message = next(stream)
    assert message.startswith("event: events\ndata: ")
    assert "2 events" in message
    assert "consumed" in message
    assert "<script>alert" not in message
    again = box.run("ACK $delivery_id", script=True, streaming="1")
    assert "outcome acked" in again.text
    assert "sse-connect" not in again.source


def test_end_of_a_stream_ends_the_watch(box: Box, graph: Session) -> None:
    graph.run('SPAWN j: Job { what = "mail" }')
    box.run(CONSUME, script=True)
    stream = box.events()
    assert "consumed" in next(stream) or "consumed" in next(stream)
    stream.close()  # type: ignore[attr-defined]
    graph.run(CONSUME)
    (event,) = [event for event in graph.events(10, wait=PATIENCE) if event.delivery_id] or [
        event for event in graph.events(10, wait=PATIENCE) if event.delivery_id
    ]
    assert event.attempt == 2


def test_stream_of_an_unknown_session_ends_at_once(box: Box) -> None:
    (message,) = box.events()
    assert message.startswith("event: end\ndata: ")


@pytest.mark.parametrize("session", ["", "session_1"])
def test_session_of_another_client_is_refused(box: Box, session: str) -> None:
    box.session = session
    page = box.run("MATCH s: _Session RETURN s")
    assert (page.status, "load the page again" in page.text) == (400, True)


def test_place_that_is_no_number_is_refused(site: Site) -> None:
    for parameter in ("watches", "pools", "letters"):
        page = site.get(f"/graph?{parameter}=x")
        assert (page.status, f"{parameter} must be a number" in page.text) == (400, True)


def test_form_without_a_token_is_refused(box: Box) -> None:
    box.token = "0" * 64
    assert box.run("MATCH s: _Session RETURN s").status == 403


def test_read_only_dashboard_reads_and_refuses_changes(store_url: str) -> None:
    with Running(store_url, read_only_dashboard=True) as server, Session(server.url) as graph:
        graph.run(JOBS + 'SPAWN j: Job { what = "mail" }')
        site = Site(server.url)
        box = Box(site)
        assert "MATCH, line 1: 1 row" in box.run("MATCH j: Job RETURN j.what").text
        for text in ('SPAWN j: Job { what = "x" }', "w = WATCH j: Job RETURN j", "MATCH j: Job KILL j"):
            page = box.run(text, script=True)
            assert "read_only at line 1" in page.text
            assert "sse-connect" not in page.source
        assert graph.query("MATCH j: Job RETURN COUNT(j) AS n") == [{"n": 1}]
        site.close()


def test_server_without_mew_names_the_extra(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ackwise.server.server.MEW_PACKAGE", "no_such_package")
    with Running(store_url) as server:
        site = Site(server.url)
        page = site.get("/graph")
        assert page.status == 200
        assert "pip install 'ackwise[mew]'" in page.text
        assert site.get("/graph/events").status >= 400
        site.close()
