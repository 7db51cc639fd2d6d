"""The PushPop actor in Python: in process on each store, and over HTTP.

`pytest tests/test_actor.py -k acknowledgement` selects what is about locks.
"""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ackwise.clock import ManualClock
from ackwise.core.errors import BadInput, BadStoreURL, Draining, OutcomeUnknown, StoreError, StoreUnavailable
from ackwise.pushpop import PushPop, PushPopActor, QueueLocked
from tests.fresh_stores import Tables, sqlite_url
from tests.patience import PATIENCE
from tests.server.running import Running
from tests.server.wire import Wire

acknowledgement = pytest.mark.acknowledgement
START = 1_700_000_000.0
Open = Callable[[str], PushPop]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres", "http"])
def actor(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[PushPop]:
    """The actor of a new queue; its clock stands at `START`."""
    sqlite = sqlite_url(tmp_path / "actor.db")
    if request.param == "http":
        with Running(sqlite, clock) as server, PushPop("actor", server.url) as made:
            yield made
        return
    url = sqlite if request.param == "sqlite" else request.getfixturevalue("pg_url_factory")(Tables.GRAPH)
    with PushPop("actor", url, clock=clock) as made:
        yield made


def counts(actor: PushPop) -> dict[str, int]:
    return {key: count for key, count in actor.metadata().items() if not key.startswith("_")}


# the queue


def test_new_actor_has_empty_metadata(actor: PushPop) -> None:
    assert actor.metadata() == {}


def test_push_single_item(actor: PushPop) -> None:
    assert actor.Push({"item": {"id": 1}}) is True
    assert actor.metadata() == {"0": 1}


def test_push_multiple_items(actor: PushPop) -> None:
    assert [actor.Push({"item": {"id": n}}) for n in range(3)] == [True, True, True]
    assert actor.metadata() == {"0": 3}


@pytest.mark.parametrize("item", ["text", 7, ["list"], None, True, 1.5])
def test_push_of_what_is_no_dict_is_refused(actor: PushPop, item: Any) -> None:
    with pytest.raises(BadInput, match="item must be a dict"):
        actor.Push({"item": item})
    assert actor.metadata() == {}


@pytest.mark.parametrize("data", [None, "x", [], {}, {"priority": 1}])
def test_push_of_data_without_an_item_is_refused(actor: PushPop, data: Any) -> None:
    with pytest.raises(BadInput):
        actor.Push(data)
    assert actor.metadata() == {}


def test_pop_empty_queue(actor: PushPop) -> None:
    assert actor.Pop() == []


def test_pop_single_item(actor: PushPop) -> None:
    actor.Push({"item": {"id": 1}})
    assert actor.Pop() == [{"id": 1}]
    assert actor.Pop() == []


def test_pop_multiple_items(actor: PushPop) -> None:
    actor.push_many([{"id": n} for n in range(5)])
    assert actor.pop(3) == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_pop_more_than_there_is(actor: PushPop) -> None:
    actor.push_many([{"id": 1}, {"id": 2}])
    assert actor.pop(100) == [{"id": 1}, {"id": 2}]


def test_items_pop_in_the_order_of_pushes(actor: PushPop) -> None:
    for n in range(10):
        actor.push({"id": n})
    assert [actor.Pop() for _ in range(10)] == [[{"id": n}] for n in range(10)]


def test_push_after_pop(actor: PushPop) -> None:
    actor.push_many([{"id": 1}, {"id": 2}])
    actor.Pop()
    actor.push({"id": 3})
    assert actor.pop(9) == [{"id": 2}, {"id": 3}]


def test_nested_item_is_intact(actor: PushPop) -> None:
    item = {"a": {"b": [1, 2.5, None, True, {"c": "é\n\U0001f600"}]}, "big": 2**60, "": {}}
    actor.push(item, priority=3)
    assert actor.Pop() == [item]


# priorities


def test_explicit_priorities_and_the_default(actor: PushPop) -> None:
    actor.Push({"item": {"id": 0}, "priority": 0})
    actor.Push({"item": {"id": 5}, "priority": 5})
    actor.Push({"item": {"id": 1}})
    assert actor.metadata() == {"0": 2, "5": 1}


@pytest.mark.parametrize("priority", [-1, 1.5, 1.0, "3", True, [1], 2**31])
def test_priority_that_is_none_is_refused(actor: PushPop, priority: Any) -> None:
    with pytest.raises(BadInput, match="priority"):
        actor.Push({"item": {"id": 1}, "priority": priority})
    with pytest.raises(BadInput, match="priority"):
        actor.push_many([{"id": 1}, ({"id": 2}, priority)])
    assert actor.metadata() == {}


def test_counts_rise_on_push_and_fall_on_pop(actor: PushPop) -> None:
    actor.push_many([({"id": n}, 2) for n in range(3)])
    assert actor.metadata() == {"2": 3}
    actor.Pop()
    assert actor.metadata() == {"2": 2}
    actor.pop(2)
    assert actor.metadata() == {}


def test_lowest_number_goes_first_and_skips_empty_levels(actor: PushPop) -> None:
    for priority in (10, 0, 5, 0, 1000):
        actor.push({"p": priority}, priority)
    assert [item["p"] for item in actor.pop(100)] == [0, 0, 5, 10, 1000]


def test_mixed_pop_drains_zero_before_one(actor: PushPop) -> None:
    actor.push_many([({"id": 10}, 1), ({"id": 0}, 0), ({"id": 11}, 1), ({"id": 1}, 0)])
    assert [item["id"] for item in actor.pop(3)] == [0, 1, 10]
    actor.push({"id": 2}, 0)
    assert [item["id"] for item in actor.pop(3)] == [2, 11]


def test_push_many_above_its_bounds_pushes_nothing(actor: PushPop) -> None:
    assert actor.push_many({"id": n} for n in range(1000)) == 1000
    with pytest.raises(BadInput, match="1 to 1000"):
        actor.push_many([{"id": n} for n in range(1001)])
    with pytest.raises(BadInput, match="1 to 1000"):
        actor.push_many([])
    assert actor.metadata() == {"0": 1000}


# acknowledgement: the fifteen of the document


@acknowledgement
def test_pop_with_ack_creates_lock(actor: PushPop) -> None:
    actor.Push({"item": {"id": 1}})
    popped = actor.PopWithAck({"ttl_seconds": 30})
    assert popped == {
        "items": [{"id": 1}],
        "count": 1,
        "locked": True,
        "lock_id": popped["lock_id"],
        "lock_expires_at": START + 30,
    }
    assert re.fullmatch(r"[A-Za-z0-9_-]{11}", popped["lock_id"])
    assert actor.metadata() == {
        "_active_lock": {
            "lock_id": popped["lock_id"],
            "items_with_priority": [{"item": {"id": 1}, "priority": 0}],
            "expires_at": START + 30,
            "created_at": START,
        }
    }


@acknowledgement
def test_acknowledge_valid_lock(actor: PushPop) -> None:
    actor.push({"id": 1})
    lock_id = actor.PopWithAck({})["lock_id"]
    told = {"success": True, "message": "Items acknowledged successfully", "items_acknowledged": 1}
    assert actor.Acknowledge({"lock_id": lock_id}) == told
    assert actor.metadata() == {}


@acknowledgement
def test_acknowledge_invalid_lock_id(actor: PushPop) -> None:
    actor.push({"id": 1})
    lock_id = actor.PopWithAck({})["lock_id"]
    assert actor.Acknowledge({"lock_id": "wrong"}) == {"success": False, "message": "Invalid lock_id"}
    assert actor.metadata()["_active_lock"]["lock_id"] == lock_id


@acknowledgement
@pytest.mark.parametrize("data", [{}, {"lock_id": ""}, {"lock_id": None}, {"lock_id": 5}])
def test_acknowledge_missing_lock_id(actor: PushPop, data: dict[str, Any]) -> None:
    actor.push({"id": 1})
    actor.PopWithAck({})
    assert actor.Acknowledge(data) == {"success": False, "message": "lock_id is required"}
    assert "_active_lock" in actor.metadata()


@acknowledgement
def test_pop_while_locked_returns_locked_status(actor: PushPop) -> None:
    actor.push_many([{"id": 1}, {"id": 2}])
    actor.PopWithAck({"ttl_seconds": 45})
    assert actor.PopWithAck({}) == {
        "items": [],
        "count": 0,
        "locked": True,
        "lock_expires_at": START + 45,
        "message": "Queue is locked pending acknowledgement",
    }
    assert counts(actor) == {"0": 1}


@acknowledgement
def test_lock_expiration_returns_items(actor: PushPop, clock: ManualClock) -> None:
    actor.push({"id": 1})
    lock_id = actor.PopWithAck({"ttl_seconds": 10})["lock_id"]
    clock.advance(10)
    expired = {"success": False, "message": "Lock has expired", "error_code": "LOCK_EXPIRED"}
    assert actor.Acknowledge({"lock_id": lock_id}) == expired
    assert actor.metadata() == {"0": 1}
    assert actor.Pop() == [{"id": 1}]


@acknowledgement
def test_expired_lock_items_returned_to_queue_on_next_pop(actor: PushPop, clock: ManualClock) -> None:
    actor.push_many([{"id": 1}, {"id": 2}])
    actor.PopWithAck({"ttl_seconds": 10})
    clock.advance(10)
    assert actor.PopWithAck({"count": 2})["items"] == [{"id": 1}, {"id": 2}]


@acknowledgement
def test_regular_pop_still_works(actor: PushPop) -> None:
    actor.push_many([{"id": 1}, {"id": 2}])
    assert actor.Pop() == [{"id": 1}]
    assert actor.metadata() == {"0": 1}


@acknowledgement
def test_pop_with_ack_empty_queue(actor: PushPop) -> None:
    assert actor.PopWithAck({}) == {"items": [], "count": 0, "locked": False}
    assert actor.metadata() == {}


@acknowledgement
def test_acknowledge_no_active_lock(actor: PushPop) -> None:
    assert actor.Acknowledge({"lock_id": "abc123def456"}) == {"success": False, "message": "No active lock found"}


@acknowledgement
def test_pop_with_ack_multiple_items_single_lock(actor: PushPop) -> None:
    actor.push_many([({"id": 1}, 0), ({"id": 2}, 1), ({"id": 3}, 1)])
    popped = actor.PopWithAck({"count": 2})
    assert (popped["items"], popped["count"]) == ([{"id": 1}, {"id": 2}], 2)
    assert actor.metadata()["_active_lock"]["items_with_priority"] == [
        {"item": {"id": 1}, "priority": 0},
        {"item": {"id": 2}, "priority": 1},
    ]
    assert actor.Acknowledge({"lock_id": popped["lock_id"]})["items_acknowledged"] == 2


@acknowledgement
def test_pop_with_ack_custom_ttl(actor: PushPop, clock: ManualClock) -> None:
    clock.set(2_000_000_000_000_000)
    actor.push({"id": 1})
    assert actor.PopWithAck({"ttl_seconds": 60})["lock_expires_at"] == 2_000_000_060.0


@acknowledgement
@pytest.mark.parametrize(("given", "effective"), [(0, 1), (-7, 1), (1, 1), (300, 300), (400, 300), (10**30, 300)])
def test_pop_with_ack_ttl_bounds(actor: PushPop, given: int, effective: int) -> None:
    actor.push({"id": 1})
    assert actor.PopWithAck({"ttl_seconds": given})["lock_expires_at"] == START + effective


@acknowledgement
def test_expired_lock_items_return_to_original_priority_single(actor: PushPop, clock: ManualClock) -> None:
    actor.push({"id": 1}, 2)
    actor.PopWithAck({"ttl_seconds": 1})
    clock.advance(1)
    assert actor.metadata() == {"2": 1}
    assert actor.Pop() == [{"id": 1}]


@acknowledgement
def test_expired_lock_items_return_to_original_priority_multiple(actor: PushPop, clock: ManualClock) -> None:
    actor.push_many([({"id": 1}, 0), ({"id": 20}, 2), ({"id": 21}, 2), ({"id": 50}, 5)])
    actor.PopWithAck({"ttl_seconds": 1, "count": 2})
    actor.push({"id": 2}, 0)
    clock.advance(1)
    assert actor.metadata() == {"0": 2, "2": 2, "5": 1}
    assert [item["id"] for item in actor.pop(9)] == [1, 2, 20, 21, 50]


# acknowledgement: what the document leaves to be guessed


@acknowledgement
def test_plain_pop_while_locked_raises(actor: PushPop) -> None:
    actor.push_many([{"id": 1}, {"id": 2}])
    actor.PopWithAck({"ttl_seconds": 45})
    with pytest.raises(QueueLocked, match="Queue is locked pending acknowledgement") as caught:
        actor.Pop()
    assert caught.value.lock_expires_at == START + 45
    with pytest.raises(QueueLocked):
        actor.pop(5)
    assert counts(actor) == {"0": 1}


@acknowledgement
@pytest.mark.parametrize("ttl", ["abc", "30", 1.5, True, None, [1]])
def test_ttl_that_is_none_takes_nothing(actor: PushPop, ttl: Any) -> None:
    actor.push({"id": 1})
    with pytest.raises(BadInput, match="ttl_seconds"):
        actor.PopWithAck({"ttl_seconds": ttl})
    assert actor.metadata() == {"0": 1}


@acknowledgement
@pytest.mark.parametrize("count", [0, 101, -1, "5", 1.5, True])
def test_count_that_is_none_takes_nothing(actor: PushPop, count: Any) -> None:
    actor.push({"id": 1})
    with pytest.raises(BadInput, match="count"):
        actor.PopWithAck({"count": count})
    with pytest.raises(BadInput, match="count"):
        actor.pop(count)
    assert actor.metadata() == {"0": 1}


@acknowledgement
def test_second_acknowledgement_is_not_found(actor: PushPop) -> None:
    actor.push({"id": 1})
    lock_id = actor.pop_with_ack()["lock_id"]
    assert actor.acknowledge(lock_id)["success"] is True
    assert actor.acknowledge(lock_id) == {"success": False, "message": "No active lock found"}


@acknowledgement
def test_late_acknowledgement_leaves_the_new_holder_alone(actor: PushPop, clock: ManualClock) -> None:
    actor.push({"id": 1})
    old = actor.pop_with_ack(ttl_seconds=5)["lock_id"]
    clock.advance(5)
    new = actor.pop_with_ack()["lock_id"]
    assert actor.acknowledge(old)["error_code"] == "LOCK_EXPIRED"
    assert actor.acknowledge(new)["items_acknowledged"] == 1


@acknowledgement
def test_extending_and_dead_lettering(actor: PushPop, clock: ManualClock) -> None:
    actor.push_many([{"id": 1}, {"id": 2}])
    lock_id = actor.pop_with_ack(ttl_seconds=10)["lock_id"]
    assert actor.extend_lock(lock_id) == {"lock_id": lock_id, "new_expires_at": START + 40}
    assert actor.ExtendLock({"lock_id": lock_id, "additional_ttl_seconds": 5})["new_expires_at"] == START + 45
    assert actor.extend_lock(lock_id, 0)["error_code"] == "INVALID_TTL"
    clock.advance(44)
    assert actor.dead_letter(lock_id)["success"] is True
    assert actor.DeadLetter({"lock_id": lock_id}) == {"success": False, "message": "No active lock found"}
    assert actor.pop(9) == [{"id": 2}]


@acknowledgement
def test_competing_consumers_lock_different_items(actor: PushPop) -> None:
    actor.push_many([{"id": 1}, {"id": 2}])
    locks = [actor.pop_with_ack(allow_competing_consumers=True) for _ in range(2)]
    assert [one["items"] for one in locks] == [[{"id": 1}], [{"id": 2}]]
    assert all(actor.acknowledge(one["lock_id"])["success"] for one in locks)


@acknowledgement
def test_status_has_depth_and_lock(actor: PushPop, clock: ManualClock) -> None:
    actor.push_many([({"id": 1}, 3), ({"id": 2}, 3)])
    lock_id = actor.pop_with_ack(ttl_seconds=10)["lock_id"]
    clock.advance(4)
    assert actor.status() == {
        "queue_id": "actor",
        "depth": {"3": 1},
        "lock": {"lock_id": lock_id, "expires_at": START + 10, "seconds_left": 6.0},
        "expired_locks": 0,
    }
    clock.advance(6)
    assert actor.status() == {"queue_id": "actor", "depth": {"3": 2}, "lock": None, "expired_locks": 1}


@acknowledgement
def test_lock_survives_the_actor(tmp_path: Path, clock: ManualClock) -> None:
    url = f"sqlite:///{tmp_path}/kept.db"
    with PushPop("kept", url, clock=clock) as first:
        first.push({"id": 1})
        lock_id = first.pop_with_ack(ttl_seconds=60)["lock_id"]
    clock.advance(59)
    with PushPop("kept", url, clock=clock) as second:
        with pytest.raises(QueueLocked):
            second.Pop()
        assert second.acknowledge(lock_id)["items_acknowledged"] == 1


# asyncio


@acknowledgement
def test_async_actor_pushes_pops_and_acknowledges(tmp_path: Path, clock: ManualClock) -> None:
    async def use(url: str, **how: Any) -> None:
        async with PushPopActor("async", url, **how) as actor:
            assert await actor.Push({"item": {"id": 1}, "priority": 1})
            assert await actor.push_many([({"id": 0}, 0), {"id": 2}]) == 2
            assert await actor.Pop() == [{"id": 0}]
            popped = await actor.PopWithAck({"ttl_seconds": 60, "count": 2})
            assert popped["items"] == [{"id": 2}, {"id": 1}]
            with pytest.raises(QueueLocked):
                await actor.pop()
            assert (await actor.metadata())["_active_lock"]["lock_id"] == popped["lock_id"]
            assert (await actor.ExtendLock({"lock_id": popped["lock_id"]}))["new_expires_at"] == START + 90
            assert (await actor.Acknowledge({"lock_id": popped["lock_id"]}))["items_acknowledged"] == 2
            assert (await actor.status())["depth"] == {}
            await actor.push({"id": 3})
            lock_id = (await actor.pop_with_ack())["lock_id"]
            assert (await actor.DeadLetter({"lock_id": lock_id}))["success"]

    asyncio.run(use(f"sqlite:///{tmp_path}/a.db", clock=clock))
    with Running(f"sqlite:///{tmp_path}/b.db", clock) as server:
        asyncio.run(use(server.url))


def test_fifty_concurrent_pops_get_one_lock(tmp_path: Path) -> None:
    async def race() -> list[dict[str, Any]]:
        async with PushPopActor("race", f"sqlite:///{tmp_path}/race.db") as actor:
            await actor.push_many([{"id": n} for n in range(50)])
            return await asyncio.gather(*(actor.pop_with_ack() for _ in range(50)))

    found = asyncio.run(race())
    assert sum("lock_id" in one for one in found) == 1
    assert all(one["locked"] for one in found)


def test_threads_share_one(actor: PushPop) -> None:
    actor.push_many([{"id": n} for n in range(200)])
    taken: list[int] = []

    def work() -> None:
        while items := actor.pop(3):
            taken.extend(item["id"] for item in items)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(200))


