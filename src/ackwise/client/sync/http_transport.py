# Generated from ../aio/http_transport.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Transport over a server's native HTTP API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Any, TypeVar

import msgspec

from ackwise.client.concurrency.threads import Coalescer
from ackwise.client.http_adapters.reply import HTTPAdapter
from ackwise.client.payloads import IdempotentPush
from ackwise.client.resilience import PATIENCE, RetryPauses
from ackwise.client.settlements import HeldLeases, lease_of
from ackwise.client.sync.ack_batcher import Batcher
from ackwise.client.sync.http_repeats import (
    REFUSED_NOW,
    HTTPCalls,
    is_repeatable,
    is_repeatable_transaction,
    is_undone,
    may_undo_itself,
    settles_once,
)
from ackwise.core.answers import Claimed, Extended, Handed, Receipts, Settled, TransactionDone, empty_answer
from ackwise.core.commands import (
    AdminCommand,
    ByDelivery,
    ByTransaction,
    Claim,
    Command,
    Extend,
    Push,
    Settle,
    Settlement,
    Transaction,
    release_command,
)
from ackwise.core.errors import AckwiseError, BadInput, RolledBack, StoreError
from ackwise.core.lane_range import LaneRange
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.queries import Query
from ackwise.core.settlement import Outcome
from ackwise.wire import admin, push, timestamps
from ackwise.wire import claim as wire_claim
from ackwise.wire import settle as wire_settle

LONGEST_POLL = 50.0
"""Seconds that a claim waits in one request."""
STOP_PATIENCE = 5.0
ACK_PATIENCE = 1.0
RELEASE_PATIENCE = 1.0
"""Seconds for a release. Messages that are not released in time come back when their lease expires."""

_PUSHED = msgspec.json.Decoder(push.PushAnswer)
_SETTLED = msgspec.json.Decoder(wire_settle.DetailedVerdicts)
_DONE = msgspec.json.Decoder(wire_settle.DetailedTransaction)
_DEADLINE = msgspec.json.Decoder(wire_settle.Deadline)
_EXTENSIONS = msgspec.json.Decoder(wire_settle.ExtensionVerdicts)
_CLAIMED = msgspec.json.Decoder(wire_claim.Read)
_AHEAD = msgspec.json.Decoder(wire_claim.ReadAhead)
_ONE_MESSAGE = (ByDelivery, ByTransaction)

A = TypeVar("A")


