"""Subscribers with filters share a queue: each gets what it wants, and what none of them wants stays. On each store."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TypeVar

import pytest

import ackwise
from ackwise.clock import ManualClock
from ackwise.core.filters import ContentFilter, Document
from ackwise.core.policy import Backoff
from ackwise.core.queries import ListAvailable, Query
from ackwise.engine.reads import available
from ackwise.protocols.amps import lookahead
from tests.patience import PATIENCE
from tests.protocols.amps.conftest import Meet
from tests.protocols.amps.peer import Frame, Peer, share
from tests.server.running import Running

A = TypeVar("A")
Q = "queue://q"


@pytest.fixture
def store_url(any_store: str) -> str:
    return any_store


def order(number: int, region: str = "eu", total: int = 10) -> bytes:
    return json.dumps({"n": number, "region": region, "order": {"total": total}}).encode()


def numbers(frames: list[Frame]) -> list[int]:
    return [json.loads(frame.body)["n"] for frame in frames]


def marks(frames: list[Frame]) -> list[str]:
    return [frame["bm"] for frame in frames]


def test_filtered_subscriber_gets_only_what_it_wants(meet: Meet, http: ackwise.Connection) -> None:
    """The filter of the issue. Other messages cost no delivery and no failure, and others receive them."""
    regions = ["eu", "us", "asia"]
    meet().publish(Q, *(order(n, regions[n % 3], n) for n in range(12)))
    peer = meet()
    peer.subscribe(Q, 20, filter="/order/total > 5 AND /region IN ('eu','us')")
    held = peer.deliveries(4)
    assert numbers(held) == [6, 7, 9, 10]
    assert peer.nothing_comes()
    assert peer.ack(Q, *marks(held)) == 4
    rest = http.claim("q", max=20)
    assert [delivery.json()["n"] for delivery in rest] == [0, 1, 2, 3, 4, 5, 8, 11]
    assert {(delivery.attempt, delivery.failures) for delivery in rest} == {(1, 0)}


def test_filter_sees_messages_published_later(meet: Meet) -> None:
    peer, publisher = meet(), meet()
    peer.subscribe(Q, 5, f="/region = 'us'")
    for number in range(6):
        publisher.publish(Q, order(number, "us" if number % 2 else "eu"))
    assert numbers(peer.deliveries(3)) == [1, 3, 5]
    assert peer.nothing_comes()


def test_unwanted_messages_do_not_block_others(meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run of unwanted messages comes first, and the subscriber of another filter is full."""
    monkeypatch.setattr(lookahead, "MOST_LOOKED", 50)
    monkeypatch.setattr(lookahead, "MOST_WANTED", 10)
    publisher = meet()
    publisher.publish(Q, *(order(n, "nowhere") for n in range(200)))
    publisher.publish(Q, *(order(n, "eu") for n in range(200, 260)))
    publisher.publish(Q, *(order(n, "us") for n in range(260, 263)))
    slow, fast = meet(), meet()
    slow.subscribe(Q, 2, filter="/region = 'eu'")
    assert numbers(slow.deliveries(2)) == [200, 201]
    fast.subscribe(Q, 2, filter="/region = 'us'")
    first = fast.deliveries(2)
    assert fast.ack(Q, *marks(first)) == 2
    assert numbers(first + fast.deliveries(1)) == [260, 261, 262]
    assert slow.nothing_comes()


def test_message_that_no_filter_wants_waits_for_a_taker(meet: Meet) -> None:
    peer = meet()
    peer.subscribe(Q, 5, filter="/region = 'us'")
    meet().publish(Q, order(0, "eu"), order(1, "us"))
    assert numbers(peer.deliveries(1)) == [1]
    late = meet()
    late.subscribe(Q, 5, filter="/region = 'eu'")
    assert numbers(late.deliveries(1)) == [0]