# opening and closing


def test_actor_of_another_queue_shares_the_connection(actor: PushPop) -> None:
    other = actor.another("other")
    other.push({"id": 1})
    assert (other.queue, actor.Pop(), other.Pop()) == ("other", [], [{"id": 1}])
    other.close()
    actor.push({"id": 2})
    assert actor.Pop() == [{"id": 2}]


def test_closed_actor_raises_draining(tmp_path: Path) -> None:
    made = PushPop("a", f"sqlite:///{tmp_path}/closed.db")
    made.push({"id": 1})
    made.close()
    made.close()
    with pytest.raises(Draining):
        made.Pop()


def test_closed_actor_is_not_opened_again(tmp_path: Path) -> None:
    async def main() -> None:
        actor = PushPopActor("a", f"sqlite:///{tmp_path}/closed.db")
        beside = actor.another("b")
        await actor.push({"id": 1})
        await actor.close()
        await actor.close()
        for closed in (actor, beside):
            with pytest.raises(Draining):
                await closed.pop()
            with pytest.raises(Draining):
                async with closed:
                    raise AssertionError

    asyncio.run(main())


def test_sync_one_where_an_event_loop_runs(tmp_path: Path) -> None:
    async def main() -> None:
        with PushPop("a", f"sqlite:///{tmp_path}/inside.db") as made:
            made.push({"id": 1})
            assert made.pop() == [{"id": 1}]
        assert asyncio.get_running_loop().is_running()

    asyncio.run(main())


