"""Bad input is answered or the connection is closed. It changes nothing and disturbs no other client."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

import ackwise
from ackwise.core.commands import Push
from ackwise.core.errors import OutcomeUnknown
from ackwise.protocols.amps import ack
from ackwise.protocols.amps import connection as lines
from ackwise.protocols.amps import session as sessions
from ackwise.protocols.http_request import IncomingBytes
from ackwise.wire import amps_bookmarks
from tests.protocols.amps.conftest import Meet
from tests.protocols.amps.peer import Peer, frame
from tests.server.running import Running
from tests.server.wire import Wire

Q = "queue://q"


@pytest.fixture
def witness(meet: Meet) -> Iterator[Peer]:
    """Another client, which must not be affected."""
    peer = meet(name="witness")
    peer.subscribe("queue://witness", 5)
    yield peer
    peer.say({"c": "p", "t": "queue://witness"}, b"still here")
    assert peer.read().body == b"still here"


FRAMES = {
    "a length of 4 GiB": b"\xff\xff\xff\xff",
    "a length over the limit": (16 << 20).to_bytes(4, "big")[:1] + b"\xff\xff\xff",
    "an empty frame": frame(b""),
    "not JSON": frame(b"hello"),
    "a header that does not end": frame(b'{"c":"p","t":"x'),
    "a list": frame(b'["c"]'),
    "nested": frame(b'{"c":{"d":1}}'),
    "nested deeply": frame(b'{"c":' * 100_000),
    "lists in lists": frame(b'{"c":' + b"[" * 100_000),
    "not UTF-8": frame(b'{"c":"\xff"}'),
    "a lone quote": frame(b'{"}'),
    "a bare word": frame(b'{"c":flush}'),
    "a trailing comma": frame(b'{"c":"flush",}'),
    "a number out of range": frame(b'{"cid":1e999}'),
    "a header of two megabytes": frame(b'{"c":"' + b"x" * (2 << 20) + b'"}'),
}


@pytest.mark.parametrize("logged_on", [True, False])
def test_malformed_frame_is_refused_and_closes_the_line(logged_on: bool, meet: Meet, witness: Peer) -> None:
    for what, data in FRAMES.items():
        peer = meet(logon=logged_on)
        peer.send(data)
        refused = peer.read()
        assert (refused["c"], refused["a"], refused["status"]) == ("ack", "processed", "failure"), what
        assert refused["reason"], what
        assert peer.ended(), what


def test_frames_before_a_malformed_frame_are_executed(meet: Meet, http: ackwise.Connection, witness: Peer) -> None:
    peer = meet()
    peer.send(frame(b'{"c":"p","t":"queue://q"}a') + frame(b'{"c":"p","t":"queue://q"}b') + b"\xff\xff\xff\xff")
    assert peer.read()["status"] == "failure"
    assert peer.ended()
    assert http.stats("q").messages == 2


def test_truncated_frame_is_nothing(meet: Meet, http: ackwise.Connection, witness: Peer) -> None:
    peer = meet()
    peer.send(frame(b'{"c":"p","t":"queue://q"}whole') + frame(b'{"c":"p","t":"queue://q"}half')[:-2])
    peer.close()
    (delivery,) = http.claim("q", max=5, wait=30)
    assert delivery.payload == b"whole"


def test_first_frame_must_be_logon(meet: Meet, witness: Peer) -> None:
    for first in ({"c": "p", "t": Q}, {"c": "subscribe", "cid": "1", "t": Q}, {"c": "flush", "cid": "1"}, {}):
        peer = meet(logon=False)
        peer.say(first)
        refused = peer.read()
        assert refused.outcome == ("processed", "failure")
        assert "logon" in refused["reason"]
        assert refused.header.get("cid") == first.get("cid")
        assert peer.ended()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown command": ({"c": "dance"}, "no command"),
    "no command": ({"t": Q}, "no command"),
    "a number for a command": ({"c": 7}, "no command"),
    "a second logon": ({"c": "logon"}, "already"),
    "no topic": ({"c": "subscribe"}, "topic"),
    "a queue without a name": ({"c": "subscribe", "t": "queue://"}, "name"),
    "a topic that is too long": ({"c": "subscribe", "t": "queue://" + "x" * 300}, "longer"),
    "a topic that cannot be stored": ({"c": "subscribe", "t": "queue://a\0b"}, "NUL"),
    "a subscription id that is too long": ({"c": "subscribe", "t": Q, "sub_id": "x" * 300}, "longer"),
    "a backlog of words": ({"c": "subscribe", "t": Q, "opts": "max_backlog=many"}, "max_backlog"),
    "a backlog of nothing": ({"c": "subscribe", "t": Q, "opts": "max_backlog=0"}, "max_backlog"),
    "a backlog below nothing": ({"c": "subscribe", "t": Q, "opts": "max_backlog=-1"}, "max_backlog"),
    "a backlog beyond all": ({"c": "subscribe", "t": Q, "opts": "max_backlog=" + "9" * 5000}, "max_backlog"),
    "a group that cannot be": ({"c": "subscribe", "t": Q, "opts": "group=" + "g" * 300}, "group"),
    "an unknown subscription": ({"c": "unsubscribe", "sub_id": "nobody"}, "no subscription"),
    "an ack without a topic": ({"c": "ack", "bm": "1|1|"}, "topic is required for ack"),
    "an ack without a bookmark": ({"c": "ack", "t": Q}, "bookmark is required for ack"),
    "an ack of commas": ({"c": "ack", "t": Q, "bm": ",,,"}, "bookmark is required for ack"),
    "an ack of a plain topic": ({"c": "ack", "t": "news", "bm": "1|1|"}, "not a queue"),
    "a delete by filter": ({"c": "sow_delete", "t": Q, "filter": "1=1"}, "bookmark is required for ack"),
    "a heartbeat of words": ({"c": "heartbeat", "opts": "start,often"}, "seconds"),
    "a heartbeat all the time": ({"c": "heartbeat", "opts": "start,0"}, "seconds"),
    "a publish to nothing": ({"c": "p", "a": "persisted"}, "topic"),
    "a publish that expires in words": ({"c": "p", "t": Q, "e": "soon", "a": "persisted"}, "e must be"),
    "a publish that never expires": ({"c": "p", "t": Q, "e": 1e300, "a": "persisted"}, "e must be"),
}


def test_impossible_command_is_refused_and_the_line_stays_open(
    meet: Meet, http: ackwise.Connection, witness: Peer
) -> None:
    peer = meet()
    for what, (said, reason) in REFUSED.items():
        (refused,) = peer.ask({"cid": "x", **said})
        assert (refused["cid"], refused["status"]) == ("x", "failure"), what
        assert reason in refused["reason"], what
        assert len(refused["reason"]) < 400, what
        assert peer.nothing_comes(), what
        peer.say({**said, "c": said.get("c", "dance")})
        assert peer.nothing_comes(), f"{what}: without a cid nothing is answered"
        assert [info.name for info in http.queues()] == ["witness"], what


def test_message_that_is_too_large_is_refused_alone(meet: Meet, http: ackwise.Connection) -> None:
    http.create_queue("q", max_payload_bytes=10)
    peer = meet()
    said = b"".join(
        frame(b'{"c":"p","cid":%d,"t":"queue://q","a":"persisted"}%b' % (number, body))
        for number, body in enumerate([b"small", b"far too large a body", b"small too"])
    )
    peer.send(said)
    answers = {one["cid"]: one for one in (peer.read() for _ in range(3))}
    assert [answers[number]["status"] for number in range(3)] == ["success", "failure", "success"]
    assert "limit" in answers[1]["reason"]
    assert [one.payload for one in http.claim("q", max=5)] == [b"small", b"small too"]


def test_largest_frame_is_a_setting(store_url: str) -> None:
    with Running(store_url, amps_port=0, amps_max_frame=1000, grace=0.05) as server, Peer(server.amps) as peer:
        peer.publish(Q, b"x" * 900)
        peer.say({"c": "p", "t": Q}, b"x" * 1000)
        assert "over the limit of 1000" in peer.read()["reason"]
        assert peer.ended()


def test_another_clients_subscription_cannot_be_ended(meet: Meet) -> None:
    one, other = meet(), meet()
    one.subscribe(Q, 5, sub_id="mine")
    (refused,) = other.ask({"c": "unsubscribe", "cid": "1", "sub_id": "mine", "a": "processed"})
    assert refused.outcome == ("processed", "failure")
    other.publish(Q, b"a")
    assert one.read().body == b"a"


def written(server: Running) -> int:
    """Bytes that wait in the server for clients to read them."""
    assert server.server.amps is not None
    return sum(one.connection._transport.get_write_buffer_size() for one in list(server.server.amps._service.sessions))


def test_subscriber_that_never_reads_blocks_no_other(meet: Meet, server: Running, http: ackwise.Connection) -> None:
    large, count = b"x" * (1 << 20), 80
    for _ in range(count // 20):
        http.push_many("q", [large] * 20)
    deaf = meet()
    deaf.subscribe(Q, 50)
    end = time.monotonic() + 30
    while written(server) < lines.HIGH_WATER:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert written(server) < 16 << 20, "not all the fifty it may hold"
    other = meet()
    other.subscribe(Q, 1)
    for done in range(count):
        (delivery,) = other.deliveries(1)
        assert other.ack(Q, delivery["bm"]) == 1
        assert written(server) < 16 << 20
        if done == 20:
            deaf.die()
    assert sum(group.lag for group in http.groups("q")) == 0


def test_client_that_asks_and_never_reads_is_not_read_either(meet: Meet, server: Running, witness: Peer) -> None:
    deaf = meet()
    deaf.socket.settimeout(0.5)
    question = frame(b'{"c":"flush","cid":"%b","a":"processed"}' % (b"x" * 1000)) * 100
    with pytest.raises(TimeoutError):
        deaf.send(question * 2000)
    assert written(server) < 8 << 20


def test_listener_that_never_reads_is_cut_off(
    meet: Meet, server: Running, monkeypatch: pytest.MonkeyPatch, witness: Peer
) -> None:
    monkeypatch.setattr(lines, "MOST_UNREAD", 2 << 20)
    deaf, good = meet(), meet()
    deaf.subscribe("news", None)
    publisher = meet()
    for _ in range(40):
        publisher.publish("news", b"x" * (1 << 20))
    assert written(server) < 4 << 20
    good.subscribe("news", None)
    publisher.publish("news", b"fresh")
    assert good.read().body == b"fresh"
    while (one := deaf.read_or_end()) is not None:
        assert one["t"] == "news"


@pytest.mark.parametrize("patience", ["LOGON_PATIENCE", "FRAME_PATIENCE"])
def test_client_that_takes_too_long_is_cut_off(
    patience: str, meet: Meet, monkeypatch: pytest.MonkeyPatch, witness: Peer
) -> None:
    monkeypatch.setattr(lines, patience, 0.05)
    peer = meet(logon=patience != "LOGON_PATIENCE")
    peer.send(b"\0")
    assert peer.ended()


def test_incomplete_frames_above_the_bound_close_the_line(meet: Meet, server: Running, witness: Peer) -> None:
    assert server.server.amps is not None
    server.server.amps._service.incoming = IncomingBytes(1 << 20)
    for _ in range(3):
        with meet() as peer, contextlib.suppress(ConnectionError):
            peer.send((8 << 20).to_bytes(4, "big") + b"x" * (7 << 20))
            assert peer.ended()


def test_connections_above_the_bound_are_refused(store_url: str) -> None:
    with Running(store_url, amps_port=0, max_connections=2, peer_share=1, grace=0.05) as server:
        first, second = Peer(server.amps), Peer(server.amps)
        assert refused(server)
        first.goodbye()
        for peer in (second, soon_met(server)):
            peer.close()


def refused(server: Running) -> bool:
    """Whether the server closes a new connection without an answer to its logon."""
    with Peer(server.amps, logon=False) as late:
        with contextlib.suppress(ConnectionError):
            late.say({"c": "logon", "cid": "0", "a": "processed", "client_name": "late", "mt": "json"})
        return late.ended()


def soon_met(server: Running) -> Peer:
    """A connection, as soon as the server has noticed that another one ended."""
    end = time.monotonic() + 30
    while True:
        try:
            return Peer(server.amps)
        except (AssertionError, ConnectionError):
            assert time.monotonic() < end


def test_amps_address_above_its_share_is_refused(store_url: str) -> None:
    with Running(store_url, amps_port=0, max_connections=4, grace=0.05) as server:
        first, second = Peer(server.amps), Peer(server.amps)
        assert refused(server)
        other = Peer(server.amps, source="127.0.0.2")
        with Wire(server.address) as wire:
            wire.ask("GET", "/livez")
            assert wire.reply() is not None, "each listener has its own share"
        first.goodbye()
        for peer in (second, other, soon_met(server)):
            peer.close()


def only_connection(server: Running) -> lines.AmpsConnection:
    assert server.server.amps is not None
    (session,) = server.server.amps._service.sessions
    return session.connection


def test_client_that_never_pauses_is_not_cut_off_as_slow(meet: Meet, server: Running) -> None:
    """The time that a frame may take begins with that frame, and stands still while nothing is read."""
    peer, half = meet(), frame(b'{"c":"p","t":"queue://q"}x')
    flush = frame(b'{"c":"flush","cid":"f","a":"processed"}')
    peer.send(flush + half[:9])
    peer.read()
    first = only_connection(server)._timers["frame"]
    peer.send(half[9:] + flush + half[:9])
    peer.read()
    connection = only_connection(server)
    assert connection._timers["frame"] is not first
    assert first.cancelled()
    server.do(lambda: connection.pause_reading("test"))
    assert "frame" not in connection._timers
    server.do(lambda: connection.resume_reading("test"))
    assert "frame" in connection._timers


@pytest.mark.parametrize("heavy", ["body", "header"])
def test_pending_bytes_of_a_client_are_bounded(
    heavy: str, meet: Meet, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store takes its time, so much is read and no more."""
    peer = meet()
    session = only_connection(server).session
    broker, go = session.service.broker, asyncio.Event()
    send = broker.send

    async def slow(command: Any) -> Any:
        if isinstance(command, Push):
            await go.wait()
        return await send(command)

    monkeypatch.setattr(broker, "send", slow)
    body, cid = (b"x" * 500_000, b"") if heavy == "body" else (b"", b"x" * 500_000)
    said = frame(b'{"c":"p","t":"queue://q","cid":"%b"}%b' % (cid, body))
    peer.socket.settimeout(1)
    with pytest.raises(TimeoutError):
        peer.send(said * 200)
    assert sessions.MOST_BYTES < session._weight < 2 * sessions.MOST_BYTES
    server.do(go.set)


