"""The server in a thread of this process, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from uvicorn import server as uvicorn_server

from ackwise.clock import ManualClock
from ackwise.connect import open_store
from ackwise.server.server import make_server
from ackwise.server.settings import Settings
from ackwise.store.port import Store
from tests.patience import PATIENCE


class QuickPolls:
    """asyncio as uvicorn's server uses it. A stopping server polls ten times a second, here hundreds of times."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.002))


uvicorn_server.asyncio = QuickPolls()  # type: ignore[assignment, attr-defined]


class Errors(logging.Handler):
    """What was logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(f"{record.getMessage()}: {record.exc_info}")


class Running:
    """Answers at `url` inside its `with` block. On leaving it nothing may have gone wrong inside, nor in the store."""

    def __init__(
        self,
        store: str,
        clock: ManualClock | None = None,
        *,
        port: int = 0,
        opened: Store | None = None,
        **settings: Any,
    ) -> None:
        self._store, self._clock = store, clock
        ready: queue.SimpleQueue[tuple[str, int] | None] = queue.SimpleQueue()
        self.server = make_server(
            opened or open_store(store, clock=clock), Settings(port=port, **settings), lambda *where: ready.put(where)
        )
        self._errors = Errors()
        self._errors.addFilter(lambda record: record.name != "ackwise.client")  # failed blocks of the test itself
        logging.getLogger().addHandler(self._errors)

        async def serve() -> None:
            """What uvicorn's own `serve` does, but the end is not polled for."""
            self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
            config = self.server.config
            config.load()
            self.server.lifespan = config.lifespan_class(config)
            await self.server.startup()
            await self._over.wait()
            await self.server.shutdown()

        def run() -> None:
            try:
                with asyncio.Runner(loop_factory=self.server.config.get_loop_factory()) as runner:
                    runner.run(serve())
            finally:
                ready.put(None)

        self._thread = threading.Thread(target=run, name="server")
        self._thread.start()
        where = ready.get(timeout=PATIENCE)
        assert where is not None, "the server did not start"
        self.address = where
        self.url = f"http://{where[0]}:{where[1]}"

    @property
    def amps(self) -> tuple[str, int]:
        """Where it speaks AMPS, if it was told to."""
        assert self.server.amps is not None
        return self.server.amps.host, self.server.amps.port

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(PATIENCE)
        logging.getLogger().removeHandler(self._errors)
        assert not self._thread.is_alive(), "the server did not stop"

    def check(self) -> None:
        assert self._errors.seen == []
        store = open_store(self._store, clock=self._clock)
        try:
            assert store.audit() == []
        finally:
            store.close()

    def __enter__(self) -> Running:
        return self

    def do(self, work: Callable[[], object]) -> None:
        """In the server's thread; returns when it is done."""

        async def there() -> None:
            work()

        asyncio.run_coroutine_threadsafe(there(), self._loop).result(PATIENCE)

    def until_waiting(self, count: int = 1) -> None:
        """Until exactly so many polls wait."""
        end = time.monotonic() + PATIENCE
        while (now := len(self.server.runtime.broker().long_polls)) != count:
            assert time.monotonic() < end, f"{now} wait, not {count}"
            time.sleep(0.005)

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if problem is None:
            self.check()
