"""Budgets of statements: each limit, what it leaves behind, and matching beside the writer."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from ackwise.broker import metered_reads
from ackwise.clock import ManualClock
from ackwise.core.errors import BadInput, Overloaded
from ackwise.core.queries import Query
from ackwise.engine.statement_limits import LowerLimits, StatementLimits
from ackwise.engine.statement_meter import Cancelled
from ackwise.graph.commands import AskGraph, FindGraph, RunGraph
from ackwise.graph.engine import change_tracker, early_matches, watch_budget
from ackwise.graph.engine import step_runs as running
from ackwise.graph.errors import statement_limit
from ackwise.mew import AsyncSession, MewError, Session
from ackwise.wire.http_status import status_of
from tests.mew.prompt import Prompt
from tests.patience import PATIENCE
from tests.server.running import Running

GRAPH = 'node T { n: Int = 0, s: String = "abc" } node U { n: Int = 0 } edge e(t: T, u: U) '
FOR_EVER = "MATCH a: T, b: T, c: T, d: T, f: T, g: T, h: T, i: T RETURN COUNT(a)"
"""A count that takes minutes."""
NODES = 16


def fill(session: Session, nodes: int) -> None:
    for begin in range(0, nodes, 250):
        session.run(", ".join(["SPAWN t: T"] * min(250, nodes - begin)))


@pytest.fixture
def few(session: Session) -> Session:
    """A few nodes of one type."""
    session.run(GRAPH)
    fill(session, NODES)
    return session


def limited(few: Session, **limits: float) -> Session:
    """Another session on the same store, with lower limits."""
    few._limits = limits
    return few.another()


def refused(session: Session, text: str, limit: str, value: float) -> None:
    with pytest.raises(MewError) as caught:
        session.run(text)
    assert (caught.value.word, caught.value.name) == ("statement_limit", "STATEMENT_LIMIT")
    assert f"(limit {limit}: {value})" in caught.value.message


def numbers(session: Session) -> list[int]:
    return sorted(row["t.n"] for row in session.query("MATCH t: T RETURN t.n"))


# limits


ABOVE: list[tuple[str, str, float]] = [
    ("MATCH t: T RETURN t.n", "rows", NODES - 1),
    ("MATCH t: T RETURN SUM(t.n)", "rows", NODES - 1),
    ("MATCH a: T, b: T RETURN COUNT(a.n)", "rows", NODES**2 - 1),
    ("MATCH t: T RETURN t", "bytes", 500),
    ('MATCH t: T WHERE t.n = 0 RETURN replace(t.s, "a", "' + "x" * 1000 + '") AS long', "bytes", 8_000),
    (FOR_EVER, "seconds", 0.2),
    ("MATCH a: T, b: T, c: T, d: T SET a.n = 1", "rows", 2000),
    ("MATCH t: T SET t.n = 1", "changes", NODES - 1),
    ("MATCH t: T KILL t", "changes", NODES - 1),
    ("SPAWN a: T, SPAWN b: T, SPAWN c: T", "changes", 2),
]


def test_statement_above_a_limit_changes_nothing(few: Session) -> None:
    for text, limit, value in ABOVE:
        refused(limited(few, **{limit: value}), text, limit, value)
    assert numbers(few) == [0] * NODES


def test_statement_at_its_limits_works(few: Session) -> None:
    exact = limited(few, rows=NODES, changes=NODES)
    assert exact.run("MATCH t: T SET t.n = 1")[-1].done.modified == NODES
    assert len(exact.query("MATCH t: T RETURN t.n")) == NODES
    # An entity that changes twice counts once.
    assert exact.run("MATCH t: T SET t.n = 2 SET t.n = 3")[-1].done.modified == 2 * NODES


def test_call_lowers_limits_but_never_raises_them() -> None:
    limits = StatementLimits(rows=10)
    assert limits.lowered(LowerLimits(rows=5, seconds=100)) == StatementLimits(rows=5)
    assert limits.lowered(LowerLimits(rows=50)) == limits
    for wrong in (LowerLimits(rows=0), LowerLimits(seconds=-1), LowerLimits(bytes=0)):
        with pytest.raises(BadInput, match="above 0"):
            limits.lowered(wrong)
    with pytest.raises(BadInput, match="limits"):
        Session("sqlite:///nowhere.db", limits={"colour": 1})


def test_change_of_more_than_10000_entities_is_refused(lite: Prompt) -> None:
    lite.ok(GRAPH)
    fill(lite.session, 10_001)
    refused(lite.session, "MATCH t: T SET t.n = 1", "changes", 10_000)
    assert lite.rows("MATCH t: T WHERE t.n = 1 RETURN COUNT(t)") == [[0]]
    lite.refused("MATCH a: T, b: T RETURN a.n", "statement_limit", "(limit rows: 100000)")


def test_string_that_grows_without_bound_is_refused(lite: Prompt) -> None:
    lite.ok(GRAPH + "SPAWN t: T")
    grown = '"aaaaaaaaaa"'
    for _ in range(9):
        grown = f'replace({grown}, "a", "aaaaaaaaaa")'
    lite.refused(f"MATCH t: T RETURN {grown}", "statement_limit", "16777216")
    lite.refused("MATCH t: T RETURN $s ++ $s", "statement_limit", "16777216", s="a" * (9 << 20))


def test_writer_is_held_for_a_moment_only(few: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "WRITER_SECONDS", 0.0)
    refused(few, "MATCH t: T SET t.n = 1", "writer", 0.0)
    refused(few, "BEGIN SPAWN t: T COMMIT", "writer", 0.0)
    monkeypatch.undo()
    few.run("ROLLBACK")
    assert numbers(few) == [0] * NODES


def test_watch_of_a_large_join_is_within_the_limits(few: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch has a budget of its own within a statement. The statement succeeds, and the watch is cancelled."""
    monkeypatch.setattr(watch_budget, "LOOK_SECONDS", PATIENCE)  # PostgreSQL counts wall time: a busy machine is slow
    other = limited(few, rows=20)
    few.run("w = WATCH a: T, b: T [initial: none] RETURN a.n")
    few.run("small = WATCH a: T, b: U [initial: none] RETURN a.n")
    other.run("SPAWN t: T")
    assert len(few.fetch(1000)) == 2 * NODES + 1
    monkeypatch.setattr(watch_budget, "LOOK_ROWS", 10)
    other.run("SPAWN t: T")
    assert len(numbers(few)) == NODES + 2
    assert [line.as_object()["code"] for line in few.fetch(1000)] == ["statement_limit"]
    with pytest.raises(MewError) as caught:
        few.run("PAUSE WATCH #w")
    assert caught.value.word == "E8002"
    few.run("PAUSE WATCH #small")


