"""Live demo: a scratch store with a week of history, and traffic on the server that serves it."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from functools import partial

from ackwise.broker import AsyncBroker
from ackwise.core.extras import is_installed
from ackwise.demo.history import write_history
from ackwise.demo.scratch_store import ScratchStore
from ackwise.demo.traffic import Traffic

SEED = 11
"""The history is the same at each start."""


def _exit(number: int, _: object) -> None:
    sys.exit(128 + number)


class LiveDemo:
    """The demo of one server. Use it in a `with` block. The end of the block removes the store."""

    def __init__(self) -> None:
        self._scratch = ScratchStore()
        self._dice = random.Random(SEED)  # noqa: S311
        self._traffic: Traffic | None = None
        self._number = 0

    @property
    def url(self) -> str:
        return self._scratch.url

    def __enter__(self) -> LiveDemo:
        # A SIGTERM before the server handles it must remove the store, too.
        self._handler = signal.signal(signal.SIGTERM, _exit)
        try:
            self._number = write_history(self.url, self._dice)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._handler)
        self._scratch.remove()

    def start(self, broker: AsyncBroker) -> None:
        """Start the traffic in the event loop of the broker."""
        assert asyncio.get_running_loop() is broker.loop
        self._traffic = Traffic(broker, self._dice, self._number)
        self._traffic.start()
        if is_installed("lark"):
            # Imported here: MEW is an extra, and the demo works without it.
            from ackwise.demo.depot import Depot

            depot = Depot(broker, self._dice)
            jobs = (depot.open, depot.collect, partial(depot.deliver, 0), partial(depot.deliver, 1), depot.look)
            for job in jobs:
                self._traffic.add(job)

    def stop(self) -> None:
        """Stop the traffic, so that the shutdown of the server does not wait for it."""
        if self._traffic is not None:
            self._traffic.stop()
