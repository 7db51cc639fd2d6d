"""Members of a consumer group take turns."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import httpx2
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ackwise.clock import ManualClock
from ackwise.graph.engine import member_turns
from ackwise.mew import Event, Session
from tests.mew.prompt import Prompt
from tests.patience import PATIENCE
from tests.server.running import Running

JOBS = "node Job { n: Int, size: Int = 1 } "
WATCH = '{} = WATCH j: Job [mode: consume, group: "g", max_redeliveries: 5{}] RETURN j.n'


@pytest.fixture
def jobs(prompt: Prompt) -> Prompt:
    prompt.ok(JOBS)
    return prompt


def join(jobs: Prompt, name: str = "w", options: str = "") -> Session:
    session = jobs.session.another()
    session.run(WATCH.format(name, options))
    assert [event.type for event in session.events()] == ["initial"]
    return session


def taken(session: Session, most: int = 100) -> list[int]:
    return [event.match["j.n"] for event in session.events(most) if event.match is not None]


@pytest.fixture
def members(jobs: Prompt) -> Iterator[list[Session]]:
    sessions = [join(jobs) for _ in range(3)]
    yield sessions
    for session in sessions:
        session.close()


def test_single_items_go_to_each_member_in_turn(jobs: Prompt, members: list[Session]) -> None:
    shares: Counter[int] = Counter()
    for n in range(9):
        jobs.session.run("SPAWN j: Job { n = $n }", n=n)
        for number, member in enumerate(members):  # always asked in the same order
            shares[number] += len(taken(member))
    assert shares == {0: 3, 1: 3, 2: 3}


def test_session_with_two_members_alternates(jobs: Prompt) -> None:
    jobs.ok(WATCH.format("a", "") + " " + WATCH.format("b", ""))
    seen = []
    for n in range(4):
        jobs.ok("SPAWN j: Job { n = $n }", n=n)
        seen += [event["watch"] for event in jobs.consumed]
    assert seen == ["#a", "#b", "#a", "#b"]


def test_member_that_does_not_come_delays_an_item_once(jobs: Prompt, members: list[Session]) -> None:
    first, second, _ = members
    jobs.session.run("SPAWN j: Job { n = 1 }")
    assert taken(second) == []  # the first member is waiting
    jobs.clock.advance(0.999)
    assert taken(second) == []
    jobs.clock.advance(0.001)
    assert taken(second) == [1]
    for member in members[1:]:
        taken(member)
    jobs.session.run("SPAWN j: Job { n = 2 }")
    assert taken(members[2]) == [2]  # the first member has missed its turn: no item is kept for it
    jobs.session.run("SPAWN j: Job { n = 3 }")
    assert taken(second) == [3]
    assert taken(first) == []


@pytest.mark.parametrize("how", ["CANCEL", "PAUSE"])
def test_member_that_leaves_frees_its_item(jobs: Prompt, members: list[Session], how: str) -> None:
    jobs.session.run("SPAWN j: Job { n = 1 }")
    assert taken(members[1]) == []
    members[0].run(f"{how} WATCH #w")
    assert taken(members[1]) == [1]


def test_member_that_stopped_asking_gets_no_item_kept(jobs: Prompt, members: list[Session]) -> None:
    jobs.clock.advance(10)
    jobs.session.run("SPAWN j: Job { n = 1 }")
    assert taken(members[2]) == [1]


def test_items_that_a_member_refuses_are_not_kept_for_it(jobs: Prompt) -> None:
    small = join(jobs, options=", filter: j.size < 5")
    full = join(jobs, options=", buffer: 1")
    large = join(jobs)
    jobs.session.run("SPAWN j: Job { n = 1, size = 9 }")
    assert [taken(small), taken(large), taken(full)] == [[], [], [1]]
    jobs.session.run("SPAWN j: Job { n = 2, size = 9 }")
    assert taken(large) == [2]  # the other has as many as its buffer allows
    for session in (small, full, large):
        session.close()


def test_items_are_shared_evenly_despite_large_fetches(jobs: Prompt, members: list[Session]) -> None:
    spawns = " ".join(f"SPAWN j{n}: Job {{ n = {n} }}" for n in range(12))
    jobs.session.run(f"BEGIN {spawns} COMMIT")
    assert taken(members[1], 1) == [1]
    assert taken(members[2], 100) == [2, 5, 8, 11]
    assert taken(members[1], 100) == [4, 7, 10]
    assert taken(members[0], 100) == [0, 3, 6, 9]


def test_kept_item_keeps_its_full_ack_timeout(jobs: Prompt, members: list[Session]) -> None:
    jobs.session.run("SPAWN j: Job { n = 1 }")
    assert taken(members[2]) == []  # keeps the item for the first member
    jobs.clock.advance(0.9)
    (delivery,) = members[0].events()
    jobs.clock.advance(29.999)
    assert members[0].ack(delivery).done.outcome == "acked"


class Group:
    """Members that ask in any order, for any number of items."""

    def __init__(self, session: Session, draw: Callable[[Any], Any], members: int) -> None:
        self._session, self._draw = session, draw
        session.run(JOBS)
        self._members = [session.another() for _ in range(members)]
        for member in self._members:
            member.run(WATCH.format("w", ""))
        self.shares = [0] * members

    def _ask(self, member: int, most: int) -> int:
        events = [event for event in self._members[member].events(most) if event.delivery_id is not None]
        self.shares[member] += len(events)
        for event in events:
            if self._draw(st.booleans()):
                self._members[member].ack(event)
        return len(events)

    def be_idle(self) -> None:
        """Every member asks until there is nothing for it."""
        while sum(self._ask(member, 100) for member in range(len(self._members))):
            pass

    def spawn(self, items: int) -> None:
        spawns = ["SPAWN j: Job { n = 1 }"] * items
        for text in [f"BEGIN {' '.join(spawns)} COMMIT"] if self._draw(st.booleans()) else spawns:
            self._session.run(text)

    def share(self, items: int) -> None:
        """Members ask in a random order. After 30 calls they take turns, because Hypothesis may draw one for ever."""
        for call in count():
            if not items:
                return
            drawn = self._draw(st.integers(0, len(self._members) - 1)) if call < 30 else call % len(self._members)
            items -= self._ask(drawn, self._draw(st.sampled_from([1, 2, 100])) if call < 30 else 1)

    def close(self) -> None:
        for member in self._members:
            member.close()


@pytest.mark.slow
def test_shares_differ_by_at_most_one_while_idle(tmp_path: Path) -> None:
    numbers = count()

    @settings(max_examples=25, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data(), st.integers(2, 4))
    def check(data: st.DataObject, members: int) -> None:
        url = f"sqlite:///{tmp_path}/{next(numbers)}.db?durability=normal"
        with Session(url, clock=ManualClock()) as session:
            group = Group(session, data.draw, members)
            for items in data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=6)):
                group.be_idle()
                group.spawn(items)
                group.share(items)
                assert max(group.shares) - min(group.shares) <= 1, group.shares
            group.close()

    check()


def test_polling_http_sessions_take_turns(graph_url: str, clock: ManualClock) -> None:
    with Running(graph_url, clock) as server, httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:

        def post(text: str, session: str) -> list[dict[str, Any]]:
            answer = http.post("/mew", json={"text": text, "session": session})
            lines: list[dict[str, Any]] = answer.json()["lines"]
            return [line for line in lines if line.get("delivery_id") and line["kind"] == "event"]

        post(JOBS, "producer")
        shares = Counter(a=0, b=0)
        for name in shares:
            post(WATCH.format("w", ""), name)
        for n in range(6):
            post(f"SPAWN j: Job {{ n = {n} }}", "producer")
            for name in shares:
                for event in post("", name):
                    shares[name] += 1
                    assert post(f'ACK "{event["delivery_id"]}"', name) == []
        assert shares == {"a": 3, "b": 3}


def test_members_that_wait_on_two_brokers_take_turns(graph_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KEPT_FOR", "WAITS_FOR"):  # on a busy machine, too, each member comes for its item
        monkeypatch.setattr(member_turns, name, int(PATIENCE * 1e6))
    shares: dict[str, list[Event]] = {"a": [], "b": []}
    got = threading.Condition()
    over = threading.Event()

    def work(name: str) -> None:
        with Session(graph_url) as session:
            session.run(WATCH.format("w", ""))
            session.events()
            session.events()  # asks for an item
            ready.wait(PATIENCE)
            while not over.is_set():
                for event in session.events(1, wait=0.5):
                    session.ack(event)
                    with got:
                        shares[name].append(event)
                        got.notify_all()

    ready = threading.Barrier(3)
    with Session(graph_url) as producer:
        producer.run(JOBS)
        threads = [threading.Thread(target=work, args=(name,)) for name in shares]
        for thread in threads:
            thread.start()
        ready.wait(PATIENCE)
        for n in range(6):
            producer.run("SPAWN j: Job { n = $n }", n=n)
            with got:
                assert got.wait_for(partial(has_all, shares, n + 1), PATIENCE)
            wait_until_both_ask(graph_url)
        over.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert {name: len(events) for name, events in shares.items()} == {"a": 3, "b": 3}


def has_all(shares: dict[str, list[Event]], items: int) -> bool:
    return sum(map(len, shares.values())) == items


def wait_until_both_ask(url: str) -> None:
    """Wait until each member has asked again since its last item."""
    end = time.monotonic() + PATIENCE
    while waiting(url) < 2:
        assert time.monotonic() < end, "a member does not ask"
        time.sleep(0.01)


def waiting(url: str) -> int:
    text = "SELECT count(*) FROM {}mew_watch WHERE waits_from IS NOT NULL"
    if url.startswith("postgresql"):
        with psycopg.connect(url) as postgres:
            (row,) = postgres.execute(text.format("ackwise.").encode()).fetchall()
            return int(row[0])
    path = url.removeprefix("sqlite:///").partition("?")[0]
    with closing(apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        return int(connection.execute(text.format("")).get)
