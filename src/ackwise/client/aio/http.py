"""A broker behind a server's native API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Any, TypeVar

import msgspec

from ackwise.client.aio.batcher import AsyncBatcher
from ackwise.client.beside.aio import AsyncGathering
from ackwise.client.held import Held
from ackwise.client.minting import Minted
from ackwise.client.retrying import PATIENCE, Pauses, Tries
from ackwise.client.servers import error_of
from ackwise.client.settling import lease_of
from ackwise.client.wires.reply import AsyncWire, Broken, Reply, Unsent
from ackwise.core.answers import Claimed, Extended, Handed, Receipts, Settled, TransactionDone, nothing
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import (
    AdvanceGroup,
    ByDelivery,
    ByTransaction,
    Claim,
    Command,
    ConfigureGroup,
    ConfigureQueue,
    Extend,
    PauseQueue,
    PruneQueue,
    Push,
    Settle,
    Settlement,
    Transaction,
    giving_back,
)
from ackwise.core.errors import AckwiseError, BadInput, CircuitOpen, Draining, RolledBack, StoreError
from ackwise.core.native import admin, claiming, instants, pushing, ranges, settling
from ackwise.core.queries import Query
from ackwise.core.settlement import Outcome, Verdict

TIMEOUT = 10.0
"""How long an answer may take, besides what the call itself waits for."""
LONGEST_POLL = 50.0
"""How long a claim waits in one request."""
STOP_PATIENCE = 5.0
ACK_PATIENCE = 1.0
RELEASE_PATIENCE = 1.0
"""What is not given back in time comes back by itself, when its lease runs out."""
REFUSED_NOW = "it was asked again, and is refused now"

T = TypeVar("T")
_PUSHED = msgspec.json.Decoder(pushing.PushAnswer)
_SETTLED = msgspec.json.Decoder(settling.DetailedVerdicts)
_DONE = msgspec.json.Decoder(settling.DetailedTransaction)
_DEADLINE = msgspec.json.Decoder(settling.Deadline)
_EXTENSIONS = msgspec.json.Decoder(settling.ExtensionVerdicts)
_CLAIMED = msgspec.json.Decoder(claiming.Read)
_AHEAD = msgspec.json.Decoder(claiming.ReadAhead)
_OF_ONE = (ByDelivery, ByTransaction)


class AsyncHTTPTransport:
    """Carries commands to a server. A call that may be repeated is, when the connection breaks or the server is busy.

    A push may: every message has a transaction id before the first try. A settlement may, if it names a delivery or a
    lease: what an earlier try settled answers `already`. A claim may only with a key: the messages of a claim whose
    answer got lost are in nobody's hand.
    """

    def __init__(
        self,
        wire: AsyncWire,
        base: str,
        clock: Callable[[], int],
        *,
        patience: float = PATIENCE,
        pauses: Pauses | None = None,
    ) -> None:
        self._wire, self._base, self._clock, self._patience = wire, base, clock, patience
        self._pauses = pauses
        self._offset = 0
        self._held = Held()
        self._claims: dict[str, bool] = {}
        """Claims under way by the name of their poll, and whether they wait."""
        self._acks: AsyncBatcher[str, Settlement, Settled | AckwiseError] = AsyncBatcher(self._settle_together)
        self._extensions: AsyncGathering[bytes, Extended | AckwiseError] = AsyncGathering(self._extend_together)
        self._draining = False
        self._closed = False
        self.repeats = 0

    async def hello(self) -> None:
        """See that an Ackwise server is there, and what time it has."""
        tries = self._tries(again=True, reads=True, patience=0.0 if self._pauses is None else None)
        reply = await self._replied("GET", "/v1", b"", tries, TIMEOUT)
        if reply.now is None:
            raise error_of(reply, self._base)

    def now(self) -> int:
        """The server's time, carried on from its last answer."""
        return self._clock() + self._offset

    def _learn(self, reply: Reply) -> None:
        if reply.now is not None:
            self._offset = reply.now - self._clock()

    async def _call(self, path: str, body: bytes, tries: Tries, wait: float = 0.0) -> bytes:
        return (await self._replied("POST", path, body, tries, wait + TIMEOUT)).body

    async def _replied(self, method: str, path: str, body: bytes, tries: Tries, timeout: float) -> Reply:
        while True:
            try:
                reply = await self._wire.request(method, path, body, timeout)
            except Unsent as problem:
                pause = 0.0 if self._closed else tries.unsent(problem)
            except Broken as problem:
                pause = tries.broken(problem)
            except CircuitOpen as problem:
                raise tries.shut(problem) from None
            else:
                self._learn(reply)
                if reply.status == 200:
                    self.repeats += tries.repeated
                    return reply
                pause = tries.refused(reply)
            if self._closed:
                raise tries.shut(Draining("the connection is closed"))
            await self._wire.sleep(pause)

    def _tries(self, *, again: bool, patience: float | None = None, reads: bool = False) -> Tries:
        # A call that has a bound of its own keeps to it.
        pauses = self._pauses if patience is None or patience >= self._patience else None
        patience = self._patience if patience is None else patience
        return Tries(self._base, patience, again=again, reads=reads, pauses=pauses)

    def _read(self, decoder: msgspec.json.Decoder[T], body: bytes) -> T:
        try:
            return decoder.decode(body)
        except msgspec.DecodeError as problem:
            raise StoreError(f"the answer of {self._base} is not understood: {problem}") from None

    def _check_open(self) -> None:
        if self._closed:
            raise Draining("the connection is closed")

    async def send(self, command: Command) -> Any:
        self._check_open()
        match command:
            case Push():
                return await self._push(command)
            case Settle() if _is_one_ack(command):
                return [await self._ack(command.entries[0])]
            case Settle():
                return await self._settle(command)
            case Extend():
                return await self._extend(command)
            case Transaction():
                return await self._transaction(command)
            case Claim():
                return await self._grants(command)
            case _ if admin.is_admin(command):
                tries = self._tries(again=_repeatable(command))
                return self._read(
                    admin.answers_to(type(command)), await self._call("/v1/admin", _written(command), tries)
                )
            case _:
                raise BadInput(f"{type(command).__name__} is not sent over HTTP")

    async def ask(self, query: Query) -> Any:
        self._check_open()
        body = await self._call("/v1/ask", _written(query), self._tries(again=True, reads=True))
        return self._read(admin.answers_to(type(query)), body)

    async def read_arrow(self, places: Sequence[tuple[int, int, int]], columns: Sequence[str]) -> bytes:
        """Stored messages, (lane, lo, hi), as an Arrow stream."""
        self._check_open()
        body = _written(ranges.ReadBody(list(places), list(columns)))
        return await self._call("/v1/read", body, self._tries(again=True, reads=True))

    async def _push(self, command: Push) -> Receipts:
        minted, tries = Minted(command), self._tries(again=True)
        body = await self._call("/v1/push", _written(pushing.body(minted.push)), tries)
        answer = self._read(_PUSHED, body)
        if tries.repeated and answer.receipts is not None:
            answer.receipts = minted.mint.told(answer.receipts)
        return pushing.receipts(answer, minted.transaction_ids)

    async def _settle(self, command: Settle) -> list[Settled]:
        gives_back = all(one.outcome is Outcome.RELEASE for one in command.entries)
        if gives_back:
            await self._acks_answered({lease_of(one.selector) for one in command.entries})
        patience = min(self._patience, RELEASE_PATIENCE) if gives_back else None
        tries = self._tries(again=all(map(_settles_once, command.entries)), patience=patience)
        body = await self._call("/v1/settle", _written(settling.settle_body(command)), tries)
        settled = self._read(_SETTLED, body).verdicts
        if tries.repeated and command.atomic and _may_undo_itself(command.entries) and _is_undone(command, settled):
            raise tries.unknown(REFUSED_NOW)
        self._note(command.entries, settled)
        return settled

    async def _ack(self, entry: Settlement) -> Settled:
        answer = await self._acks.ask("", entry)
        if isinstance(answer, AckwiseError):
            raise answer
        return answer

    async def _acks_answered(self, leases: set[str | None] | None = None) -> None:
        """What is given back must not overtake the acks that wait to be sent."""
        end = time.monotonic() + ACK_PATIENCE
        while time.monotonic() < end:
            waiting = [lease_of(one.selector) for one in self._acks.unanswered()]
            if not waiting or (leases is not None and None not in waiting and leases.isdisjoint(waiting)):
                return
            await self._wire.sleep(0.005)

    async def _settle_together(
        self, batches: Sequence[tuple[str, Sequence[Settlement]]]
    ) -> list[Sequence[Settled | AckwiseError] | AckwiseError]:
        """Acks of many callers in one request. If one of them is refused as it stands, the others go without it."""
        ((_, entries),) = batches
        try:
            return [await self._settle(Settle(entries=list(entries)))]
        except BadInput as problem:
            return [problem if len(entries) == 1 else await self._settle_halves(entries)]
        except AckwiseError as problem:
            return [problem]

    async def _settle_halves(self, entries: Sequence[Settlement]) -> list[Settled | AckwiseError]:
        found: list[Settled | AckwiseError] = []
        half = len(entries) // 2
        for part in (entries[:half], entries[half:]):
            try:
                found += await self._settle(Settle(entries=list(part)))
            except BadInput as problem:
                found += [problem] if len(part) == 1 else await self._settle_halves(part)
            except AckwiseError as problem:
                found += [problem.again() for _ in part]
        return found

    def _note(self, entries: Sequence[Settlement], answers: Sequence[Settled]) -> None:
        for one, answer in zip(entries, answers, strict=True):
            self._held.note(one.selector, answer)

    async def _extend(self, command: Extend) -> Extended:
        named: object = command.lease_id
        if command.claim is None and not (isinstance(named, str) and named):
            raise BadInput(f"{named!r} names no lease; what was acked at delivery has none")
        body = _written(settling.extend_body(command))
        if command.add is None and command.claim is None:
            extended = await self._extensions.ask(body)
            if isinstance(extended, AckwiseError):
                raise extended
        else:
            extended = await self._extend_one(body, again=command.add is None)
        if extended.deadline is None:
            self._held.drop(command.lease_id)
        else:
            self._held.extended(command.lease_id, extended.deadline)
        return extended

    async def _extend_one(self, body: bytes, *, again: bool) -> Extended:
        answer = self._read(_DEADLINE, await self._call("/v1/extend", body, self._tries(again=again)))
        return Extended(None, instants.parse(answer.deadline, "deadline"))

    async def _extend_together(self, bodies: list[bytes]) -> list[Extended | AckwiseError]:
        """Each is answered for itself, also by an older server that refuses all for one, or takes only one."""
        found: list[Extended | AckwiseError] = []
        for at in range(0, len(bodies), settling.MOST_EXTENSIONS):
            part = bodies[at : at + settling.MOST_EXTENSIONS]
            body = _written(settling.ExtendAllBody(list(map(msgspec.Raw, part))))
            try:
                raw = await self._call("/v1/extend-all", body, self._tries(again=True))
            except BadInput:
                found += [await self._extend_alone(one) for one in part]
            else:
                found += map(settling.extended, self._read(_EXTENSIONS, raw).extensions)
        return found

    async def _extend_alone(self, body: bytes) -> Extended | AckwiseError:
        try:
            return await self._extend_one(body, again=True)
        except AckwiseError as problem:
            return problem

    async def _transaction(self, command: Transaction) -> TransactionDone:
        """What must not find itself done before is not repeated: it would. Nor what may mean somebody else by then."""
        fine = command.repeatable or (command.on_duplicate == "ok" and command.on_already == "ok")
        again = fine and not command.required_leases and all(map(_settles_once, command.settlements))
        pushes, tries = [Minted(one) for one in command.pushes], self._tries(again=again)
        minted = msgspec.structs.replace(command, pushes=[one.push for one in pushes])
        try:
            body = await self._call("/v1/transaction", _written(settling.transaction_body(minted)), tries)
        except RolledBack:
            if tries.repeated and _may_undo_itself(command.settlements):
                raise tries.unknown(REFUSED_NOW) from None
            raise
        done = self._read(_DONE, body)
        self._note(command.settlements, done.verdicts)
        receipts = done.receipts
        if tries.repeated:
            receipts = [one.mint.told(found) for one, found in zip(pushes, receipts, strict=True)]
        return TransactionDone(
            done.verdicts, [pushing.receipts(pushing.PushAnswer(receipts=found), []) for found in receipts]
        )

    async def _grants(self, command: Claim) -> Claimed:
        """A claim without its messages. Whoever asks for it keeps its own books: it is not given back at the end."""
        if self._draining:
            return nothing(command, EmptyReason.DRAINING).claimed
        body = claiming.body(command)
        body.grants_only = True
        raw = await self._call("/v1/claim", _written(body), self._tries(again=command.key is not None))
        claimed = claiming.handed(self._read(_CLAIMED, raw)).claimed
        if claimed.empty is EmptyReason.DRAINING:
            claimed.empty = EmptyReason.UNAVAILABLE
        return claimed

    async def claim(self, command: Claim, wait: float) -> Handed:
        self._check_open()
        give_up = time.monotonic() + wait
        while not self._draining:
            rest = min(LONGEST_POLL, max(0.0, give_up - time.monotonic()))
            _, handed = await self._poll(command, None, rest)
            claimed = handed.claimed
            leaving = claimed.empty is EmptyReason.DRAINING and not self._draining
            if claimed.grants or claimed.empty is EmptyReason.ENDED or time.monotonic() >= give_up:
                if leaving:
                    # It is the server that goes away, not we: another will come.
                    claimed.empty = EmptyReason.UNAVAILABLE
                return handed
            if leaving:
                await self._wire.sleep(min(1.0, max(0.0, give_up - time.monotonic())))
        return nothing(command, EmptyReason.DRAINING)

    async def settle_and_claim(self, settle: Settle, claim: Claim, wait: float) -> tuple[list[Settled], Handed]:
        self._check_open()
        if self._draining:
            return await self.send(settle), nothing(claim, EmptyReason.DRAINING)
        try:
            settled, handed = await self._poll(claim, settle, 0.0)
        except StoreError:
            return await self.send(settle), nothing(claim, EmptyReason.UNAVAILABLE)
        if not wait or handed.claimed.grants or handed.claimed.empty is EmptyReason.ENDED:
            return settled, handed
        try:
            return settled, await self.claim(claim, wait)
        except StoreError:
            return settled, nothing(claim, EmptyReason.UNAVAILABLE)

    async def claim_ahead(self, settle: Settle | None, claim: Claim, count: int) -> tuple[list[Settled], list[Handed]]:
        self._check_open()
        if self._draining or not count:
            return await self.send(settle) if settle is not None else [], []
        body = _claim_body(claim, settle)
        body.ahead = count
        name = token_hex(8)
        self._claims[name] = False
        try:
            raw = await self._call("/v1/claim", _written(body), self._tries(again=claim.key is not None))
            answer = self._read(_AHEAD, raw)
            if settle is not None:
                self._note(settle.entries, answer.verdicts)
            batches = [await self._keep(claim, columns) for columns in answer.claims]
            return answer.verdicts, [one for one in batches if one.claimed.grants]
        except StoreError:
            if settle is None or claim.key is not None:
                # With a key whoever asks again gets both.
                raise
            # What was claimed may be lost until its lease runs out; what was settled must not be.
            return await self.send(settle), []
        finally:
            del self._claims[name]

    async def _poll(self, claim: Claim, settle: Settle | None, wait: float) -> tuple[list[Settled], Handed]:
        """One request for one batch."""
        name = token_hex(8)
        body = _claim_body(claim, settle)
        body.wait_seconds, body.poll = wait, name if wait else None
        self._claims[name] = wait > 0
        try:
            # Only now: whoever drains either finds us under way, or we find that.
            if self._draining:
                return await self.send(settle) if settle is not None else [], nothing(claim, EmptyReason.DRAINING)
            tries = self._tries(again=claim.key is not None, patience=self._patience + wait)
            columns = self._read(_CLAIMED, await self._call("/v1/claim", _written(body), tries, wait))
            if settle is not None:
                self._note(settle.entries, columns.verdicts)
            return columns.verdicts, await self._keep(claim, columns)
        finally:
            del self._claims[name]

    async def _keep(self, claim: Claim, columns: claiming.Read) -> Handed:
        """What was handed to us; it goes back at once if we began to drain meanwhile."""
        handed = claiming.handed(columns)
        if not handed.claimed.lease_no:
            return handed
        if self._draining:
            await self._give_back([handed.claimed.lease_id])
            return nothing(claim, EmptyReason.DRAINING)
        self._held.add(handed.claimed, self.now())
        return handed

    async def _give_back(self, lease_ids: Iterable[str]) -> None:
        with suppress(AckwiseError):
            await self._settle(giving_back(lease_ids))

    async def drain(self, grace: float) -> int:
        """Claim nothing more in this client, let it finish what it holds for `grace` seconds, release the rest."""
        self._check_open()
        await self.stop_claims()
        end = time.monotonic() + grace
        while self._held.live(self.now()) and time.monotonic() < end:
            await self._wire.sleep(0.02)
        release = self._held.release()
        return 0 if release is None else sum(answer.count for answer in await self._settle(release))

    async def stop_claims(self) -> None:
        self._draining = True
        await self._stop_claims()

    async def _stop_claims(self) -> None:
        """Call back the polls that wait. A poll that is still on its way to the server is not known there yet."""
        end, pause = time.monotonic() + STOP_PATIENCE, 0.01
        while self._claims and time.monotonic() < end:
            polls = [name for name, waits in list(self._claims.items()) if waits]
            if polls:
                await self._wire.tell("/v1/stop", _written(claiming.StopBody(polls)), STOP_PATIENCE)
            await self._wire.sleep(pause)
            pause = min(0.5, 2 * pause)

    async def close(self) -> None:
        if self._closed:
            return
        self._draining = True
        await self._stop_claims()
        await self._acks_answered()
        self._closed = True
        await self._wire.close()


