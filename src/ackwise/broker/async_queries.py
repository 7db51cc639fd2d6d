"""Queries on an event loop: each runs in a thread, a long statement on a thread of its own pool."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from ackwise.broker.fair_turns import FairTurns
from ackwise.broker.metered_reads import LONG_THREADS, TOOK_LONGER, RunningStatements, run_statement, short_meter
from ackwise.core.queries import Query
from ackwise.engine.metered_query import MeteredQuery
from ackwise.engine.statement_meter import Meter
from ackwise.store.port import Store

A = TypeVar("A")


class AsyncQueries:
    """Queries of one asyncio broker. Short ones run on its `helpers`."""

    def __init__(self, store: Store, helpers: ThreadPoolExecutor) -> None:
        self._store, self._helpers = store, helpers
        self._long = ThreadPoolExecutor(max_workers=LONG_THREADS, thread_name_prefix="ackwise-long")
        self._long_turns = FairTurns(LONG_THREADS, "long statements")
        self._statements = RunningStatements()

    async def ask(self, query: Query[A]) -> A:
        """Run a query in a thread, so that a long query does not block the loop."""
        if not isinstance(query, MeteredQuery):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._helpers, lambda: self._store.ask(query))
        if query.TRIES_SHORT:
            short = short_meter(query)
            with self._statements.metered(short):
                answer: A = await self._run_statement(query, short, long=False)
            if answer is not TOOK_LONGER:
                return answer
        meter = Meter(query.limits)
        with self._statements.long(meter, query.caller):
            async with self._long_turns.turn(query.caller):
                answer = await self._run_statement(query, meter, long=True)
                return answer

    async def _run_statement(self, query: MeteredQuery, meter: Meter, *, long: bool) -> Any:
        """Run a statement in a thread. Cancelling the caller stops the statement."""
        pool = self._long if long else self._helpers
        future = pool.submit(run_statement, self._store, query, meter, long=long)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            meter.cancelled = True
            with suppress(RuntimeError):  # a closed broker has already cancelled the statement
                self._helpers.submit(meter.cancel)  # in a thread: the cancellation may wait for the database
            raise
        finally:
            del future  # its error refers to this frame

    def refuse(self) -> None:
        """Let waiting long statements fail. Call `cancel` in a thread afterwards."""
        self._long_turns.close()

    def cancel(self) -> None:
        """Cancel running statements and refuse new ones. The cancellation may wait for the database."""
        self._statements.close()

    def close(self) -> None:
        self._long.shutdown(cancel_futures=True)
