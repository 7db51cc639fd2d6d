"""The commands of the reference's transcript as they stand, and what else a client may say, with their answers."""

from __future__ import annotations

import json
import re

import ackwise
from tests.protocols.amps.conftest import Meet
from tests.protocols.amps.peer import frame

BOOKMARK = re.compile(r"\d+\|\d+\|")
LEASE = re.compile(r"\d{8}T\d{6}\.\d{6}Z")


def test_transcript_of_a_session_is_answered_byte_by_byte(meet: Meet) -> None:
    peer = meet(logon=False)
    peer.say('{"c":"logon","cid":"0","a":"processed","client_name":"probe","version":"0.8.18","mt":"json"}')
    assert peer.read().raw == b'{"c":"ack","cid":"0","a":"processed","status":"success"}'
    peer.say('{"c":"subscribe","cid":"1","t":"queue://orders","opts":"max_backlog=20","a":"processed","sub_id":"1"}')
    answered = peer.read()
    assert answered.outcome == ("processed", "success")
    assert (answered["cid"], answered["sub_id"]) == ("1", "1")
    peer.say('{"c":"p","cid":"1","t":"queue://orders"}', b'{"i":0}')
    delivery = peer.read()
    assert list(delivery.header) == ["c", "t", "sids", "sub_id", "bm", "lp"]
    assert (delivery["c"], delivery["t"], delivery["sids"], delivery["sub_id"]) == ("p", "queue://orders", "1", "1")
    assert BOOKMARK.fullmatch(delivery["bm"])
    assert LEASE.fullmatch(delivery["lp"])
    assert delivery.body == b'{"i":0}'
    peer.say('{"c":"ack","t":"queue://orders","bm":"P|3|,P|4|","sub_id":"1"}')
    peer.say('{"c":"ack","cid":"6","t":"queue://t","bm":"7|7|","opts":"expire"}')
    peer.say('{"c":"flush","cid":"3","a":"processed,completed"}')
    assert [peer.read().header for _ in range(2)] == [
        {"c": "ack", "cid": "3", "a": "processed", "status": "success"},
        {"c": "ack", "cid": "3", "a": "completed", "status": "success"},
    ]
    peer.say('{"c":"heartbeat","cid":"1","opts":"start,1","a":"processed"}')
    assert peer.read().header == {"c": "ack", "cid": "1", "a": "processed", "status": "success"}
    assert peer.read().raw == b'{"c":"heartbeat"}'
    peer.say('{"c":"heartbeat","opts":"stop"}')
    peer.say({"c": "ack", "t": "queue://orders", "bm": delivery["bm"], "sub_id": "1"})
    assert peer.nothing_comes()


def test_publish_is_answered_what_it_asks_for(meet: Meet) -> None:
    peer = meet()
    asked = {"c": "p", "cid": 7, "t": "queue://q", "s": 12, "a": "completed,persisted,processed,nonsense"}
    answers = peer.ask(asked, b"x", answers=3)
    assert [one.outcome[0] for one in answers] == ["processed", "persisted", "completed"]
    assert all((one["cid"], one["s"], one["status"]) == (7, 12, "success") for one in answers)
    peer.say({"c": "publish", "cid": "8", "topic": "queue://q"}, b"y")
    peer.say({"c": "p", "t": "queue://q", "a": "persisted"}, b"z")
    assert peer.nothing_comes(), "who asks for nothing, or has no name, is told nothing"


def test_persisted_comes_after_the_commit(meet: Meet, http: ackwise.Connection) -> None:
    peer = meet()
    for number in range(5):
        (answer,) = peer.ask({"c": "p", "cid": str(number), "t": "queue://q", "a": "persisted"}, b"x")
        assert answer.outcome == ("persisted", "success")
        assert http.stats("q").messages == number + 1


def test_headers_may_be_spelled_in_other_ways(meet: Meet) -> None:
    peer = meet(logon=False)
    peer.send(frame(b' { "c" : "logon" , "cid" : 5 ,\n "a":"processed" } '))
    assert peer.read().header == {"c": "ack", "cid": 5, "a": "processed", "status": "success"}
    peer.say({"c": "subscribe", "cid": 6, "topic": "queue://größe", "o": "max_backlog=3", "a": "processed", "sids": 9})
    assert peer.read()["sub_id"] == "9"
    peer.say({"c": "publish", "topic": "queue://größe"}, b"}")
    delivery = peer.read()
    assert (delivery.body, delivery["sub_id"]) == (b"}", "9")
    assert '"t":"queue://größe"'.encode() in delivery.raw, "raw UTF-8"
    (done,) = peer.ask(
        {"c": "sow_delete", "cid": 7, "a": "processed", "topic": "queue://größe", "bookmark": delivery["bm"]}
    )
    assert done["records_deleted"] == 1


