"""Jobs of dead letters, on both databases: redrive, replay and purge in chunks, with progress and results."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import ackwise
from ackwise.dashboard import dead_letter_jobs
from tests.dashboard.letters import kill
from tests.dashboard.site import Shown, Site
from tests.patience import PATIENCE
from tests.server.running import Running


@pytest.fixture
def server(any_store: str) -> Iterator[Running]:
    with Running(any_store) as running:
        yield running


def finished(site: Site, shown: Shown) -> Shown:
    """The page of a job after the job ended."""
    path = shown.url.split("/dashboard", 1)[1]
    end = time.monotonic() + PATIENCE
    while ", ended " not in (now := site.get(path)).text:
        assert time.monotonic() < end, now.text
        time.sleep(0.02)
    return now


def test_one_kind_is_redriven_by_filter_in_chunks(
    site: Site, queue: ackwise.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_jobs, "CHUNK", 3)
    monkeypatch.setattr(dead_letter_jobs, "PAGE", 5)
    kill(queue, "orders", "billing", *(f"bad {number}" for number in range(12)), "other trouble")
    shown = site.post("/dead-letters/actions/redrive", {"queue": "orders", "kind": "bad <n>"})
    assert "Redrive of 12 dead letters" in shown.text
    text = finished(site, shown).text
    assert "finished" in text
    assert "12 of 12" in text
    assert "Redriven 12" in text
    assert [letter.error for letter in queue.dead_letters()] == ["other trouble"]
    assert len(queue.claim("orders", group="billing", max=100)) == 12


def test_letters_that_die_after_the_confirmation_are_left(site: Site, queue: ackwise.Connection) -> None:
    kill(queue, "orders", "billing", "bad 1")
    fields = {name: site.get("/dead-letters/actions/purge?queue=orders").values(name)[0] for name in ("queue", "until")}
    kill(queue, "orders", "billing", "bad 2")
    text = finished(site, site.post("/dead-letters/actions/purge", {**fields, "typed": "orders"})).text
    assert "Purged 1" in text
    assert [letter.error for letter in queue.dead_letters()] == ["bad 2"]


def test_selection_is_purged_and_gone_letters_are_counted(site: Site, queue: ackwise.Connection) -> None:
    kill(queue, "orders", "billing", "bad 1", "bad 2", "bad 3")
    ids = [letter.id for letter in queue.dead_letters()]
    queue.purge_dead([ids[0]])
    text = finished(site, site.post("/dead-letters/actions/purge", {"ids": " ".join(ids[:2])})).text
    assert "Purged 1" in text
    assert "Gone before 1" in text
    assert [letter.id for letter in queue.dead_letters()] == ids[2:]


def test_refused_letters_of_deleted_group_can_be_replayed(site: Site, queue: ackwise.Connection) -> None:
    kill(queue, "orders", "gone", "bad 1", "bad 2")
    kill(queue, "orders", "here", "bad 3", "bad 4")
    queue.delete_group("orders", "gone")
    shown = finished(site, site.post("/dead-letters/actions/redrive", {"queue": "orders"}))
    assert "Redriven 2" in shown.text
    assert "Refused: redrive refused 2" in shown.text
    assert "Replay 2 as new messages" in shown.text
    link = shown.source.split('<a class="button primary" href="')[1].split('"')[0].removeprefix("/dashboard")
    asked = site.get(link)
    assert "Replay 2 dead letters?" in asked.text
    before = len(queue.browse("orders", limit=1000))
    text = finished(site, site.post("/dead-letters/actions/replay", {"ids": asked.values("ids")[0]})).text
    assert "Replayed 2" in text
    assert len(queue.browse("orders", limit=1000)) == before + 2
    assert queue.dead_letters().total == 0


def test_replay_by_filter_pushes_the_oldest_first(
    site: Site, queue: ackwise.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_jobs, "CHUNK", 2)
    monkeypatch.setattr(dead_letter_jobs, "PAGE", 2)
    for number in range(5):
        kill(queue, "orders", "billing", f"bad {number}", payload=number)
    finished(site, site.post("/dead-letters/actions/replay", {"queue": "orders"}))
    assert [delivery.payload for delivery in queue.claim("orders", group="billing", max=10)] == [
        b"0",
        b"1",
        b"2",
        b"3",
        b"4",
    ]


def test_replay_of_too_many_letters_is_refused_with_the_number(
    site: Site, queue: ackwise.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_jobs, "MOST_REPLAYED", 2)
    kill(queue, "orders", "billing", "bad 1", "bad 2", "bad 3")
    shown = site.post("/dead-letters/actions/replay", {"queue": "orders"})
    assert shown.status == 400
    assert "3 match" in shown.text
    assert queue.dead_letters().total == 3


def test_number_of_running_jobs_is_bounded(
    site: Site, queue: ackwise.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_jobs, "MOST_RUNNING", 0)
    kill(queue, "orders", "billing", "bad 1")
    shown = site.post("/dead-letters/actions/redrive", {"queue": "orders"})
    assert shown.status in (429, 503)
    assert "jobs of dead letters run already" in shown.text
    assert queue.dead_letters().total == 1


def test_stopped_job_leaves_the_other_letters(
    site: Site, server: Running, queue: ackwise.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_jobs, "CHUNK", 1)
    kill(queue, "orders", "billing", *(f"bad {number}" for number in range(6)))
    jobs = server.server.runtime.dashboard.jobs
    real = dead_letter_jobs._apply

    async def stopping(*call: object) -> object:
        jobs.newest(1)[0].stopped = True
        return await real(*call)  # type: ignore[arg-type]

    monkeypatch.setattr(dead_letter_jobs, "_apply", stopping)
    text = finished(site, site.post("/dead-letters/actions/redrive", {"queue": "orders"})).text
    assert "stopped" in text
    assert "1 of 6" in text
    assert queue.dead_letters().total == 5
    assert site.get("/dead-letters/jobs/unknown").status == 404


def test_finished_jobs_are_kept_up_to_a_bound(
    site: Site, queue: ackwise.Connection, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_jobs, "MOST_KEPT", 2)
    for number in range(4):
        kill(queue, "orders", "billing", f"bad {number}")
        finished(site, site.post("/dead-letters/actions/redrive", {"queue": "orders"}))
    assert len(server.server.runtime.dashboard.jobs.newest(10)) <= 3


def test_two_jobs_on_the_same_letters_redrive_each_once(site: Site, queue: ackwise.Connection) -> None:
    kill(queue, "orders", "billing", *(f"bad {number}" for number in range(40)))
    pages = [site.post("/dead-letters/actions/redrive", {"queue": "orders"}) for _ in range(2)]
    texts = [finished(site, shown).text for shown in pages if "/jobs/" in shown.url]
    redriven = sum(int(text.split("Redriven ")[1].split()[0]) for text in texts)
    assert redriven == 40
    assert len(queue.claim("orders", group="billing", max=100)) == 40
