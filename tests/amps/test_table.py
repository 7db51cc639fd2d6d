"""The reference's table of client semantics, row by row, over a real socket: our column."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

import ackwise
from ackwise.amps import Client, CommandFailed, Disconnected, Message, NoAnswer
from ackwise.amps.sync import ack_batches
from ackwise.clock import ManualClock
from ackwise.core.errors import AckwiseError
from ackwise.protocols.amps.server_state import QueueOptions
from ackwise.wire.amps import LONGEST_HEADER, Header
from tests.amps.inbox import Inbox
from tests.amps.orders import ORDERS, lag, until_pending
from tests.amps.tap import Tap, named, refusal
from tests.patience import PATIENCE
from tests.server.running import Running

NEWS = "news"


def test_queue_message_without_lease_is_not_acked(client: Client, tap: Tap) -> None:
    client.set_auto_ack(True)
    plain, queued = Inbox(), Inbox()
    client.subscribe(NEWS, plain)
    client.subscribe(ORDERS, queued)
    client.publish(NEWS, "told")
    client.publish(ORDERS, "handed out")
    (told,), (handed,) = plain.until(1), queued.until(1)
    tap.until(lambda: any(one.command == "ack" for one in tap.said))
    assert (told.topic, told.bookmark, told.lease_period, told.wants_ack) == (NEWS, "", None, False)
    assert handed.topic == ORDERS
    assert handed.lease_period is not None
    client.flush_acks()
    assert tap.bookmarks() == [[handed.bookmark]]


@pytest.mark.parametrize("missing", ["t", "bm", "lp"])
def test_auto_ack_needs_topic_bookmark_and_lease(missing: str, client: Client, tap: Tap) -> None:
    client.set_auto_ack(True)
    inbox = Inbox()
    sub_id = client.subscribe(ORDERS, inbox).sub_id
    header = Header(c="p", t=ORDERS, bm="1|1|", lp="20251231T235959.000000Z", sub_id=sub_id)
    setattr(header, missing, None)
    tap.tell(header, b"not whole")
    inbox.until(1)
    client.publish(ORDERS, "whole")
    whole = inbox.until(2)[1]
    tap.until(lambda: any(one.command == "ack" for one in tap.said))
    assert tap.bookmarks() == [[whole.bookmark]]


def test_batches_are_kept_by_topic_and_subscription(client: Client, tap: Tap) -> None:
    client.set_auto_ack(True).set_ack_batch_size(10).set_ack_timeout(0)
    inboxes = {topic: Inbox() for topic in (ORDERS, "queue://bills")}
    for topic, inbox in inboxes.items():
        client.subscribe(topic, inbox)
        for number in range(2):
            client.publish(topic, str(number))
    found = {topic: inbox.until(2) for topic, inbox in inboxes.items()}
    until_pending(client, 4)
    client.flush_acks()
    sent = [(one.subject, named(one), one.bookmarks) for one in tap.acks()]
    assert sent == [
        ("queue://bills", "2", [one.bookmark for one in found["queue://bills"]]),
        (ORDERS, "1", [one.bookmark for one in found[ORDERS]]),
    ]


def test_threshold_counts_one_key_only(client: Client, tap: Tap) -> None:
    client.set_auto_ack(True).set_ack_batch_size(3).set_ack_timeout(0)
    orders, bills = Inbox(), Inbox()
    client.subscribe(ORDERS, orders)
    client.subscribe("queue://bills", bills)
    for topic in (ORDERS, "queue://bills", ORDERS, "queue://bills"):
        client.publish(topic, "x")
    orders.until(2)
    bills.until(2)
    until_pending(client, 4)
    assert tap.acks() == [], "four together, but two of each"
    client.publish(ORDERS, "x")
    tap.until(lambda: any(one.command == "ack" for one in tap.said))
    assert [(one.subject, len(one.bookmarks)) for one in tap.acks()] == [(ORDERS, 3)]
    assert client.pending_acks == 2


def test_timeout_is_a_bound_however_often_messages_come(client: Client, tap: Tap) -> None:
    client.set_auto_ack(True).set_ack_batch_size(100_000).set_ack_timeout(0.3)
    client.subscribe(ORDERS, Inbox(), max_backlog=100_000)
    give_up = time.monotonic() + PATIENCE / 6
    while not tap.acks() and time.monotonic() < give_up:
        client.publish(ORDERS, "one after the other, without a pause")
    assert tap.acks(), "a timer that every message sets back would not come to its end"


def test_client_options_have_defaults_and_bounds(uri: str) -> None:
    client = Client()
    assert (client.auto_ack, client.ack_batch_size, client.ack_timeout) == (False, 1, 1.0)
    client.set_auto_ack(True).set_ack_batch_size(0).set_ack_timeout(-1)
    assert (client.auto_ack, client.ack_batch_size, client.ack_timeout) == (True, 1, 0.0)
    with pytest.raises(ackwise.errors.BadInput):
        client.set_ack_batch_size(-1)
    with pytest.raises(ackwise.errors.BadInput):
        client.set_ack_timeout("soon")  # type: ignore[arg-type]
    for never in (float("inf"), 1e12):
        with pytest.raises(ackwise.errors.BadInput, match="0 turns the timer off"):
            client.set_ack_timeout(never)


def test_client_without_auto_ack_sends_no_ack(client: Client, tap: Tap) -> None:
    inbox = Inbox()
    client.subscribe(ORDERS, inbox, max_backlog=5)
    client.publish(ORDERS, "a")
    inbox.until(1)
    client.flush_acks()
    assert tap.acks() == []


def test_explicit_ack_goes_at_once_and_leaves_the_buffer(client: Client, tap: Tap) -> None:
    client.set_auto_ack(True).set_ack_batch_size(10).set_ack_timeout(0)
    inbox = Inbox()
    client.subscribe(ORDERS, inbox)
    for body in ("a", "b"):
        client.publish(ORDERS, body)
    first, second = inbox.until(2)
    until_pending(client, 2)
    assert client.ack(ORDERS, first.bookmark, first.sub_id) == 1
    assert (tap.bookmarks(), client.pending_acks) == ([[first.bookmark]], 1)
    client.flush_acks()
    assert tap.bookmarks() == [[first.bookmark], [second.bookmark]]


def test_handler_that_acked_itself_causes_no_second_ack(client: Client, tap: Tap) -> None:
    client.set_auto_ack(True).set_ack_batch_size(10).set_ack_timeout(0)
    done = Inbox()

    def handle(message: Message) -> None:
        client.ack_message(message)
        done(message)

    client.subscribe(ORDERS, handle)
    client.publish(ORDERS, "a")
    client.publish(ORDERS, "b")
    done.until(2)
    client.flush_acks()
    assert sorted(map(len, tap.bookmarks())) == [1, 1]


def test_failed_send_is_raised_and_the_bookmarks_stay(client: Client, tap: Tap, orders: ackwise.Connection) -> None:
    client.set_auto_ack(True).set_ack_batch_size(10).set_ack_timeout(0)
    inbox = Inbox()
    client.subscribe(ORDERS, inbox)
    client.publish(ORDERS, "a")
    (message,) = inbox.until(1)
    until_pending(client, 1)
    tap.answer = lambda header: refusal(header, "not now") if header.command == "ack" else None
    with pytest.raises(CommandFailed, match="not now"):
        client.flush_acks()
    with pytest.raises(CommandFailed, match="not now"):
        client.ack(ORDERS, message.bookmark)
    assert (client.pending_acks, lag(orders)) == (1, 1)
    tap.answer = lambda header: None
    client.flush_acks()
    assert (client.pending_acks, lag(orders)) == (0, 0)


def test_errors_of_timed_flushes_reach_the_callback(tap: Tap, orders: ackwise.Connection) -> None:
    heard: list[AckwiseError] = []
    news = threading.Event()

    def hear(problem: AckwiseError) -> None:
        heard.append(problem)
        news.set()

    tap.answer = lambda header: refusal(header, "not now") if header.command == "ack" else None
    with Client("tested", on_ack_error=hear).connect(tap.uri).logon() as client:
        client.set_auto_ack(True).set_ack_batch_size(10).set_ack_timeout(0.01)
        client.subscribe(ORDERS, Inbox())
        client.publish(ORDERS, "a")
        assert news.wait(PATIENCE)
        assert isinstance(heard[0], CommandFailed)
        assert client.pending_acks == 1
        tap.answer = lambda header: None
        client.flush_acks()
        assert lag(orders) == 0


def test_failing_handler_acks_nothing_and_keeps_lease(
    client: Client, tap: Tap, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "ackwise.amps")
    client.set_auto_ack(True).set_ack_timeout(0)
    inbox = Inbox(b"bad")
    client.subscribe(ORDERS, inbox, max_backlog=5)
    client.publish(ORDERS, "bad")
    client.publish(ORDERS, "good")
    bad, good = inbox.until(2)
    tap.until(lambda: any(one.command == "ack" for one in tap.said))
    assert tap.bookmarks() == [[good.bookmark]]
    inbox.fails.clear()
    clock.advance(30)
    again = inbox.until(3)[2]
    assert again.data == b"bad"
    assert again.bookmark != bad.bookmark


def test_handler_error_with_cancel_returns_message_at_once(
    client: Client, tap: Tap, orders: ackwise.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "ackwise.amps")
    client.set_auto_ack(True)
    inbox = Inbox(b"bad")
    client.subscribe(ORDERS, inbox, on_error="cancel")
    client.publish(ORDERS, "bad")
    inbox.until(3)
    tap.until(lambda: sum(one.command == "ack" for one in tap.said) == 3)
    client.flush()
    assert [one.options for one in tap.acks()] == [{"cancel": ""}] * 3
    (letter,) = orders.dead_letters("orders")
    assert (letter.reason, letter.error) == ("retry_limit", "cancelled")


def test_lost_connection_clears_what_waits_and_counts_it(tap: Tap, caplog: pytest.LogCaptureFixture) -> None:
    lost: list[tuple[str, int]] = []
    with Client("tested", on_disconnect=lambda *what: lost.append(what)).connect(tap.uri).logon() as client:
        client.set_auto_ack(True).set_ack_batch_size(10).set_ack_timeout(0)
        inbox = Inbox()
        client.subscribe(ORDERS, inbox)
        for body in ("a", "b", "c"):
            client.publish(ORDERS, body)
        inbox.until(3)
        until_pending(client, 3)
        tap.cut()
        inbox.until(6)
        assert client.dropped_acks == 3
        assert [dropped for _, dropped in lost] == [3]
        assert "3 acks dropped" in caplog.text


def test_clean_close_flushes_first(tap: Tap, orders: ackwise.Connection) -> None:
    with Client("tested").connect(tap.uri).logon() as client:
        client.set_auto_ack(True).set_ack_batch_size(10).set_ack_timeout(0)
        inbox = Inbox()
        client.subscribe(ORDERS, inbox)
        client.publish(ORDERS, "a")
        inbox.until(1)
        until_pending(client, 1)
    assert [one.command for one in tap.said][-2:] == ["ack", "disconnect"]
    assert lag(orders) == 0


def test_result_of_an_ack_is_asked_for_and_told(client: Client, tap: Tap) -> None:
    inbox = Inbox()
    client.subscribe(ORDERS, inbox)
    client.publish(ORDERS, "a")
    (message,) = inbox.until(1)
    assert client.ack_message(message) == 1
    assert client.ack_message(message) == 0, "it was done before"
    assert all(one.cid and one.acknowledgements == ["processed"] for one in tap.acks())


def test_iterating_acks_a_message_when_the_next_is_asked_for(client: Client, tap: Tap) -> None:
    client.set_auto_ack(True).set_ack_timeout(0)
    client.publish(ORDERS, "a")
    client.publish(ORDERS, "b")
    stream = iter(client.subscribe(ORDERS, max_backlog=5))
    first = next(stream)
    client.flush_acks()
    assert tap.acks() == [], "it was only read"
    second = next(stream)
    client.flush_acks()
    assert (first.data, second.data) == (b"a", b"b")
    assert tap.bookmarks() == [[first.bookmark]]


def test_leaving_the_loop_leaves_its_message_unacked(client: Client, tap: Tap, orders: ackwise.Connection) -> None:
    client.set_auto_ack(True)
    client.publish(ORDERS, "a")
    for _ in client.subscribe(ORDERS):
        break
    client.close()
    assert tap.acks() == []
    assert lag(orders) == 1
    with orders.claim("orders") as batch:
        assert [one.failures for one in batch] == [0], "and it costs nothing"


def test_message_without_handler_is_never_acked(client: Client, tap: Tap) -> None:
    client.set_auto_ack(True)
    tap.tell(Header(c="p", t=ORDERS, bm="1|1|", lp="20251231T235959.000000Z", sub_id="nobody"), b"for nobody")
    client.flush()
    client.flush_acks()
    assert (client.pending_acks, tap.acks()) == (0, [])


def test_messages_pending_at_unsubscribe_are_not_acked(client: Client, tap: Tap, orders: ackwise.Connection) -> None:
    client.set_auto_ack(True)
    inbox = Inbox()
    inbox.hold.clear()
    subscription = client.subscribe(ORDERS, inbox, max_backlog=5)
    for body in ("a", "b", "c"):
        client.publish(ORDERS, body)
    inbox.until(1)
    threading.Timer(0.05, inbox.hold.set).start()
    subscription.unsubscribe()
    assert inbox.bodies == [b"a"]
    assert lag(orders) == 2


def test_cancel_is_not_an_ack(client: Client, tap: Tap) -> None:
    inbox = Inbox()
    client.subscribe(ORDERS, inbox)
    client.publish(ORDERS, "a")
    first = inbox.until(1)[0]
    assert client.cancel(first) == 1
    second = inbox.until(2)[1]
    assert client.cancel(ORDERS, second.bookmark) == 1
    inbox.until(3)
    assert [one.options for one in tap.acks()] == [{"cancel": ""}] * 2


def test_expire_makes_a_dead_letter(client: Client, orders: ackwise.Connection) -> None:
    inbox = Inbox()
    client.subscribe(ORDERS, inbox)
    client.publish(ORDERS, "a")
    assert client.expire(inbox.until(1)[0]) == 1
    (letter,) = orders.dead_letters("orders")
    assert letter.reason == "rejected"


def test_flush_sends_one_ordered_frame_per_key(client: Client, tap: Tap) -> None:
    client.flush_acks()
    assert tap.acks() == []
    client.set_auto_ack(True).set_ack_batch_size(100).set_ack_timeout(0)
    for topic in ("queue://b", "queue://c", "queue://a"):
        inbox = Inbox()
        client.subscribe(topic, inbox)
        client.publish(topic, "x")
        inbox.until(1)
    until_pending(client, 3)
    client.flush_acks()
    assert [one.subject for one in tap.acks()] == ["queue://a", "queue://b", "queue://c"]


def test_errors_of_the_methods(client: Client) -> None:
    with pytest.raises(CommandFailed, match="topic is required for ack"):
        client.ack("", "1|1|")
    with pytest.raises(CommandFailed, match="bookmark is required for ack"):
        client.ack(ORDERS, "")
    with pytest.raises(CommandFailed, match="is not a queue"):
        client.ack(NEWS, "1|1|")
    unconnected = Client()
    for call in (lambda: unconnected.ack(ORDERS, "1|1|"), lambda: unconnected.publish(ORDERS, ""), unconnected.logon):
        with pytest.raises(Disconnected):
            call()
    unconnected.flush_acks()


def test_oversized_ack_list_is_sent_in_several_frames(
    client: Client, tap: Tap, orders: ackwise.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.set_auto_ack(True).set_ack_batch_size(100).set_ack_timeout(0)
    inbox = Inbox()
    client.subscribe(ORDERS, inbox)
    for number in range(10):
        client.publish(ORDERS, str(number))
    found = [one.bookmark for one in inbox.until(10)]
    until_pending(client, 10)
    monkeypatch.setattr(ack_batches, "LONGEST_BOOKMARKS", 3 * (max(map(len, found)) + 1))
    client.flush_acks()
    assert [mark for some in tap.bookmarks() for mark in some] == found
    assert [len(some) for some in tap.bookmarks()] == [3, 3, 3, 1]
    assert (client.pending_acks, lag(orders)) == (0, 0)
    assert ack_batches.LONGEST_BOOKMARKS < LONGEST_HEADER


def test_batch_is_full_when_server_delivers_no_more(client: Client, tap: Tap, orders: ackwise.Connection) -> None:
    orders.create_queue("orders", notes={"amps_max_backlog": 3})
    client.set_auto_ack(True).set_ack_batch_size(10).set_ack_timeout(0)
    inbox = Inbox()
    client.subscribe(ORDERS, inbox)
    for number in range(6):
        client.publish(ORDERS, str(number))
    inbox.until(6)
    tap.until(lambda: sum(one.command == "ack" for one in tap.said) == 2)
    assert [len(some) for some in tap.bookmarks()] == [3, 3]


def test_refused_flush_does_not_keep_a_subscription_alive(client: Client, tap: Tap, orders: ackwise.Connection) -> None:
    client.set_auto_ack(True).set_ack_batch_size(10).set_ack_timeout(0)
    inbox = Inbox()
    subscription = client.subscribe(ORDERS, inbox)
    client.publish(ORDERS, "a")
    inbox.until(1)
    until_pending(client, 1)
    tap.answer = lambda header: refusal(header, "not now") if header.command == "ack" else None
    with pytest.raises(CommandFailed, match="not now"):
        client.unsubscribe(subscription)
    assert (client.pending_acks, client.dropped_acks) == (0, 1)
    (again,) = orders.claim("orders", wait=PATIENCE)
    assert again.failures == 0


def test_refused_flush_does_not_block_logoff(tap: Tap, orders: ackwise.Connection) -> None:
    client = Client("tested").connect(tap.uri).logon()
    client.set_auto_ack(True).set_ack_batch_size(10).set_ack_timeout(0)
    inbox = Inbox()
    client.subscribe(ORDERS, inbox)
    client.publish(ORDERS, "a")
    inbox.until(1)
    until_pending(client, 1)
    tap.answer = lambda header: refusal(header, "not now") if header.command == "ack" else None
    with pytest.raises(CommandFailed, match="not now"):
        client.close()
    (again,) = orders.claim("orders", wait=PATIENCE)
    assert again.failures == 0


def test_subscription_whose_answer_did_not_come_is_taken_back(
    server: Running, tap: Tap, orders: ackwise.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has it: what it was handed goes back."""
    orders.push("orders", "a")
    assert server.server.amps is not None
    service, late = server.server.amps._service, threading.Event()
    options = service.queue_options

    async def slow(topic: str, queue: str) -> QueueOptions:
        while not late.is_set():
            await asyncio.sleep(0.01)
        return await options(topic, queue)

    monkeypatch.setattr(service, "queue_options", slow)
    with Client("tested", timeout=0.5).connect(tap.uri).logon() as client:
        with pytest.raises(NoAnswer):
            client.subscribe(ORDERS, Inbox())
        late.set()
        tap.until(lambda: any(one.command == "unsubscribe" for one in tap.said))
        client._timeout = PATIENCE
        client.flush()
        (session,) = service.sessions
        assert session.subscriptions == {}
        (again,) = orders.claim("orders", wait=PATIENCE)
        assert again.failures == 0
