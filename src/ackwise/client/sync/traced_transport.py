# Generated from ../aio/traced_transport.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Transport that makes OpenTelemetry spans: `send`, `receive` and `settle`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TypeVar, cast

import msgspec

from ackwise.client import tracing
from ackwise.client.concurrency.threads import call
from ackwise.client.transport import Transport
from ackwise.core.answers import Extended, Handed, Settled
from ackwise.core.commands import Claim, Command, Extend, Push, Settle, Settlement, Transaction
from ackwise.core.errors import AckwiseError
from ackwise.core.events import EventStream
from ackwise.core.queries import Query

A = TypeVar("A")


class TracedTransport:
    """A transport with spans. Everything else goes to the transport inside as it is."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def send(self, command: Command[A]) -> A:
        with ExitStack() as spans:
            if isinstance(command, Push):
                spans.enter_context(tracing.send_span(command.queue, len(command.messages)))
                return self._inner.send(cast("Command[A]", tracing.with_context(command)))
            if isinstance(command, Transaction):
                return self._inner.send(cast("Command[A]", self._traced_transaction(command, spans)))
            if isinstance(command, Settle):
                self._settle(command.entries, spans)
            return self._inner.send(command)

    def _traced_transaction(self, command: Transaction, spans: ExitStack) -> Transaction:
        self._settle(command.settlements, spans)
        pushes = []
        for push in command.pushes:
            spans.enter_context(tracing.send_span(push.queue, len(push.messages)))
            pushes.append(tracing.with_context(push))
        return msgspec.structs.replace(command, pushes=pushes)

    def _settle(self, settlements: Sequence[Settlement], spans: ExitStack) -> None:
        if settlements:
            spans.enter_context(tracing.settle_span(settlements))

    def send_all(self, commands: Sequence[Extend]) -> list[Extended | AckwiseError]:
        return self._inner.send_all(commands)

    def claim(self, command: Claim, wait: float) -> Handed:
        began = time.time_ns()
        handed = self._inner.claim(command, wait)
        self._received(command, [handed], began)
        return handed

    def _received(self, command: Claim, batches: Sequence[Handed], began: int) -> None:
        for handed in batches:
            if handed.messages:
                tracing.receive_span(command, handed.messages, began)

    def settle_and_claim(self, settle: Settle, claim: Claim, wait: float) -> tuple[list[Settled], Handed]:
        began = time.time_ns()
        with ExitStack() as spans:
            self._settle(settle.entries, spans)
            settled, handed = self._inner.settle_and_claim(settle, claim, wait)
        self._received(claim, [handed], began)
        return settled, handed

    def claim_ahead(self, settle: Settle | None, claim: Claim, count: int) -> tuple[list[Settled], list[Handed]]:
        began = time.time_ns()
        with ExitStack() as spans:
            self._settle(settle.entries if settle is not None else (), spans)
            settled, batches = self._inner.claim_ahead(settle, claim, count)
        self._received(claim, batches, began)
        return settled, batches

    def ask(self, query: Query[A]) -> A:
        return self._inner.ask(query)

    def now(self) -> int:
        return self._inner.now()

    def wall_of(self, instant: int) -> int:
        return self._inner.wall_of(instant)

    @property
    def repeats(self) -> int:
        return self._inner.repeats

    @property
    def events(self) -> EventStream | None:
        return self._inner.events

    def stop_claims(self) -> None:
        call(self._inner.stop_claims)

    def drain(self, grace: float) -> int:
        return self._inner.drain(grace)

    def close(self) -> None:
        self._inner.close()