def _is_one_ack(command: Settle) -> bool:
    """What is sent together with the acks of other callers."""
    entries = command.entries
    return len(entries) == 1 and entries[0].outcome is Outcome.ACK and isinstance(entries[0].selector, _OF_ONE)


def _settles_once(entry: Settlement) -> bool:
    """Whether asking again cannot mean another delivery. Without a lease a transaction id means whoever holds it now,
    and that may be somebody else by the time of a second try."""
    named = entry.selector
    return entry.outcome is Outcome.ACK or not isinstance(named, ByTransaction) or named.lease_id is not None


def _may_undo_itself(entries: Sequence[Settlement]) -> bool:
    """Whether a repeat of it may be refused because of what it has done: where a failure takes the messages behind it
    along, those that were acked with it are nobody's then."""
    return len(entries) > 1 and any(one.outcome is not Outcome.ACK for one in entries)


def _is_undone(command: Settle, answers: Sequence[Settled]) -> bool:
    refused = any(not one.verdict.settled and one.verdict is not Verdict.ALREADY for one in answers)
    return refused or (command.strict and any(one.unacked for one in answers))


def _written(body: object) -> bytes:
    try:
        return admin.encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise BadInput(f"this cannot be written as JSON: {problem}") from None


def _claim_body(claim: Claim, settle: Settle | None) -> claiming.ClaimBody:
    body = claiming.body(claim)
    if settle is not None:
        body.settle, body.atomic = [settling.entry(one) for one in settle.entries], settle.atomic
    return body


def _repeatable(command: Command) -> bool:
    """Whether doing it twice is doing it once."""
    if isinstance(command, ConfigureQueue):
        return not command.must_be_new
    return isinstance(command, PauseQueue | ConfigureGroup | AdvanceGroup | PruneQueue)
