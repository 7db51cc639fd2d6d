"""How a queue is shared: backlogs, fairness, who may ack, and what becomes of what was held. On each store."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ackwise
from ackwise.clock import ManualClock, wall_now
from ackwise.core.answers import Handed
from ackwise.core.commands import Push
from ackwise.core.errors import Overloaded, StoreError
from ackwise.core.validation import MICROS
from ackwise.protocols.amps import AmpsService, ack
from ackwise.protocols.amps.subscription import EXPIRES_AT, QueueSubscription
from tests.protocols.amps.conftest import Meet
from tests.protocols.amps.peer import Frame, frame, share
from tests.server.running import Running

Q = "queue://q"


@pytest.fixture
def store_url(any_store: str) -> str:
    return any_store


def bodies(frames: list[Frame]) -> list[str]:
    return [one.body.decode() for one in frames]


def service(server: Running) -> AmpsService:
    assert server.server.amps is not None
    return server.server.amps._service


def numbered(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def test_backlog_bounds_deliveries_and_acks_free_it(meet: Meet) -> None:
    meet().publish(Q, *numbered(45))
    peer = meet()
    peer.subscribe(Q, 20)
    held = peer.deliveries(20)
    assert peer.nothing_comes()
    assert peer.ack(Q, *(one["bm"] for one in held[3:8])) == 5
    held = held[:3] + held[8:] + peer.deliveries(5)
    assert peer.nothing_comes()
    assert peer.ack(Q, *(one["bm"] for one in held)) == 20
    peer.deliveries(20)
    assert peer.nothing_comes()


@pytest.mark.parametrize(("asked", "granted"), [(None, 50), (20, 20), (51, 50)])
def test_max_backlog_granted_is_capped_by_the_server(asked: int | None, granted: int, meet: Meet) -> None:
    meet().publish(Q, *numbered(60))
    peer = meet()
    assert peer.subscribe(Q, asked)["o"] == f"max_backlog={granted}"
    peer.deliveries(granted)
    assert peer.nothing_comes()


def test_queue_has_a_cap_of_its_own(meet: Meet, http: ackwise.Connection) -> None:
    http.create_queue("q", notes={"amps_max_backlog": 3})
    meet().publish(Q, *numbered(5))
    peer = meet()
    assert peer.subscribe(Q, 20)["o"] == "max_backlog=3"
    peer.deliveries(3)
    assert peer.nothing_comes()


def test_each_subscription_has_its_own_backlog(meet: Meet) -> None:
    peer = meet()
    peer.subscribe(Q, 2, sub_id="a")
    peer.subscribe(Q, 3, sub_id="b")
    meet().publish(Q, *numbered(10))
    assert Counter(one["sub_id"] for one in peer.deliveries(5)) == {"a": 2, "b": 3}
    assert peer.nothing_comes()


def test_subscribers_share_fairly(meet: Meet) -> None:
    peers = [meet() for _ in range(2)]
    for peer in peers:
        peer.subscribe(Q, 20)
    meet().publish(Q, *numbered(20))
    shares: list[list[str]] = [[], []]
    while sum(map(len, shares)) < 20:
        for mine, peer in zip(shares, peers, strict=True):
            mine += share(peer)
    assert min(map(len, shares)) >= 6, shares
    assert sorted(shares[0] + shares[1]) == sorted(body.decode() for body in numbered(20))


def test_single_messages_go_round(meet: Meet) -> None:
    peers = [meet() for _ in range(3)]
    for peer in peers:
        peer.subscribe(Q, 20)
    publisher = meet()
    shares = [0, 0, 0]
    for number, body in enumerate(numbered(12)):
        publisher.publish(Q, body)
        while sum(shares) == number:
            shares = [mine + len(share(peer)) for mine, peer in zip(shares, peers, strict=True)]
    assert shares == [4, 4, 4]


def test_dead_subscribers_messages_move_and_cost_a_failure(meet: Meet, http: ackwise.Connection) -> None:
    meet().publish(Q, *numbered(4))
    one = meet()
    one.subscribe(Q, 4)
    one.deliveries(4)
    other = meet()
    other.subscribe(Q, 10)
    assert other.nothing_comes()
    one.die()
    again = other.deliveries(4)
    assert bodies(again) == ["0", "1", "2", "3"]
    other.goodbye()
    assert [one.failures for one in http.claim("q", max=10)] == [1] * 4


@pytest.mark.parametrize("how", ["unsubscribe", "unsubscribe all", "disconnect"])
def test_leaving_costs_nothing(how: str, meet: Meet, http: ackwise.Connection) -> None:
    meet().publish(Q, b"a")
    one = meet()
    one.subscribe(Q, 4, sub_id="s")
    (delivery,) = one.deliveries(1)
    if how == "disconnect":
        one.goodbye()
    else:
        name = "all" if how.endswith("all") else "s"
        (done,) = one.ask({"c": "unsubscribe", "cid": "u", "sub_id": name, "a": "processed"})
        assert (done.outcome, done["sub_id"]) == (("processed", "success"), name)
    (again,) = http.claim("q", wait=30)
    assert (again.failures, again.attempt) == (0, 2)
    late = meet()
    assert late.ack(Q, delivery["bm"]) == 0


def test_message_that_kills_its_consumers_dies(meet: Meet, http: ackwise.Connection) -> None:
    meet().publish(Q, b"poison")
    for _ in range(3):
        one = meet()
        one.subscribe(Q, 4)
        one.deliveries(1)
        one.die()
    until(lambda: http.dead_letters("q"))
    (letter,) = http.dead_letters("q")
    assert (letter.reason, letter.error, letter.failures) == ("retry_limit", "connection lost", 3)


def until(true: Any) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_ack_before_the_connection_ends_counts_unanswered(meet: Meet, http: ackwise.Connection) -> None:
    meet().publish(Q, b"a", b"b")
    one = meet()
    one.subscribe(Q, 4)
    first, _ = one.deliveries(2)
    one.say({"c": "ack", "t": Q, "bm": first["bm"]})
    one.close()
    (again,) = http.claim("q", max=2, wait=30)
    assert again.payload == b"b"


def test_any_connection_may_ack_while_the_lease_lives(meet: Meet) -> None:
    meet().publish(Q, b"a", b"b")
    one, other = meet(), meet()
    one.subscribe(Q, 1)
    (delivery,) = one.deliveries(1)
    assert other.ack(Q, delivery["bm"]) == 1
    assert one.read().body == b"b", "its holder has room again"
    assert one.ack(Q, delivery["bm"]) == 0


def test_strict_queue_takes_acks_of_the_holder_only(meet: Meet, http: ackwise.Connection) -> None:
    http.create_queue("q", notes={"amps_acks": "strict"})
    meet().publish(Q, b"a")
    one, other = meet(), meet()
    one.subscribe(Q, 1)
    (delivery,) = one.deliveries(1)
    assert other.ack(Q, delivery["bm"]) == 0
    assert one.ack(Q, delivery["bm"]) == 1


def test_ack_under_another_topic_is_not_meant(meet: Meet) -> None:
    meet().publish(Q, b"a")
    one = meet()
    one.subscribe(Q, 1)
    (delivery,) = one.deliveries(1)
    assert one.ack("queue://other", delivery["bm"]) == 0
    assert one.ack(Q, delivery["bm"]) == 1


def test_bad_and_repeated_bookmarks_are_skipped(meet: Meet) -> None:
    meet().publish(Q, *numbered(4))
    one = meet()
    one.subscribe(Q, 4)
    held = [delivery["bm"] for delivery in one.deliveries(4)]
    first, second, third, fourth = held
    assert one.ack(Q, first) == 1
    lease, place, _ = second.split("|")
    odd = ["7|7|", "x", "||", "-1|2|", f"{int(lease) + 1}|{place}|", "9" * 29 + "|1|", f"{'9' * 400}|1|", second, " "]
    assert one.ack(Q, *odd, first, second, fourth) == 2
    assert one.ack(Q, third) == 1


def test_ack_of_many_bookmarks_settles_known_ones(meet: Meet) -> None:
    meet().publish(Q, *numbered(2))
    one, other = meet(), meet()
    one.subscribe(Q, 2)
    first, second = (delivery["bm"] for delivery in one.deliveries(2))
    made_up = [f"{number << 33}|1|" for number in range(20_000)]
    one.say({"c": "ack", "cid": "many", "a": "processed", "t": Q, "bm": ",".join([*made_up, first])})
    other.flush()
    assert one.read()["records_deleted"] == 1
    assert one.ack(Q, second) == 1


def test_cancel_is_a_failure_and_prefers_another(meet: Meet, http: ackwise.Connection) -> None:
    one, other = meet(), meet()
    one.subscribe(Q, 5)
    other.subscribe(Q, 5)
    meet().publish(Q, b"a")
    (delivery,) = one.deliveries(1)
    assert one.ack(Q, delivery["bm"], opts="cancel") == 1
    (again,) = other.deliveries(1)
    assert other.ack(Q, again["bm"], opts="cancel") == 1
    (last,) = one.deliveries(1)
    assert one.ack(Q, last["bm"], opts="cancel") == 1
    assert one.nothing_comes()
    assert other.nothing_comes()
    (letter,) = http.dead_letters("q")
    assert (letter.reason, letter.failures) == ("retry_limit", 3)


def test_cancel_comes_back_to_who_is_alone(meet: Meet) -> None:
    one = meet()
    one.subscribe(Q, 5)
    meet().publish(Q, b"a")
    (delivery,) = one.deliveries(1)
    one.say({"c": "ack", "t": Q, "bm": delivery["bm"], "opts": "cancel"})
    assert one.deliveries(1)[0].body == b"a"


def test_expire_is_a_dead_letter(meet: Meet, http: ackwise.Connection) -> None:
    meet().publish(Q, b"a", b"b")
    one = meet()
    one.subscribe(Q, 5)
    first, second = one.deliveries(2)
    assert one.ack(Q, first["bm"], opts="expire") == 1
    (done,) = one.ask(
        {"c": "sow_delete", "cid": "1", "a": "processed", "t": Q, "bookmark": second["bm"], "o": "expire"}
    )
    assert done["records_deleted"] == 1
    assert {letter.reason for letter in http.dead_letters("q")} == {"rejected"}


def test_lease_runs_out(meet: Meet, clock: ManualClock) -> None:
    meet().publish(Q, b"a")
    one, other = meet(), meet()
    one.subscribe(Q, 1)
    (delivery,) = one.deliveries(1)
    other.subscribe(Q, 1)
    assert other.nothing_comes()
    clock.advance(30)
    (again,) = other.deliveries(1)
    assert one.ack(Q, delivery["bm"]) == 0, "it is stale"
    assert other.ack(Q, again["bm"]) == 1
    meet().publish(Q, b"b", b"c")
    assert sorted(bodies(one.deliveries(1) + other.deliveries(1))) == ["b", "c"], "its room is its own again"


def test_lease_is_the_queues(meet: Meet, http: ackwise.Connection, clock: ManualClock) -> None:
    http.create_queue("q", lease_seconds=7)
    meet().publish(Q, b"a")
    one = meet()
    one.subscribe(Q, 1)
    (delivery,) = one.deliveries(1)
    assert delivery["lp"] == stamp(clock.now() + 7 * MICROS)


def stamp(at: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)).strftime("%Y%m%dT%H%M%S.%fZ")


def test_publisher_may_consume_what_it_publishes(meet: Meet) -> None:
    one = meet()
    one.subscribe(Q, 1)
    one.say({"c": "p", "t": Q}, b"a")
    assert one.deliveries(1)[0].body == b"a"


def test_groups_each_get_everything(meet: Meet) -> None:
    one = meet()
    one.subscribe(Q, sub_id="1", opts="max_backlog=5,group=billing")
    one.subscribe(Q, sub_id="2", opts="max_backlog=5,group=shipping")
    meet().publish(Q, b"a")
    assert sorted((d["sub_id"], d.body) for d in one.deliveries(2)) == [("1", b"a"), ("2", b"a")]


def test_expired_message_is_not_delivered(meet: Meet, http: ackwise.Connection, clock: ManualClock) -> None:
    one = meet()
    one.say({"c": "p", "t": Q, "e": "5"}, b"late")
    one.say({"c": "p", "t": Q, "e": 500}, b"early")
    one.publish(Q, b"always")
    clock.advance(5)
    one.subscribe(Q, 5)
    assert bodies(one.deliveries(2)) == ["early", "always"]
    one.flush()
    (letter,) = http.dead_letters("q")
    assert letter.payload == b"late"
    assert "expiration" in letter.error


def test_recreated_queue_regains_its_subscribers(meet: Meet, http: ackwise.Connection) -> None:
    one = meet()
    one.subscribe(Q, 5)
    http.delete_queue("q")
    meet().publish(Q, b"new")
    assert one.deliveries(1)[0].body == b"new"


def test_replace_begins_a_subscription_anew(meet: Meet) -> None:
    meet().publish(Q, *numbered(3))
    one = meet()
    one.subscribe(Q, 1)
    one.deliveries(1)
    (refused,) = one.ask({"c": "subscribe", "cid": "2", "t": Q, "sub_id": "1", "a": "processed"})
    assert refused.outcome == ("processed", "failure")
    one.subscribe(Q, sub_id="1", opts="replace,max_backlog=3")
    assert bodies(one.deliveries(3)) == ["0", "1", "2"]


@pytest.mark.parametrize("then", ["unsubscribe", "subscribe"])
def test_ack_just_before_unsubscribe_counts(
    then: str, meet: Meet, server: Running, http: ackwise.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the store takes longer for it."""
    broker = service(server).broker
    send_all = broker.send_all

    async def later(commands: Any) -> Any:
        await asyncio.sleep(0.05)
        return await send_all(commands)

    monkeypatch.setattr(broker, "send_all", later)
    one = meet()
    one.publish(Q, *numbered(20))
    one.subscribe(Q, 20)
    marks = ",".join(each["bm"] for each in one.deliveries(20))
    one.send(
        frame(b'{"c":"ack","cid":"k","a":"processed","t":"queue://q","bm":"%b","sub_id":"1"}' % marks.encode())
        + frame(b'{"c":"%b","cid":"u","sub_id":"1","t":"queue://q","o":"replace","a":"processed"}' % then.encode())
    )
    assert [one.read().header.get("records_deleted"), one.read()["status"]] == [20, "success"]
    assert sum(group.lag for group in http.groups("q")) == 0


