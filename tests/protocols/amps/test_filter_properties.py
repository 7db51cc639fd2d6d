"""Random subscribers with and without filters together receive each message exactly once. On each store."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ackwise
from tests.patience import PATIENCE
from tests.protocols.amps.conftest import Meet
from tests.protocols.amps.peer import Frame, Peer
from tests.server.running import Running

Order = dict[str, int | str | None]


class Want(NamedTuple):
    """A filter, and the same condition in Python."""

    text: str | None
    takes: Callable[[Order], bool]


def _number(order: Order) -> int:
    number = order["n"]
    assert isinstance(number, int)
    return number


WANTS = [
    Want(None, lambda order: True),
    Want("/n < 20", lambda order: _number(order) < 20),
    Want("/region IN ('eu','us')", lambda order: order["region"] in ("eu", "us")),
    Want("/region IS NULL", lambda order: order["region"] is None),
    Want("NOT /region = 'eu'", lambda order: order["region"] not in (None, "eu")),
    Want(
        "/n BETWEEN 5 AND 25 AND /region LIKE 'a$'",
        lambda order: 5 <= _number(order) <= 25 and order["region"] == "asia",
    ),
    Want("/region BEGINS WITH 'u' OR /n > 30", lambda order: order["region"] == "us" or _number(order) > 30),
]

subscribers = st.lists(st.tuples(st.sampled_from(range(len(WANTS))), st.integers(1, 7)), min_size=1, max_size=4)
regions = st.lists(st.sampled_from(["eu", "us", "asia", None]), min_size=1, max_size=40)
queues = itertools.count()


@pytest.fixture
def store_url(any_store: str) -> str:
    return any_store


def so_far(peer: Peer) -> list[Frame]:
    """Deliveries of a subscriber up to now."""
    peer.say({"c": "flush", "cid": "so far", "a": "processed"})
    frames: list[Frame] = []
    while (frame := peer.read())["c"] == "p":
        frames.append(frame)
    return frames


def _filter_field(text: str | None) -> dict[str, Any]:
    return {} if text is None else {"filter": text}


def subscriber(peer: Peer, topic: str, want: Want, backlog: int) -> tuple[Peer, Want]:
    peer.subscribe(topic, backlog, **_filter_field(want.text))
    return peer, want


def receive(peer: Peer, topic: str, want: Want) -> list[int]:
    """Ack the deliveries of a subscriber up to now and return their numbers. The subscriber wants each of them."""
    frames = so_far(peer)
    if frames:
        peer.say({"c": "ack", "t": topic, "bm": ",".join(frame["bm"] for frame in frames)})
    messages = [json.loads(frame.body) for frame in frames]
    assert all(want.takes(message) for message in messages), (want.text, messages)
    return [message["n"] for message in messages]


def receive_all(peers: list[tuple[Peer, Want]], topic: str, count: int) -> list[int]:
    """Ack deliveries until the subscribers have received `count` messages together."""
    received: list[int] = []
    end = time.monotonic() + PATIENCE
    while len(received) < count:
        received += [number for peer, want in peers for number in receive(peer, topic, want)]
        assert time.monotonic() < end, sorted(received)
    return received


def unclaimed(http: ackwise.Connection, queue: str) -> list[tuple[int, int, int]]:
    """Number, attempt and failures of the messages that the subscribers left. Looking costs nothing."""
    rest = http.claim(queue, max=100)
    return sorted((delivery.json()["n"], delivery.attempt, delivery.failures) for delivery in rest)


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(wants=subscribers, orders=regions, early=st.integers(0, 40))
def test_each_message_is_received_exactly_once(
    server: Running, meet: Meet, http: ackwise.Connection, wants: list[tuple[int, int]], orders: list[str], early: int
) -> None:
    queue = f"q{next(queues)}"
    topic = f"queue://{queue}"
    messages: list[Order] = [{"n": number, "region": region} for number, region in enumerate(orders)]
    bodies = [json.dumps(message).encode() for message in messages]
    publisher = meet()
    publisher.publish(topic, *bodies[:early])
    peers = [subscriber(meet(), topic, WANTS[kind], backlog) for kind, backlog in wants]
    publisher.publish(topic, *bodies[early:])
    wanted = {_number(message) for message in messages if any(want.takes(message) for _, want in peers)}
    received = receive_all(peers, topic, len(wanted))
    assert sorted(received) == sorted(wanted), "each exactly once"
    assert all(so_far(peer) == [] for peer, _ in peers)
    lags = [group.lag for group in http.groups(queue)] or [len(messages)]
    assert lags == [len(messages) - len(wanted)], "each is acked"
    assert unclaimed(http, queue) == [(number, 1, 0) for number in range(len(messages)) if number not in wanted]
    for peer in (publisher, *(peer for peer, _ in peers)):
        peer.goodbye()
