"""The queue ack in its two spellings: bookmarks become settlements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from ackwise.core.amps import bookmarks
from ackwise.core.amps.headers import Header
from ackwise.core.answers import Settled
from ackwise.core.commands import ByRange, Settle, Settlement
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.settlement import Outcome

if TYPE_CHECKING:
    from ackwise.dialects.amps.session import Session

COMMANDS = ("ack", "sow_delete")
MOST_IN_A_TURN = 500
_OUTCOMES = {"cancel": (Outcome.RETRY, "cancelled"), "expire": (Outcome.REJECT, "expired by its consumer")}

Named = list[tuple[int, ByRange]]
"""What is settled, each with the number of its lease."""


class _Ack:
    """One that came, until it is answered."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.settled = 0
        self.problem: AckwiseError | None = None


Part = tuple[_Ack, Settle, Named]
"""What one turn does about one ack."""


async def settle_all(session: Session, headers: Sequence[Header]) -> None:
    """Acks that came together; each is answered for itself. What nobody holds any more is passed over."""
    acks = [_Ack(header) for header in headers]
    turn: list[Part] = []
    size = 0
    async for part in _parts(session, acks):
        if turn and size + len(part[2]) > MOST_IN_A_TURN:
            await _do(session, turn)
            turn, size = [], 0
        turn.append(part)
        size += len(part[2])
    await _do(session, turn)
    for ack in acks:
        if ack.problem is not None:
            session.refuse(ack.header, ack.problem)
        else:
            session.answer(ack.header, records_deleted=ack.settled)


async def _parts(session: Session, acks: list[_Ack]) -> AsyncIterator[Part]:
    """As much as is settled in one turn, or less: however many bookmarks somebody sends, nobody else waits long."""
    for ack in acks:
        try:
            queue, texts = _meant(session, ack.header)
        except AckwiseError as problem:
            ack.problem = problem
            continue
        outcome, error = _outcome(ack.header)
        for at in range(0, len(texts), MOST_IN_A_TURN):
            if at:
                await asyncio.sleep(0)
            named = _named(session, queue, texts[at : at + MOST_IN_A_TURN])
            if outcome is not Outcome.ACK:
                await _step_back(session, named)
            if named:
                yield ack, _settle(named, outcome, error), named


async def _do(session: Session, turn: list[Part]) -> None:
    """What one turn has done stays done, whatever becomes of the next."""
    if not turn:
        return
    answers: Sequence[list[Settled] | AckwiseError]
    try:
        answers = await session.face.broker.send_all([command for _, command, _ in turn])
    except AckwiseError as problem:
        answers = [problem] * len(turn)
    for (ack, _, named), answer in zip(turn, answers, strict=True):
        if isinstance(answer, AckwiseError):
            ack.problem = answer
        else:
            ack.settled += _note(session, named, answer)


def _note(session: Session, named: Named, answers: list[Settled]) -> int:
    """Whoever held them has room again."""
    for (lease, _), answer in zip(named, answers, strict=True):
        session.face.handouts.settled(lease, answer.count, answer.lease_ended)
    return sum(answer.count for answer in answers)


def _meant(session: Session, header: Header) -> tuple[str, list[str]]:
    """The queue and the bookmarks that an ack names."""
    topic = header.subject
    if not topic:
        raise BadInput("topic is required for ack")
    texts = header.bookmarks
    if not texts:
        raise BadInput("bookmark is required for ack")
    queue = session.face.queue_of(topic)
    if queue is None:
        raise BadInput(f"{topic[:255]!r} is not a queue")
    return queue, texts


def _named(session: Session, queue: str, texts: Sequence[str]) -> Named:
    """Their deliveries. Those of another queue, or of a strict queue's other holder, are not meant."""
    found: Named = []
    for lease, place in bookmarks.ranges(texts):
        handout = session.face.handouts.get(lease)
        if handout is not None:
            holder = handout.subscription
            if holder.queue != queue or (holder.strict and holder.session is not session):
                continue
        found.append((lease, place))
    return found


def _outcome(header: Header) -> tuple[Outcome, str | None]:
    options = header.options
    return next((meaning for word, meaning in _OUTCOMES.items() if word in options), (Outcome.ACK, None))


def _settle(named: Named, outcome: Outcome, error: str | None) -> Settle:
    return Settle(entries=[Settlement(selector=place, outcome=outcome, error=error) for _, place in named])


async def _step_back(session: Session, named: Named) -> None:
    for lease in {lease for lease, _ in named}:
        handout = session.face.handouts.get(lease)
        if handout is not None:
            await handout.subscription.step_back()


async def expire(session: Session, lease: int, places: list[ByRange]) -> None:
    """Messages that are of no use any more are dead letters."""
    named = [(lease, place) for place in places]
    command = _settle(named, Outcome.REJECT, "its expiration was over before it could be delivered")
    _note(session, named, await session.face.broker.send(command))
