"""The queue ack in its two spellings: bookmarks become settlements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


async def settle_all(session: Session, acks: Sequence[Header]) -> None:
    """Acks that came together, in one turn; each is answered for itself. What nobody holds any more is passed over."""
    waiting: list[tuple[Header, list[Settle], list[Named]]] = []
    for header in acks:
        try:
            named = _named(session, header)
        except AckwiseError as problem:
            session.refuse(header, problem)
            continue
        outcome, error = _outcome(header)
        if outcome is not Outcome.ACK:
            await _step_back(session, named)
        pieces = [named[at : at + MOST_IN_A_TURN] for at in range(0, len(named), MOST_IN_A_TURN)]
        waiting.append((header, [_settle(piece, outcome, error) for piece in pieces], pieces))
    for header, done in await _sent(session, waiting):
        if isinstance(done, AckwiseError):
            session.refuse(header, done)
        else:
            session.answer(header, records_deleted=done)


async def _sent(
    session: Session, waiting: list[tuple[Header, list[Settle], list[Named]]]
) -> list[tuple[Header, int | AckwiseError]]:
    """How many deliveries each ack settled, or why it could not."""
    commands = [command for _, some, _ in waiting for command in some]
    try:
        answers = [one for some in _turns(commands) for one in await session.face.broker.send_all(some)]
    except AckwiseError as problem:
        return [(header, problem) for header, _, _ in waiting]
    told = iter(answers)
    return [(header, _counted(session, told, pieces)) for header, _, pieces in waiting]


def _turns(commands: list[Settle]) -> Iterator[list[Settle]]:
    """As many as are settled in one turn: however many bookmarks somebody sends, nobody else waits long."""
    some: list[Settle] = []
    size = 0
    for command in commands:
        if some and size + len(command.entries) > MOST_IN_A_TURN:
            yield some
            some, size = [], 0
        some.append(command)
        size += len(command.entries)
    if some:
        yield some


def _counted(
    session: Session, answers: Iterator[list[Settled] | AckwiseError], pieces: list[Named]
) -> int | AckwiseError:
    total = 0
    refused: AckwiseError | None = None
    for piece in pieces:
        answer = next(answers)
        if isinstance(answer, AckwiseError):
            refused = answer
        else:
            total += _note(session, piece, answer)
    return total if refused is None else refused


def _note(session: Session, named: Named, answers: list[Settled]) -> int:
    """Whoever held them has room again."""
    for (lease, _), answer in zip(named, answers, strict=True):
        session.face.handouts.settled(lease, answer.count, answer.lease_ended)
    return sum(answer.count for answer in answers)


def _named(session: Session, header: Header) -> Named:
    """The deliveries that an ack names. Those of another topic, or of a strict queue's other holder, are not meant."""
    topic = header.subject
    if not topic:
        raise BadInput("topic is required for ack")
    texts = header.bookmarks
    if not texts:
        raise BadInput("bookmark is required for ack")
    queue = session.face.queue_of(topic)
    if queue is None:
        raise BadInput(f"{topic[:255]!r} is not a queue")
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
