"""Webhooks of dead letters: every letter is posted, in order, at least once, by one server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from ackwise import QueuePolicy, connect
from ackwise.cli.app import app
from ackwise.client import Connection
from ackwise.clock import ManualClock, SystemClock
from ackwise.core.commands import SetHook, SettleHook, TakeHook
from ackwise.core.errors import BadInput
from ackwise.core.events import Event, HookDelivered, HookFailed, HookPaused
from ackwise.core.queries import ListHooks
from ackwise.core.rows import HookLetter
from tests.broker.watched import until
from tests.patience import PATIENCE
from tests.protocols.pushpop.receiving import Receiver
from tests.server.process import ServerProcess
from tests.server.running import Running


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Heard:
    """Events of a server. `wait` returns when an event of a kind has come."""

    def __init__(self, server: Running) -> None:
        self._come = threading.Condition()
        self._events: list[Event] = []
        server.server.runtime.broker().store.events.subscribe(self._note, HookDelivered, HookFailed, HookPaused)

    def _note(self, event: Event) -> None:
        with self._come:
            self._events.append(event)
            self._come.notify_all()

    def wait(self, kind: type[Event], count: int = 1) -> list[Any]:
        with self._come:
            assert self._come.wait_for(lambda: len(self.of(kind)) >= count, PATIENCE), self._events
            return self.of(kind)

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self._events if isinstance(event, kind)]


@pytest.fixture
def server(any_store: str, clock: ManualClock) -> Iterator[Running]:
    with Running(any_store, clock) as running:
        yield running


@pytest.fixture
def queue(server: Running) -> Iterator[Connection]:
    with connect(server.url) as connection:
        connection.create_queue("orders", QueuePolicy(retry_limit=1))
        yield connection


def put(server: Running, url: str, **more: object) -> httpx2.Response:
    return httpx2.put(f"{server.url}/v1/queues/orders/on-dead", json={"url": url, **more})


def kill(queue: Connection, *numbers: int) -> None:
    for number in numbers:
        queue.push("orders", {"n": number}, transaction_id=f"tx-{number}")
        queue.claim("orders", group="workers")[0].reject(f"reason {number}")


def hook(server: Running) -> dict[str, Any]:
    shown: dict[str, Any] = httpx2.get(f"{server.url}/v1/queues/orders/on-dead").json()
    return shown


def until_taken(queue: Connection, owner: str, names: list[str]) -> list[HookLetter]:
    """Take until these letters are there: on PostgreSQL older transactions of other databases delay them."""
    letters: list[HookLetter] = []

    def complete() -> bool:
        letters[:] = queue.transport.send(TakeHook(queue="orders", name="webhook", owner=owner)).letters
        return [place.letter.transaction_id for place in letters] == names

    until(complete)
    return letters


def test_letters_are_posted_in_order_without_payload(server: Running, queue: Connection, receiver: Receiver) -> None:
    kill(queue, 0)
    assert put(server, receiver.url).status_code == 200
    kill(queue, 1, 2, 3)
    bodies = [receiver.next() for _ in range(3)]
    assert [body["transaction_id"] for body in bodies] == ["tx-1", "tx-2", "tx-3"]
    first = bodies[0]
    (letter,) = (letter for letter in queue.dead_letters("orders") if letter.transaction_id == "tx-1")
    assert (first["type"], first["id"], first["group"]) == ("ackwise.dead_letter", letter.id, "workers")
    assert (first["reason"], first["error"]) == (letter.reason, letter.error)
    assert "data" not in first
    assert "headers" not in first


def test_include_payload_posts_data_and_headers(server: Running, queue: Connection, receiver: Receiver) -> None:
    put(server, receiver.url, include_payload=True)
    queue.push("orders", {"n": 1}, headers={"k": "v"})
    queue.claim("orders", group="workers")[0].reject("no")
    body = receiver.next()
    assert (body["data"], body["headers"], body["content_type"]) == ({"n": 1}, {"k": "v"}, "application/json")


def test_death_by_expiry_is_posted(server: Running, queue: Connection, receiver: Receiver, clock: ManualClock) -> None:
    put(server, receiver.url)
    queue.push("orders", 1)
    queue.claim("orders", group="workers", lease=10)
    clock.advance(11)
    assert receiver.next()["reason"] == "retry_limit"


def test_failed_post_is_repeated_with_backoff(
    server: Running, queue: Connection, receiver: Receiver, clock: ManualClock
) -> None:
    heard = Heard(server)
    receiver.status = 500
    put(server, receiver.url)
    kill(queue, 1, 2)
    waits = []
    for failures in range(1, 11):
        failed = heard.wait(HookFailed, failures)[-1]
        assert (failed.queue, failed.hook, failed.failures) == ("orders", "webhook", failures)
        waits.append(failed.retry_seconds)
        if failures == 10:
            receiver.status = 204
        clock.advance(failed.retry_seconds)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    heard.wait(HookDelivered, 2)
    assert [receiver.next()["transaction_id"] for _ in range(12)] == [*["tx-1"] * 11, "tx-2"]
    assert hook(server)["failures"] == 0


def test_hook_pauses_after_a_day_and_setting_resumes(
    server: Running, queue: Connection, receiver: Receiver, clock: ManualClock, any_store: str
) -> None:
    heard = Heard(server)
    receiver.status = 302
    put(server, receiver.url)
    kill(queue, 1)
    heard.wait(HookFailed)
    clock.advance(24 * 3600)
    (paused,) = heard.wait(HookPaused)
    assert "answered 302" in paused.error
    shown = hook(server)
    assert (shown["paused"], shown["failures"], shown["pending"]) == (True, 2, True)
    assert "answered 302" in shown["error"]
    receiver.status = 200
    assert not put(server, receiver.url).json()["paused"]
    heard.wait(HookDelivered)
    assert hook(server)["error"] is None
    assert [receiver.next()["transaction_id"] for _ in range(3)] == ["tx-1"] * 3


def test_hook_of_a_killed_server_is_taken_over(
    server: Running, queue: Connection, receiver: Receiver, clock: ManualClock, any_store: str
) -> None:
    """Another server took the hook and died. The first letter of its lease is reported again."""
    queue.transport.send(SetHook(queue="orders"))
    kill(queue, 1, 2)
    first = until_taken(queue, "dead-server", ["tx-1", "tx-2"])[0]
    settle = SettleHook(queue="orders", name="webhook", owner="dead-server", mark=first.mark, letter=first.number)
    assert queue.transport.send(settle).held
    put(server, receiver.url)
    assert queue.transport.send(TakeHook(queue="orders", name="webhook", owner="other")).letters == []
    assert receiver.posts.empty()
    clock.advance(61)
    assert receiver.next()["transaction_id"] == "tx-2"
    assert not queue.transport.send(settle).held


def test_hook_of_a_server_after_kill_9_is_taken_over(any_store: str, receiver: Receiver) -> None:
    """The server dies during its post. Another server posts the same letter again when the lease is over."""
    receiver.gate.clear()
    with ServerProcess(any_store) as first, connect(first.url) as queue:
        queue.create_queue("orders", QueuePolicy(retry_limit=1))
        queue.set_on_dead("orders", receiver.url)
        kill(queue, 1, 2)
        assert receiver.next()["transaction_id"] == "tx-1"
        first.kill()
    receiver.gate.set()
    clock = ManualClock(SystemClock().now())
    with Running(any_store, clock) as second, connect(second.url) as queue:
        taken = queue.transport.send(TakeHook(queue="orders", name="webhook", owner="other"))
        assert taken.letters == []
        assert taken.hook is not None
        assert taken.hook.retry_in > 0
        assert receiver.posts.empty()
        clock.advance(61)
        assert [receiver.next()["transaction_id"] for _ in range(2)] == ["tx-1", "tx-2"]
        wait_for(lambda: not hook(second)["pending"])


def test_two_servers_post_each_letter_once(
    server: Running, queue: Connection, receiver: Receiver, clock: ManualClock, any_store: str
) -> None:
    put(server, receiver.url)
    with Running(any_store, clock) as second:
        heard = [Heard(server), Heard(second)]
        kill(queue, *range(5))
        bodies = [receiver.next()["transaction_id"] for _ in range(5)]
    assert bodies == [f"tx-{number}" for number in range(5)]
    assert receiver.posts.empty()
    assert sum(len(events.of(HookDelivered)) for events in heard) == 5


def test_bad_target_is_refused_and_changes_nothing(server: Running, queue: Connection) -> None:
    for url in ("http://example.com/x", "file:///etc/passwd", "http://u:p@localhost/", "", "x" * 3000):
        refused = put(server, url)
        assert (refused.status_code, refused.json()["code"]) == (400, "bad_input")
        with pytest.raises(BadInput):
            queue.set_on_dead("orders", url)
    assert httpx2.get(f"{server.url}/v1/queues/orders/on-dead").status_code == 404


def test_target_set_without_a_server_is_checked(any_store: str, clock: ManualClock) -> None:
    """A program with the store itself stores the URL. The server refuses to post to it."""
    with connect(any_store, clock=clock) as direct:
        direct.create_queue("orders", QueuePolicy(retry_limit=1))
        direct.transport.send(SetHook(queue="orders", url="http://example.com/x"))
        kill(direct, 1)
    with Running(any_store, clock) as server:
        wait_for(lambda: "may not post" in (hook(server)["error"] or ""))


def wait_for(holds: Callable[[], bool]) -> None:
    ticks = threading.Event()
    for _ in range(int(PATIENCE * 50)):
        if holds():
            return
        ticks.wait(0.02)
    raise AssertionError("it did not happen")


def test_client_sets_lists_and_removes_the_webhook(any_store: str, clock: ManualClock) -> None:
    with connect(any_store, clock=clock) as queue:
        queue.create_queue("orders", QueuePolicy(retry_limit=1))
        made = queue.set_on_dead("orders", "http://127.0.0.1:9/x", include_payload=True)
        assert (made.url, made.include_payload, made.paused, made.pending) == (made.url, True, False, False)
        kill(queue, 1)
        # On PostgreSQL a hook sees a letter when all older transactions have ended, also those of other databases.
        until(lambda: queue.hooks("orders")[0].pending)
        (listed,) = queue.hooks("orders")
        assert (listed.url, listed.pending, listed.failing_since) == ("http://127.0.0.1:9/x", True, None)
        for wrong in ("ftp://x/", "no url", 7):
            with pytest.raises(BadInput):
                queue.set_on_dead("orders", wrong)  # type: ignore[arg-type]
        assert queue.hooks("orders") == [listed]
        assert queue.remove_on_dead("orders")
        assert not queue.remove_on_dead("orders")


def test_secret_in_a_target_is_not_logged(
    server: Running, queue: Connection, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard(server)
    receiver.status = 500
    assert put(server, f"{receiver.url}/secret-path?token=secret-token").status_code == 200
    kill(queue, 1)
    (failed,) = heard.wait(HookFailed)[:1]
    assert "answered 500" in failed.error
    assert "secret" not in failed.error
    assert "secret" not in caplog.text


def test_check_names_a_failing_hook(any_store: str, clock: ManualClock) -> None:
    with connect(any_store, clock=clock) as queue:
        queue.create_queue("orders", QueuePolicy(retry_limit=1))
        queue.set_on_dead("orders", "http://127.0.0.1:9/x")
        kill(queue, 1)
        (place,) = take(queue)
        where = {"queue": "orders", "name": "webhook", "owner": "me", "mark": place.mark, "letter": place.number}
        queue.transport.send(SettleHook(**where, error="no answer"))
    shown = CliRunner().invoke(app, ["check", "--url", any_store])
    assert shown.exit_code == 0
    assert "NOTE the hook webhook of queue orders failed 1 time: no answer" in shown.output


def test_removed_hook_posts_nothing(server: Running, queue: Connection, receiver: Receiver) -> None:
    put(server, receiver.url)
    assert httpx2.delete(f"{server.url}/v1/queues/orders/on-dead").json() == {"removed": 1}
    kill(queue, 1)
    assert httpx2.delete(f"{server.url}/v1/queues/orders/on-dead").json() == {"removed": 0}
    assert queue.transport.ask(ListHooks()) == []
    assert receiver.posts.empty()


def test_deleted_queue_takes_its_hook_along(server: Running, queue: Connection, receiver: Receiver) -> None:
    put(server, receiver.url)
    queue.delete_queue("orders")
    queue.create_queue("orders", QueuePolicy(retry_limit=1))
    assert queue.transport.ask(ListHooks()) == []


def test_old_letters_and_redriven_ones(any_store: str, clock: ManualClock) -> None:
    """A letter that dies again after a redrive or a seek is reported again. Older letters are not."""
    with connect(any_store, clock=clock) as queue:
        queue.create_queue("orders", QueuePolicy(retry_limit=1))
        kill(queue, 1, 2)
        queue.transport.send(SetHook(queue="orders"))
        queue.redrive(queue.dead_letters("orders")[0])
        clock.advance(1)
        queue.claim("orders", group="workers")[0].reject("again")
        # On PostgreSQL an open transaction of another database may hide from the hook that older letters are older.
        assert take(queue, "again")[-1].letter.transaction_id == "tx-2"
        clock.advance(1)
        queue.seek("orders", "workers", to="start")
        queue.claim("orders", group="workers")[0].reject("after the seek")
        assert [place.letter.error for place in take(queue, "after the seek")][-2:] == ["again", "after the seek"]


def take(queue: Connection, last: str | None = None) -> list[Any]:
    """Letters of the hook. Waits for the letter whose error is `last`, or for any."""
    letters: list[Any] = []

    def taken() -> bool:
        letters[:] = queue.transport.send(TakeHook(queue="orders", name="webhook", owner="me")).letters
        return bool(letters) and last in (None, letters[-1].letter.error)

    until(taken)
    return letters