def test_close_by_another_thread_reaches_the_running_call(tmp_path: Path) -> None:
    heard: list[BaseException] = []
    for number in range(20):
        made = PushPop("a", f"sqlite:///{tmp_path}/{number}.db?durability=normal")
        begun = threading.Barrier(5)

        def work(made: PushPop = made, begun: threading.Barrier = begun) -> None:
            try:
                made.pop()
                begun.wait()
                while True:
                    made.pop()
            except BaseException as problem:
                heard.append(problem)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        begun.wait()
        made.close()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
    assert len(heard) == 80
    assert {type(problem) for problem in heard} <= {Draining, OutcomeUnknown}, heard


def test_call_that_is_cut_off_by_closing_may_have_happened() -> None:
    with Silent() as silent:
        made = PushPop("a", f"http://127.0.0.1:{silent.port}")
        heard: list[BaseException] = []

        def work() -> None:
            try:
                made.pop()
            except BaseException as problem:
                heard.append(problem)

        thread = threading.Thread(target=work)
        thread.start()
        silent.asked.wait()
        made.close()
        thread.join()
    assert [type(problem) for problem in heard] == [OutcomeUnknown]


class Silent:
    """A server that never answers."""

    def __enter__(self) -> Silent:
        self.asked = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()
        return self

    def _listen(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            while connection.recv(1000):
                self.asked.set()

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._socket.close()


SAYINGS = {
    "html": (502, b"<html>bad gateway</html>"),
    "nothing": (200, b""),
    "an empty object": (200, b"{}"),
    "of another": (200, b'{"ok": true}'),
    "not found by another": (404, b'{"error": "Not Found", "code": "no_such_route"}'),
    "detail": (400, b'{"detail": "bad"}'),
    "gone": (410, b"gone"),
    "locked by another": (423, b"{}"),
    "locked until some day": (423, b'{"message": "m", "lock_expires_at": "soon"}'),
}


@pytest.mark.parametrize("saying", SAYINGS.values(), ids=SAYINGS.keys())
def test_answer_of_another_server_raises_store_error(saying: tuple[int, bytes]) -> None:
    with Saying(*saying) as url, PushPop("a", url) as made:
        calls: list[Callable[[], object]] = [
            lambda: made.push({}),
            lambda: made.push_many([{}]),
            made.pop,
            made.pop_with_ack,
            lambda: made.acknowledge("x"),
            lambda: made.extend_lock("x"),
            lambda: made.dead_letter("x"),
        ]
        for call in calls:
            with pytest.raises(StoreError, match="not a PushPop server's"):
                call()


class Saying:
    """A server that always says the same."""

    def __init__(self, status: int, body: bytes) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, args=(0.01,)).start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.mark.parametrize("queue", ["", "a.b", "a" * 65, "é", "a b", None, 7])
