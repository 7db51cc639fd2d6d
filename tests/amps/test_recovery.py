"""The connection breaks: what is lost, what comes back, and by itself."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest

import ackwise
from ackwise.amps import Client, CommandFailed, Disconnected
from ackwise.amps.sync import reconnect
from ackwise.core.errors import AckwiseError
from ackwise.wire.amps import Header
from tests.amps.conftest import uri_of
from tests.amps.inbox import Inbox
from tests.amps.orders import ORDERS, lag, until_pending
from tests.amps.tap import Tap, refusal
from tests.patience import PATIENCE
from tests.server.running import Running


def test_cut_connection_is_restored_with_its_subscription(tap: Tap, orders: ackwise.Connection) -> None:
    lost: list[int] = []
    with Client("tested", on_disconnect=lambda _, dropped: lost.append(dropped)).connect(tap.uri).logon() as client:
        client.set_auto_ack(True).set_ack_batch_size(10).set_ack_timeout(0)
        inbox = Inbox()
        subscription = client.subscribe(ORDERS, inbox, max_backlog=7)
        for body in ("a", "b", "c"):
            client.publish(ORDERS, body)
        before = inbox.until(3)
        until_pending(client, 3)
        tap.cut()
        after = inbox.until(6)[3:]
        assert client.wait_connected(PATIENCE)
        made = [one for one in tap.said if one.command == "subscribe"]
        assert [one.sub_id for one in made] == [subscription.sub_id] * 2
        assert [one.options for one in made] == [{"max_backlog": "7"}] * 2
        assert [one.command for one in tap.said if one.command == "logon"] == ["logon"] * 2
        assert (client.auto_ack, client.ack_batch_size, client.ack_timeout) == (True, 10, 0.0)
        assert (lost, client.dropped_acks) == ([3], 3)
        assert tap.acks() == []
        assert [one.data for one in after] == [one.data for one in before]
        assert {one.sub_id for one in after} == {subscription.sub_id}
        assert not {one.bookmark for one in after} & {one.bookmark for one in before}
        until_pending(client, 3)
        client.flush_acks()
        assert lag(orders) == 0


def test_reconnect_leaves_no_ack_to_flush(tap: Tap, client: Client) -> None:
    client.set_auto_ack(True).set_ack_batch_size(10).set_ack_timeout(0)
    inbox = Inbox()
    client.subscribe(ORDERS, inbox)
    client.publish(ORDERS, "a")
    inbox.until(1)
    until_pending(client, 1)
    inbox.hold.clear()
    tap.cut()
    inbox.until(2)
    assert (client.pending_acks, client.dropped_acks) == (0, 1)
    client.flush_acks()
    assert tap.acks() == []
    inbox.hold.set()


def test_handler_result_after_cut_is_not_acked(tap: Tap, client: Client) -> None:
    client.set_auto_ack(True).set_ack_timeout(0)
    inbox = Inbox()
    inbox.hold.clear()
    client.subscribe(ORDERS, inbox)
    client.publish(ORDERS, "a")
    inbox.until(1)
    tap.cut()
    assert client.wait_connected(PATIENCE)
    tap.until(lambda: sum(one.command == "subscribe" for one in tap.said) == 2)
    inbox.hold.set()
    second = inbox.until(2)[1]
    tap.until(lambda: any(one.command == "ack" for one in tap.said))
    assert tap.bookmarks() == [[second.bookmark]]
    assert client.dropped_acks == 1


def test_next_uri_is_tried(server: Running, tap: Tap) -> None:
    with (
        Tap(server.amps) as second,
        Client("tested").connect([tap.uri, second.uri]).logon() as client,
    ):
        assert client.uri == tap.uri
        inbox = Inbox()
        subscription = client.subscribe(ORDERS, inbox, max_backlog=3)
        tap.close()
        second.until(lambda: any(one.command == "subscribe" for one in second.said))
        assert client.wait_connected(PATIENCE)
        assert client.uri == second.uri
        assert [one.sub_id for one in second.said if one.command == "subscribe"] == [subscription.sub_id]
        client.publish(ORDERS, "over the other line")
        assert inbox.until(1)[0].data == b"over the other line"


def test_first_uri_need_not_answer(uri: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"tcp://127.0.0.1:{taken.getsockname()[1]}/amps/json"
    with Client().connect([nobody, uri]).logon() as client:
        assert client.uri == uri
    with pytest.raises(Disconnected, match="no server answers"):
        Client().connect(nobody)


def test_server_that_comes_back_finds_its_client_again(tap: Tap, client: Client) -> None:
    """Also when it does not take the client at once."""
    inbox = Inbox()
    client.subscribe(ORDERS, inbox, max_backlog=3)
    refused = threading.Event()

    def refuse(header: object) -> object:
        if getattr(header, "command", "") != "logon" or refused.is_set():
            return None
        refused.set()
        return refusal(header, "come back later")  # type: ignore[arg-type]

    tap.answer = refuse  # type: ignore[assignment]
    tap.cut()
    tap.until(lambda: sum(one.command == "subscribe" for one in tap.said) == 2)
    assert refused.is_set()
    assert client.wait_connected(PATIENCE)
    client.publish(ORDERS, "a")
    inbox.until(1)


def test_calls_without_a_connection_raise_disconnected(tap: Tap, client: Client) -> None:
    tap.answer = lambda header: refusal(header) if header.command == "logon" else None
    tap.cut()
    tap.until(lambda: sum(one.command == "logon" for one in tap.said) > 1)
    assert not client.connected
    with pytest.raises(Disconnected):
        client.ack(ORDERS, "1|1|")
    with pytest.raises(Disconnected):
        client.publish(ORDERS, "a")
    client.flush_acks()


def test_refused_logon_is_raised(tap: Tap) -> None:
    tap.answer = lambda header: refusal(header, "who are you?")
    with pytest.raises(CommandFailed, match="who are you"):
        Client().connect(tap.uri).logon("me", "secret")
    assert [(one.user_id, one.pw) for one in tap.said] == [("me", "secret")]


def test_user_and_password_may_be_in_the_uri(server: Running, tap: Tap) -> None:
    with Client().connect(tap.uri.replace("tcp://", "tcp://me:a%20b@")).logon() as client:
        assert client.uri == tap.uri
    assert (tap.said[0].user_id, tap.said[0].pw) == ("me", "a b")


def test_cut_costs_a_failure_and_a_goodbye_does_not(tap: Tap, uri: str, orders: ackwise.Connection) -> None:
    with Client("a").connect(uri).logon() as client:
        client.publish(ORDERS, "x")
        inbox = Inbox()
        client.subscribe(ORDERS, inbox)
        inbox.until(1)
    (delivery,) = orders.claim("orders")
    assert delivery.failures == 0
    delivery.release()
    with Client("b").connect(tap.uri).logon() as client:
        inbox = Inbox()
        client.subscribe(ORDERS, inbox)
        inbox.until(1)
        tap.close()
        with orders.claim("orders", wait=PATIENCE) as batch:
            assert [one.failures for one in batch] == [1]


def test_client_and_server_probe_an_idle_connection(server: Running, client: Client) -> None:
    """An end that vanished without a word is noticed before the next leases run out."""
    assert server.server.amps is not None
    assert client._connection is not None
    (session,) = server.server.amps._service.sessions
    there = session.connection._transport.get_extra_info("socket")
    for end in (there, client._connection._socket._socket):
        assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


def test_subscription_moves_to_another_server_of_the_store(server: Running) -> None:
    """Both serve one database; messages and their subscriber change sides."""
    other = Running(server._store, server._clock, amps_port=0, grace=0.05)
    try:
        with Client().connect([uri_of(other), uri_of(server)]).logon() as client:
            client.set_auto_ack(True)
            inbox = Inbox()
            client.subscribe(ORDERS, inbox, max_backlog=3)
            client.publish(ORDERS, "a")
            inbox.until(1)
            other.stop()
            assert client.wait_connected(PATIENCE)
            client.publish(ORDERS, "b")
            inbox.until_so(lambda: b"b" in [one.data for one in inbox.messages])
    finally:
        if other._thread.is_alive():
            other.stop()


def test_acks_that_were_answered_are_not_counted_as_dropped(tap: Tap, client: Client) -> None:
    """Two frames are under way, one is answered, the line breaks."""
    bills = "queue://bills"
    client.set_auto_ack(True).set_ack_batch_size(10).set_ack_timeout(0)
    inbox = Inbox()
    for topic in (ORDERS, bills):
        client.subscribe(topic, inbox)
        client.publish(topic, "x")
    inbox.until(2)
    until_pending(client, 2)
    inbox.hold.clear()
    swallowed = Header(c="heartbeat")
    tap.answer = lambda header: swallowed if header.command == "ack" and header.subject == ORDERS else None
    failed: list[AckwiseError] = []

    def flush() -> None:
        try:
            client.flush_acks()
        except AckwiseError as problem:
            failed.append(problem)

    flushing = threading.Thread(target=flush)
    flushing.start()
    until_so(lambda: client._acks._under_way == 1)
    tap.answer = lambda header: None
    tap.cut()
    flushing.join(PATIENCE)
    until_so(lambda: client.dropped_acks > 0)
    assert (client.dropped_acks, len(failed)) == (1, 1)
    inbox.hold.set()


def test_uri_that_cannot_be_looked_up_is_passed_over(tap: Tap, uri: str) -> None:
    nowhere = "tcp://a..b:9007/amps/json"
    with Client().connect([nowhere, uri]).logon() as client:
        assert client.uri == uri
    with Client().connect([tap.uri, nowhere]).logon() as client:
        tap.cut()
        tap.until(lambda: sum(one.command == "logon" for one in tap.said) == 2)
        assert client.wait_connected(PATIENCE)


def test_refused_subscription_does_not_block_others(tap: Tap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect, "MOST_REFUSALS", 2)
    problems: list[AckwiseError] = []
    with Client(on_ack_error=problems.append).connect(tap.uri).logon() as client:
        inbox = Inbox()
        client.subscribe(ORDERS, inbox)
        other = client.subscribe("queue://other")
        tap.answer = lambda header: (
            refusal(header, "not any more")
            if header.command == "subscribe" and header.subject == "queue://other"
            else None
        )
        tap.cut()
        until_so(lambda: problems != [])
        assert client.wait_connected(PATIENCE)
        assert "queue://other ended: not any more" in problems[0].message
        assert list(other) == [], "it has ended"
        client.publish(ORDERS, "a")
        inbox.until(1)
        assert len(problems) == 1


def until_so(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_filter_is_sent_and_outlives_a_reconnect(tap: Tap, client: Client) -> None:
    inbox = Inbox()
    client.set_auto_ack(True)
    client.subscribe(ORDERS, inbox, filter="/total > 5")
    for total in (3, 7):
        client.publish(ORDERS, {"total": total})
    inbox.until(1)
    client.flush_acks()
    tap.cut()
    assert client.wait_connected(PATIENCE)
    tap.until(lambda: sum(one.command == "subscribe" for one in tap.said) == 2)
    with Client("publisher").connect(tap.uri).logon() as publisher:
        for total in (4, 8):
            publisher.publish(ORDERS, {"total": total})
        inbox.until_so(lambda: b'{"total":8}' in [message.data for message in inbox.messages])
    assert {message.data for message in inbox.messages} == {b'{"total":7}', b'{"total":8}'}
    assert [one.filter for one in tap.said if one.command == "subscribe"] == ["/total > 5"] * 2


def test_refused_filter_is_raised_with_its_name(client: Client) -> None:
    with pytest.raises(CommandFailed, match="'INSTR'"):
        client.subscribe(ORDERS, Inbox(), filter="INSTR(/a, 'x') > 0")
