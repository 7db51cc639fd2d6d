"""Settlements, leases and transactions over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocols.native.native_api import NativeApi


def ten(native: NativeApi) -> list[str]:
    native.push("q", *range(10))
    return [m["delivery_id"] for m in native.claim("q", max=10, lease_seconds=10)["messages"]]


def test_shape_of_settlements_and_verdicts(native_anywhere: NativeApi) -> None:
    native = native_anywhere
    a, b, c, d, *_ = ten(native)
    entries: list[dict[str, Any]] = [
        {"delivery_id": a, "outcome": "ack"},
        {"delivery_id": b, "outcome": "retry", "delay_seconds": 2.5, "error": "later"},
        {"delivery_id": c, "outcome": "reject", "error": "wrong"},
        {"delivery_id": d, "outcome": "release", "delay_seconds": None, "error": None},
        {"delivery_id": a, "outcome": "ack"},
        {"delivery_id": "L1-00000000.1.1", "outcome": "ack"},
        {"delivery_id": "anything else", "outcome": "ack"},
    ]
    verdicts = ["acked", "retried", "dead", "released", "already", "unknown", "unknown"]
    assert native.ok("/v1/settle", {"atomic": False, "entries": entries}) == {
        "verdicts": [
            {"delivery_id": entry["delivery_id"], "verdict": verdict}
            for entry, verdict in zip(entries, verdicts, strict=True)
        ]
    }
    (letter,) = native.rows("dead_letters")
    assert (letter["reason"], letter["error"], letter["payload"]) == ("rejected", "wrong", 2)
    native.clock.advance(2)
    assert [m["payload"] for m in native.claim("q", max=9)["messages"]] == [3]
    native.clock.advance(0.5)
    (again,) = native.claim("q")["messages"]
    assert (again["payload"], again["attempt"], again["failures"]) == (1, 2, 1)


def test_late_settlement_is_stale(native: NativeApi) -> None:
    first = ten(native)[0]
    native.clock.advance(10)
    assert native.settle({"delivery_id": first, "outcome": "ack"}) == [{"delivery_id": first, "verdict": "stale"}]


def test_atomic_is_all_or_nothing(native: NativeApi) -> None:
    first = ten(native)[0]
    entries = [{"delivery_id": first, "outcome": "ack"}, {"delivery_id": "none", "outcome": "ack"}]
    assert [v["verdict"] for v in native.settle(*entries, atomic=True)] == ["rolled_back", "unknown"]
    assert native.group("q")["acked"] == 0


def test_whole_leases_ranges_and_details(native: NativeApi) -> None:
    native.push("q", *range(10))
    claim = native.claim("q", max=10, columns=True)
    lease, lane = claim["lease_id"], claim["grants"][0]["lane"]
    selector = {"type": "range", "lease_id": lease, "lane": lane, "lo": 0, "hi": 4}
    (plain,) = native.settle({"selector": selector, "outcome": "ack"})
    assert (plain["verdict"], plain["selector"]["hi"]) == ("acked", 4)
    (detailed,) = native.settle({"lease_id": lease, "outcome": "ack"}, detail=True)
    assert (detailed["verdict"], detailed["count"], detailed["lease_ended"]) == ("acked", 6, True)
    assert native.settle({"lease_id": lease, "outcome": "ack"}) == [{"lease_id": lease, "verdict": "already"}]


def test_settle_without_entries_has_no_verdicts(native: NativeApi) -> None:
    assert native.ok("/v1/settle", {"entries": []}) == {"verdicts": []}


def test_extend_moves_the_deadline_and_never_revives(native: NativeApi) -> None:
    native.push("q", 1)
    lease = native.claim("q", lease_seconds=10)["lease_id"]
    assert native.ok("/v1/extend", {"lease_id": lease, "lease_seconds": 20}) == {
        "lease_id": lease,
        "deadline": "2023-11-14T22:13:40.000000Z",
    }
    added = native.ok("/v1/extend", {"lease_id": lease, "add_seconds": 5})
    assert added["deadline"] == "2023-11-14T22:13:45.000000Z"
    native.clock.advance(25)
    status, answer = native.call("/v1/extend", {"lease_id": lease, "lease_seconds": 20})
    assert (status, answer["code"], answer["details"]) == (409, "lease_lost", {"verdict": "stale"})


def test_extending_several_leases_at_once(native: NativeApi) -> None:
    native.push("q", 1, 2)
    leases = [native.claim("q")["lease_id"] for _ in range(2)]
    native.ok("/v1/release", {"lease_id": leases[1]})
    asked = [{"lease_id": lease, "lease_seconds": 20} for lease in (*leases, "L999-0")]
    answered = native.ok("/v1/extend-all", {"extensions": asked})["extensions"]
    assert [one["lease_id"] for one in answered] == [*leases, "L999-0"]
    assert [one["verdict"] for one in answered] == [None, "stale", "unknown"]
    assert [one["deadline"] is None for one in answered] == [False, True, True]
    status, answer = native.call("/v1/extend-all", {"extensions": [{}] * 1001})
    assert (status, answer["code"]) == (400, "bad_input")
    assert native.ok("/v1/extend-all", {"extensions": []}) == {"extensions": []}


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease_seconds": -1},
        {"lease_seconds": 1e12},
        {"lease_seconds": None},
        {"lease_id": ""},
        {"lease_id": 7},
        {"lease_id": None},
        {"claim": {"queue": "q", "key": "k"}},
        {"more": 1},
    ],
)
def test_extension_that_is_wrong_is_refused_for_itself(native: NativeApi, wrong: dict[str, Any]) -> None:
    native.push("q", 1, 2)
    good = [{"lease_id": native.claim("q")["lease_id"], "lease_seconds": 20} for _ in range(2)]
    asked = [good[0], {**good[1], **wrong}, good[1]]
    answered = native.ok("/v1/extend-all", {"extensions": asked})["extensions"]
    assert [one["deadline"] is None for one in answered] == [False, True, False]
    assert [one["verdict"] for one in answered] == [None] * 3
    assert [bool(one.get("error")) for one in answered] == [False, True, False]
    assert native.call("/v1/extend", asked[1])[0] == 400, "alone it is told the same"


def test_release_hands_back_unspent(native: NativeApi) -> None:
    native.push("q", 1, 2)
    lease = native.claim("q", max=2)["lease_id"]
    assert native.ok("/v1/release", {"lease_id": lease}) == {"lease_id": lease, "verdict": "released", "count": 2}
    assert {m["failures"] for m in native.claim("q", max=2)["messages"]} == {0}
    assert native.ok("/v1/release", {"lease_id": "none"})["verdict"] == "unknown"


def test_transaction_is_one_step(native: NativeApi) -> None:
    a, b, *_ = ten(native)
    body: dict[str, Any] = {
        "settlements": [{"delivery_id": a, "outcome": "ack"}],
        "pushes": [
            {"queue": "out", "messages": [{"payload": {"of": 0}, "transaction_id": "t"}]},
            {"queue": "log", "payloads": [1, 2]},
        ],
    }
    done = native.ok("/v1/transaction", body)
    assert done["verdicts"] == [{"delivery_id": a, "verdict": "acked"}]
    assert [[r["status"] for r in receipts] for receipts in done["receipts"]] == [["queued"], ["queued", "queued"]]
    body["settlements"] = [{"delivery_id": b, "outcome": "ack"}]
    status, answer = native.call("/v1/transaction", {**body, "on_duplicate": "fail"})
    assert (status, answer["code"], answer["details"]) == (409, "rolled_back", {"reason": "duplicate"})
    assert native.group("q")["acked"] == 1
    again = native.ok("/v1/transaction", body)
    assert again["receipts"][0][0]["status"] == "duplicate"


def test_transaction_needs_its_leases(native: NativeApi) -> None:
    native.push("q", 1)
    lease = native.claim("q", lease_seconds=10)["lease_id"]
    body = {"required_leases": [lease], "pushes": [{"queue": "out", "payloads": [1]}]}
    native.ok("/v1/transaction", body)
    native.clock.advance(10)
    status, answer = native.call("/v1/transaction", body)
    assert (status, answer["code"]) == (409, "lease_lost")
    assert len(native.rows("messages", queue="out")) == 1
