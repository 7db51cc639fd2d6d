# Generated from ../aio/backends.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Backends of a session: a broker in this process, or a server."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from ackwise.client.http_adapters.reply import Broken, Unsent
from ackwise.client.server_url import base_of, error_of
from ackwise.core.errors import OutcomeUnknown, StoreUnavailable
from ackwise.mew.connections import Broker, RemoteNames, WakeSignal, open_adapter
from ackwise.protocols.mew.output_records import Emit, Note, drop, error_from, line_from
from ackwise.protocols.mew.session import MewSession
from ackwise.protocols.mew.sync.driver import Driver

LOOK_EVERY = 5.0
"""Seconds between two fetches of a waiting session, in case a wake-up was missed."""
POLL = 20.0
"""Seconds that one request to the server waits for events."""
PATIENCE = 60.0
"""Seconds until a request times out, besides its wait."""


class Backend(Protocol):
    """Runs texts and fetches events for one session."""

    def run(
        self, text: str, params: Mapping[str, Any], emit: Emit, *, above: int, keep_going: bool, events: int
    ) -> bool:
        """Run a text and emit its lines. Returns False after any error."""
        ...

    def fetch(self, most: int, watch: str | None, wait: float, emit: Emit) -> None:
        """Emit events of all watches, or of one by its handle. Waits up to `wait` seconds for the first."""
        ...

    def describe(self, what: str, emit: Emit) -> None:
        """Emit the types (`dt`), or the number of entities of each (`dg`)."""
        ...

    def close(self, *, lost: bool) -> None: ...


class LocalBackend:
    """Runs a session on a broker of this process."""

    def __init__(self, broker: Broker, session: MewSession, *, owned: bool) -> None:
        self.broker, self.session = broker, session
        self._owned, self._driver = owned, Driver(broker)
        self._signal: WakeSignal | None = None

    def run(
        self, text: str, params: Mapping[str, Any], emit: Emit, *, above: int, keep_going: bool, events: int
    ) -> bool:
        flow = self.session.run(text, params, above=above, keep_going=keep_going, events=events)
        return self._driver.drive(flow, emit)

    def fetch(self, most: int, watch: str | None, wait: float, emit: Emit) -> None:
        opened = self._driver.drive(self.session.open(), emit)
        if self._signal is None:
            self._signal = WakeSignal(self.broker, opened.wake_key)
        end = time.monotonic() + wait
        while True:
            self._signal.clear()
            fetched = self._driver.drive(self.session.fetch(most, watch), emit)
            left = end - time.monotonic()
            if fetched.events or left <= 0:
                return
            pause = min(left, LOOK_EVERY)
            if fetched.until is not None:
                pause = max(0.001, min(pause, (fetched.until - self.broker.now()) / 1e6))
            self._signal.wait(pause)

    def describe(self, what: str, emit: Emit) -> None:
        self._driver.drive(self.session.describe(what), emit)

    def close(self, *, lost: bool) -> None:
        if self._signal is not None:
            self._signal.close()
        try:
            self._driver.drive(self.session.end(lost=lost), drop)
        finally:
            if self._owned:
                self.broker.close()


class RemoteBackend:
    """Runs a session on a server."""

    def __init__(self, url: str, session: str, options: Mapping[str, Any], names: dict[str, str]) -> None:
        self._base = base_of(url)
        self._wire = open_adapter(self._base)
        self._session, self._options = session, options
        self._names = RemoteNames(names)

    def run(
        self, text: str, params: Mapping[str, Any], emit: Emit, *, above: int, keep_going: bool, events: int
    ) -> bool:
        body = {"text": text, "params": params, "above": above, "keep_going": keep_going, "events": events}
        answer = self._post(body, PATIENCE)
        for line in map(line_from, answer["lines"]):
            self._names.follow(line)
            emit(line)
        return bool(answer["fine"])

    def fetch(self, most: int, watch: str | None, wait: float, emit: Emit) -> None:
        end = time.monotonic() + wait
        while True:
            left = max(0.0, min(POLL, end - time.monotonic()))
            answer = self._post({"text": "", "events": most, "watch": watch, "wait": left}, PATIENCE + left)
            for line in map(line_from, answer["lines"]):
                if isinstance(line, Note) and line.kind == "error":
                    raise error_from(line)
                emit(line)
            if answer["lines"] or time.monotonic() >= end:
                return

    def describe(self, what: str, emit: Emit) -> None:
        for line in (self._post({"text": "\\" + what}, PATIENCE))["lines"]:
            emit(line_from(line))

    def _post(self, body: dict[str, Any], timeout: float) -> dict[str, Any]:
        request = {**body, "session": self._session, "full": True, **self._options}
        try:
            reply = self._wire.request("POST", "/mew", msgspec.json.encode(request), timeout)
        except Unsent as problem:
            raise StoreUnavailable(f"{self._base} cannot be reached: {problem}") from None
        except Broken as problem:
            raise OutcomeUnknown(f"{self._base} broke off: {problem}") from None
        if reply.status != 200:
            raise error_of(reply, self._base)
        answer: dict[str, Any] = msgspec.json.decode(reply.body)
        return answer

    def close(self, *, lost: bool) -> None:
        try:
            path = f"/mew/{quote(self._session, safe='')}"
            self._wire.request("DELETE", f"{path}?lost=true" if lost else path, b"", PATIENCE)
        except (Unsent, Broken):
            pass
        finally:
            self._wire.close()
