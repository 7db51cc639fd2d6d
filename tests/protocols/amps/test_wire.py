"""The wire of each promise to AMPS clients, byte by byte over a recorded socket. Bookmarks and leases read `*`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

import ackwise
from tests.protocols.amps.peer import Frame, Peer
from tests.server.running import Running

BOOKMARK_AND_LEASE = re.compile(r'"bm":"[0-9|]+","lp":"[0-9TZ.]+"')
OK = '"status":"success"'


class RecordedPeer(Peer):
    """A client that keeps both sides of the conversation: `C>S` is the client, `S>C` the server."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.lines: list[str] = []
        super().__init__(address)
        self.lines.clear()

    def say(self, header: dict[str, object] | str, body: bytes = b"") -> None:
        text = header if isinstance(header, str) else str(header)
        self.lines.append(f"C>S {text}{body.decode()}")
        super().say(header, body)

    def read_or_end(self) -> Frame | None:
        frame = super().read_or_end()
        line = "closed" if frame is None else BOOKMARK_AND_LEASE.sub('"bm":"*","lp":"*"', frame.raw.decode())
        self.lines.append(f"S>C {line}")
        return frame

    def heard(self, count: int) -> list[str]:
        """The next frames of the server."""
        return [self.read_line() for _ in range(count)]

    def read_line(self) -> str:
        self.read()
        return self.lines[-1].removeprefix("S>C ")

    def silent(self) -> bool:
        """Whether the server says nothing before it answers this flush."""
        self.say('{"c":"flush","cid":"quiet","a":"completed"}')
        return self.read_line() == f'{{"c":"ack","cid":"quiet","a":"completed",{OK}}}'


Record = Callable[[], RecordedPeer]


@pytest.fixture
def record(server: Running) -> Iterator[Record]:
    peers: list[RecordedPeer] = []

    def connect() -> RecordedPeer:
        peers.append(RecordedPeer(server.amps))
        return peers[-1]

    yield connect
    for peer in peers:
        peer.close()


def refused(cid: str, reason: str, kind: str = "processed") -> str:
    return f'{{"c":"ack","cid":"{cid}","a":"{kind}","status":"failure","reason":"{reason}"}}'


def delivered(sub_id: str, body: str, topic: str = "queue://q") -> str:
    return f'{{"c":"p","t":"{topic}","sids":"{sub_id}","sub_id":"{sub_id}","bm":"*","lp":"*"}}{body}'


def told(topic: str, sub_id: str, body: str) -> str:
    return f'{{"c":"p","t":"{topic}","sids":"{sub_id}","sub_id":"{sub_id}"}}{body}'


def test_filter_is_respected_on_a_queue(record: Record) -> None:
    one, other = record(), record()
    one.say(
        '{"c":"subscribe","cid":"1","t":"queue://q","filter":"/order/total > 5 AND /region IN (\'eu\',\'us\')",'
        '"opts":"max_backlog=5","a":"processed","sub_id":"1"}'
    )
    other.say('{"c":"subscribe","cid":"2","t":"queue://q","filter":"/order/total <= 5","a":"processed","sub_id":"2"}')
    assert one.read().header == {
        "c": "ack", "cid": "1", "a": "processed", "sub_id": "1", "o": "max_backlog=5", "status": "success",
    }  # fmt: skip
    assert other.read()["o"] == "max_backlog=50"
    one.say('{"c":"p","t":"queue://q"}', b'{"order":{"total":9},"region":"eu"}')
    one.say('{"c":"p","t":"queue://q"}', b'{"order":{"total":3},"region":"eu"}')
    one.say('{"c":"p","t":"queue://q"}', b'{"order":{"total":9},"region":"asia"}')
    assert one.read_line() == delivered("1", '{"order":{"total":9},"region":"eu"}')
    assert other.read_line() == delivered("2", '{"order":{"total":3},"region":"eu"}')
    assert one.silent()
    assert other.silent()


def test_filter_is_respected_on_a_plain_topic(record: Record) -> None:
    one, other = record(), record()
    one.say('{"c":"subscribe","cid":"1","t":"news","filter":"/n BETWEEN 2 AND 3","a":"processed","sub_id":"n"}')
    assert one.read()["status"] == "success"
    for number in range(5):
        other.say('{"c":"p","t":"news"}', b'{"n":%d}' % number)
    other.say('{"c":"p","t":"news"}', b"not json")
    assert other.silent()
    assert one.heard(2) == [told("news", "n", '{"n":2}'), told("news", "n", '{"n":3}')]
    assert one.silent()


SUPPORTED = "supported are = != < > <= >= AND OR NOT BETWEEN IN LIKE IS NULL BEGINS WITH ENDS WITH CONTAINS"