@pytest.mark.parametrize("before", ["publish", "flush"])
def test_lost_connection_releases_before_its_publishes_end(
    before: str, meet: Meet, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store takes nothing for a while: the message goes over meanwhile, and what was published is kept."""
    one, other = meet(), meet()
    one.publish(Q, b"held")
    one.subscribe(Q, 1)
    one.deliveries(1)
    other.subscribe(Q, 1)
    broker, full = service(server).broker, [True]
    send = broker.send

    async def refuse(command: Any) -> Any:
        if full[0] and isinstance(command, Push):
            raise Overloaded("too much waits")
        return await send(command)

    monkeypatch.setattr(broker, "send", refuse)
    one.say({"c": "p", "t": "queue://late"}, b"kept")
    if before == "flush":
        one.say({"c": "flush", "cid": "f", "a": "completed"})
    one.close()
    assert other.deliveries(1)[0].body == b"held"
    full[0] = False
    other.subscribe("queue://late", 1, sub_id="2")
    assert other.deliveries(1)[0].body == b"kept"


def test_users_own_headers_are_left_alone(meet: Meet, http: ackwise.Connection) -> None:
    http.push("q", "mine", headers={"expires_at": "1"})
    http.push("q", "long", headers={EXPIRES_AT: "1" * 5000})
    one = meet()
    one.subscribe(Q, 5)
    assert bodies(one.deliveries(2)) == ['"mine"', '"long"']


def test_undeliverable_message_returns_and_others_get_theirs(
    meet: Meet, server: Running, http: ackwise.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver, broken = QueueSubscription.deliver, [True]

    def fail(self: QueueSubscription, handed: Handed) -> int | None:
        if broken[0] and self.sub_id == "bad":
            raise RuntimeError("cannot be handed over")
        return deliver(self, handed)

    monkeypatch.setattr(QueueSubscription, "deliver", fail)
    bad, good = meet(), meet()
    bad.subscribe(Q, 1, sub_id="bad")
    good.subscribe(Q, 1, sub_id="good")
    http.push_many("q", ["a", "b"])
    (first,) = good.deliveries(1)
    assert good.ack(Q, first["bm"]) == 1
    (second,) = good.deliveries(1)
    assert {first.body, second.body} == {b'"a"', b'"b"'}
    assert all("cannot be handed over" in one for one in server._errors.seen)
    server._errors.seen.clear()
    broken[0] = False
    bad.goodbye()


def test_large_ack_that_fails_keeps_its_finished_turns(
    meet: Meet, server: Running, http: ackwise.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ack, "MOST_IN_A_TURN", 10)
    one = meet()
    one.publish(Q, *numbered(60))
    one.subscribe(Q, 40)
    marks = [each["bm"] for each in one.deliveries(40)]
    broker, turns = service(server).broker, [0]
    send_all = broker.send_all

    async def fail_second(commands: Any) -> Any:
        turns[0] += 1
        if turns[0] == 2:
            raise StoreError("the disk is gone")
        return await send_all(commands)

    monkeypatch.setattr(broker, "send_all", fail_second)
    one.say({"c": "ack", "cid": "k", "a": "processed", "t": Q, "bm": ",".join(marks[::2])})
    found = [one.read() for _ in range(11)]
    assert sorted(each["c"] for each in found) == ["ack"] + ["p"] * 10, "ten are acked, so there is room for ten"
    assert next(each for each in found if each["c"] == "ack")["status"] == "failure"


def test_lease_after_a_clock_step_is_stamped_by_wall_clock(meet: Meet, clock: ManualClock) -> None:
    clock.step_wall(-3600)
    meet().publish(Q, b"a")
    one = meet()
    one.subscribe(Q, 1)
    (delivery,) = one.deliveries(1)
    assert delivery["lp"] == stamp(wall_now(clock) + 30 * MICROS)
