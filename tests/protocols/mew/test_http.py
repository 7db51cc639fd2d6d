"""`POST /mew` and the stream of events, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from ackwise.clock import ManualClock
from ackwise.core.commands import Sweep
from ackwise.core.errors import BadInput
from ackwise.mew import AsyncSession, Event, MewError, Session
from ackwise.mew.formatter import format_line
from ackwise.mew.repl import Completer
from ackwise.protocols.mew import http as mew_http
from ackwise.protocols.mew.output_records import Line
from tests.patience import PATIENCE
from tests.server.process import ServerProcess
from tests.server.running import Running

JOBS = "node Job { title: String, size: Int = 1 } "
CONSUME = 'w = WATCH j: Job [mode: consume, group: "g"] RETURN j'


@pytest.fixture
def server(graph_url: str, clock: ManualClock) -> Iterator[Running]:
    with Running(graph_url, clock) as running:
        yield running


@pytest.fixture
def http(server: Running) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=PATIENCE) as client:
        yield client


def post(http: httpx2.Client, text: str, session: str | None = None, **more: Any) -> dict[str, Any]:
    answer = http.post("/mew", json={"text": text, "session": session, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@contextlib.contextmanager
def stream(server: Running, session: str) -> Iterator[ClientConnection]:
    with connect(f"ws{server.url.removeprefix('http')}/mew/events?session={session}") as socket:
        yield socket


def break_off(socket: ClientConnection) -> None:
    """The connection ends without a goodbye."""
    socket.socket.shutdown(SHUT_RDWR)


def read(socket: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(socket.recv(timeout=PATIENCE))
    return found


def test_text_is_answered_line_by_line(http: httpx2.Client) -> None:
    first = post(http, JOBS + "SPAWN a: Job { title = $title }", params={"title": "A"})
    assert [line["statement"] for line in first["lines"]] == ["NODE", "SPAWN"]
    assert first["lines"][1] == {
        "kind": "result", "n": 2, "line": 1, "statement": "SPAWN", "created": 1, "linked": 0, "modified": 0,
        "deleted": 0, "unlinked": 0, "bindings": {"a": first["lines"][1]["bindings"]["a"]}, "columns": [], "rows": [],
        "handle": None,
    }  # fmt: skip
    session = first["session"]
    again = post(http, "INSPECT #a", session)
    assert again["lines"][0]["found"] is True
    watch = post(http, CONSUME, session)["lines"]
    assert [line["kind"] for line in watch] == ["result", "event", "event"]
    assert watch[2]["type"] == "consumed"
    acked = post(http, "ACK $delivery_id", session)["lines"][0]
    assert (acked["outcome"], acked["delivery_id"]) == ("acked", watch[2]["delivery_id"])


def test_error_is_a_line(http: httpx2.Client) -> None:
    answer = post(http, JOBS + "\nACK\n")
    assert [line["kind"] for line in answer["lines"]] == ["result", "error"]
    assert (answer["lines"][1]["code"], answer["lines"][1]["line"]) == ("parse_error", 2)
    assert answer["fine"] is False


@pytest.mark.parametrize("body", [b"{", b'{"text": 1}', b'{"colour": "red"}', b'{"events": -1}', b'{"wait": 1e9}'])
def test_bad_body_is_refused(http: httpx2.Client, body: bytes) -> None:
    answer = http.post("/mew", content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_input")


def test_poll_waits_for_its_event(http: httpx2.Client, server: Running) -> None:
    session = post(http, JOBS + CONSUME)["session"]
    with Session(server.url) as producer:
        producer.run('SPAWN a: Job { title = "A" }')
    lines = post(http, "", session, wait=20)["lines"]
    assert [line["match"]["title"] for line in lines] == ["A"]


def test_events_come_through_the_socket(server: Running, http: httpx2.Client) -> None:
    session = post(http, JOBS)["session"]
    with stream(server, session) as socket:
        assert [line["kind"] for line in post(http, CONSUME, session)["lines"]] == ["result"]
        assert read(socket) == {"kind": "event", "watch": "#w", "type": "initial", "matches": [], "tick": 2}
        post(http, 'SPAWN a: Job { title = "A" }', session)
        event = read(socket)
        assert (event["type"], event["match"]["title"], event["attempt"]) == ("consumed", "A", 1)
        post(http, "NACK $delivery_id", session)
        assert read(socket)["attempt"] == 2


def test_closed_socket_releases_and_a_broken_one_counts(server: Running, http: httpx2.Client) -> None:
    post(http, JOBS + 'SPAWN a: Job { title = "A" }')
    attempts = []
    for number in range(3):
        session = post(http, CONSUME, f"life_{number}", events=0)["session"]
        with stream(server, session) as socket:
            assert read(socket)["type"] == "initial"
            event = read(socket)
            attempts.append(event["attempt"])
            if number:
                break_off(socket)
        until_ended(http, event["delivery_id"])
    assert attempts == [1, 2, 3]
    watcher = post(http, CONSUME, "last")["lines"]
    assert watcher[-1]["attempt"] == 4
    # Two lost connections are two failures, the clean end was none: the next one is the third and final.
    dead = post(http, "NACK $delivery_id", "last")["lines"][0]
    assert (dead["outcome"], dead["reason"], dead["attempts"]) == ("deleted", "max_redeliveries_exceeded", 4)


def until_ended(http: httpx2.Client, delivery_id: str) -> None:
    """Until the server has noticed that the socket is gone."""
    for _ in range(2000):
        rows = post(http, "MATCH w: _Watch RETURN w.status", "onlooker")["lines"][0]["rows"]
        if all(row == ["cancelled"] for row in rows):
            return
    raise AssertionError(f"{delivery_id} is still held")


def test_reliable_watch_survives_a_lost_connection(server: Running, http: httpx2.Client) -> None:
    session = post(http, JOBS)["session"]
    with stream(server, session) as socket:
        post(http, "r = WATCH j: Job [delivery: reliable] RETURN j.title b = WATCH j: Job RETURN j.title", session)
        assert [read(socket)["watch"], read(socket)["watch"]] == ["#r", "#b"]
        break_off(socket)
    for _ in range(2000):
        if post(http, 'MATCH w: _Watch WHERE w.status = "cancelled" RETURN w', "onlooker")["lines"][0]["rows"]:
            break
    post(http, 'SPAWN a: Job { title = "while away" }', "onlooker")
    with stream(server, session) as again:
        event = read(again)
        assert (event["watch"], event["type"], event["match"]) == ("#r", "added", {"j.title": "while away"})


def test_socket_without_a_session_is_refused(server: Running) -> None:
    events = "mew/events?session="
    for path in (
        *("elsewhere", "mew/events", events, events + "x" * 600, events + "a%00b"),
        *(f"{events}x&batch={odd}" for odd in ("0", "1001", "-1", "%C2%B2", "%D9%A1", "1" * 5000)),
    ):
        with pytest.raises(InvalidStatus, match="403"), connect(f"ws{server.url.removeprefix('http')}/{path}"):
            pass


def test_python_sessions_over_http(server: Running) -> None:
    with Session(server.url) as session:
        session.run(JOBS + 'SPAWN a: Job { title = "A" } SPAWN b: Job { title = "B" }')
        assert session.query("MATCH j: Job RETURN j.title") == [{"j.title": "A"}, {"j.title": "B"}]
        with pytest.raises(MewError, match="not found or already processed"):
            session.ack("nope")
        seen = []
        for event in session.watch(CONSUME, wait=0):
            if event.type == "consumed":
                assert event.match is not None
                seen.append(event.match["title"])
                session.ack(event)
        assert seen == ["A", "B"]
        assert session.query("MATCH j: Job RETURN COUNT(j) AS n") == [{"n": 0}]


def test_worker_may_reuse_name_of_its_watch(server: Running, graph_url: str) -> None:
    for url in (server.url, graph_url):
        with Session(url) as session:
            session.run(JOBS + "node Out { n: Int }" + 'SPAWN a: Job { title = "A" } SPAWN b: Job { title = "B" }')
            jobs = session.watch("WATCH j: Job [mode: consume] RETURN j.title AS job", wait=0)
            for event in jobs:
                if event.delivery_id is not None:
                    session.run("BEGIN SPAWN job: Out { n = 5 } ACK $id COMMIT", id=event.delivery_id)
            assert (jobs.handle, session.query("MATCH o: Out RETURN COUNT(o) AS n")) == ("#job", [{"n": 2}])
            jobs.cancel()
            session.run("MATCH o: Out KILL o")
            assert session.query('MATCH w: _Watch WHERE w.status = "active" RETURN w.id') == []


def test_async_session_consumes_embedded_and_over_http(server: Running, graph_url: str, clock: ManualClock) -> None:
    async def consume(url: str) -> list[str]:
        seen: list[str] = []
        async with AsyncSession(url) as session:
            await session.run(JOBS + 'SPAWN a: Job { title = "A" } SPAWN b: Job { title = "B" }')
            async for event in session.watch("WATCH j: Job [mode: consume] RETURN j.title AS title", wait=0):
                if event.match is not None:
                    seen.append(event.match["title"])
                    await session.ack(event)
        return seen

    assert asyncio.run(consume(server.url)) == ["A", "B"]


def test_loop_ends_with_its_own_cancel_though_it_waits(server: Running, graph_url: str) -> None:
    async def follow(url: str) -> tuple[list[str], str]:
        seen: list[str] = []
        begun = asyncio.Event()
        async with AsyncSession(url) as session:
            await session.run(JOBS)
            watch = await session.watch("WATCH j: Job RETURN j").start()

            async def loop() -> None:
                async for event in watch:
                    seen.append(event.type)
                    begun.set()

            following = asyncio.create_task(loop())
            await begun.wait()
            await session.query("MATCH j: Job RETURN j")  # meanwhile the loop waits again
            await watch.cancel()
            await asyncio.wait_for(following, PATIENCE)
            other = session.watch("WATCH j: Job RETURN j", wait=20)
            await anext(other)
            waits = asyncio.ensure_future(anext(other))
            await session.run(f"CANCEL WATCH {other.handle}")
            with pytest.raises(MewError) as cancelled:
                await waits
        return seen, cancelled.value.word

    for url in (server.url, graph_url):
        assert asyncio.run(follow(url)) == (["initial"], "E8002")


def test_hung_up_poll_gives_back_what_it_was_handed(server: Running, http: httpx2.Client) -> None:
    session = post(http, JOBS + CONSUME)["session"]
    with httpx2.Client(base_url=server.url, timeout=0.2) as impatient, pytest.raises(httpx2.TimeoutException):
        impatient.post("/mew", json={"text": "", "session": session, "wait": 30})
    post(http, 'SPAWN a: Job { title = "A" }', "producer")
    line = post(http, "", session, wait=10)["lines"][0]
    post(http, "ACK $delivery_id", session)
    assert line["match"]["title"] == "A"


@pytest.mark.parametrize("way", ["drained", pytest.param("killed", marks=pytest.mark.long)])
def test_worker_continues_its_watch_after_server_restart(tmp_path: Path, way: str) -> None:
    url = f"sqlite:///{tmp_path}/graph.db"
    with ServerProcess(url) as first, Session(first.url) as worker:
        worker.run(JOBS + 'SPAWN a: Job { title = "A" } SPAWN b: Job { title = "B" }')
        jobs = worker.watch(CONSUME + " AS j", wait=10)
        assert next(jobs).type == "initial"
        held = next(jobs)
        worker.run("WATCH j: Job RETURN j.title")
        if way == "killed":
            first.kill()
        else:
            first.stop()
        with ServerProcess(url, "--port", str(first.port)):
            again = next(jobs)
            assert (held.match, again.match) == ({"j": {**of(held), "title": "A"}}, {"j": {**of(again), "title": "B"}})
            assert (again.watch, again.attempt) == ("#w", 1)
            for event in (held, again):
                assert worker.ack(event).done.deleted == 1
            assert worker.query("MATCH w: _Watch WHERE w.id = #w RETURN w.status") == [{"w.status": "active"}]
            assert worker.run("WATCH j: Job RETURN j.title")[-1].handle == "#watch_2"
            jobs.cancel()
            assert list(jobs) == []


def test_session_with_a_socket_stands_when_the_server_drains(graph_url: str, clock: ManualClock) -> None:
    with contextlib.ExitStack() as stack:
        with Running(graph_url, clock) as first, httpx2.Client(base_url=first.url, timeout=PATIENCE) as http:
            session = post(http, JOBS + 'SPAWN a: Job { title = "A" } ' + CONSUME, events=0)["session"]
            socket = stack.enter_context(stream(first, session))
            assert read(socket)["type"] == "initial"
            held = read(socket)
        with pytest.raises(ConnectionClosed) as closed:
            read(socket)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
    with Running(graph_url, clock) as again, httpx2.Client(base_url=again.url, timeout=PATIENCE) as http:
        assert post(http, "MATCH w: _Watch RETURN w.status", session)["lines"][0]["rows"] == [["active"]]
        with stream(again, session) as socket:
            post(http, 'SPAWN b: Job { title = "B" }', session)
            event = read(socket)
            assert event["match"]["title"] == "B"
            for one in (held, event):
                assert post(http, "ACK $id", session, params={"id": one["delivery_id"]})["fine"]


def of(event: Event) -> dict[str, Any]:
    assert event.match is not None
    found: dict[str, Any] = event.match["j"]
    return found


def test_poll_of_unknown_watch_does_not_wait(server: Running, http: httpx2.Client) -> None:
    with Session(server.url) as session:
        session.run(JOBS)
        with pytest.raises(MewError, match="Watch handle '#nope' does not exist") as refused:
            session.events(watch="#nope", wait=30)
        assert (refused.value.word, refused.value.name) == ("E8002", "WATCH_NOT_FOUND")
        session.run(CONSUME)
        with pytest.raises(MewError, match="not owned by current session"), Session(server.url) as other:
            other.events(watch=session.query("MATCH w: _Watch RETURN w.id")[0]["w.id"])
    answer = http.post("/mew", json={"text": "", "session": "x", "watch": "#w", "wait": 30}).json()
    assert ([line["code"] for line in answer["lines"]], answer["fine"]) == (["E8002"], False)


def test_poll_that_waits_hears_that_its_watch_is_cancelled(server: Running, http: httpx2.Client) -> None:
    session = post(http, JOBS + CONSUME)["session"]
    with ThreadPoolExecutor() as pool, httpx2.Client(base_url=server.url, timeout=PATIENCE) as other:
        poll = pool.submit(post, other, "", session, watch="#w", wait=25)
        post(http, "CANCEL WATCH #w", session, events=0)
        assert [line["code"] for line in poll.result()["lines"]] == ["E8002"]


def test_http_session_left_by_error_counts_as_lost(server: Running) -> None:
    with Session(server.url) as owner:
        owner.run(JOBS + 'SPAWN a: Job { title = "A" }')
        for name in ("one", "an odd/name?"):
            with pytest.raises(ZeroDivisionError), Session(server.url, session=name) as worker:
                1 / len([event for event in worker.watch(CONSUME, wait=0) if event.type == "added"])
        assert owner.query("MATCH w: _Watch RETURN w.status") == [{"w.status": "cancelled"}] * 2
        event = next(event for event in owner.watch(CONSUME, wait=0) if event.delivery_id)
        assert (event.attempt, event.failures, event.limit) == (3, 2, 3)


def test_end_of_a_session_may_be_told_to_any_server(
    graph_url: str, clock: ManualClock, server: Running, http: httpx2.Client
) -> None:
    session = post(http, JOBS + 'SPAWN a: Job { title = "A" } ' + CONSUME)["session"]
    with Running(graph_url, clock) as other, httpx2.Client(base_url=other.url, timeout=PATIENCE) as elsewhere:
        assert elsewhere.delete(f"/mew/{session}").json() == {"session": session, "ended": True}
        assert elsewhere.delete(f"/mew/{session}").json() == {"session": session, "ended": False}
        assert elsewhere.delete(f"/mew/{session}?lost=perhaps").status_code == 400
    assert post(http, CONSUME, "next", full=True)["lines"][-1]["failures"] == 0


def test_session_may_go_to_another_server_and_back(
    graph_url: str, clock: ManualClock, server: Running, http: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mew_http, "TIDY_EVERY", 0.01)
    left = server.server.runtime.mew()
    status = "MATCH w: _Watch RETURN w.status"
    with Running(graph_url, clock) as other, httpx2.Client(base_url=other.url, timeout=PATIENCE) as elsewhere:
        held = post(http, JOBS + 'SPAWN a: Job { title = "A" } ' + CONSUME, "moves")["lines"][-1]
        post(elsewhere, "v = WATCH j: Job RETURN j.title", "moves")
        left._sessions["moves"].used_at -= 2 * mew_http.IDLE
        while "moves" in left._sessions:
            post(http, "MATCH j: Job RETURN j", "onlooker")
        assert post(elsewhere, status, "moves")["lines"][0]["rows"] == [["active"]] * 2
        assert post(elsewhere, "ACK $id", "moves", params={"id": held["delivery_id"]})["fine"]
        assert post(http, "PAUSE WATCH #v RESUME WATCH #v", "moves")["fine"]
        post(elsewhere, "x = WATCH j: Job RETURN j", "moves", events=0)
        assert post(http, "", "moves", watch="#x")["lines"][0]["type"] == "initial"
    clock.advance(100)
    sweep = server.server.runtime.broker().send(Sweep(duties=("graph",)))
    asyncio.run_coroutine_threadsafe(sweep, server._loop).result(PATIENCE)
    assert post(http, status, "moves")["lines"][0]["rows"] == [["active"]] * 3


def test_prompt_over_http_shows_the_lines_of_an_embedded_one(server: Running, tmp_path: Path) -> None:
    text = """SPAWN a: Job { title = "A" }
