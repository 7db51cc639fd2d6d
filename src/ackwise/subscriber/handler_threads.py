"""Threads that run the plain functions of one subscriber."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class HandlerThreads:
    """A pool with a thread for each concurrent handler, and one more for each thread that is stuck."""

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._stuck: set[Future[Any]] = set()

    @property
    def stuck(self) -> int:
        """Threads that were replaced and still run."""
        return len(self._stuck)

    def submit(self, function: Any, /, *arguments: Any) -> Future[Any]:
        return self._pool.submit(function, *arguments)

    def replace(self, thread: Future[Any]) -> None:
        """Start a new pool, because a thread of the current one is stuck. Running handlers end in their old pool."""
        self._stuck.add(thread)
        thread.add_done_callback(self._stuck.discard)
        self._pool.shutdown(wait=False)
        self._pool = ThreadPoolExecutor(self._count, thread_name_prefix=self._name)

    def shutdown(self) -> None:
        self._pool.shutdown(wait=False)
