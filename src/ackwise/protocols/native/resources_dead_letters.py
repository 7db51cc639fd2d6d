"""`/v1/dead-letters/{id}`: show, redrive and purge dead letters, by id or by filter."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import queries as q
from ackwise.core import validation
from ackwise.core.commands import PurgeDead, Redrive
from ackwise.core.error_kinds import LONGEST_KIND
from ackwise.core.errors import BadInput, RedriveRefused, UnknownDeadLetter
from ackwise.core.rows import DeadLetter
from ackwise.core.versions import ANY, check_version
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route
from ackwise.protocols.native.resource_answers import if_match, removed, resource, resource_doc
from ackwise.protocols.native.resources_groups import Instant
from ackwise.protocols.native.resources_queues import Name
from ackwise.wire import payloads, timestamps

TAG = "dead letters"
MOST_SELECTED = 1000
"""Dead letters that one request changes."""
Id = Annotated[str, msgspec.Meta(max_length=64)]
_REDRIVEN = "redriven"


class DeadSelection(msgspec.Struct, forbid_unknown_fields=True):
    """Dead letters by `ids`, or by a filter. `all` selects every dead letter. With `dry_run` the server only counts.

    `kind` is an error with its variable parts replaced, as a dead letter shows it. `after` and `before` select by
    the time at which the message became a dead letter. One request changes at most `limit` dead letters.
    """

    ids: Annotated[list[Id], msgspec.Meta(max_length=MOST_SELECTED)] | None = None
    queue: Name | None = None
    group: Name | None = None
    partition: Name | None = None
    reason: Name | None = None
    kind: Annotated[str, msgspec.Meta(max_length=LONGEST_KIND)] | None = None
    after: Instant | None = None
    before: Instant | None = None
    all: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_SELECTED)] = MOST_SELECTED
    dry_run: bool = False


class RedrivenLetters(msgspec.Struct):
    """Result of each letter: `redriven`, `not_found` or an error code. `left` letters match and are unchanged."""

    matched: int
    redriven: int
    left: int
    results: dict[str, str]
    dry_run: bool


class PurgedLetters(msgspec.Struct):
    """How many letters matched, how many the server removed, and how many are `left`."""

    matched: int
    purged: int
    left: int
    dry_run: bool


class RedrivenLetter(msgspec.Struct):
    id: str
    result: str


class ShownLetter(msgspec.Struct):
    """A dead letter with its history, oldest line first."""

    id: str
    queue: str
    partition: str
    partition_id: str
    group: str
    seq: int
    message_id: str
    transaction_id: str
    reason: str
    error: str
    kind: str
    error_type: str
    failures: int
    deliveries: int
    history: list[dict[str, Any]]
    payload: msgspec.Raw
    headers: dict[str, str]
    content_type: str
    created_at: str
    dead_at: str


_SELECTION = msgspec.json.Decoder(DeadSelection)


def routes(broker: AsyncBroker) -> list[Route]:
    letters = DeadLetterHandlers(broker)
    base = "/v1/dead-letters"
    return [
        Route("GET", f"{base}/{{id}}", letters.show, doc=resource_doc(
            TAG, "Show a dead letter with its history", answers={200: ShownLetter}, errors=(404,))),
        Route("DELETE", f"{base}/{{id}}", letters.delete, doc=resource_doc(
            TAG, "Remove a dead letter", answers={204: None}, errors=(404,), versioned=True)),
        Route("POST", f"{base}/{{id}}/redrive", letters.redrive, doc=resource_doc(
            TAG, "Return a dead letter to its group", answers={200: RedrivenLetter}, errors=(404, 409),
            versioned=True)),
        Route("POST", f"{base}/redrive", letters.redrive_all, doc=resource_doc(
            TAG, "Return dead letters to their groups, by id or by filter", body=DeadSelection,
            answers={200: RedrivenLetters}, errors=(404,))),
        Route("POST", f"{base}/purge", letters.purge_all, doc=resource_doc(
            TAG, "Remove dead letters, by id or by filter", body=DeadSelection, answers={200: PurgedLetters},
            errors=(404,))),
    ]  # fmt: skip


class DeadLetterHandlers:
    """Handlers of dead letters."""

    def __init__(self, broker: AsyncBroker) -> None:
        self._broker = broker

    async def _find(self, call: Call) -> DeadLetter:
        """The letter of the path. A letter never changes, so its id is its version."""
        await call.reserve(validation.DEFAULT_MAX_PAYLOAD)
        page = await self._broker.ask(q.ListDead(ids=[call.params[0]], limit=1))
        if not page.letters:
            raise _unknown(call.params[0])
        return page.letters[0]

    async def _checked_id(self, call: Call) -> str:
        """The id of the path. Raises `PreconditionFailed` if the request names another version."""
        version, letter = if_match(call), await self._find(call)
        call.queue = letter.queue
        if version != ANY:
            check_version(version, _version(letter), f"dead letter {call.params[0]!r:.60}")
        return call.params[0]

    async def show(self, call: Call) -> Answer:
        letter = await self._find(call)
        return resource(_body(letter), version=_version(letter))

    async def delete(self, call: Call) -> Answer:
        letter_id = await self._checked_id(call)
        counted = await self._broker.send(PurgeDead(ids=[letter_id]))
        if not counted.count:
            raise _unknown(letter_id)
        call.messages = 1
        return removed()

    async def redrive(self, call: Call) -> Answer:
        letter_id = await self._checked_id(call)
        result = (await self._broker.send(Redrive(ids=[letter_id]))).results[letter_id]
        if result == "not_found":
            raise _unknown(letter_id)
        if result != _REDRIVEN:
            raise RedriveRefused(f"dead letter {letter_id} cannot go back to its old place; push its message again")
        call.messages = 1
        return resource(RedrivenLetter(letter_id, result))

    async def redrive_all(self, call: Call) -> Answer:
        body = await call.read(_SELECTION)
        letters, total = await _select(call, self._broker, body)
        if body.dry_run:
            return resource(RedrivenLetters(total, 0, total, {}, True))
        results = (await self._broker.send(Redrive(ids=letters))).results if letters else {}
        count = sum(result == _REDRIVEN for result in results.values())
        call.messages = count
        return resource(RedrivenLetters(total, count, total - count, results, False))

    async def purge_all(self, call: Call) -> Answer:
        body = await call.read(_SELECTION)
        letters, total = await _select(call, self._broker, body)
        if body.dry_run:
            return resource(PurgedLetters(total, 0, total, True))
        count = (await self._broker.send(PurgeDead(ids=letters))).count if letters else 0
        call.messages = count
        return resource(PurgedLetters(total, count, max(0, total - count), False))


def _unknown(letter_id: str) -> UnknownDeadLetter:
    return UnknownDeadLetter(f"there is no dead letter {letter_id!r:.60}; list the dead letters to see their ids")


async def _select(call: Call, broker: AsyncBroker, body: DeadSelection) -> tuple[list[str], int]:
    """Ids of the letters that a request changes, and how many letters match."""
    _check(body)
    await call.reserve(validation.ANSWER_BYTES)
    page = await broker.ask(
        q.ListDead(
            queue=body.queue,
            group=body.group,
            partition=body.partition,
            reason=body.reason,
            kind=body.kind,
            after_at=None if body.after is None else timestamps.parse(body.after, "after"),
            before_at=None if body.before is None else timestamps.parse(body.before, "before"),
            ids=body.ids,
            limit=body.limit,
        )
    )
    queues = {letter.queue for letter in page.letters}
    call.queue = body.queue or (queues.pop() if len(queues) == 1 else "")
    return [letter.id for letter in page.letters], page.total


def _check(body: DeadSelection) -> None:
    """Raises `BadInput` unless the selection has either `all` or a filter."""
    filters = (body.ids, body.queue, body.group, body.partition, body.reason, body.kind, body.after, body.before)
    named = any(value is not None for value in filters)
    if named == body.all:
        raise BadInput('select dead letters with ids, with a filter such as queue, or with "all": true')


def _version(letter: DeadLetter) -> str:
    return letter.id.replace("-", "")


def _body(letter: DeadLetter) -> ShownLetter:
    payload, content_type = payloads.for_answer(letter.payload, letter.content_type)
    return ShownLetter(
        id=letter.id,
        queue=letter.queue,
        partition=letter.partition,
        partition_id=letter.partition_id,
        group=letter.group,
        seq=letter.seq,
        message_id=letter.message_id,
        transaction_id=letter.transaction_id,
        reason=letter.reason,
        error=letter.error,
        kind=letter.kind,
        error_type=letter.error_type,
        failures=letter.failures,
        deliveries=letter.deliveries,
        history=[_line(line) for line in letter.history],
        payload=msgspec.Raw(payload),
        headers=letter.headers,
        content_type=content_type,
        created_at=timestamps.text(letter.created_at),
        dead_at=timestamps.text(letter.dead_at),
    )


def _line(line: dict[str, Any]) -> dict[str, Any]:
    """A line of the history with its time as text."""
    at = line.get("at")
    return {**line, "at": timestamps.text(at) if isinstance(at, int) else at}