@pytest.mark.parametrize("topic", ["queue://q", "news"])
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("INSTR(/a, 'x') != 0", "function 'INSTR'"),
        ("/a + 1 = 2", "operator '+'"),
        ("/a MATCHES 'x'", "word 'MATCHES'"),
    ],
)
def test_unsupported_filter_subscribes_nothing(
    topic: str, text: str, named: str, record: Record, http: ackwise.Connection
) -> None:
    peer = record()
    peer.say(f'{{"c":"subscribe","cid":"1","t":"{topic}","filter":"{text}","a":"processed","sub_id":"s"}}')
    assert peer.read_line() == refused("1", f"the filter's {named} is not supported; {SUPPORTED}")
    assert http.queues() == []
    peer.say(f'{{"c":"p","t":"{topic}"}}', b'{"a":"x"}')
    assert peer.silent()
    peer.say('{"c":"unsubscribe","cid":"2","sub_id":"s","a":"processed"}')
    assert peer.read_line() == refused("2", "there is no subscription 's'")


def test_delta_publish_is_a_failure_for_its_publisher(record: Record, http: ackwise.Connection) -> None:
    reason = "delta_publish is not supported: queues and topics have no state to merge with; use publish"
    peer = record()
    peer.say('{"c":"delta_publish","cid":"1","t":"queue://q"}', b"{}")
    assert peer.read_line() == refused("1", reason)
    peer.say('{"c":"delta_publish","cid":"2","t":"queue://q","a":"processed,persisted"}', b"{}")
    assert peer.heard(2) == [refused("2", reason), refused("2", reason, "persisted")]
    peer.say('{"c":"delta_publish","t":"queue://q","s":7}', b"{}")
    assert peer.read().header == {"c": "ack", "a": "persisted", "s": 7, "status": "failure", "reason": reason}
    peer.say('{"c":"delta_publish","t":"queue://q"}', b"{}")
    assert peer.read().header == {"c": "ack", "a": "processed", "status": "failure", "reason": reason}
    assert peer.silent()
    assert http.queues() == []


def test_subscription_without_backlog_gets_the_default(store_url: str) -> None:
    with Running(store_url, amps_port=0, amps_default_backlog=3, grace=0.05) as server:
        peer = RecordedPeer(server.amps)
        peer.say('{"c":"subscribe","cid":"1","t":"queue://q","a":"processed","sub_id":"1"}')
        assert peer.read()["o"] == "max_backlog=3"
        for number in range(5):
            peer.say('{"c":"p","t":"queue://q"}', str(number).encode())
        assert peer.heard(3) == [delivered("1", str(number)) for number in range(3)]
        assert peer.silent()
        peer.close()


def test_default_backlog_is_100(store_url: str) -> None:
    with Running(store_url, amps_port=0, grace=0.05) as server:
        peer = RecordedPeer(server.amps)
        peer.say('{"c":"subscribe","cid":"1","t":"queue://q","a":"processed","sub_id":"1"}')
        assert peer.read()["o"] == "max_backlog=100"
        peer.close()


def test_twenty_messages_come_without_waiting_for_acks(record: Record) -> None:
    """The seed's example: auto-ack batches of 50, so no ack is sent before its timeout."""
    peer = record()
    peer.say('{"c":"subscribe","cid":"1","t":"queue://orders","a":"processed","sub_id":"1"}')
    peer.read()
    for number in range(20):
        peer.say('{"c":"p","t":"queue://orders"}', str(number).encode())
    assert peer.heard(20) == [delivered("1", str(number), "queue://orders") for number in range(20)]


@pytest.mark.parametrize("topic", ["queue://q", "news"])
def test_publish_with_sequence_is_answered_persisted(topic: str, record: Record) -> None:
    peer = record()
    peer.say(f'{{"c":"p","cid":"1","t":"{topic}","s":41}}', b"a")
    assert peer.read().header == {"c": "ack", "cid": "1", "a": "persisted", "s": 41, "status": "success"}
    peer.say(f'{{"c":"p","t":"{topic}","s":42}}', b"b")
    assert peer.read().header == {"c": "ack", "a": "persisted", "s": 42, "status": "success"}
    peer.say(f'{{"c":"p","cid":"3","t":"{topic}","s":43,"a":"processed,persisted"}}', b"c")
    assert [(peer.read()["a"], 43) for _ in range(2)] == [("processed", 43), ("persisted", 43)]
    peer.say(f'{{"c":"p","cid":"4","t":"{topic}"}}', b"d")
    assert peer.silent()


