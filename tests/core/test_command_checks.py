"""Commands are validated once, at their entry, and take the form that the engine expects."""

from __future__ import annotations

import pytest

from ackwise.core.answers import Counted
from ackwise.core.command_checks import CheckedCommands, check
from ackwise.core.commands import (
    Beat,
    Break,
    ByKey,
    Claim,
    Command,
    DeleteQueue,
    Extend,
    PruneQueue,
    Push,
    Redrive,
    SeekGroup,
    Sweep,
    Transaction,
)
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.events import Event, EventStream, RequestsRefused
from ackwise.core.messages import NewMessage, PlainBatch

PLAIN = [NewMessage(b"1", transaction_id="a"), NewMessage(b"2")]
COLUMNS = PlainBatch([b"1", b"2"], ["a", ""])


def test_push_of_plain_messages_becomes_columns() -> None:
    push = Push(queue="q", messages=PLAIN, create=None)
    assert check(push) == Push(queue="q", messages=COLUMNS, create=None)
    assert push.messages is PLAIN


@pytest.mark.parametrize(
    "messages",
    [
        [NewMessage(b"1", headers={"h": "x"})],
        [NewMessage(b"1"), NewMessage(b"2", partition="other")],
        [NewMessage(b"1", delay=5)],
        [],
        PlainBatch([b"1"]),
        PlainBatch([]),
    ],
    ids=["headers", "two partitions", "delay", "none", "columns", "no columns"],
)
def test_other_push_stays_as_it_is(messages: list[NewMessage] | PlainBatch) -> None:
    push = Push(queue="q", messages=messages)
    assert check(push) is push


def test_pushes_of_a_transaction_become_columns() -> None:
    checked = check(Transaction(pushes=[Push(queue="q", messages=PLAIN)]))
    assert checked == Transaction(pushes=[Push(queue="q", messages=COLUMNS)])


@pytest.mark.parametrize(
    "command",
    [
        Sweep(limit=0),
        Beat(instance=""),
        Redrive(ids=["nonsense"]),
        DeleteQueue(queue="q"),
        Extend(lease_id="L1-00000000", lease=1_000_000),
    ],
    ids=lambda command: type(command).__name__,
)
def test_command_that_needs_no_change_is_returned_itself(command: Command) -> None:
    assert check(command) is command


@pytest.mark.parametrize(
    "command",
    [
        Claim(),
        DeleteQueue(queue="a\0"),
        SeekGroup(queue="q", group="", to="start"),
        SeekGroup(queue="q", group="g", to="start", partition=""),
        PruneQueue(queue="q", lanes={0: 1}),
        PruneQueue(queue="q", lanes=[1]),  # type: ignore[arg-type]
        Extend(lease_id="L1-00000000"),
        Extend(lease_id="L1-00000000", lease=1_000_000, add=1_000_000),
        Extend(claim=ByKey(queue="", key="k"), lease=1_000_000),
        Break(lease_ids="L1"),  # type: ignore[arg-type]
        Transaction(pushes=[Push(queue="", messages=[])]),
    ],
    ids=repr,
)
def test_invalid_command_is_bad_input(command: Command) -> None:
    with pytest.raises(BadInput):
        check(command)


def test_refusals_of_invalid_commands_keep_their_places() -> None:
    bad, good = DeleteQueue(queue=""), DeleteQueue(queue="q")
    checked = CheckedCommands([bad, good, bad, good, good], EventStream())
    assert checked.valid == [good, good, good]
    counts: list[Counted | AckwiseError] = [Counted(1), Counted(2), Counted(3)]
    answers = checked.answers(counts)
    assert [isinstance(answer, BadInput) for answer in answers] == [True, False, True, False, False]
    assert answers[1::2] + answers[4:] == counts


def test_answers_of_valid_commands_are_the_results() -> None:
    results: list[Counted | AckwiseError] = [Counted(1)]
    assert CheckedCommands([DeleteQueue(queue="q")], EventStream()).answers(results) is results


def test_refusals_before_a_turn_are_one_event() -> None:
    stream, heard = EventStream(), list[Event]()
    stream.subscribe(heard.append)
    CheckedCommands([DeleteQueue(queue="q")], stream)
    CheckedCommands([DeleteQueue(queue=""), Claim()], stream)
    assert heard == [RequestsRefused("bad_input", 2)]