w = WATCH j: Job [mode: consume] RETURN j.title
NACK $delivery_id
SET #a.colour = 1
ACK $delivery_id
SPAWM b: Job"""
    shown: list[list[str]] = []
    for url in (server.url, f"sqlite:///{tmp_path}/here.db?durability=normal"):
        with Session(url) as session:
            session.run(JOBS)
            lines: list[Line] = []
            session.stream(text, lines.append, {}, keep_going=True, events=10)
            shown.append([re.sub(r"L\d+-\w+\.0\.\w+|job_\w+", "ID", format_line(line)) for line in lines])
            assert set(session.names) == {"a", "w"}
            assert session.query("MATCH w: _Watch WHERE w.id = $w RETURN w.id", w=session.names["w"])
            assert Completer(session).candidates("w") == ["WATCH", "WHERE", "w", "watch"]
    assert shown[0] == shown[1]
    assert any("attempt 2 of 3" in line for line in shown[0])
    assert sum(line.count("^") for line in shown[0]) == 2


def test_names_over_http_follow_transactions(server: Running) -> None:
    with Session(server.url) as session:
        session.run(JOBS + 'SPAWN a: Job { title = "A" }')
        before = dict(session.names)
        session.run('BEGIN SPAWN a: Job { title = "B" } SPAWN b: Job { title = "C" } ROLLBACK')
        assert session.names == before
        with pytest.raises(MewError):
            session.run('BEGIN SPAWN b: Job { title = "C" } SPAWN c: Nothing')
        assert session.names == before
        session.run("ROLLBACK")
        session.run('BEGIN SPAWN a: Job { title = "B" } COMMIT')
        assert session.query("MATCH j: Job WHERE j.id = $a RETURN j.title", a=session.names["a"]) == [{"j.title": "B"}]


def test_http_session_refuses_options_of_the_server() -> None:
    for option in ({"max_watches": 3}, {"blocked_for": 1.0}, {"clock": ManualClock()}):
        with pytest.raises(BadInput, match="a server has its own"):
            Session("http://127.0.0.1:1", **option)


def test_calls_without_a_session_do_not_fill_the_server(
    server: Running, http: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mew_http, "MOST_SESSIONS", 3)
    kept = post(http, JOBS + CONSUME)["session"]
    opened = post(http, 'BEGIN SPAWN a: Job { title = "A" }')["session"]
    for _ in range(5):
        post(http, "MATCH j: Job RETURN j")
        post(http, "WATCH j: Nothing RETURN j")
        post(http, "w = WATCH j: Job RETURN j CANCEL WATCH #w")
    assert post(http, "COMMIT", opened)["fine"]
    assert [line["match"]["title"] for line in post(http, "", kept, watch="#w")["lines"]] == ["A"]
    assert post(http, CONSUME, "third")["fine"]
    post(http, "BEGIN", opened)
    with pytest.raises(InvalidStatus, match="403"), stream(server, "fourth"):
        pass
    refused = http.post("/mew", json={"text": "MATCH j: Job RETURN j"})
    assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")


def test_poll_that_waits_is_answered_when_the_server_drains(graph_url: str, clock: ManualClock) -> None:
    with Running(graph_url, clock) as server, httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
        session = post(http, JOBS + CONSUME)["session"]
        with ThreadPoolExecutor() as pool:
            poll = pool.submit(post, http, "", session, wait=55)
            while not len(server.server.runtime.broker().listeners):
                assert not poll.done()
            server.server.runtime.broker().loop.call_soon_threadsafe(server.server.runtime.broker().stop_claims)
            assert poll.result(timeout=PATIENCE)["lines"] == []