def test_invalid_queue_id_is_refused(tmp_path: Path, queue: Any) -> None:
    with pytest.raises(BadInput, match="letters, digits"):
        PushPopActor(queue, f"sqlite:///{tmp_path}/ids.db")
    assert list(tmp_path.iterdir()) == []


def test_invalid_url_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    with pytest.raises(BadInput, match="url must be a string"):
        PushPop("a", None)  # type: ignore[arg-type]
    for opened in (PushPop("a", "nowhere"), PushPop("a", "http://127.0.0.1:1", clock=clock)):
        with opened as made, pytest.raises(BadStoreURL):
            made.Pop()
    with PushPop("a", "http://127.0.0.1:1") as made, pytest.raises(StoreUnavailable, match="no server answers"):
        made.Pop()


def test_answer_that_got_lost_is_said_to_be(tmp_path: Path) -> None:
    """Nothing is repeated behind the caller's back: an item might be pushed or popped twice."""
    with Running(f"sqlite:///{tmp_path}/lost.db") as server:
        with PushPop("a", server.url) as made:
            made.push({"id": 1})
        with Wire(server.address) as wire:
            wire.ask("POST", "/queue/a/pop")
            reply = wire.reply()
            assert reply is not None
            assert reply.json == {"items": [{"id": 1}], "count": 1}
    with HangingUp() as port, PushPop("a", f"http://127.0.0.1:{port}") as made, pytest.raises(OutcomeUnknown):
        made.push({"id": 2})


class HangingUp:
    """A server that hangs up on every client."""

    def __enter__(self) -> int:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._hang_up)
        self._thread.start()
        port: int = self._socket.getsockname()[1]
        return port

    def _hang_up(self) -> None:
        connection, _ = self._socket.accept()
        connection.recv(1000)
        connection.close()

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._socket.close()


def test_default_priority_is_a_setting(tmp_path: Path) -> None:
    with PushPop("a", f"sqlite:///{tmp_path}/default.db", default_priority=1) as made:
        made.push({"id": 1})
        made.push({"id": 0}, 0)
        assert made.metadata() == {"0": 1, "1": 1}
