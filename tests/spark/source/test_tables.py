"""Tables as batches: their columns, and that these are right."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ackwise.clock import ManualClock
from ackwise.core import commands as c
from ackwise.core.errors import BadInput, UnknownGroup, UnknownQueue
from ackwise.core.ids import base36
from ackwise.core.messages import NewMessage
from ackwise.core.queries import Browse
from ackwise.core.settlement import Outcome
from ackwise.spark.source import schemas, table_readers
from tests.spark.queue_harness import QueueHarness
from tests.spark.source.asking import Row, source, table

COLUMNS = {
    "messages": "message_id string, transaction_id string, queue string, partition string, partition_id string, "
    "priority int, seq bigint, payload string, headers map<string,string>, content_type string, created_at timestamp, "
    "state string",
    "dead_letters": "id string, message_id string, partition_id string, transaction_id string, consumer_group string, "
    "error_message string, retry_count int, original_created_at timestamp, moved_to_dlq_at timestamp, queue string, "
    "partition string, seq bigint, reason string, error_type string, deliveries int, payload string, "
    "headers map<string,string>, content_type string",
    "groups": "queue string, partition string, partition_id string, consumer_group string, last_consumed_id string, "
    "last_consumed_created_at timestamp, last_consumed_at timestamp, total_messages_consumed bigint, lag bigint, "
    "unread bigint, held bigint, dead bigint, skipped bigint, expired bigint, leases bigint, "
    "oldest_unfinished_at timestamp",
    "leases": "lease_id string, queue string, consumer_group string, owner string, key string, made_at timestamp, "
    "deadline timestamp, ended_at timestamp, end_kind string, granted bigint, held bigint",
    "ledger": "queue string, consumer_group string, minute timestamp, outcome string, count bigint, "
    "latency map<double,bigint>",
}


def moment(clock: ManualClock, ago: float = 0.0) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=clock.now()) - timedelta(seconds=ago)


@pytest.mark.parametrize("name", COLUMNS)
def test_table_has_its_documented_columns(local_url: str, name: str) -> None:
    made = source(local_url, {"table": name})
    fields = [f"{field.name} {field.dataType.simpleString()}" for field in made.schema().fields]
    assert ", ".join(fields) == COLUMNS[name]
    assert all(field.nullable for field in made.schema().fields)


def test_stream_and_batch_without_table_have_same_columns(harness: QueueHarness, url: str) -> None:
    made = source(url, {"queue": "q"})
    assert [f"{field.name} {field.dataType.simpleString()}" for field in made.schema().fields] == [
        "delivery_id string",
        "message_id string",
        "transaction_id string",
        "queue string",
        "partition string",
        "priority int",
        "seq bigint",
        "attempt int",
        "payload string",
        "headers map<string,string>",
        "created_at timestamp",
    ]
    harness.number(3)
    rows = table(url, None, queue="q")
    assert [(row["payload"], row["delivery_id"], row["attempt"]) for row in rows] == [
        (f'{{"n":{n}}}', None, None) for n in range(3)
    ]


def test_messages_table_has_every_field(timed_harness: QueueHarness, timed_url: str, clock: ManualClock) -> None:
    timed_harness.send([NewMessage(b'{"n":1}', "p", 2, "mine", {"k": "v"})])
    timed_harness.send([NewMessage(b"\xff", content_type="image/png")])
    clock.advance(60)
    plain, urgent = sorted(table(timed_url, "messages", queue="q"), key=lambda row: row["priority"])
    lane = timed_harness.lanes()
    assert urgent == {
        "message_id": urgent["message_id"],
        "transaction_id": "mine",
        "queue": "q",
        "partition": "p",
        "partition_id": lane["p"].partition_id,
        "priority": 2,
        "seq": 0,
        "payload": '{"n":1}',
        "headers": [("k", "v")],
        "content_type": "application/json",
        "created_at": moment(clock, 60),
        "state": None,
    }
    assert (plain["payload"], plain["content_type"]) == ('{"$base64":"/w=="}', "image/png")


def states(harness: QueueHarness, **options: str) -> list[tuple[int, str]]:
    rows = table(harness.url, "messages", queue="q", group="g", **options)
    return sorted((int(row["transaction_id"][1:]), row["state"]) for row in rows)


def test_messages_table_has_the_state_of_each_message(
    harness: QueueHarness, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_readers, "PAGE", 2)
    harness.number(2)
    harness.do(c.ConfigureGroup(queue="q", group="g", start="new"))
    harness.number(5, first=2)
    harness.number(2, first=7, priority=1)
    harness.number(2, first=9, partition="p")
    first = harness.do(c.Claim(queue="q", group="g", most=4, partitions=("Default",), priorities=(0,)))
    lane = first.grants[0].lane
    ids = [f"{first.lease_id}.{base36(lane)}.{base36(seq)}" for seq in range(2, 6)]
    harness.settle([{"delivery_id": ids[0]}])
    harness.settle([{"delivery_id": ids[1]}], "retry", delay=3600)
    harness.settle([{"delivery_id": ids[2]}], "reject")
    expected = ["skipped", "skipped", "acked", "waiting", "dead", "leased", *["ready"] * 5]
    assert states(harness) == list(enumerate(expected))
    rows = table(url, "messages", queue="q", group="g", schema="state string, seq long")
    assert sorted(row["state"] for row in rows) == sorted(expected)
    assert table(url, "messages", queue="q", group="g", schema="seq long")[0].keys() == {"seq"}


def test_states_for_a_group_that_is_not_there(local_harness: QueueHarness) -> None:
    local_harness.number(1)
    with pytest.raises(UnknownGroup, match=r"^ackwise: .*'g'"):
        states(local_harness)


def test_messages_after_pruning(local_harness: QueueHarness) -> None:
    for number in range(5):
        local_harness.number(1, first=number)
    lane = local_harness.lanes()["Default"].lane
    local_harness.do(c.AdvanceGroup(queue="q", group="g", lanes={lane: 4}))
    local_harness.do(c.PruneQueue(queue="q", lanes={lane: 3}))
    assert states(local_harness) == [(3, "acked"), (4, "ready")]


def test_messages_are_split_over_tasks(local_harness: QueueHarness) -> None:
    local_harness.number(100)
    made = source(local_harness.url, {"table": "messages", "queue": "q", "maxPartitions": "4"})
    assert len(made.reader(made.schema()).partitions()) == 4
    local_harness.configure("empty")
    assert table(local_harness.url, "messages", queue="empty") == []


def test_dead_letters_table_has_every_field(timed_harness: QueueHarness, timed_url: str, clock: ManualClock) -> None:
    timed_harness.configure(retry_limit=2)
    timed_harness.send([NewMessage(b'{"n":1}', "p", 0, "mine", {"k": "v"})])
    for _ in range(2):
        claimed = timed_harness.do(c.Claim(queue="q", group="g", most=1))
        clock.advance(5)
        entry = c.Settlement(
            selector=c.ByLease(claimed.lease_id), outcome=Outcome.RETRY, error="no", error_type="ValueError"
        )
        timed_harness.do(c.Settle(entries=[entry]))
    (row,) = table(timed_url, "dead_letters")
    (letter,) = timed_harness.dead()
    assert row == {
        "id": letter.id,
        "message_id": letter.message_id,
        "partition_id": timed_harness.lanes()["p"].partition_id,
        "transaction_id": "mine",
        "consumer_group": "g",
        "error_message": "no",
        "retry_count": 2,
        "original_created_at": moment(clock, 10),
        "moved_to_dlq_at": moment(clock),
        "queue": "q",
        "partition": "p",
        "seq": 0,
        "reason": "retry_limit",
        "error_type": "ValueError",
        "deliveries": 2,
        "payload": '{"n":1}',
        "headers": [("k", "v")],
        "content_type": "application/json",
    }
    assert len(table(timed_url, "dead_letters", queue="q", group="g")) == 1
    assert table(timed_url, "dead_letters", queue="q", group="other") == []


def test_many_dead_letters_come_in_pages(harness: QueueHarness, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_readers, "PAGE", 7)
    harness.number(30)
    claimed = harness.do(c.Claim(queue="q", group="g", most=30))
    harness.do(c.Settle(entries=[c.Settlement(selector=c.ByLease(claimed.lease_id), outcome=Outcome.REJECT)]))
    rows = table(url, "dead_letters", schema="transaction_id string")
    assert sorted(int(row["transaction_id"][1:]) for row in rows) == list(range(30))


def test_redriven_dead_letters_do_not_hide_others(
    timed_harness: QueueHarness, timed_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_readers, "PAGE", 4)
    timed_harness.number(12)
    for size in (1, 6, 2, 3):  # six of one moment are more than a page
        claimed = timed_harness.do(c.Claim(queue="q", group="g", most=size))
        timed_harness.do(c.Settle(entries=[c.Settlement(selector=c.ByLease(claimed.lease_id), outcome=Outcome.REJECT)]))
        clock.advance(1)
    made = source(timed_url, {"table": "dead_letters"})
    reader = made.reader(made.schema())
    pages = iter(reader.read(reader.partitions()[0]))
    first = next(pages).to_pylist()
    timed_harness.do(c.Redrive(ids=[row["id"] for row in first]))
    rest = [row for page in pages for row in page.to_pylist()]
    assert [len(first), len(rest)] == [4, 8]
    assert len({row["id"] for row in (*first, *rest)}) == 12


def test_dead_letters_with_payloads_that_are_not_json(local_harness: QueueHarness) -> None:
    local_harness.send([NewMessage(b"{"), NewMessage(b"\xff", content_type="image/png")])
    claimed = local_harness.do(c.Claim(queue="q", group="g", most=2))
    local_harness.do(c.Settle(entries=[c.Settlement(selector=c.ByLease(claimed.lease_id), outcome=Outcome.REJECT)]))
    dead = {row["seq"]: row for row in table(local_harness.url, "dead_letters")}
    live = {row["seq"]: row for row in table(local_harness.url, "messages", queue="q")}
    for seq in (0, 1):
        assert (dead[seq]["payload"], dead[seq]["content_type"]) == (live[seq]["payload"], live[seq]["content_type"])


def test_groups_table_counts_each_state(timed_harness: QueueHarness, timed_url: str, clock: ManualClock) -> None:
    timed_harness.number(4, partition="p")
    clock.advance(10)
    claimed = timed_harness.do(c.Claim(queue="q", group="g", most=3))
    rows: list[Row] = [
        {"delivery_id": f"{claimed.lease_id}.{base36(claimed.grants[0].lane)}.{seq}"} for seq in range(3)
    ]
    timed_harness.settle(rows[:1])
    timed_harness.settle(rows[2:], "reject")
    found = table(timed_url, "groups", queue="q")
    message_id = timed_harness.ask(Browse(queue="q"))[0].message.id
    assert found == [
        {
            "queue": "q",
            "partition": "p",
            "partition_id": timed_harness.lanes()["p"].partition_id,
            "consumer_group": "g",
            "last_consumed_id": message_id,
            "last_consumed_created_at": moment(clock, 10),
            "last_consumed_at": moment(clock),
            "total_messages_consumed": 1,
            "lag": 2,
            "unread": 1,
            "held": 1,
            "dead": 1,
            "skipped": 0,
            "expired": 0,
            "leases": 1,
            "oldest_unfinished_at": moment(clock, 10),
        }
    ]


def test_leases_table_has_live_and_ended_leases(
    timed_harness: QueueHarness, timed_url: str, clock: ManualClock
) -> None:
    timed_harness.number(4)
    done = timed_harness.do(c.Claim(queue="q", group="g", most=1, owner="me", key="k/1", lease=60_000_000))
    clock.advance(5)
    timed_harness.do(c.Settle(entries=[c.Settlement(selector=c.ByLease(done.lease_id), outcome=Outcome.ACK)]))
    live = timed_harness.do(c.Claim(queue="q", group="g", most=3, lease=60_000_000))
    rows = {row["lease_id"]: row for row in table(timed_url, "leases")}
    ended = rows.pop(done.lease_id)
    assert (ended["owner"], ended["key"], ended["granted"], ended["held"]) == ("me", "k/1", 1, 0)
    assert (ended["made_at"], ended["ended_at"]) == (moment(clock, 5), moment(clock))
    assert ended["end_kind"] is not None
    assert rows == {
        live.lease_id: {
            "lease_id": live.lease_id,
            "queue": "q",
            "consumer_group": "g",
            "owner": rows[live.lease_id]["owner"],
            "key": None,
            "made_at": moment(clock),
            "deadline": moment(clock, -60),
            "ended_at": None,
            "end_kind": None,
            "granted": 3,
            "held": 3,
        }
    }


def test_ledger_table_has_counts_and_latency(timed_harness: QueueHarness, timed_url: str, clock: ManualClock) -> None:
    timed_harness.number(3)
    claimed = timed_harness.do(c.Claim(queue="q", group="g", most=3))
    clock.advance(2)
    timed_harness.do(c.Settle(entries=[c.Settlement(selector=c.ByLease(claimed.lease_id), outcome=Outcome.ACK)]))
    rows = [row for row in table(timed_url, "ledger", queue="q", group="g") if row["outcome"] == "acked"]
    assert [(row["queue"], row["consumer_group"], row["count"]) for row in rows] == [("q", "g", 3)]
    ((bound, count),) = rows[0]["latency"]
    assert (2.0 <= bound < 3.0, count) == (True, 3)
    assert rows[0]["minute"] == moment(clock).replace(second=0, microsecond=0)


@pytest.mark.parametrize("name", COLUMNS)
def test_schema_of_fewer_columns_reads_only_those(harness: QueueHarness, url: str, name: str) -> None:
    harness.number(2)
    claimed = harness.do(c.Claim(queue="q", group="g", most=2))
    harness.do(c.Settle(entries=[c.Settlement(selector=c.ByLease(claimed.lease_id), outcome=Outcome.REJECT)]))
    harness.flush()
    full = table(url, name, queue="q")
    assert full
    for field in schemas.TABLES[name].fields:
        kind = field.dataType.simpleString()
        assert table(url, name, queue="q", schema=f"{field.name} {kind}") == [
            {field.name: row[field.name]} for row in full
        ]


def test_payload_in_columns(local_harness: QueueHarness) -> None:
    local_harness.send([NewMessage(one) for one in (b'{"n": 1, "s": "x"}', b'{"n": "x"}', b"{", b"null", b"")])
    rows = table(local_harness.url, "messages", queue="q", payloadSchema="n int, s string")
    assert [(row["n"], row["s"], row["_corrupt"] is None) for row in rows] == [
        (1, "x", True),
        (None, None, False),
        (None, None, False),
        (None, None, False),
        (None, None, False),
    ]
    assert "_corrupt" not in table(local_harness.url, "messages", queue="q")[0]
    claimed = local_harness.do(c.Claim(queue="q", group="g", most=1))
    local_harness.do(c.Settle(entries=[c.Settlement(selector=c.ByLease(claimed.lease_id), outcome=Outcome.REJECT)]))
    (dead,) = table(local_harness.url, "dead_letters", payloadSchema="n int, s string")
    assert (dead["n"], dead["s"], dead["_corrupt"]) == (1, "x", None)


@pytest.mark.parametrize("name", ["groups", "leases", "ledger"])
def test_table_without_payloads_has_no_columns_of_them(local_url: str, name: str) -> None:
    with pytest.raises(BadInput, match=f"option payloadSchema: the table {name} has no payload"):
        table(local_url, name, payloadSchema="n int")


@pytest.mark.parametrize("name", COLUMNS)
def test_queue_that_is_not_there(local_harness: QueueHarness, name: str) -> None:
    local_harness.number(1)
    with pytest.raises(UnknownQueue, match=r"^ackwise: .*'nowhere'.* \[unknown_queue\]$"):
        table(local_harness.url, name, queue="nowhere")
