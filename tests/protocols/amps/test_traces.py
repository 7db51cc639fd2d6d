"""Trace context in frames: read from publishes, and written for subscriptions that ask for it."""

from __future__ import annotations

from typing import Any

import pytest

import ackwise
from ackwise.clock import ManualClock
from tests.protocols.amps.conftest import Meet
from tests.protocols.amps.peer import Frame, Peer
from tests.server.running import Running

Q = "queue://q"
PARENT, STATE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "vendor=1"
CONTEXT = {"traceparent": PARENT, "tracestate": STATE}
FIELDS = ("traceparent", "tracestate", "attempt")


@pytest.fixture
def peer(meet: Meet) -> Peer:
    return meet()


@pytest.fixture
def other(meet: Meet) -> Peer:
    return meet()


def traced(peer: Peer, topic: str = Q) -> None:
    peer.subscribe(topic, opts="max_backlog=10,trace_context")


def fields_of(frame: Frame) -> dict[str, Any]:
    return {name: frame.header[name] for name in FIELDS if name in frame.header}


def publish(peer: Peer, topic: str, **fields: Any) -> None:
    (stored,) = peer.ask({"c": "p", "cid": "p", "t": topic, "a": "persisted", **fields}, b"1")
    assert stored.outcome == ("persisted", "success")


def test_context_of_a_publish_is_in_the_stored_message(server: Running, peer: Peer) -> None:
    publish(peer, Q, **CONTEXT)
    publish(peer, Q, traceparent=PARENT)
    publish(peer, Q, traceparent="nonsense", tracestate=STATE)
    publish(peer, Q, tracestate=STATE)
    with ackwise.connect(server.url) as queue:
        headers = [delivery.headers for delivery in queue.claim("q", max=4)]
    assert headers == [CONTEXT, {"traceparent": PARENT}, {}, {}]


def test_subscription_gets_the_context_if_it_asks(peer: Peer, other: Peer) -> None:
    traced(peer)
    publish(other, Q, **CONTEXT)
    publish(other, Q)
    first, second = peer.deliveries(2)
    assert (fields_of(first), fields_of(second)) == (CONTEXT, {})
    assert peer.ack(Q, first["bm"], second["bm"]) == 2


def test_subscription_without_the_option_gets_no_context(peer: Peer, other: Peer) -> None:
    peer.subscribe(Q)
    publish(other, Q, **CONTEXT)
    (frame,) = peer.deliveries(1)
    assert set(frame.header) == {"c", "t", "sids", "sub_id", "bm", "lp"}


def test_context_of_an_http_push_reaches_amps(server: Running, peer: Peer) -> None:
    traced(peer)
    with ackwise.connect(server.url) as queue:
        queue.push("q", 1, headers=CONTEXT)
        queue.push("q", 2, headers={"traceparent": 'no"context', "other": "x"})
    first, second = peer.deliveries(2)
    assert (fields_of(first), fields_of(second)) == (CONTEXT, {})


def test_redelivery_has_its_attempt(peer: Peer, other: Peer) -> None:
    traced(peer)
    publish(other, Q, **CONTEXT)
    (first,) = peer.deliveries(1)
    # The redelivery may come before the answer to the ack.
    ack = {"c": "ack", "cid": "a", "a": "processed", "t": Q, "bm": first["bm"], "opts": "cancel"}
    (second,) = [frame for frame in peer.ask(ack, answers=2) if frame["c"] == "p"]
    assert (fields_of(first), fields_of(second)) == (CONTEXT, {**CONTEXT, "attempt": 2})


def test_message_with_context_expires_as_others(server: Running, peer: Peer, clock: ManualClock) -> None:
    publish(peer, Q, e=1, **CONTEXT)
    publish(peer, Q, e=100, **CONTEXT)
    clock.advance(2)
    traced(peer)
    (frame,) = peer.deliveries(1)
    assert fields_of(frame) == CONTEXT
    with ackwise.connect(server.url) as queue:
        assert queue.dead_letters("q").total == 1


def test_plain_topic_passes_the_context_on(peer: Peer, other: Peer, meet: Meet) -> None:
    traced(peer, "news")
    other.subscribe("news")
    publish(meet(), "news", **CONTEXT)
    (frame,) = peer.deliveries(1)
    assert fields_of(frame) == CONTEXT
    (frame,) = other.deliveries(1)
    assert fields_of(frame) == {}
