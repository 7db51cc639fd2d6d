"""Bad input: a typed error that says what to do. Nothing changes, and no other command fails."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import AckwiseError, BadInput, PayloadTooLarge, UnknownGroup, UnknownQueue
from ackwise.core.messages import NewMessage
from ackwise.core.policy import Backoff, GroupPolicy, QueuePolicy
from ackwise.core.settlement import Outcome
from ackwise.core.validation import MICROS
from ackwise.engine import runner
from tests.engine.store_harness import StoreHarness

NAN = float("nan")
INF = float("inf")
HUGE = 10**400
BIG = 2**63
SURROGATE = "bad \ud800 name"
LONG = "x" * 256
DAY = 24 * 3600 * MICROS


def push(**fields: Any) -> c.Push:
    return c.Push(queue="q", messages=[NewMessage(**{"payload": b"1", **fields})])


def settle(**fields: Any) -> c.Settle:
    base = {"selector": c.ByDelivery("L1-00000000.1.0"), "outcome": Outcome.ACK}
    return c.Settle(entries=[c.Settlement(**{**base, **fields})])


NAMES: list[Any] = ["", "a\0b", SURROGATE, LONG, None, 7, b"q", ["q"]]
BAD: dict[str, tuple[c.Command, type[AckwiseError]]] = {
    "push: payload over the limit": (push(payload=b"x" * 1001), PayloadTooLarge),
    "push: text payload": (push(payload="text"), BadInput),
    "push: no payload": (push(payload=None), BadInput),
    "push: bytearray": (push(payload=bytearray(b"1")), BadInput),
    "push: negative delay": (push(delay=-1), BadInput),
    "push: NaN delay": (push(delay=NAN), BadInput),
    "push: huge delay": (push(delay=HUGE), BadInput),
    "push: big delay": (push(delay=BIG), BadInput),
    "push: fractional delay": (push(delay=0.5), BadInput),
    "push: negative priority": (push(priority=-1), BadInput),
    "push: huge priority": (push(priority=2**31), BadInput),
    "push: bool priority": (push(priority=True), BadInput),
    "push: NaN priority": (push(priority=NAN), BadInput),
    "push: NUL in transaction id": (push(transaction_id="a\0"), BadInput),
    "push: long transaction id": (push(transaction_id="x" * 513), BadInput),
    "push: number as transaction id": (push(transaction_id=5), BadInput),
    "push: surrogate in transaction id": (push(transaction_id=SURROGATE), BadInput),
    "push: header is no text": (push(headers={"a": 1}), BadInput),
    "push: NUL in header": (push(headers={"a": "b\0"}), BadInput),
    "push: surrogate in header": (push(headers={SURROGATE: "b"}), BadInput),
    "push: large headers": (push(headers={"a": "x" * 70_000}), BadInput),
    "push: NUL in content type": (push(content_type="a\0"), BadInput),
    "push: no content type": (push(content_type=""), BadInput),
    "push: bad policy": (c.Push(queue="new", messages=[], create=QueuePolicy(retry_limit=-1)), BadInput),
    "push: unheard of exclusivity": (
        c.Push(queue="new", messages=[], create=QueuePolicy(exclusivity="sometimes")),  # type: ignore[arg-type]
        BadInput,
    ),
    "push: NaN in policy": (c.Push(queue="new", messages=[], create=QueuePolicy(lease_seconds=NAN)), BadInput),
    "push: text in policy": (
        c.Push(queue="new", messages=[], create=QueuePolicy(backoff=Backoff(factor="2"))),  # type: ignore[arg-type]
        BadInput,
    ),
    "push: unknown queue": (c.Push(queue="new", messages=[], create=None), UnknownQueue),
    "claim: nothing named": (c.Claim(), BadInput),
    "claim: unknown queue": (c.Claim(queue="new"), UnknownQueue),
    "claim: none": (c.Claim(queue="q", most=0), BadInput),
    "claim: huge": (c.Claim(queue="q", most=HUGE), BadInput),
    "claim: NaN": (c.Claim(queue="q", most=NAN), BadInput),  # type: ignore[arg-type]
    "claim: no bytes": (c.Claim(queue="q", most_bytes=0), BadInput),
    "claim: bytes true": (c.Claim(queue="q", most_bytes=True), BadInput),
    "claim: true": (c.Claim(queue="q", most=True), BadInput),
    "claim: lease over a day": (c.Claim(queue="q", lease=DAY + 1), BadInput),
    "claim: no lease time": (c.Claim(queue="q", lease=0), BadInput),
    "claim: negative lease": (c.Claim(queue="q", lease=-5), BadInput),
    "claim: NaN lease": (c.Claim(queue="q", lease=NAN), BadInput),  # type: ignore[arg-type]
    "claim: huge lease": (c.Claim(queue="q", lease=HUGE), BadInput),
    "claim: priority": (c.Claim(queue="q", priorities=(-1,)), BadInput),
    "claim: partitions": (c.Claim(queue="q", most_partitions=0), BadInput),
    "claim: exclusivity": (c.Claim(queue="q", exclusivity="maybe"), BadInput),  # type: ignore[arg-type]
    "claim: order": (c.Claim(queue="q", order="alphabetic"), BadInput),  # type: ignore[arg-type]
    "claim: start": (c.Claim(queue="q", group="new", start="middle"), BadInput),  # type: ignore[arg-type]
    "claim: NaN start": (c.Claim(queue="q", group="new", start=NAN), BadInput),  # type: ignore[arg-type]
    "claim: huge start": (c.Claim(queue="q", group="new", start=HUGE), BadInput),
    "claim: big start": (c.Claim(queue="q", group="new", start=BIG), BadInput),
    "claim: NUL in namespace": (c.Claim(namespace="a\0"), BadInput),
    "claim: surrogate in task": (c.Claim(task=SURROGATE), BadInput),
    "claim: bad policy": (c.Claim(queue="new", create=QueuePolicy(lease_seconds=-1)), BadInput),
    "settle: outcome": (settle(outcome="applaud"), BadInput),
    "settle: no selector": (settle(selector=None), BadInput),
    "settle: negative delay": (settle(outcome=Outcome.RETRY, delay=-1), BadInput),
    "settle: NaN delay": (settle(outcome=Outcome.RETRY, delay=NAN), BadInput),
    "settle: huge delay": (settle(outcome=Outcome.RETRY, delay=HUGE), BadInput),
    "settle: error is no text": (settle(outcome=Outcome.RETRY, error=5), BadInput),
    "settle: error type is no text": (settle(outcome=Outcome.RETRY, error_type=b"x"), BadInput),
    "settle: backward range": (settle(selector=c.ByRange("L1-00000000", 1, 5, 2)), BadInput),
    "settle: negative range": (settle(selector=c.ByRange("L1-00000000", 1, -1, 2)), BadInput),
    "settle: huge range": (settle(selector=c.ByRange("L1-00000000", 1, 0, HUGE)), BadInput),
    "settle: NaN range": (settle(selector=c.ByRange("L1-00000000", 1, 0, NAN)), BadInput),  # type: ignore[arg-type]
    "settle: NUL in group": (settle(selector=c.ByTransaction("p", "t", group="a\0")), BadInput),
    "settle: NUL in partition": (settle(selector=c.ByTransaction("p\0", "t")), BadInput),
    "settle: empty transaction id": (settle(selector=c.ByTransaction("p", "")), BadInput),
    "extend: over a day": (c.Extend(lease_id="L1-00000000", lease=DAY + 1), BadInput),
    "extend: NaN": (c.Extend(lease_id="L1-00000000", lease=NAN), BadInput),  # type: ignore[arg-type]
    "extend: huge": (c.Extend(lease_id="L1-00000000", add=HUGE), BadInput),
    "extend: text": (c.Extend(lease_id="L1-00000000", add="5"), BadInput),  # type: ignore[arg-type]
    "transaction: bad push": (c.Transaction(pushes=[push(payload="text")]), BadInput),
    "transaction: bad entry": (c.Transaction(settlements=settle(outcome="?").entries), BadInput),
    "configure: unknown field": (c.ConfigureQueue(queue="q", policy={"x": 1}), BadInput),
    "configure: huge": (c.ConfigureQueue(queue="q", policy={"retry_limit": HUGE}), BadInput),
    "configure: infinite": (c.ConfigureQueue(queue="q", policy={"delay_seconds": INF}), BadInput),
    "configure: NUL in namespace": (c.ConfigureQueue(queue="q", namespace="a\0"), BadInput),
    "configure: long task": (c.ConfigureQueue(queue="new", task=LONG), BadInput),
    "group: retry limit": (c.ConfigureGroup(queue="q", group="g", policy=GroupPolicy(retry_limit=-1)), BadInput),
    "group: start": (c.ConfigureGroup(queue="q", group="g", start="soon"), BadInput),  # type: ignore[arg-type]
    "group: NaN start": (c.ConfigureGroup(queue="q", group="g", start=NAN), BadInput),  # type: ignore[arg-type]
    "group: big start": (c.ConfigureGroup(queue="q", group="g", start=BIG), BadInput),
    "group: unknown": (c.DeleteGroup(queue="q", group="g"), UnknownGroup),
    "seek: nowhere": (c.SeekGroup(queue="q", group="known", to="middle"), BadInput),  # type: ignore[arg-type]
    "seek: NaN": (c.SeekGroup(queue="q", group="known", to=NAN), BadInput),  # type: ignore[arg-type]
    "seek: huge": (c.SeekGroup(queue="q", group="known", to=HUGE), BadInput),
    "seek: negative": (c.SeekGroup(queue="q", group="known", to=-1), BadInput),
    "seek: seq without partition": (c.SeekGroup(queue="q", group="known", to=1, by="seq"), BadInput),
    "advance: no lane": (c.AdvanceGroup(queue="q", group="new", lanes={99: 0}), BadInput),
    "advance: huge lane": (c.AdvanceGroup(queue="q", group="new", lanes={HUGE: 0}), BadInput),
    "advance: NaN": (c.AdvanceGroup(queue="q", group="new", lanes={1: NAN}), BadInput),  # type: ignore[dict-item]
    "advance: huge": (c.AdvanceGroup(queue="q", group="new", lanes={1: HUGE}), BadInput),
    "advance: NUL in group": (c.AdvanceGroup(queue="q", group="a\0", lanes={}), BadInput),
    "advance: unknown queue": (c.AdvanceGroup(queue="new", group="g", lanes={}), UnknownQueue),
    "sweep: limit": (c.Sweep(limit=0), BadInput),
    "sweep: NaN limit": (c.Sweep(limit=NAN), BadInput),  # type: ignore[arg-type]
    "sweep: duty": (c.Sweep(duties=("dream",)), BadInput),
    "beat: NUL": (c.Beat(instance="a\0"), BadInput),
    "replay: unknown queue name": (c.Replay(ids=[], queue="a\0"), BadInput),
    "purge: NUL in group": (c.PurgeDead(queue="q", group="a\0"), BadInput),
    **{f"queue name {n!r:.12}": (c.Push(queue=n, messages=[NewMessage(b"1")]), BadInput) for n in NAMES},
    **{f"partition {n!r:.12}": (push(partition=n), BadInput) for n in NAMES},
    **{f"group {n!r:.12}": (c.Claim(queue="q", group=n), BadInput) for n in NAMES},
    **{f"owner {n!r:.12}": (c.Claim(queue="q", owner=n), BadInput) for n in NAMES if n is not None},
    **{f"claim key {n!r:.12}": (c.Claim(queue="q", key=n), BadInput) for n in NAMES if n is not None},
    **{f"filter {n!r:.12}": (c.Claim(queue="q", partitions=(n,)), BadInput) for n in NAMES},
    **{f"configured name {n!r:.12}": (c.ConfigureQueue(queue=n), BadInput) for n in NAMES},
    **{f"new group {n!r:.12}": (c.ConfigureGroup(queue="q", group=n), BadInput) for n in NAMES},
}


@pytest.mark.parametrize(("command", "error"), BAD.values(), ids=BAD.keys())
def test_bad_command_changes_nothing_and_fails_alone(
    harness: StoreHarness, command: c.Command, error: type[AckwiseError]
) -> None:
    harness.configure(max_payload_bytes=1000)
    harness.number(4)
    held = harness.claim(2, group="known").deliveries
    harness.reject(held[1])
    before = harness.everything()
    (refusal,) = harness.store.transact([command])
    assert isinstance(refusal, error), refusal
    assert refusal.message
    assert harness.everything() == before

    good = c.Push(queue="other", messages=[NewMessage(b"1")])
    ack = c.Settle(entries=[c.Settlement(selector=c.ByDelivery(held[0].id), outcome=Outcome.ACK)])
    pushed, again, acked, last = harness.together(good, command, ack, c.Claim(queue="q", group="known"))
    assert isinstance(again, error)
    assert [r.status for r in pushed] == ["queued"]
    assert [a.verdict for a in acked] == ["acked"]
    assert last.count == 1


def test_text_of_errors_is_kept_whatever_it_contains(harness: StoreHarness) -> None:
    harness.push("a", "b")
    first, second = harness.claim().deliveries
    assert harness.reject(first, error="nul \0 and " + SURROGATE, error_type="T\0") == ["dead"]
    assert harness.retry(second, error="x" * 100_000 + "\0") == ["retried"]
    (letter,) = harness.dead()
    assert letter.error.startswith("nul ")
    assert "\0" not in letter.error + letter.error_type


def test_unknown_dead_letters_are_not_found(harness: StoreHarness) -> None:
    harness.push("a")
    wrong = ["", "x", "a\0b", SURROGATE, "00000000-0000-0000-0000-000000000000", "x" * 1000]
    for command in (c.Redrive(ids=wrong), c.Replay(ids=wrong)):
        assert harness.do(command).results == dict.fromkeys(wrong, "not_found")
    assert harness.do(c.PurgeDead(ids=wrong)).count == 0


@pytest.mark.parametrize("name", NAMES, ids=[f"{n!r:.12}" for n in NAMES])
def test_questions_about_bad_names_are_refused(harness: StoreHarness, name: Any) -> None:
    harness.push("a")
    harness.claim()
    for ask in (
        lambda: harness.store.ask(q.GetQueue(queue=name)),
        lambda: harness.store.ask(q.QueueStats(queue=name)),
        lambda: harness.store.ask(q.ListLanes(queue=name)),
        lambda: harness.store.ask(q.ListCursors(queue="q", group=name)),
        *(
            ()
            if name is None
            else (
                lambda: harness.store.ask(q.Browse(queue="q", group=name)),
                lambda: harness.store.ask(q.Browse(queue="q", partition=name)),
                lambda: harness.store.ask(q.ListDead(group=name)),
                lambda: harness.store.ask(q.ListDead(partition=name)),
                lambda: harness.store.ask(q.ListLeases(queue=name)),
                lambda: harness.store.ask(q.ListLeases(group=name)),
                lambda: harness.store.ask(q.ListLeases(key_prefix=name)),
                lambda: harness.store.ask(q.ReadLedger(group=name)),
                lambda: harness.store.ask(q.ListQueues(namespace=name)),
            )
        ),
    ):
        with pytest.raises(BadInput):
            ask()


@pytest.mark.parametrize("number", [-1, HUGE, NAN, True, "5"], ids=["negative", "huge", "nan", "bool", "text"])
def test_pages_of_bad_sizes_are_refused(harness: StoreHarness, number: Any) -> None:
    harness.push("a")
    for ask in (
        lambda: harness.store.ask(q.Browse(queue="q", limit=number)),
        lambda: harness.store.ask(q.ListDead(limit=number)),
        lambda: harness.store.ask(q.ListDead(offset=number)),
        lambda: harness.store.ask(q.ListLeases(limit=number)),
    ):
        with pytest.raises(BadInput):
            ask()


def test_bug_in_one_command_fails_only_that_one(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    handlers: dict[Any, Any] = dict(runner._HANDLERS)
    handlers[c.PauseQueue] = broken
    monkeypatch.setattr(runner, "_HANDLERS", handlers)
    harness.configure("q")
    first, failed, last = harness.together(push(), c.PauseQueue(queue="q"), c.Claim(queue="q"))
    assert [r.status for r in first] == ["queued"]
    assert isinstance(failed, AckwiseError)
    assert "a bug" in failed.message
    assert last.count == 1