def test_cancelled_message_returns_to_who_wants_it(meet: Meet, http: ackwise.Connection) -> None:
    one, other = meet(), meet()
    one.subscribe(Q, 5, filter="/region = 'us'")
    other.subscribe(Q, 5, filter="/region = 'asia'")
    meet().publish(Q, order(0, "eu"), order(1, "us"))
    for _ in range(2):
        (held,) = one.deliveries(1)
        assert numbers([held]) == [1]
        assert one.ack(Q, held["bm"], opts="cancel") == 1
    (held,) = one.deliveries(1)
    assert one.ack(Q, held["bm"]) == 1
    assert other.nothing_comes()
    (rest,) = http.claim("q", max=5)
    assert (rest.json()["n"], rest.attempt, rest.failures) == (0, 1, 0)


def test_delayed_retry_comes_back_to_its_filter(meet: Meet, http: ackwise.Connection, clock: ManualClock) -> None:
    http.create_queue("q", backoff=Backoff(kind="fixed", seconds=7))
    one = meet()
    one.subscribe(Q, 5, filter="/region = 'us'")
    meet().publish(Q, order(0, "eu"), order(1, "us"))
    (held,) = one.deliveries(1)
    assert one.ack(Q, held["bm"], opts="cancel") == 1
    assert one.nothing_comes()
    clock.advance(7)
    assert numbers(one.deliveries(1)) == [1]


def test_lost_subscribers_messages_return_to_their_filter(meet: Meet) -> None:
    one, other = meet(), meet()
    one.subscribe(Q, 5, filter="/region = 'us'")
    other.subscribe(Q, 5, filter="/region = 'eu'")
    meet().publish(Q, order(0, "us"), order(1, "eu"), order(2, "us"))
    assert numbers(one.deliveries(2)) == [0, 2]
    assert numbers(other.deliveries(1)) == [1]
    one.die()
    third = meet()
    third.subscribe(Q, 5, filter="/region = 'us'")
    assert numbers(third.deliveries(2)) == [0, 2]
    assert other.nothing_comes()


def test_idle_subscribers_with_and_without_filter_take_turns(meet: Meet) -> None:
    filtered, plain = meet(), meet()
    filtered.subscribe(Q, 20, filter="/region = 'eu'")
    plain.subscribe(Q, 20)
    publisher, shares = meet(), [0, 0]
    for number in range(8):
        publisher.publish(Q, order(number))
        end = time.monotonic() + PATIENCE
        while sum(shares) == number:
            shares = [mine + len(share(peer)) for mine, peer in zip(shares, (filtered, plain), strict=True)]
            assert time.monotonic() < end
    assert shares == [4, 4]


def test_seek_shows_a_filter_the_messages_again(meet: Meet, http: ackwise.Connection) -> None:
    one = meet()
    one.subscribe(Q, 5, filter="/region = 'us'")
    meet().publish(Q, order(0, "eu"), order(1, "us"))
    (held,) = one.deliveries(1)
    assert one.ack(Q, held["bm"]) == 1
    http.seek("q", "__QUEUE_MODE__", to="start")
    assert numbers(one.deliveries(1)) == [1]
    assert one.nothing_comes()


def test_filter_works_in_every_partition_and_group(meet: Meet, http: ackwise.Connection) -> None:
    one = meet()
    one.subscribe(Q, sub_id="a", opts="max_backlog=20,group=billing", filter="/n BETWEEN 3 AND 5")
    one.subscribe(Q, sub_id="b", opts="max_backlog=20,group=shipping", filter="/n >= 5")
    for number in range(8):
        http.push("q", json.loads(order(number)), partition=f"p{number % 3}", priority=number % 2)
    got = one.deliveries(6)
    assert Counter((d["sub_id"], *numbers([d])) for d in got) == Counter(
        [("a", 3), ("a", 4), ("a", 5), ("b", 5), ("b", 6), ("b", 7)]
    )
    assert one.nothing_comes()