@pytest.mark.parametrize(
    ("budgets", "code"),
    [
        ({"LOOK_SECONDS": 0.0}, "statement_limit"),
        ({"ALL_SECONDS": 0.0, "SLOW": 0.0}, "statement_limit"),
        ({"ALL_SECONDS": 0.0, "SLOW": 60.0}, None),  # the statement changes much, and no look is slow
    ],
    ids=range(3),
)
def test_slow_watch_is_cancelled_at_its_second_time(
    few: Session, monkeypatch: pytest.MonkeyPatch, budgets: dict[str, float], code: str | None
) -> None:
    for name, value in budgets.items():
        monkeypatch.setattr(watch_budget, name, value)
    few.run("w = WATCH a: T, b: T [initial: none] RETURN a.n")
    few.another().run("SPAWN t: T")
    assert few.fetch(1000)[-1].as_object().get("code") == code


@pytest.mark.parametrize("text", ["NACK $id [no_retry]", "BEGIN SPAWN u: U NACK $id [no_retry] COMMIT"], ids=range(2))
def test_burial_with_a_large_watch_happens_once(prompt: Prompt, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The first attempt ends within a savepoint of its own. All of it is undone, and not only this savepoint."""
    prompt.ok(GRAPH + ", ".join(["SPAWN t: T"] * NODES))
    prompt.ok("w = WATCH a: T, b: T [initial: none] RETURN a.n")
    prompt.ok("c = WATCH t: T [mode: consume] RETURN t.n")
    delivery = prompt.consumed[0]["delivery_id"]
    monkeypatch.setattr(watch_budget, "LOOK_ROWS", 3)
    prompt.ok(text, id=delivery)
    assert [line["code"] for line in prompt.notices] == ["statement_limit"]
    assert prompt.rows("MATCH d: _DeadLetter RETURN COUNT(d)") == [[1]]
    assert prompt.rows("MATCH t: T RETURN COUNT(t)") == [[NODES - 1]]
    assert prompt.rows("MATCH u: U RETURN COUNT(u)") == [["BEGIN" in text]]


def test_consumers_of_a_large_join_stay(prompt: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements leave a pool that is too large out, and mark it to be scanned again."""
    prompt.ok(GRAPH + "SPAWN u: U")
    prompt.ok("c = WATCH t: T, e(t, u) [mode: consume] RETURN t.n")
    monkeypatch.setattr(watch_budget, "LOOK_SECONDS", 0.0)
    prompt.ok("SPAWN t: T { n = 7 } LINK e(#t, #u)")
    monkeypatch.undo()
    assert [event["match"] for event in prompt.consumed] == [{"t.n": 7}]


def test_watch_too_large_for_an_expiry_is_cancelled(
    prompt: Prompt, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An expiry cannot fail. The broker scans the consumer's pool, which is also a join, again."""
    prompt.ok(GRAPH + "SPAWN t: T SPAWN u: U LINK e(#t, #u)")
    prompt.ok("w = WATCH a: T, b: T [initial: none] RETURN a.n")
    prompt.ok("c = WATCH t: T, e(t, u) [mode: consume, max_redeliveries: 1, ack_timeout: 10s] RETURN t.n")
    assert len(prompt.consumed) == 1
    monkeypatch.setattr(change_tracker, "WRITER_SECONDS", 0.0)
    lines = prompt.advance(11)
    monkeypatch.undo()
    assert [line["code"] for line in lines if line.get("watch") == "#w"] == ["statement_limit"]
    assert prompt.rows("MATCH t: T RETURN COUNT(t)") == [[0]]
    prompt.refused("PAUSE WATCH #w", "E8002")
    prompt.ok("SPAWN t: T LINK e(#t, #u)")
    assert len(prompt.consumed) == 1


def test_transaction_matches_within_the_turn(few: Session) -> None:
    other = limited(few, rows=2000)
    with pytest.raises(MewError) as caught:
        other.run("BEGIN SPAWN t: T MATCH a: T, b: T, c: T SET a.n = 1 COMMIT")
    assert caught.value.word == "statement_limit"
    other.run("ROLLBACK")
    assert numbers(few) == [0] * NODES
    other.run("BEGIN SPAWN t: T MATCH a: T SET a.n = 1 COMMIT")
    assert numbers(few) == [1] * (NODES + 1)


# matching beside the writer


@pytest.fixture
def beside(few: Session, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Every pattern with more than one match goes to a reader."""
    monkeypatch.setattr(early_matches, "TURN_ROWS", 1)
    return few


def meddle(session: Session, between: list[Callable[[], object]]) -> list[Query]:
    """Calls the next of `between` after each search of a reader, before the turn sees the matches."""
    opened: Any = session._opened()
    ask = opened.broker.ask
    asked: list[Query] = []

    def meddling(query: Query) -> Any:
        answer = ask(query)
        if isinstance(query, FindGraph):
            asked.append(query)
            if between:
                between.pop(0)()
        return answer

    opened.broker.ask = meddling
    return asked


def test_write_matched_by_a_reader_changes_all(beside: Session) -> None:
    asked = meddle(beside, [])
    for number, text in enumerate(
        (
            "MATCH t: T SET t.n = t.n + 1",
            "SET { MATCH t: T RETURN t } { n = 2 }",
            "MATCH t: T WHERE not exists(e(t, u)) SET t.n = 3",
            "MATCH t: T, x: T WHERE x.id = t.id SET x.n = 4",
        )
    ):
        assert beside.run(text)[-1].done.modified == NODES
        assert len(asked) == number + 1
        assert numbers(beside) == [number + 1] * NODES
    asked.clear()
    beside.run("SPAWN u: U")
    for text in ("MATCH t: T LINK e(t, #u)", "UNLINK { MATCH e(t, u) AS x RETURN x }", "MATCH t: T LINK e(t, #u)"):
        beside.run(text)
    beside.run("KILL { MATCH e(t, u) RETURN t }")
    assert len(asked) == 4
    assert beside.query("MATCH t: T RETURN COUNT(t) AS n") == [{"n": 0}]


def test_small_match_stays_within_the_turn(few: Session) -> None:
    asked = meddle(few, [])
    few.run('MATCH t: T SET t.s = "x"')
    assert asked == []


def test_entities_changed_meanwhile_are_matched_again(beside: Session) -> None:
    """The turn notices changes of matched entities, and of entities that exists() looks at."""
    ids = [row["t.id"] for row in beside.query("MATCH t: T RETURN t.id")]
    other = beside.another()
    changes = ("SET #t.n = 7", "KILL #t", "SPAWN u: U LINK e(#t, #u)", "node Another {}")
    between: list[Callable[[], object]] = []
    asked = meddle(beside, between)
    for number, change in enumerate(changes):
        text = change.replace("#t", f'#"{ids[number]}"')
        between.append(partial(other.run, text))
        beside.run(f"MATCH t: T WHERE t.n < 5 and not exists(e(t, u)) SET t.n = {number}")
        assert len(asked) == 2 * (number + 1)
    assert numbers(beside) == sorted([7, 1, *[3] * (NODES - 3)])


def test_entities_changed_twice_are_a_conflict(beside: Session) -> None:
    found = beside.query("INSPECT #t RETURN id")[0]["id"]
    other = beside.another()

    def change() -> None:
        other.run(f'SET #"{found}" {{ s = "changed" }}')

    meddle(beside, [change, change])
    with pytest.raises(MewError) as caught:
        beside.run("MATCH t: T SET t.n = 1")
    assert (caught.value.word, caught.value.name) == ("conflict", "CONFLICT")
    assert numbers(beside) == [0] * NODES
    beside.run("MATCH t: T SET t.n = 1")
    assert numbers(beside) == [1] * NODES


def test_match_that_appears_meanwhile_is_left_out(beside: Session) -> None:
    """The statement sees the graph as its reader saw it: decision 8."""
    other = beside.another()
    asked = meddle(beside, [lambda: other.run("SPAWN t: T { n = -5 }")])
    beside.run("MATCH t: T SET t.n = 1")
    assert len(asked) == 1
    assert numbers(beside) == [-5, *[1] * NODES]


# overload


@contextmanager
def overloaded(session: Session, kind: type[object]) -> Iterator[None]:
    """The broker takes no such command or query."""
    desk: Any = session._opened()
    broker = desk.broker
    ask, send = broker.ask, broker.send

    def refuse(wish: Any, take: Callable[[Any], Any]) -> Any:
        if isinstance(wish, kind):
            raise Overloaded("too much waits")
        return take(wish)

    broker.ask, broker.send = partial(refuse, take=ask), partial(refuse, take=send)
    try:
        yield
    finally:
        broker.ask, broker.send = ask, send


def test_overload_after_a_statement_is_an_error_line(few: Session) -> None:
    """A refused call would be sent again, and its first statement would run twice."""
    with overloaded(few, AskGraph):
        with pytest.raises(Overloaded):
            few.run("MATCH t: T RETURN t")
        with pytest.raises(MewError) as caught:
            few.run("SPAWN t: T; MATCH t: T RETURN t")
    assert caught.value.word == "overloaded"
    assert len(numbers(few)) == NODES + 1


def test_commit_refused_by_overload_may_be_repeated(few: Session) -> None:
    few.run("BEGIN SPAWN t: T")
    with overloaded(few, RunGraph), pytest.raises(Overloaded):
        few.run("COMMIT")
    few.run("COMMIT")
    assert len(numbers(few)) == NODES + 1


# callers that leave


def watch_ends(store: Any) -> tuple[threading.Event, threading.Event, list[BaseException]]:
    """Tells when a long query of the store begins, when it ends, and how."""
    begun, ended, problems = threading.Event(), threading.Event(), []
    ask = store.ask

    def noted(query: Query, meter: Any = None, *, long: bool = False) -> Any:
        if not long:
            return ask(query, meter, long=long)
        begun.set()
        try:
            return ask(query, meter, long=long)
        except BaseException as problem:
            problems.append(problem)
            raise
        finally:
            ended.set()

    store.ask = noted
    return begun, ended, problems


@pytest.mark.parametrize(
    "text", [FOR_EVER, FOR_EVER.replace("RETURN COUNT(a)", "WHERE a.n + b.n + c.n + d.n > 5 SET a.n = 1")], ids=range(2)
)
def test_cancelled_caller_stops_its_statement(graph_url: str, text: str) -> None:
    async def scene() -> list[BaseException]:
        async with AsyncSession(graph_url) as session:
            await session.run(GRAPH + ", ".join(["SPAWN t: T"] * NODES))
            opened: Any = await session._opened()
            begun, ended, problems = watch_ends(opened.broker.store)
            task = asyncio.create_task(session.run(text))
            await asyncio.to_thread(begun.wait, 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(ended.wait, 30)
            await session.run("SPAWN t: T")
            return problems

    problems = asyncio.run(scene())
    assert [type(problem) for problem in problems] == [Cancelled]


@pytest.fixture
def server(graph_url: str, clock: ManualClock) -> Iterator[Running]:
    with Running(graph_url, clock, statement=StatementLimits(rows=50, seconds=300)) as running:
        with Session(running.url) as session:
            session.run(GRAPH + ", ".join(["SPAWN t: T"] * NODES))
        yield running


def test_client_that_hangs_up_stops_its_statement(server: Running) -> None:
    begun, ended, problems = watch_ends(server.server.runtime.broker().store)
    body = msgspec.json.encode({"text": FOR_EVER})
    with socket.create_connection(server.address) as sock:
        sock.sendall(b"POST /mew HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        assert begun.wait(PATIENCE)
    assert ended.wait(PATIENCE)
    assert [type(problem) for problem in problems] == [Cancelled]


@pytest.fixture
def two_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metered_reads, "MOST_WAITING", 2)


@pytest.mark.usefixtures("two_places")
def test_long_statement_of_a_caller_leaves_places_to_others(server: Running) -> None:
    begun, ended, _ = watch_ends(server.server.runtime.broker().store)
    body = msgspec.json.encode({"text": FOR_EVER})
    other = httpx2.HTTPTransport(local_address="127.0.0.2")
    with (
        socket.create_connection(server.address) as sock,
        httpx2.Client(base_url=server.url, timeout=PATIENCE) as same,
        httpx2.Client(base_url=server.url, timeout=PATIENCE, transport=other) as another,
    ):
        sock.sendall(b"POST /mew HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        assert begun.wait(PATIENCE)
        asked = {"text": FOR_EVER, "limits": {"seconds": 0.2}}
        refused = same.post("/mew", json=asked)
        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        assert "1 of your long statements" in refused.json()["error"]
        assert another.post("/mew", json=asked).json()["lines"][-1]["code"] == "statement_limit"
    assert ended.wait(PATIENCE)


def in_background(client: httpx2.Client, text: str) -> Future[httpx2.Response]:
    """The answer to a statement, asked in a thread."""
    answer: Future[httpx2.Response] = Future()
    threading.Thread(target=lambda: answer.set_result(client.post("/mew", json={"text": text}))).start()
    return answer


@pytest.mark.parametrize("share", [0.5, 1])
def test_addresses_take_turns_with_long_statements(tmp_path: Path, share: float) -> None:
    """With any share the address counts: a call without a session is not a new caller."""
    limits = StatementLimits(seconds=0.3)
    with Running(f"sqlite:///{tmp_path}/turns.db", peer_share=share, statement=limits) as running, ExitStack() as stack:
        clients = {
            host: stack.enter_context(
                httpx2.Client(
                    base_url=running.url, timeout=PATIENCE, transport=httpx2.HTTPTransport(local_address=host)
                )
            )
            for host in ("127.0.0.2", "127.0.0.3")
        }
        broker: Any = running.server.runtime.broker()
        callers: list[str] = []
        go_on = threading.Event()
        ask = broker.store.ask

        def held(query: Any, meter: Any = None, *, long: bool = False) -> Any:
            if long:
                callers.append(query.caller)
                assert go_on.wait(PATIENCE)
            return ask(query, meter, long=long)

        def until(count: int) -> None:
            end = time.monotonic() + PATIENCE
            while len(callers) + len(broker._queries._long_turns) < count:
                assert time.monotonic() < end
                time.sleep(0.005)

        clients["127.0.0.2"].post("/mew", json={"text": GRAPH + ", ".join(["SPAWN t: T"] * 40)})
        broker.store.ask = held
        text = "MATCH a: T, b: T, c: T, d: T WHERE a.n + b.n + c.n + d.n = 1 RETURN COUNT(a)"
        answers = [in_background(clients["127.0.0.2"], text) for _ in range(5)]
        until(5)
        answers.append(in_background(clients["127.0.0.3"], text))
        until(6)
        go_on.set()
        assert {answer.result(PATIENCE).json()["lines"][0]["code"] for answer in answers} == {"statement_limit"}
        assert callers[:2] == ["127.0.0.2"] * 2
        assert callers[2] == "127.0.0.3"


def test_server_says_its_limits_and_a_call_lowers_them(server: Running) -> None:
    with httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:

        def code(limits: dict[str, float] | None, text: str = "MATCH t: T RETURN t.n") -> str:
            line = http.post("/mew", json={"text": text, "limits": limits}).raise_for_status().json()["lines"][0]
            assert line.get("code") in (None, "statement_limit")
            return str(line.get("message"))

        assert code(None) == "None"
        assert "(limit rows: 15)" in code({"rows": 15})
        assert "(limit rows: 50)" in code({"rows": 1000}, "MATCH a: T, b: T RETURN a.n")
        assert http.post("/mew", json={"text": "TICK", "limits": {"rows": 0}}).status_code == 400
        assert http.post("/mew", json={"text": "TICK", "limits": {"rose": 1}}).status_code == 400
    with Session(server.url, limits={"rows": 3}) as session:
        refused(session, "MATCH t: T RETURN t.n", "rows", 3)


def test_statement_limit_is_422_on_native_routes() -> None:
    assert status_of(statement_limit("rows", 1)) == 422