class HTTPTransport(HTTPCalls):
    """Transport over HTTP: sends commands and queries to a server.

    When the connection breaks or the server is busy, the transport repeats a call if that is safe:

    - a push, because each message has a transaction id before the first try
    - a settlement that names a delivery or a lease, because the repeat answers `already`
    - a claim with a key, because the repeat returns the same messages. Without a key, the messages of a claim whose
      answer is lost stay leased until the lease expires.
    """

    events = None
    """Only the process of the server hears the events of its store."""

    def __init__(
        self,
        adapter: HTTPAdapter,
        base: str,
        clock: Callable[[], int],
        *,
        patience: float = PATIENCE,
        pauses: RetryPauses | None = None,
    ) -> None:
        super().__init__(adapter, base, clock, patience=patience, pauses=pauses)
        self._held = HeldLeases()
        self._claims: dict[str, bool] = {}
        """Claims in flight: the poll's name, and whether it waits for messages on the server."""
        self._acks: Batcher[str, Settlement, Settled | AckwiseError] = Batcher(self._settle_together)
        self._extensions: Coalescer[bytes, Extended | AckwiseError] = Coalescer(self._extend_together)
        self._draining = False

    def send(self, command: Command[A]) -> A:
        self._check_open()
        answer: A = self._send(command)
        return answer

    def _send(self, command: Command) -> Any:
        match command:
            case Push():
                return self._push(command)
            case Settle() if _is_one_ack(command):
                return [self._ack(command.entries[0])]
            case Settle():
                return self._settle(command)
            case Extend():
                return self._extend(command)
            case Transaction():
                return self._transaction(command)
            case Claim():
                return self._claim_grants(command)
            case AdminCommand():
                tries = self._tries(repeatable=is_repeatable(command))
                return self._read(admin.answers_to(command), self._call("/v1/admin", _encode(command), tries))
            case _:
                raise BadInput(f"the HTTP transport cannot send {type(command).__name__}")

    def send_all(self, commands: Sequence[Extend]) -> list[Extended | AckwiseError]:
        self._check_open()
        answers = self._extend_together([_encode(wire_settle.extend_body(command)) for command in commands])
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, Extended):
                self._note_extension(command, answer)
        return answers

    def ask(self, query: Query[A]) -> A:
        self._check_open()
        body = self._call("/v1/ask", _encode(query), self._tries(repeatable=True, reads=True))
        return self._read(admin.answers_to(query), body)

    def read_arrow(self, places: Sequence[LaneRange], columns: Sequence[str]) -> bytes:
        """Read stored messages as an Arrow stream. Each of `places` is (lane, lo, hi)."""
        self._check_open()
        body = _encode(wire_claim.ReadBody(list(places), list(columns)))
        return self._call("/v1/read", body, self._tries(repeatable=True, reads=True))

    def _push(self, command: Push) -> Receipts:
        idempotent, tries = IdempotentPush(command), self._tries(repeatable=True)
        body = self._call("/v1/push", _encode(push.body(idempotent.push)), tries)
        answer = self._read(_PUSHED, body)
        if tries.repeated and answer.receipts is not None:
            answer.receipts = idempotent.ids.as_first_push(answer.receipts)
        return push.receipts(answer, idempotent.transaction_ids)

    def _settle(self, command: Settle) -> list[Settled]:
        releases_all = all(entry.outcome is Outcome.RELEASE for entry in command.entries)
        if releases_all:
            self._wait_for_acks({lease_of(entry.selector) for entry in command.entries})
        patience = min(self._patience, RELEASE_PATIENCE) if releases_all else None
        tries = self._tries(repeatable=all(map(settles_once, command.entries)), patience=patience)
        body = self._call("/v1/settle", _encode(wire_settle.settle_body(command)), tries)
        settled = self._read(_SETTLED, body).verdicts
        if tries.repeated and command.atomic and may_undo_itself(command.entries) and is_undone(command, settled):
            raise tries.unknown(REFUSED_NOW)
        self._note(command.entries, settled)
        return settled

    def _ack(self, entry: Settlement) -> Settled:
        answer = self._acks.submit("", entry)
        if isinstance(answer, AckwiseError):
            raise answer
        return answer

    def _wait_for_acks(self, leases: set[str | None] | None = None) -> None:
        """Wait for unanswered acks of these leases, or of all: a release must not overtake them."""
        end = time.monotonic() + ACK_PATIENCE
        while time.monotonic() < end:
            waiting = [lease_of(entry.selector) for entry in self._acks.unanswered()]
            if not waiting or (leases is not None and None not in waiting and leases.isdisjoint(waiting)):
                return
            self._adapter.sleep(0.005)

    def _settle_together(
        self, batches: Sequence[tuple[str, Sequence[Settlement]]]
    ) -> list[Sequence[Settled | AckwiseError] | AckwiseError]:
        """Send the acks of many callers in one request. If one is invalid, the others are sent without it."""
        ((_, entries),) = batches
        try:
            return [self._settle(Settle(entries=list(entries)))]
        except BadInput as problem:
            return [problem if len(entries) == 1 else self._settle_halves(entries)]
        except AckwiseError as problem:
            return [problem]

    def _settle_halves(self, entries: Sequence[Settlement]) -> list[Settled | AckwiseError]:
        """Find the invalid entries by bisection and settle the others."""
        answers: list[Settled | AckwiseError] = []
        half = len(entries) // 2
        for part in (entries[:half], entries[half:]):
            try:
                answers += self._settle(Settle(entries=list(part)))
            except BadInput as problem:
                answers += [problem] if len(part) == 1 else self._settle_halves(part)
            except AckwiseError as problem:
                answers += [problem.again() for _ in part]
        return answers

    def _note(self, entries: Sequence[Settlement], answers: Sequence[Settled]) -> None:
        for entry, answer in zip(entries, answers, strict=True):
            self._held.note(entry.selector, answer)

    def _extend(self, command: Extend) -> Extended:
        lease_id: object = command.lease_id
        if command.claim is None and not (isinstance(lease_id, str) and lease_id):
            raise BadInput(f"{lease_id!r} is no lease id; a message that was claimed with auto_ack has no lease")
        body = _encode(wire_settle.extend_body(command))
        if command.add is None and command.claim is None:
            extended = self._extensions.submit(body)
            if isinstance(extended, AckwiseError):
                raise extended
        else:
            extended = self._extend_one(body, repeatable=command.add is None)
        self._note_extension(command, extended)
        return extended

    def _note_extension(self, command: Extend, extended: Extended) -> None:
        if extended.deadline is None:
            self._held.drop(command.lease_id)
        else:
            self._held.extended(command.lease_id, extended.deadline, keep_later=command.keep_later)

    def _extend_one(self, body: bytes, *, repeatable: bool) -> Extended:
        answer = self._read(_DEADLINE, self._call("/v1/extend", body, self._tries(repeatable=repeatable)))
        return Extended(None, self._anchored(timestamps.parse(answer.deadline, "deadline")))

    def _extend_together(self, bodies: list[bytes]) -> list[Extended | AckwiseError]:
        """Send many extensions in one request. Each gets its own answer.

        An older server rejects the whole request if one entry is invalid, or does not know the route. Then each
        extension is sent alone.
        """
        answers: list[Extended | AckwiseError] = []
        for at in range(0, len(bodies), wire_settle.MOST_EXTENSIONS):
            part = bodies[at : at + wire_settle.MOST_EXTENSIONS]
            body = _encode(wire_settle.ExtendAllBody(list(map(msgspec.Raw, part))))
            try:
                raw = self._call("/v1/extend-all", body, self._tries(repeatable=True))
            except BadInput:
                answers += [self._extend_alone(extension) for extension in part]
            else:
                answers += map(self._extended, self._read(_EXTENSIONS, raw).extensions)
        return answers

    def _extended(self, verdict: wire_settle.ExtensionVerdict) -> Extended | BadInput:
        answer = wire_settle.extended(verdict)
        if isinstance(answer, Extended) and answer.deadline is not None:
            answer.deadline = self._anchored(answer.deadline)
        return answer

    def _handed(self, columns: wire_claim.Read) -> Handed:
        """The claim of a server's answer, with instants of the server's anchored clock."""
        handed = wire_claim.handed(columns)
        claimed = handed.claimed
        if claimed.lease_no:
            claimed.deadline = self._anchored(claimed.deadline)
        if claimed.until is not None:
            claimed.until = self._anchored(claimed.until)
        return handed

    def _extend_alone(self, body: bytes) -> Extended | AckwiseError:
        try:
            return self._extend_one(body, repeatable=True)
        except AckwiseError as problem:
            return problem

    def _transaction(self, command: Transaction) -> TransactionDone:
        pushes = [IdempotentPush(original) for original in command.pushes]
        tries = self._tries(repeatable=is_repeatable_transaction(command))
        idempotent = msgspec.structs.replace(command, pushes=[push_command.push for push_command in pushes])
        try:
            body = self._call("/v1/transaction", _encode(wire_settle.transaction_body(idempotent)), tries)
        except RolledBack:
            if tries.repeated and may_undo_itself(command.settlements):
                raise tries.unknown(REFUSED_NOW) from None
            raise
        done = self._read(_DONE, body)
        self._note(command.settlements, done.verdicts)
        receipts = done.receipts
        if tries.repeated:
            receipts = [repeated.ids.as_first_push(pushed) for repeated, pushed in zip(pushes, receipts, strict=True)]
        return TransactionDone(
            done.verdicts, [push.receipts(push.PushAnswer(receipts=pushed), []) for pushed in receipts]
        )

    def _claim_grants(self, command: Claim) -> Claimed:
        """Claim ranges without reading their messages.

        The caller tracks these leases itself. The transport does not release them when it closes.
        """
        if self._draining:
            return empty_answer(command, EmptyReason.DRAINING).claimed
        body = wire_claim.body(command)
        body.grants_only = True
        raw = self._call("/v1/claim", _encode(body), self._tries(repeatable=command.key is not None))
        claimed = self._handed(self._read(_CLAIMED, raw)).claimed
        if claimed.empty is EmptyReason.DRAINING:
            claimed.empty = EmptyReason.UNAVAILABLE
        return claimed

    def claim(self, command: Claim, wait: float) -> Handed:
        self._check_open()
        give_up = time.monotonic() + wait
        while not self._draining:
            rest = min(LONGEST_POLL, max(0.0, give_up - time.monotonic()))
            _, handed = self._poll(command, None, rest)
            claimed = handed.claimed
            leaving = claimed.empty is EmptyReason.DRAINING and not self._draining
            if claimed.grants or claimed.empty is EmptyReason.ENDED or time.monotonic() >= give_up:
                if leaving:
                    # The server drains, not this client: another server may answer soon.
                    claimed.empty = EmptyReason.UNAVAILABLE
                return handed
            if leaving:
                self._adapter.sleep(min(1.0, max(0.0, give_up - time.monotonic())))
        return empty_answer(command, EmptyReason.DRAINING)

    def settle_and_claim(self, settle: Settle, claim: Claim, wait: float) -> tuple[list[Settled], Handed]:
        self._check_open()
        if self._draining:
            return self.send(settle), empty_answer(claim, EmptyReason.DRAINING)
        try:
            settled, handed = self._poll(claim, settle, 0.0)
        except StoreError:
            return self.send(settle), empty_answer(claim, EmptyReason.UNAVAILABLE)
        if not wait or handed.claimed.grants or handed.claimed.empty is EmptyReason.ENDED:
            return settled, handed
        try:
            return settled, self.claim(claim, wait)
        except StoreError:
            return settled, empty_answer(claim, EmptyReason.UNAVAILABLE)

    def claim_ahead(self, settle: Settle | None, claim: Claim, count: int) -> tuple[list[Settled], list[Handed]]:
        self._check_open()
        if self._draining or not count:
            return self.send(settle) if settle is not None else [], []
        body = _claim_body(claim, settle)
        body.ahead = count
        name = token_hex(8)
        self._claims[name] = False
        try:
            raw = self._call("/v1/claim", _encode(body), self._tries(repeatable=claim.key is not None))
            answer = self._read(_AHEAD, raw)
            if settle is not None:
                self._note(settle.entries, answer.verdicts)
            batches = [self._keep(claim, columns) for columns in answer.claims]
            return answer.verdicts, [batch for batch in batches if batch.claimed.grants]
        except StoreError:
            if settle is None or claim.key is not None:
                # With a key the caller repeats the call and gets both answers.
                raise
            # The claimed messages may stay leased until the lease expires. The settlements must not get lost.
            return self.send(settle), []
        finally:
            del self._claims[name]

    def _poll(self, claim: Claim, settle: Settle | None, wait: float) -> tuple[list[Settled], Handed]:
        """Send one claim request, with a settlement if there is one, and return one batch."""
        name = token_hex(8)
        body = _claim_body(claim, settle)
        body.wait_seconds, body.poll = wait, name if wait else None
        self._claims[name] = wait > 0
        try:
            # Check after the poll is registered: a concurrent drain either finds the poll or is seen here.
            if self._draining:
                return self.send(settle) if settle is not None else [], empty_answer(claim, EmptyReason.DRAINING)
            tries = self._tries(repeatable=claim.key is not None, patience=self._patience + wait)
            columns = self._read(_CLAIMED, self._call("/v1/claim", _encode(body), tries, wait))
            if settle is not None:
                self._note(settle.entries, columns.verdicts)
            return columns.verdicts, self._keep(claim, columns)
        finally:
            del self._claims[name]

    def _keep(self, claim: Claim, columns: wire_claim.Read) -> Handed:
        """Keep the lease of a claim's answer. If the transport drains meanwhile, release the lease at once."""
        handed = self._handed(columns)
        if not handed.claimed.lease_no:
            return handed
        if self._draining:
            self._release([handed.claimed.lease_id])
            return empty_answer(claim, EmptyReason.DRAINING)
        self._held.add(handed.claimed, self.now())
        return handed

    def _release(self, lease_ids: Iterable[str]) -> None:
        with suppress(AckwiseError):
            self._settle(release_command(lease_ids))

    def drain(self, grace: float) -> int:
        """Stop claiming, wait up to `grace` seconds until no lease is held, release the rest. Returns their number."""
        self._check_open()
        self.stop_claims()
        end = time.monotonic() + grace
        while self._held.live(self.now()) and time.monotonic() < end:
            self._adapter.sleep(0.02)
        release = self._held.release()
        return 0 if release is None else sum(answer.count for answer in self._settle(release))

    def stop_claims(self) -> None:
        self._draining = True
        self._stop_claims()

    def _stop_claims(self) -> None:
        """Ask the servers to answer waiting polls now.

        The request is repeated until no poll is left: a server does not know a poll that is still on its way.
        """
        end, pause = time.monotonic() + STOP_PATIENCE, 0.01
        while self._claims and time.monotonic() < end:
            polls = [name for name, waits in list(self._claims.items()) if waits]
            if polls:
                self._adapter.broadcast("/v1/stop", _encode(wire_claim.StopBody(polls)), STOP_PATIENCE)
            self._adapter.sleep(pause)
            pause = min(0.5, 2 * pause)

    def close(self) -> None:
        if self._closed:
            return
        self._draining = True
        self._stop_claims()
        self._wait_for_acks()
        self._closed = True
        self._adapter.close()


def _is_one_ack(command: Settle) -> bool:
    """Whether the command acks one message: such acks of concurrent callers share a request."""
    entries = command.entries
    return len(entries) == 1 and entries[0].outcome is Outcome.ACK and isinstance(entries[0].selector, _ONE_MESSAGE)


def _encode(body: object) -> bytes:
    try:
        return admin.encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise BadInput(f"the request cannot be written as JSON: {problem}") from None


def _claim_body(claim: Claim, settle: Settle | None) -> wire_claim.ClaimBody:
    body = wire_claim.body(claim)
    if settle is not None:
        body.settle, body.atomic = [wire_settle.entry(entry) for entry in settle.entries], settle.atomic
    return body
