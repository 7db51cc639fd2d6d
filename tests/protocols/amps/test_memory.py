"""Memory of AMPS clients counts by their address: one address cannot stop the others."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from ackwise.protocols.amps.server_state import AmpsService
from ackwise.protocols.http_request import IncomingBytes
from tests.broker.watched import until
from tests.protocols.amps.peer import Peer
from tests.server.running import Running
from tests.server.wire import Wire

MEMORY = 16 << 20
BODY = b"x" * (1 << 20)
HOST = "127.0.0.1"
OTHER = "127.0.0.2"


@pytest.fixture
def server(store_url: str) -> Iterator[Running]:
    with Running(store_url, amps_port=0, answer_memory=MEMORY, answer_bytes=4 << 20, grace=0.05) as running:
        yield running


def service_of(server: Running) -> AmpsService:
    assert server.server.amps is not None
    return server.server.amps._service


def silent_listener(server: Running) -> Peer:
    """Subscribes to a plain topic and reads nothing."""
    peer = Peer(server.amps)
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.subscribe("plain", backlog=None)
    return peer


def test_unread_topic_messages_stay_within_a_share(server: Running) -> None:
    service, peak = service_of(server), 0
    listeners = [silent_listener(server) for _ in range(12)]
    with contextlib.ExitStack() as open_peers:
        for peer in listeners:
            open_peers.callback(peer.close)
        publisher = open_peers.enter_context(Peer(server.amps, source=OTHER))
        for _ in range(8):
            publisher.publish("plain", BODY)
            peak = max(peak, service.memory._by_peer[HOST])
        assert MEMORY // 4 < peak <= MEMORY // 2 + 2 * len(BODY), "counted while they wait, up to half of the memory"
        until(lambda: len(service.sessions) < 13)
        with Wire(server.address, source=OTHER) as wire:
            wire.ask("GET", "/api/v1/pop/queue/x")
            reply = wire.reply()
            assert reply is not None
            assert reply.status == 204, "another address is served"
    until(lambda: not service.sessions)
    assert service.memory.used == 0


def test_unfinished_frames_stay_within_a_share(server: Running) -> None:
    service = service_of(server)
    service.incoming = IncomingBytes(4 << 20, share=0.5)
    half = (8 << 20).to_bytes(4, "big") + b"x" * (1 << 20)
    with Peer(server.amps) as first, Peer(server.amps) as second, Peer(server.amps, source=OTHER) as other:
        first.send(half)
        until(lambda: service.incoming._by_peer[HOST] > 1 << 20)
        with contextlib.suppress(ConnectionError):
            second.send(half)
        assert second.ended()
        other.send(half)
        until(lambda: service.incoming._by_peer[OTHER] > 1 << 20)
        assert len(service.sessions) == 2


def test_subscription_above_its_share_gets_nothing(server: Running) -> None:
    """A queue serves clients at other addresses meanwhile, and the client again when its address has read."""
    service = service_of(server)
    with Peer(server.amps) as crowded, Peer(server.amps, source=OTHER) as free, Peer(server.amps) as publisher:
        server.do(lambda: service.memory.add(MEMORY // 2, HOST))
        crowded.subscribe("queue://q")
        free.subscribe("queue://q", backlog=3)
        publisher.publish("queue://q", b"1", b"2", b"3")
        assert sorted(delivery.body for delivery in free.deliveries(3)) == [b"1", b"2", b"3"]
        publisher.publish("queue://q", b"4")
        assert crowded.nothing_comes()
        server.do(lambda: service.memory.free(MEMORY // 2, HOST))
        assert crowded.deliveries(1)[0].body == b"4"