def test_queue_that_is_recreated_regains_its_filter(meet: Meet, http: ackwise.Connection) -> None:
    one = meet()
    one.subscribe(Q, 5, filter="/region = 'us'")
    http.delete_queue("q")
    meet().publish(Q, order(0, "eu"), order(1, "us"))
    assert numbers(one.deliveries(1)) == [1]


def test_paused_queue_keeps_what_a_filter_wants(meet: Meet, http: ackwise.Connection) -> None:
    one = meet()
    one.subscribe(Q, 5, filter="/region = 'us'")
    http.pause_queue("q")
    meet().publish(Q, order(0, "us"))
    assert one.nothing_comes()
    http.resume_queue("q")
    assert numbers(one.deliveries(1)) == [0]


def test_filter_on_a_strict_queue_is_refused(meet: Meet, http: ackwise.Connection) -> None:
    http.create_queue("q", order="strict")
    peer = meet()
    asked = {"c": "subscribe", "cid": "1", "a": "processed", "t": Q, "filter": "/region = 'us'"}
    (refused,) = peer.ask(asked)
    assert refused.outcome == ("processed", "failure")
    assert "strict order" in refused["reason"]
    meet().publish(Q, order(0, "us"))
    assert peer.nothing_comes()


def test_expired_message_is_not_delivered_to_a_filter(meet: Meet, http: ackwise.Connection, clock: ManualClock) -> None:
    publisher = meet()
    publisher.say({"c": "p", "t": Q, "e": "5"}, order(0, "us"))
    publisher.publish(Q, order(1, "us"))
    clock.advance(5)
    peer: Peer = meet()
    peer.subscribe(Q, 5, filter="/region = 'us'")
    assert numbers(peer.deliveries(1)) == [1]
    peer.flush()
    assert len(http.dead_letters("q")) == 1


def test_large_messages_reach_a_filter(meet: Meet) -> None:
    """The lookahead stops at its bytes and continues. A payload above them is judged alone."""
    publisher, peer = meet(), meet()
    for number in range(4):
        publisher.publish(Q, json.dumps({"n": number, "pad": "x" * (3 << 20)}).encode())
    peer.subscribe(Q, 4, filter="/n >= 2")
    assert numbers(peer.deliveries(2)) == [2, 3]


def test_many_subscribers_of_one_filter_share(meet: Meet) -> None:
    peers = [meet() for _ in range(3)]
    for peer in peers:
        peer.subscribe(Q, 20, filter="/region = 'us'")
    meet().publish(Q, *(order(n, "us" if n % 2 else "eu") for n in range(60)))
    shares: list[list[str]] = [[], [], []]
    end = time.monotonic() + PATIENCE
    while sum(map(len, shares)) < 30:
        shares = [mine + share(peer) for mine, peer in zip(shares, peers, strict=True)]
        assert time.monotonic() < end
    got = sorted(json.loads(body)["n"] for mine in shares for body in mine)
    assert got == list(range(1, 60, 2))
    assert all(shares)


