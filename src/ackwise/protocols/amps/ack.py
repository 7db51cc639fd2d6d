"""`ack` and `sow_delete`: bookmarks become settlements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from ackwise.core.answers import Settled
from ackwise.core.commands import ByRange, Settle, Settlement
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.settlement import Outcome
from ackwise.wire import amps_bookmarks
from ackwise.wire.amps import Header

if TYPE_CHECKING:
    from ackwise.protocols.amps.session import AmpsSession

COMMANDS = ("ack", "sow_delete")
MOST_IN_A_TURN = 500
_OUTCOMES = {"cancel": (Outcome.RETRY, "cancelled"), "expire": (Outcome.REJECT, "expired by its consumer")}

LeaseRanges = list[tuple[int, ByRange]]
"""Ranges to settle, each with the number of its lease."""


class _AckCommand:
    """An ack command and its result so far."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.settled = 0
        self.problem: AckwiseError | None = None


Part = tuple[_AckCommand, Settle, LeaseRanges]
"""Part of an ack command that one turn settles."""


async def settle_all(session: AmpsSession, headers: Sequence[Header]) -> None:
    """Settles ack commands that arrived together and answers each. Ignores bookmarks that no lease holds any more."""
    acks = [_AckCommand(header) for header in headers]
    turn: list[Part] = []
    size = 0
    async for part in _parts(session, acks):
        if turn and size + len(part[2]) > MOST_IN_A_TURN:
            await _settle_turn(session, turn)
            turn, size = [], 0
        turn.append(part)
        size += len(part[2])
    await _settle_turn(session, turn)
    for ack in acks:
        if ack.problem is not None:
            session.refuse(ack.header, ack.problem)
        else:
            session.answer(ack.header, records_deleted=ack.settled)


async def _parts(session: AmpsSession, acks: list[_AckCommand]) -> AsyncIterator[Part]:
    """Cuts acks into parts of at most one turn, so that a client with many bookmarks does not delay the others."""
    for ack in acks:
        try:
            queue, texts = _queue_and_bookmarks(session, ack.header)
        except AckwiseError as problem:
            ack.problem = problem
            continue
        outcome, error = _outcome(ack.header)
        for at in range(0, len(texts), MOST_IN_A_TURN):
            if at:
                await asyncio.sleep(0)
            ranges = _ranges(session, queue, texts[at : at + MOST_IN_A_TURN])
            if outcome is not Outcome.ACK:
                await _yield_turns(session, ranges)
            if ranges:
                yield ack, _settle(ranges, outcome, error), ranges


async def _settle_turn(session: AmpsSession, turn: list[Part]) -> None:
    """Sends the parts in one turn and records their results. An error of a later turn does not undo this one."""
    if not turn:
        return
    answers: Sequence[list[Settled] | AckwiseError]
    try:
        answers = await session.service.broker.send_all([command for _, command, _ in turn])
    except AckwiseError as problem:
        answers = [problem] * len(turn)
    for (ack, _, ranges), answer in zip(turn, answers, strict=True):
        if isinstance(answer, AckwiseError):
            ack.problem = answer
        else:
            ack.settled += _free_backlog(session, ranges, answer)


def _free_backlog(session: AmpsSession, ranges: LeaseRanges, answers: list[Settled]) -> int:
    """Subtracts settled messages from the backlog of the subscriptions that held them. Returns their number."""
    for (lease, _), answer in zip(ranges, answers, strict=True):
        session.service.leases.settled(lease, answer.count, answer.lease_ended)
    return sum(answer.count for answer in answers)


def _queue_and_bookmarks(session: AmpsSession, header: Header) -> tuple[str, list[str]]:
    """The queue and the bookmarks that an ack names."""
    topic = header.subject
    if not topic:
        raise BadInput("topic is required for ack")
    queue = session.service.queue_of(topic)
    if queue is None:
        raise BadInput(f"{header.command}: {topic[:255]!r} is not a queue, so it keeps no messages to settle or delete")
    texts = header.bookmarks
    if not texts and header.command == "sow_delete":
        raise BadInput("sow_delete deletes by bookmark only: bookmark is required for ack")
    if not texts:
        raise BadInput("bookmark is required for ack")
    if header.content_filter:
        raise BadInput(f"{header.command} takes bookmarks and no filter")
    return queue, texts


def _ranges(session: AmpsSession, queue: str, texts: Sequence[str]) -> LeaseRanges:
    """Ranges that bookmarks name. Skips ranges of other queues and, in a strict queue, of other clients."""
    ranges: LeaseRanges = []
    for lease, place in amps_bookmarks.ranges(texts):
        held = session.service.leases.get(lease)
        if held is not None:
            holder = held.subscription
            if holder.queue != queue or (holder.strict and holder.session is not session):
                continue
        ranges.append((lease, place))
    return ranges


def _outcome(header: Header) -> tuple[Outcome, str | None]:
    options = header.options
    return next((meaning for word, meaning in _OUTCOMES.items() if word in options), (Outcome.ACK, None))


def _settle(ranges: LeaseRanges, outcome: Outcome, error: str | None) -> Settle:
    return Settle(entries=[Settlement(selector=place, outcome=outcome, error=error) for _, place in ranges])


async def _yield_turns(session: AmpsSession, ranges: LeaseRanges) -> None:
    """Moves subscriptions that return messages behind the others, before the messages return."""
    for lease in {lease for lease, _ in ranges}:
        held = session.service.leases.get(lease)
        if held is not None:
            await held.subscription.yield_turn()


async def expire(session: AmpsSession, lease: int, places: list[ByRange]) -> None:
    """Makes dead letters of messages that expired before delivery."""
    ranges = [(lease, place) for place in places]
    command = _settle(ranges, Outcome.REJECT, "its expiration was over before it could be delivered")
    _free_backlog(session, ranges, await session.service.broker.send(command))