def test_subscription_answer_precedes_first_delivery(meet: Meet) -> None:
    peer = meet()
    peer.publish("queue://q", b"a", b"b")
    peer.say({"c": "subscribe", "cid": "s", "t": "queue://q", "a": "processed", "opts": "max_backlog=2"})
    first = peer.read()
    assert (first.outcome, first["sub_id"], first["o"]) == (("processed", "success"), "s", "max_backlog=2")
    assert [one.body for one in peer.deliveries(2)] == [b"a", b"b"]


def test_sow_and_subscribe_returns_empty_sow_then_messages(meet: Meet) -> None:
    peer = meet()
    peer.publish("queue://q", b"a")
    for topic in ("news", "queue://q"):
        asked = {"c": "sow_and_subscribe", "cid": topic, "t": topic, "a": "processed,completed", "sub_id": topic}
        words = [(one["c"], one.header.get("a")) for one in peer.ask(asked, answers=4)]
        assert words == [("ack", "processed"), ("group_begin", None), ("group_end", None), ("ack", "completed")]
    assert peer.read().body == b"a"
    peer.say({"c": "p", "t": "news"}, b"b")
    assert peer.read().body == b"b"


def test_plain_topic_tells_every_subscriber_keeps_nothing(meet: Meet) -> None:
    one, two, both = meet(), meet(), meet()
    one.say({"c": "p", "t": "news"}, b"nobody listens")
    one.flush()
    for peer in (one, two, both):
        peer.subscribe("news", None, sub_id="n")
    both.subscribe("queue://q", 2, sub_id="q")
    (answer,) = meet().ask({"c": "p", "cid": "1", "t": "news", "a": "persisted"}, b"told")
    assert answer.outcome == ("persisted", "success")
    for peer in (one, two, both):
        told = peer.read()
        assert (told.header, told.body) == ({"c": "p", "t": "news", "sids": "n", "sub_id": "n"}, b"told")
    meet().publish("queue://q", b"handed out")
    assert both.read()["lp"]
    (gone,) = one.ask({"c": "unsubscribe", "cid": "u", "sub_id": "n", "a": "processed"})
    assert gone.outcome == ("processed", "success")
    meet().publish("news", b"again")
    assert one.nothing_comes()
    assert two.read().body == b"again"


def test_topic_can_be_declared_a_queue(meet: Meet, http: ackwise.Connection) -> None:
    peer = meet()
    peer.publish("declared", b"x")
    assert http.stats("declared").messages == 1
    peer.subscribe("declared")
    (delivery,) = peer.deliveries(1)
    assert peer.ack("declared", delivery["bm"]) == 1


def test_heartbeats_are_the_servers_and_are_never_echoed(meet: Meet) -> None:
    peer = meet()
    peer.say({"c": "heartbeat", "opts": "beat"})
    assert peer.nothing_comes()
    (started,) = peer.ask({"c": "heartbeat", "cid": "1", "opts": "start,0.05", "a": "processed"})
    assert started.outcome == ("processed", "success")
    for _ in range(3):
        assert peer.read().header == {"c": "heartbeat"}
        peer.say({"c": "heartbeat"})
    peer.say({"c": "heartbeat", "cid": "2", "opts": "stop", "a": "processed"})
    while (told := peer.read())["c"] == "heartbeat":
        pass
    assert told.header == {"c": "ack", "cid": "2", "a": "processed", "status": "success"}
    assert peer.nothing_comes()


def test_flush_is_answered_after_everything_before_it(meet: Meet, http: ackwise.Connection) -> None:
    peer = meet()
    said = [{"c": "p", "t": f"queue://q{number % 3}"} for number in range(300)]
    peer.send(
        b"".join(
            frame(json.dumps(one).encode() + b"x") for one in [*said, {"c": "flush", "cid": "f", "a": "completed"}]
        )
    )
    assert peer.read().outcome == ("completed", "success")
    assert [http.stats(f"q{number}").messages for number in range(3)] == [100] * 3


def test_order_is_kept(meet: Meet) -> None:
    peer = meet()
    bodies = [str(number).encode() for number in range(2000)]
    peer.publish("queue://q", *bodies)
    reader = meet()
    reader.subscribe("queue://q", 50)
    found: list[bytes] = []
    while len(found) < 2000:
        delivery = reader.read()
        found.append(delivery.body)
        reader.say({"c": "ack", "t": "queue://q", "bm": delivery["bm"]})
    assert found == bodies


def test_disconnect_is_answered(meet: Meet) -> None:
    peer = meet()
    (done,) = peer.ask({"c": "disconnect", "cid": "1", "a": "processed"})
    assert done.outcome == ("processed", "success")
    assert peer.ended()