def test_publish_store_is_flushed_by_persisted(record: Record, http: ackwise.Connection) -> None:
    """A store of the Go client keeps messages until `persisted` names their sequence, and waits for `completed`."""
    peer = record()
    waiting = set(range(1, 51))
    for number in sorted(waiting):
        peer.say(f'{{"c":"p","cid":"{number}","t":"queue://q","s":{number}}}', b"x")
    peer.say('{"c":"flush","cid":"f","a":"processed,completed"}')
    while (frame := peer.read())["cid"] != "f":
        assert frame.outcome == ("persisted", "success")
        waiting.remove(frame["s"])
    assert waiting == set(), "all are confirmed before the flush"
    assert peer.read()["a"] == "completed"
    assert http.stats("q").messages == 50


def test_refused_publish_with_sequence_is_answered(record: Record) -> None:
    peer = record()
    peer.say('{"c":"p","cid":"1","t":"queue://q","s":5,"e":"soon"}', b"x")
    assert peer.read().header == {
        "c": "ack", "cid": "1", "a": "persisted", "s": 5, "status": "failure",
        "reason": "e must be a number of seconds, not 'soon'",
    }  # fmt: skip


def test_regular_expression_topics_match(record: Record) -> None:
    one, other = record(), record()
    for number, topic in enumerate(("top.*", "^(news|sport)/[a-z]+$", "exact.topic")):
        one.say({"c": "subscribe", "cid": str(number), "t": topic, "a": "processed", "sub_id": str(number)})
        assert one.read()["status"] == "success"
    for topic in ("top", "topic/1", "desktop", "news/eu", "news/EU", "sport/x", "exact.topic", "exactXtopic"):
        other.publish(topic, topic.encode())
    assert one.heard(5) == [
        told("top", "0", "top"),
        told("topic/1", "0", "topic/1"),
        told("news/eu", "1", "news/eu"),
        told("sport/x", "1", "sport/x"),
        told("exact.topic", "2", "exact.topic"),
    ]
    one.say('{"c":"unsubscribe","cid":"u","sub_id":"0","a":"processed"}')
    assert one.read()["status"] == "success"
    other.publish("top", b"again")
    assert one.silent()


def test_regular_expression_that_cannot_be_used_is_refused(record: Record, http: ackwise.Connection) -> None:
    peer = record()
    peer.say('{"c":"subscribe","cid":"1","t":"top(","a":"processed"}')
    assert "'top(' is not a regular expression" in peer.read()["reason"]
    peer.say('{"c":"subscribe","cid":"2","t":"queue://ord.*","a":"processed"}')
    reason = "'queue://ord.*' is a regular expression, which matches plain topics only; subscribe to each queue"
    assert peer.read_line() == refused("2", reason)
    assert http.queues() == []
    peer.say('{"c":"p","cid":"p","t":"queue://a+b","a":"persisted"}', b"x")
    assert peer.read()["status"] == "success"
    peer.say('{"c":"subscribe","cid":"3","t":"queue://a+b","a":"processed"}')
    assert peer.read()["status"] == "success", "a queue with that very name exists"


@pytest.mark.parametrize("command", ["sow", "delta_subscribe", "sow_and_delta_subscribe"])
@pytest.mark.parametrize("topic", ["queue://q", "news"])
def test_commands_of_a_sow_are_refused_by_name(
    command: str, topic: str, record: Record, http: ackwise.Connection
) -> None:
    peer = record()
    peer.say(f'{{"c":"{command}","cid":"1","t":"{topic}","a":"processed","sub_id":"1"}}')
    reason = f"{command} is not supported: queues and topics have no state of the world; use subscribe"
    assert peer.read_line() == refused("1", reason)
    assert http.queues() == []
    assert peer.silent()


def test_plain_topic_refuses_sow_delete_and_bookmarks(record: Record) -> None:
    peer = record()
    peer.say('{"c":"sow_delete","cid":"1","t":"news","filter":"1=1","a":"processed"}')
    reason = "sow_delete: 'news' is not a queue, so it keeps no messages to settle or delete"
    assert peer.read_line() == refused("1", reason)
    peer.say('{"c":"sow_delete","cid":"2","t":"news","bm":"1|1|","a":"processed"}')
    assert peer.read_line() == refused("2", reason)
    for number, command in enumerate(("subscribe", "sow_and_subscribe"), 3):
        peer.say(f'{{"c":"{command}","cid":"{number}","t":"news","bm":"0","a":"processed"}}')
        reason = f"{command}: a plain topic keeps no messages, so a bookmark cannot replay any"
        assert peer.read_line() == refused(str(number), reason)
    peer.publish("news", b"x")
    assert peer.silent()