def test_filter_judges_each_message_once(meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscriber of rare messages does not read the unwanted ones again for each of them."""
    judged: list[object] = []
    takes = ContentFilter.takes

    def count(self: ContentFilter, document: Document) -> bool | None:
        judged.append(str(document.root))
        return takes(self, document)

    monkeypatch.setattr(ContentFilter, "takes", count)
    publisher, peer = meet(), meet()
    peer.subscribe(Q, 5, filter="/region = 'us'")
    publisher.publish(Q, *(order(n) for n in range(1500)))
    for number in range(10):
        publisher.publish(Q, order(1500 + 2 * number, "us"), order(1501 + 2 * number))
        (held,) = peer.deliveries(1)
        assert peer.ack(Q, held["bm"]) == 1
    assert peer.nothing_comes()
    assert len(judged) == len(set(judged)) <= 1520


def test_message_too_costly_for_a_filter_stays_for_others(
    meet: Meet, http: ackwise.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    peer = meet()
    peer.subscribe(Q, 5, filter=" OR ".join(["/n = 1", *["/a = 1"] * 120]))
    costly = json.dumps({"n": 0, "a": [2] * 10_000}).encode()
    meet().publish(Q, costly, costly, order(1))
    assert numbers(peer.deliveries(1)) == [1]
    rest = http.claim("q", max=5)
    assert [(delivery.json()["n"], delivery.attempt, delivery.failures) for delivery in rest] == [(0, 1, 0)] * 2
    assert [record.getMessage() for record in caplog.records if "too many values" in record.getMessage()] == [
        f"queue q: a message of {len(costly)} bytes has too many values for a filter; "
        "it stays available for other subscribers"
    ]


def test_acks_of_others_make_an_idle_filter_look_no_more(
    meet: Meet, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is pushed: a plain subscriber takes and acks messages, and the idle filters make no query."""
    idle, plain, publisher = meet(), meet(), meet()
    for number in range(20):
        idle.subscribe(Q, 1, str(number), filter=f"/region = 'r{number}'")
    publisher.publish(Q, *(order(n, "r0" if n == 99 else "eu") for n in range(100)))
    assert numbers(idle.deliveries(1)) == [99]
    looks: list[ListAvailable] = []
    store = server.server.runtime.broker().store
    ask = store.ask

    def count(query: Query[A]) -> A:
        if isinstance(query, ListAvailable):
            looks.append(query)
        return ask(query)

    publisher.publish(Q, order(100, "r19"))
    assert numbers(idle.deliveries(1)) == [100]
    monkeypatch.setattr(store, "ask", count)
    plain.subscribe(Q, 5)
    for number in range(100 - 1):
        (held,) = plain.deliveries(1)
        plain.say({"c": "ack", "t": Q, "bm": held["bm"]})
        assert numbers([held]) == [number]
    plain.flush()
    assert len(looks) <= 60, "few looks that follow the last push, and none for each ack"
    plain.goodbye()
    looks.clear()
    publisher.publish(Q, order(101, "r5"))
    assert numbers(idle.deliveries(1)) == [101]
    assert looks


def test_round_stops_looking_and_serves_plain_subscribers(meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step takes too long: each round makes one step for a filter, and every filter gets its steps."""
    monkeypatch.setattr(lookahead, "MOST_LOOK_SECONDS", -1.0)
    monkeypatch.setattr(lookahead, "MOST_LOOKED", 20)
    publisher = meet()
    publisher.publish(Q, *(order(n, f"r{n % 4}") for n in range(100)))
    peers = [meet() for _ in range(3)]
    plain = meet()
    plain.subscribe(Q, 1)
    assert numbers(plain.deliveries(1)) == [0]
    for number, peer in enumerate(peers):
        peer.subscribe(Q, 50, filter=f"/region = 'r{number + 1}'")
    for number, peer in enumerate(peers):
        assert numbers(peer.deliveries(25)) == list(range(number + 1, 100, 4))


def test_filter_finds_a_message_behind_many_returned_ones(
    meet: Meet, http: ackwise.Connection, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More messages return than one page lists, and the newest of them are not wanted."""
    monkeypatch.setattr(available, "MOST_RETURNED", 4)
    peer = meet()
    peer.subscribe(Q, 3, filter="/region = 'us'")
    meet().publish(Q, *(order(n, "us" if n == 0 else "eu") for n in range(40)))
    (held,) = peer.deliveries(1)
    others = http.claim("q", max=40)
    http.pause_queue("q")
    assert peer.ack(Q, held["bm"], opts="cancel") == 1
    clock.advance(1)
    for delivery in others:
        if delivery.json()["n"] % 2:
            delivery.ack()
        else:
            delivery.release()
    assert peer.nothing_comes()
    http.resume_queue("q")
    assert numbers(peer.deliveries(1)) == [0]
    assert peer.nothing_comes()
