"""The graph and pipeline pages in Chromium: widths, themes, and a statement whose events appear on the page."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from ackwise.connect import connect
from ackwise.core.commands import ReportPipeline
from ackwise.core.pipelines import PipelineReport
from ackwise.mew import Session
from tests.browser.views import View, opened_view
from tests.patience import PATIENCE
from tests.server.running import Running

pytestmark = pytest.mark.slow
NASTY = '"><img src=x onerror=alert(1)> \u202eright\u202c ' + "long" * 200


@pytest.fixture
def view(chrome: Browser, server: Running) -> Iterator[View]:
    expect.set_options(timeout=PATIENCE * 1000)  # a busy machine is slow
    with opened_view(chrome, server.url) as made:
        yield made


@pytest.fixture
def graph(server: Running) -> Iterator[Session]:
    with Session(server.url) as session:
        session.run("node Job { what: String }")
        yield session


def test_pages_fit_every_width_in_both_themes(view: View, graph: Session, server: Running) -> None:
    graph.run("SPAWN a: Job { what = $what }", what=NASTY)
    graph.run('w = WATCH j: Job [mode: consume, group: "workers", max_redeliveries: 1] RETURN j.what AS what')
    graph.nack(graph.events(2)[-1])
    report = PipelineReport(state="failed", last_error=NASTY, ui_url="http://driver:4040", host="driver", rows=10**9)
    with connect(server.url) as connection:
        connection.transport.send(ReportPipeline(id="p", queue="orders", group="g", report=report))
    view.check_everywhere("/dashboard/graph")
    view.check_everywhere("/dashboard/pipelines")


def test_statement_shows_the_events_of_its_watch(view: View, graph: Session) -> None:
    page = view.open("/dashboard/graph")
    box, run, events = page.get_by_label("MEW"), page.get_by_role("button", name="Run"), page.locator("#events")
    box.fill("w = WATCH j: Job RETURN j.what AS what")
    run.click()
    expect(page.locator("#answer")).to_contain_text("watch #w")
    expect(events).to_contain_text("initial")
    graph.run("SPAWN j: Job { what = $what }", what=NASTY)
    expect(events.locator("tbody tr").first).to_contain_text("added")
    expect(events.locator("tbody tr").first).to_contain_text("onerror=alert(1)")
    assert page.locator("img").count() == 0
    # A second statement keeps the stream, which shows its effect.
    box.fill('SPAWN j: Job { what = "mail" }')
    run.click()
    expect(events.locator("tbody tr").first).to_contain_text("mail")
    expect(events).to_contain_text("3 events")
    box.fill("SPAWN j: Jib")
    run.click()
    expect(page.get_by_role("alert")).to_contain_text("constraint at line 1, column 7")
    page.set_viewport_size({"width": 380, "height": 900})
    view.check_layout()
    view.check_axe()
    view.open("/dashboard/settings")  # the watch ends with its page
    end = time.monotonic() + PATIENCE
    while graph.query("MATCH w: _Watch RETURN w.status AS status") != [{"status": "cancelled"}]:
        assert time.monotonic() < end, "the watch outlives its page"
        time.sleep(0.05)