def test_batch_whose_outcome_is_unknown_is_not_published_again(
    meet: Meet, server: Running, http: ackwise.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    http.create_queue("q")
    peer = meet()
    broker = only_connection(server).session.service.broker
    send = broker.send

    async def unsure(command: Any) -> Any:
        done = await send(command)
        if isinstance(command, Push):
            raise OutcomeUnknown("the commit was not answered")
        return done

    monkeypatch.setattr(broker, "send", unsure)
    peer.send(b"".join(frame(b'{"c":"p","cid":%d,"t":"queue://q","a":"persisted"}x' % number) for number in range(3)))
    assert [peer.read()["status"] for _ in range(3)] == ["failure"] * 3
    assert http.stats("q").messages == 3


def test_ack_of_very_many_bookmarks_leaves_the_loop_to_others(
    meet: Meet, server: Running, monkeypatch: pytest.MonkeyPatch, witness: Peer
) -> None:
    """They are looked at in slices; each is worked off before the next is looked at."""
    peer, most = meet(), [0]
    ranges = amps_bookmarks.ranges

    def counted(texts: Any) -> Any:
        most[0] = max(most[0], len(texts))
        return ranges(texts)

    monkeypatch.setattr(amps_bookmarks, "ranges", counted)
    peer.say({"c": "ack", "cid": "m", "a": "processed", "t": Q, "bm": ",".join(f"1|{n}|" for n in range(0, 20_000, 2))})
    done = peer.read()
    assert (done["status"], done["records_deleted"], most[0]) == ("success", 0, ack.MOST_IN_A_TURN)
