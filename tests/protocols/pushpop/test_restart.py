"""A lock is in the store: it outlives the server, however that ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from ackwise.clock import ManualClock
from tests.patience import PATIENCE
from tests.protocols.pushpop.pushpop_api import EXPIRED, NOT_FOUND, PushPopApi, taken
from tests.server.process import ServerProcess
from tests.server.running import Running


@contextmanager
def serving(store: str, clock: ManualClock, queue: str = "kept") -> Iterator[PushPopApi]:
    with Running(store, clock) as server, httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
        yield PushPopApi(http, clock, queue)


def test_live_lock_is_live_after_a_restart(any_store: str, clock: ManualClock) -> None:
    with serving(any_store, clock) as pushpop:
        pushpop.push(1, 2)
        held = pushpop.lock(ttl_seconds=60)
        before = pushpop.metadata()
    clock.advance(20)
    with serving(any_store, clock) as pushpop:
        assert pushpop.metadata() == before
        assert pushpop.post("pop") == (
            423,
            {"message": "Queue is locked pending acknowledgement", "lock_expires_at": held["lock_expires_at"]},
        )
        assert pushpop.ack(held["lock_id"]).body["items_acknowledged"] == 1
        assert pushpop.drained() == [2]


def test_lock_expired_during_restart_is_checked_at_first_use(any_store: str, clock: ManualClock) -> None:
    with serving(any_store, clock) as pushpop:
        pushpop.push(1, 2)
        held = pushpop.lock(ttl_seconds=60)
    clock.advance(60)
    with serving(any_store, clock) as pushpop:
        assert taken(pushpop.lock(count=2)) == [1, 2]
        assert pushpop.ack(held["lock_id"]) == (410, EXPIRED)
        assert pushpop.look()["expired_locks"] == 1


def test_expired_and_acknowledged_ids_differ_after_restart(any_store: str, clock: ManualClock) -> None:
    with serving(any_store, clock) as pushpop:
        pushpop.push(1)
        late = pushpop.lock(ttl_seconds=5)["lock_id"]
        clock.advance(5)
        done = pushpop.lock()["lock_id"]
        pushpop.ack(done)
    with serving(any_store, clock) as pushpop:
        assert pushpop.ack(late) == (410, EXPIRED)
        assert pushpop.ack(done) == (404, NOT_FOUND)


def test_two_servers_on_one_database_respect_each_others_locks(pg_url: str, clock: ManualClock) -> None:
    with serving(pg_url, clock) as one, serving(pg_url, clock) as other:
        one.push(1, 2)
        held = one.lock(ttl_seconds=60)
        assert other.post("pop").status == 423
        assert other.look()["lock"]["lock_id"] == held["lock_id"]
        assert other.ack(held["lock_id"]).body["items_acknowledged"] == 1
        late = other.lock(ttl_seconds=5)
        clock.advance(5)
        assert one.ack(late["lock_id"]) == (410, EXPIRED)
        assert one.pop() == [2]


def test_answered_calls_survive_kill_9(any_store: str, clock: ManualClock) -> None:
    """Real time here: the locks are long."""
    url = any_store.replace("durability=normal", "durability=full")
    with ServerProcess(url) as server, httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
        pushpop = PushPopApi(http, clock, "killed")
        pushpop.push(*range(10))
        pushpop.push(100, priority=7)
        assert pushpop.pop() == [0]
        done = pushpop.lock(count=2, ttl_seconds=300)
        pushpop.ack(done["lock_id"])
        held = pushpop.lock(count=3, ttl_seconds=300)
        server.kill()
    with ServerProcess(url) as server, httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
        pushpop = PushPopApi(http, clock, "killed")
        assert pushpop.depth == {"0": 4, "7": 1}
        assert pushpop.post("pop").body["lock_expires_at"] == held["lock_expires_at"]
        assert pushpop.ack(done["lock_id"]).status == 400
        assert pushpop.metadata()["_active_lock"]["items_with_priority"] == [
            {"item": {"n": n}, "priority": 0} for n in (3, 4, 5)
        ]
        assert pushpop.ack(held["lock_id"]).body["items_acknowledged"] == 3
        assert pushpop.drained() == [6, 7, 8, 9, 100]


def test_pushpop_port_serves_the_same_queues(any_store: str, clock: ManualClock) -> None:
    with Running(any_store, clock, pushpop_port=0) as server:
        first, second = [one.sockets[0].getsockname()[1] for one in server.server.servers]
        assert first != second
        with httpx2.Client(base_url=f"http://127.0.0.1:{second}") as http:
            PushPopApi(http, clock, "both").push(1)
            health = http.get("/health").json()
            assert (health["status"], health["service"]) == ("healthy", "ackwise")
        with httpx2.Client(base_url=f"http://127.0.0.1:{first}") as http:
            assert PushPopApi(http, clock, "both").pop() == [1]


def test_command_says_where_it_listens(any_store: str, clock: ManualClock) -> None:
    with ServerProcess(any_store, "--pushpop-port", "0", "--pushpop-default-priority", "3") as server:
        assert server.process.stdout is not None
        word, url = server.process.stdout.readline().split()
        assert word == "pushpop"
        with httpx2.Client(base_url=url) as http:
            pushpop = PushPopApi(http, clock, "own")
            pushpop.push(1)
            assert pushpop.depth == {"3": 1}
