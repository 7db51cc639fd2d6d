"""What the client writes is what the server reads, whatever it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwise.core import queries as q
from ackwise.core import validation
from ackwise.core.answers import QueueInfo, Receipts
from ackwise.core.commands import (
    ByDelivery,
    ByKey,
    ByLease,
    ByRange,
    ByTransaction,
    Claim,
    Extend,
    Push,
    Settle,
    Settlement,
    Transaction,
)
from ackwise.core.errors import BadInput
from ackwise.core.messages import NewMessage, PlainBatch
from ackwise.core.policy import Backoff, QueuePolicy
from ackwise.core.settlement import Outcome
from ackwise.core.structs import answer_type
from ackwise.wire import admin, payloads, settle, timestamps
from ackwise.wire import claim as wire_claim
from ackwise.wire import push as wire_push

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_texts = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
).map(msgspec.json.encode)
micros = st.integers(0, round(validation.MAX_DELAY_SECONDS * validation.MICROS))
leases = st.integers(1000, round(validation.MAX_LEASE_SECONDS * validation.MICROS))


def over(kind: Any, body: object) -> Any:
    """There and back over the wire."""
    return msgspec.json.decode(msgspec.json.encode(body), type=kind)


@st.composite
def messages(draw: st.DrawFn) -> NewMessage:
    kind = draw(st.sampled_from(["application/json", "text/plain", ""]))
    return NewMessage(
        draw(json_texts if kind == "application/json" else st.binary(max_size=30)),
        draw(names),
        draw(st.integers()),
        draw(st.none() | names),
        draw(st.none() | st.dictionaries(names, names)),
        kind,
        draw(micros),
    )


policies = st.none() | st.builds(QueuePolicy, retry_limit=st.none() | st.integers(0, 9))
batches = st.builds(PlainBatch, st.lists(json_texts), st.none(), names) | st.builds(
    lambda raw, part: PlainBatch(raw, [str(n) for n in range(len(raw))], part, "application/octet-stream"),
    st.lists(st.binary()),
    names,
)
pushes = st.builds(Push, queue=names, messages=st.lists(messages()) | batches, create=policies)
selectors = st.one_of(
    st.builds(ByDelivery, names),
    st.builds(ByLease, names),
    st.builds(ByRange, names, st.integers(), st.integers(), st.integers(), st.booleans()),
    st.builds(ByTransaction, names, names, st.none() | names, st.none() | names, st.booleans()),
)
settlements = st.builds(
    Settlement,
    selector=selectors,
    outcome=st.sampled_from(Outcome),
    delay=st.none() | micros,
    error=st.none() | names,
    error_type=st.none() | names,
    trace=st.none() | names,
)


@given(pushes)
def test_push_survives_its_wire_form(push: Push) -> None:
    assert wire_push.command(over(wire_push.PushBody, wire_push.body(push))) == push


@given(st.lists(settlements), st.booleans())
def test_settlement_survives_its_wire_form(entries: list[Settlement], atomic: bool) -> None:
    command = Settle(entries=entries, atomic=atomic)
    assert settle.settle(over(settle.SettleBody, settle.settle_body(command))) == command


@given(names.filter(bool), st.none() | leases, st.none() | leases, st.booleans())
def test_extension_survives_its_wire_form(lease_id: str, lease: int | None, add: int | None, keep_later: bool) -> None:
    for who in ({"lease_id": lease_id}, {"claim": ByKey("q", lease_id, "g")}):
        command = Extend(lease=lease, add=add, keep_later=keep_later, **who)
        assert settle.extend(over(settle.ExtendBody, settle.extend_body(command))) == command


def test_extension_names_one_thing() -> None:
    for wrong in ({}, {"lease_id": "L1", "claim": ByKey("q", "k")}):
        with pytest.raises(BadInput, match="one of lease_id and claim"):
            settle.extend(settle.ExtendBody(**wrong))  # type: ignore[arg-type]


@given(st.lists(settlements, max_size=3), st.lists(pushes, max_size=2), st.lists(names))
def test_transaction_survives_its_wire_form(entries: list[Settlement], pushed: list[Push], required: list[str]) -> None:
    for on_duplicate, on_already in (("ok", "fail"), ("fail", "ok")):
        command = Transaction(
            settlements=entries,
            pushes=pushed,
            required_leases=tuple(required),
            on_duplicate=on_duplicate,  # type: ignore[arg-type]
            on_already=on_already,  # type: ignore[arg-type]
            repeatable=on_already == "fail",
        )
        assert settle.transaction(over(settle.TransactionBody, settle.transaction_body(command))) == command


@given(
    st.builds(
        Claim,
        queue=st.none() | names,
        namespace=st.none() | names,
        task=st.none() | names,
        group=names,
        partitions=st.none() | st.lists(names).map(tuple),
        priorities=st.none() | st.lists(st.integers()).map(tuple),
        most=st.integers(),
        most_bytes=st.none() | st.integers(),
        most_partitions=st.none() | st.integers(),
        lease=st.none() | leases,
        exclusivity=st.sampled_from([None, "partition", "queue", "none"]),
        order=st.sampled_from([None, "strict", "relaxed"]),
        owner=st.none() | names,
        key=st.none() | names,
        auto_ack=st.booleans(),
        bulk=st.booleans(),
        yields=st.booleans(),
        start=st.sampled_from(["all", "new"]) | st.integers(0, 4_000_000_000_000_000),
        create=policies,
    )
)
def test_claim_survives_its_wire_form(claim: Claim) -> None:
    assert wire_claim.command(over(wire_claim.ClaimBody, wire_claim.body(claim))) == claim


def test_every_field_of_a_command_goes_over() -> None:
    """A field that is added to the core has to be added here, or it is silently lost on its way.

    `Claim.together` and `Claim.progress` stay behind: a broker sets them. Only protocols set `Claim.only`.
    """
    carried = {Push: 3, Claim: 24, Settlement: 7, Settle: 3, Extend: 5, Transaction: 6, NewMessage: 7, PlainBatch: 5}
    assert {kind: len(kind.__struct_fields__) for kind in carried} == carried


def test_every_query_has_an_answer() -> None:
    known = {kind for kind in vars(q).values() if isinstance(kind, type) and issubclass(kind, q.Query)} - {q.Query}
    assert set(admin.WIRE_QUERIES) == known
    for kind in (*admin.WIRE_QUERIES, *admin.ADMIN_COMMANDS):
        admin.answer_decoder(kind)


def test_admin_route_commands_are_as_ever() -> None:
    assert sorted(str(kind.__struct_config__.tag) for kind in admin.ADMIN_COMMANDS) == [
        "advance_group", "configure_group", "configure_queue", "delete_group", "delete_queue", "pause_queue",
        "prune_queue", "purge_dead", "purge_queue", "redrive", "remove_hook", "replay", "report_pipeline",
        "seek_group", "set_hook", "settle_hook", "take_hook",
    ]  # fmt: skip


def test_answer_type_of_command_and_query_is_the_base_argument() -> None:
    assert answer_type(Push) is Receipts
    assert answer_type(q.ListQueues) == list[QueueInfo]


@pytest.mark.parametrize(
    ("payload", "sound"),
    [
        (b'{"a": 1.0,  "b":[ ]}', True),
        (b" 1 ", True),
        (b"1e999", True),
        (b"", False),
        (b"{", False),
        (b"1,2", False),
        (b"nan", False),
        (b"01", False),
        (b'"\xff"', False),
        (b"[" * 100_000 + b"]" * 100_000, False),
    ],
)
def test_payload_that_is_no_json_is_sent_as_base64(payload: bytes, sound: bool) -> None:
    assert payloads.are_json([b"1", payload, b"2"]) is sound
    text, kind = payloads.for_answer(payload, "application/json")
    assert (text == payload, kind == "application/json") == (sound, sound)
    if not sound:
        assert payloads.from_request(msgspec.Raw(text), kind) == payload
        with pytest.raises(BadInput):
            payloads.for_request(payload, "application/json")


def test_json_split_over_payloads_is_not_json() -> None:
    assert not payloads.are_json([b"[1", b"2]"])
    assert not payloads.are_json([b"1,2", b"[3", b"4]"])


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31)))
def test_instants_come_back(moment: datetime) -> None:
    at = round((moment - datetime(1970, 1, 1)).total_seconds() * 1_000_000)
    assert timestamps.parse(timestamps.text(at), "start") == at
    assert datetime.fromisoformat(timestamps.text(at)).tzinfo == UTC


def test_policy_inside_a_command_goes_over() -> None:
    backoff = Backoff(kind="schedule", delays=(1.0, 2.5))
    push = Push(queue="q", messages=[], create=QueuePolicy(backoff=backoff, delivery_limit=None, notes=(("a", True),)))
    assert wire_push.command(over(wire_push.PushBody, wire_push.body(push))) == push
