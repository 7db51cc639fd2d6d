"""`POST /v1/read`: what Spark's workers read over HTTP."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from ackwise.arrow.message_pages import STORED
from ackwise.clock import ManualClock
from ackwise.connect import reach
from ackwise.core import queries as q
from ackwise.core.commands import AdvanceGroup, PruneQueue, Push
from ackwise.core.ids import LaneId
from ackwise.core.lane_range import LaneRange
from ackwise.core.messages import NewMessage
from ackwise.spark.connections import ServerShelf
from tests.arrow.expected import MIXED, by_message, spelled
from tests.patience import PATIENCE
from tests.pg import FACTORIES
from tests.protocols.native.native_api import NativeApi, read_arrow
from tests.server.running import Running


@pytest.fixture(params=["sqlite", *FACTORIES], ids=lambda name: name.replace("pg_url_factory", "postgres"))
def server(request: pytest.FixtureRequest, tmp_path: Any, clock: ManualClock) -> Iterator[Running]:
    sqlite = f"sqlite:///{tmp_path}/served.db?durability=normal"
    url = sqlite if request.param == "sqlite" else request.getfixturevalue(request.param)()
    with Running(url, clock) as running:
        yield running


@pytest.fixture
def native(server: Running, clock: ManualClock) -> Iterator[NativeApi]:
    with httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
        yield NativeApi(http, clock)


def read(native: NativeApi, ranges: list[Any], columns: list[Any]) -> Any:
    return read_arrow(native.raw("/v1/read", json.dumps({"ranges": ranges, "columns": columns}).encode()))


def lanes(native: NativeApi) -> list[LaneRange]:
    return [LaneRange(row["lane"], row["start"], row["head"]) for row in native.ask("list_lanes", queue="q")]


def test_arrow_read_of_ranges_equals_stored_messages(server: Running, native: NativeApi) -> None:
    broker = server.server.runtime.broker()
    native.ok("/v1/push", {"queue": "q", "payloads": list(range(3000)), "partition": "p"})
    native.push("q", "é", partition="x", transaction_id="t", headers={"k": "v"})
    native.push("q", {"$base64": "/w=="}, content_type="image/png")
    ranges = lanes(native)
    assert len(ranges) == 3
    expected = by_message(broker.store, ranges)
    assert read(native, ranges, list(STORED)).to_pylist() == expected
    assert read(native, ranges[:1], []).to_pylist() == [
        {"lane": row["lane"], "seq": row["seq"]} for row in expected if row["lane"] == ranges[0][0]
    ]
    transport = reach(server.url)
    try:
        assert spelled(ServerShelf(transport).pages(ranges, list(STORED))) == expected
    finally:
        transport.close()


def test_shelf_asks_in_portions(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ackwise.spark.connections._ROWS_PER_REQUEST", 5)
    transport = reach(server.url)
    try:
        for partition in ("a", "b", "c"):
            for number in range(4):
                transport.send(_push(NewMessage(str(number).encode(), partition)))
        ranges = [LaneRange(LaneId(row.lane), row.start, row.head) for row in transport.ask(q.ListLanes(queue="q"))]
        found = spelled(ServerShelf(transport).pages(ranges, ["payload"]))
        assert [(row["lane"], row["payload"]) for row in found] == [
            (lane, str(number)) for lane, _, _ in ranges for number in range(4)
        ]
    finally:
        transport.close()


def _push(*messages: NewMessage) -> Push:
    return Push(queue="q", messages=list(messages))


def test_arrow_read_of_mixed_kinds_equals_stored_messages(server: Running) -> None:
    broker = server.server.runtime.broker()
    store_url = server._store
    transport, direct = reach(server.url), reach(store_url, duties=False)
    try:
        direct.send(_push(*MIXED))
        ranges = [LaneRange(LaneId(row.lane), row.start, row.head) for row in transport.ask(q.ListLanes(queue="q"))]
        expected = by_message(broker.store, ranges)
        assert len(expected) == len(MIXED)
        assert spelled(ServerShelf(transport).pages(ranges, list(STORED))) == expected
    finally:
        transport.close()
        direct.close()


def test_arrow_read_after_pruning_skips_pruned_messages(server: Running) -> None:
    transport, direct = reach(server.url), reach(server._store, duties=False)
    try:
        for number in range(6):
            direct.send(_push(NewMessage(str(number).encode())))
        ((lane, head),) = [(LaneId(one.lane), one.head) for one in transport.ask(q.ListLanes(queue="q"))]
        direct.send(AdvanceGroup(queue="q", group="g", lanes={lane: 4}))
        assert direct.send(PruneQueue(queue="q", lanes={lane: 3})).count == 3
        found = spelled(ServerShelf(transport).pages([LaneRange(lane, 0, head), LaneRange(lane, 0, 2)], ["payload"]))
        assert [(row["seq"], row["payload"]) for row in found] == [(3, "3"), (4, "4"), (5, "5")]
    finally:
        transport.close()
        direct.close()


def test_arrow_read_of_empty_ranges_is_an_empty_stream(native: NativeApi) -> None:
    for ranges in ([], [[5, 0, 5]], [[3, 7, 7]]):
        table = read(native, ranges, ["payload", "headers"])
        assert (table.num_rows, table.schema.names) == (0, ["lane", "seq", "payload", "headers"])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "ranges"),
        ({"ranges": [[1, 0, 5]]}, "columns"),
        ({"ranges": [[1, 0, 5]], "columns": ["paylod"]}, "unknown column 'paylod'; known: message_id"),
        ({"ranges": [[1, 0, 5]], "columns": ["payload", "payload"]}, "a column is named twice"),
        ({"ranges": [[1, 0]], "columns": []}, "length 3"),
        ({"ranges": [[1, 5, 4]], "columns": []}, "hi must be between 5"),
        ({"ranges": [[0, 0, 5]], "columns": []}, "lane must be"),
        ({"ranges": [[1 << 23, 0, 5]], "columns": []}, "lane must be"),
        ({"ranges": [[1, -1, 5]], "columns": []}, "lo must be"),
        ({"ranges": [[1, 0, 1 << 41]], "columns": []}, "hi must be"),
        ({"ranges": [[1, 0, 60_000]] * 2, "columns": []}, "the number of messages must be between 0 and 100000"),
        ({"ranges": [["1", 0, 5]], "columns": []}, "int"),
        ({"ranges": [], "columns": [], "more": 1}, "more"),
    ],
)
def test_arrow_read_with_bad_input_is_refused(native: NativeApi, body: Any, told: str) -> None:
    status, answer = native.call("/v1/read", body)
    assert (status, answer["code"]) == (400, "bad_input")
    assert told in answer["error"]


def test_arrow_read_without_pyarrow_names_the_extra(native: NativeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    status, answer = native.call("/v1/read", {"ranges": [], "columns": []})
    assert (status, answer["code"]) == (406, "not_acceptable")
    assert "ackwise[arrow]" in answer["error"]


def test_answer_of_many_pages_comes_in_pieces(native: NativeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ackwise.arrow.message_pages.PAGE_BYTES", 300_000)
    for number in range(6):
        native.push("q", str(number) * 250_000)
    answer = native.raw("/v1/read", json.dumps({"ranges": lanes(native), "columns": ["payload"]}).encode())
    assert "content-length" not in answer.headers
    assert [row["payload"][1] for row in read_arrow(answer).to_pylist()] == list("012345")
