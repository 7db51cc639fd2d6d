"""The spool keeps pushes during a push maintenance and gives each of them back once. Old traces make room."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.events import Event, MaintenanceChanged, SpoolReplayed
from ackwise.core.messages import NewMessage
from ackwise.core.queen_queries import GetMaintenance, ListNamedTraces, ListTraceNames
from ackwise.core.rows import MaintenanceState
from ackwise.engine import spool, traces
from tests.engine.store_harness import StoreHarness


def keep(harness: StoreHarness, *texts: str, queue: str = "q") -> int:
    """Keep a push whose messages have their texts as transaction ids."""
    messages = [NewMessage(text.encode(), transaction_id=text) for text in texts]
    count: int = harness.do(c.Spool(pushes=[c.Push(queue=queue, messages=messages)])).count
    return count


def texts(harness: StoreHarness) -> list[str]:
    return [row.message.payload.decode() for row in harness.store.ask(q.Browse(queue="q"))]


def test_spool_without_maintenance_keeps_nothing(harness: StoreHarness) -> None:
    assert keep(harness, "a") == 0
    assert harness.store.ask(GetMaintenance(counted=True)) == MaintenanceState(push=False, pop=False, waiting=False)


def test_spool_is_drained_in_order_after_the_end(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "PUSHES_AT_ONCE", 2)
    events: list[Event] = []
    harness.store.events.subscribe(events.append, MaintenanceChanged, SpoolReplayed)
    harness.do(c.SetMaintenance(push=True))
    assert [keep(harness, *pair) for pair in ("ab", "ac", "d")] == [2, 2, 1]
    assert harness.do(c.DrainSpool()).done == {"spool": 0}
    state = harness.store.ask(GetMaintenance(counted=True))
    assert (state.push, state.waiting, state.messages) == (True, True, 5)
    harness.do(c.SetMaintenance(push=False))
    assert keep(harness, "e") == 1  # it waits behind the others
    swept = [harness.do(c.DrainSpool()) for _ in range(3)]
    assert [(answer.done["spool"], answer.more) for answer in swept] == [(4, True), (2, False), (0, False)]
    assert texts(harness) == ["a", "b", "c", "d", "e"]
    assert keep(harness, "f") == 0
    assert events == [
        MaintenanceChanged(push=True, pop=False),
        MaintenanceChanged(push=False, pop=False),
        SpoolReplayed(4),
        SpoolReplayed(2),
    ]


def test_turn_takes_a_bounded_number_of_messages(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MESSAGES_AT_ONCE", 3)
    harness.do(c.SetMaintenance(push=True))
    for pair in ("abcde", "fg", "h"):
        keep(harness, *pair)
    harness.do(c.SetMaintenance(push=False))
    assert [harness.do(c.DrainSpool()).done["spool"] for _ in range(3)] == [5, 3, 0]


def test_kept_push_has_its_stored_form(harness: StoreHarness) -> None:
    """Spools of this version are read by later ones."""
    message = NewMessage(b"1", "p", 2, "t", {"h": "v"}, "text/plain", 5)
    encoded = spool._encoder.encode(spool._KeptPush("q", [message], None))
    assert spool._decoder.decode(encoded).messages == [message]
    assert encoded == (
        b"\x93\xa1q\x91\x87\xa7payload\xc4\x011\xa9partition\xa1p\xa8priority\x02\xaetransaction_id\xa1t"
        b"\xa7headers\x81\xa1h\xa1v\xaccontent_type\xaatext/plain\xa5delay\x05\xc0"
    )


def test_oldest_traces_make_room(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_TRACES", 2)
    harness.push("a")
    partition = harness.store.ask(q.ListPartitions(queue="q"))[0].partition_id
    for number in range(4):
        names = ["all", f"n{number}"]
        harness.do(c.AddTrace(partition_id=partition, transaction_id="a", data=str(number), names=names))
    harness.do(c.Sweep(duties=("forget",)))
    assert [trace.data for trace in harness.store.ask(ListNamedTraces(name="all"))] == ["3", "2"]
    assert {row.name for row in harness.store.ask(ListTraceNames()).names} == {"all", "n2", "n3"}