def test_sow_delete_with_bookmarks_stays_an_ack(record: Record) -> None:
    peer = record()
    peer.publish("queue://q", b"a", b"b")
    peer.subscribe("queue://q", 5)
    marks = ",".join(frame["bm"] for frame in peer.deliveries(2))
    peer.say(f'{{"c":"sow_delete","cid":"1","t":"queue://q","bookmark":"{marks}","a":"processed"}}')
    assert peer.read().header == {
        "c": "ack", "cid": "1", "a": "processed", "status": "success", "records_deleted": 2,
    }  # fmt: skip
    peer.say('{"c":"sow_delete","cid":"2","t":"queue://q","filter":"/a = 1","a":"processed"}')
    assert peer.read_line() == refused("2", "sow_delete deletes by bookmark only: bookmark is required for ack")
    peer.say('{"c":"sow_delete","cid":"3","t":"queue://q","bm":"1|1|","filter":"/a = 1","a":"processed"}')
    assert peer.read_line() == refused("3", "sow_delete takes bookmarks and no filter")


# What the Go client's tests expect of a server.


def test_acked_batch_of_the_asked_size_is_settled(record: Record) -> None:
    peer = record()
    peer.say('{"c":"subscribe","cid":"1","t":"queue://q","opts":"max_backlog=6","a":"processed","sub_id":"1"}')
    peer.read()
    for number in range(6):
        peer.say('{"c":"p","t":"queue://q"}', str(number).encode())
    held = [frame["bm"] for frame in peer.deliveries(6)]
    for batch in (held[:3], held[3:]):
        peer.say(f'{{"c":"ack","cid":"a","t":"queue://q","bm":"{",".join(batch)}","sub_id":"1","a":"processed"}}')
        assert peer.read()["records_deleted"] == 3


def test_unacked_messages_are_delivered_after_a_disconnect(record: Record) -> None:
    one, other = record(), record()
    one.subscribe("queue://q", 5)
    other.publish("queue://q", b"a", b"b")
    first, _ = one.deliveries(2)
    one.say(f'{{"c":"ack","t":"queue://q","bm":"{first["bm"]}","sub_id":"1"}}')
    one.flush()
    one.die()
    other.subscribe("queue://q", 5)
    assert other.read_line() == delivered("1", "b")
    assert other.silent()


def test_heartbeats_go_both_ways(record: Record) -> None:
    peer = record()
    peer.say('{"c":"heartbeat","cid":"1","opts":"start,0.05","a":"processed"}')
    assert peer.read_line() == f'{{"c":"ack","cid":"1","a":"processed",{OK}}}'
    for _ in range(3):
        assert peer.read_line() == '{"c":"heartbeat"}'
        peer.say('{"c":"heartbeat","opts":"beat"}')
    peer.say('{"c":"heartbeat","cid":"2","opts":"stop","a":"processed"}')
    while (line := peer.read_line()) == '{"c":"heartbeat"}':
        pass
    assert line == f'{{"c":"ack","cid":"2","a":"processed",{OK}}}'
    assert peer.silent()


def test_unsubscribe_returns_what_is_held(record: Record) -> None:
    one, other = record(), record()
    one.subscribe("queue://q", 5, filter="/n >= 0")
    other.publish("queue://q", b'{"n":1}', b'{"n":2}')
    one.deliveries(2)
    one.say('{"c":"unsubscribe","cid":"u","sub_id":"1","a":"processed"}')
    assert one.read().header == {"c": "ack", "cid": "u", "a": "processed", "status": "success", "sub_id": "1"}
    other.subscribe("queue://q", 5)
    assert other.heard(2) == [delivered("1", '{"n":1}'), delivered("1", '{"n":2}')]
    assert one.silent()


def test_client_logs_on_again_after_a_reconnect(record: Record) -> None:
    """The Go client subscribes again with a new cid, the same sub_id and the same filter."""
    publisher = record()
    for _ in range(2):
        peer = record()
        peer.say('{"c":"subscribe","cid":"9","t":"queue://q","filter":"/n = 1","a":"processed","sub_id":"1"}')
        assert peer.read()["status"] == "success"
        publisher.publish("queue://q", b'{"n":1}', b'{"n":0}')
        (held,) = peer.deliveries(1)
        peer.ack("queue://q", held["bm"])
        assert peer.silent()
        peer.close()


def test_unknown_command_fails_cleanly(record: Record) -> None:
    peer = record()
    peer.say('{"c":"dance","cid":"1","t":"queue://q"}')
    assert peer.read_line() == refused("1", "there is no command 'dance'")
    peer.say('{"c":"dance"}')
    assert peer.silent()
    peer.publish("queue://q", b"x")
