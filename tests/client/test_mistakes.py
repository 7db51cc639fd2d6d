"""Common mistakes: each one is explained, and changes nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from pathlib import Path

import pytest

import ackwise
from ackwise.client.aio import consume_loops as async_loops
from ackwise.client.options import PolicyFields
from ackwise.client.sync import consume_loops, http_repeats
from ackwise.clock import ManualClock
from ackwise.core.errors import (
    AckwiseError,
    BadInput,
    StoreUnavailable,
    UndecodablePayload,
    UnknownDeadLetter,
)
from ackwise.core.policy import QueuePolicy
from tests.patience import PATIENCE
from tests.server.running import Running

LOGGER = "ackwise.client"


@pytest.fixture(autouse=True)
def frequent_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (consume_loops, async_loops):
        monkeypatch.setattr(module, "QUEUE_CHECK_SECONDS", 0.01)


class Warned(logging.Handler):
    """Sets `seen` when a queue is missing, and counts the warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.seen = threading.Event()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self.seen.set()


@pytest.mark.parametrize("loop", ["consume", "batches"])
def test_loop_waits_for_a_queue_that_is_missing(queue: ackwise.Connection, loop: str) -> None:
    """The first message counts, although the group begins with new messages: the loop began before the queue."""
    warned = Warned()
    logging.getLogger(LOGGER).addHandler(warned)
    received: list[object] = []

    def work() -> None:
        if loop == "consume":
            for delivery in queue.consume("later", group="g", start="new"):
                with delivery:
                    received.append(delivery.json())
                return
        for batch in queue.batches("later", group="g", start="new"):
            received.extend(delivery.json() for delivery in batch)
            return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert warned.seen.wait(PATIENCE)
        queue.push("later", 1)
        thread.join(PATIENCE)
    finally:
        logging.getLogger(LOGGER).removeHandler(warned)
    assert received == [1]
    assert [text for text in warned.texts if "'later' does not exist yet" in text] == warned.texts[:1]


@pytest.mark.parametrize("loop", ["consume", "batches"])
def test_loop_that_stops_when_empty_ends_without_a_queue(
    queue: ackwise.Connection, caplog: pytest.LogCaptureFixture, loop: str
) -> None:
    deliveries = queue.consume if loop == "consume" else queue.batches
    assert list(deliveries("missing", stop_when_empty=True)) == []
    assert "'missing' does not exist yet" in caplog.text


def test_loop_without_a_queue_ends_with_the_drain(queue: ackwise.Connection) -> None:
    warned = Warned()
    logging.getLogger(LOGGER).addHandler(warned)
    thread = threading.Thread(target=lambda: list(queue.consume("missing")))
    thread.start()
    try:
        assert warned.seen.wait(PATIENCE)
        queue.stop_claims()
        thread.join(PATIENCE)
    finally:
        logging.getLogger(LOGGER).removeHandler(warned)
    assert not thread.is_alive()


def test_misspelt_option_is_refused(queue: ackwise.Connection) -> None:
    """mypy refuses these lines too: it would report an unneeded `type: ignore`."""
    with pytest.raises(BadInput, match="unknown policy field 'retry_limt'"):
        queue.create_queue("q", retry_limt=3)  # type: ignore[call-arg]
    with pytest.raises(BadInput, match="retry_limit"):
        queue.create_queue("q", retry_limit="3")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="unknown policy field 'leese_seconds'"):
        queue.configure_queue("q", leese_seconds=3)  # type: ignore[call-arg]
    assert queue.queues() == []


def test_typed_options_are_the_fields_of_the_policy() -> None:
    assert set(PolicyFields.__annotations__) == set(QueuePolicy.__struct_fields__)


def test_connect_async_without_await_is_explained(store_url: str) -> None:
    with pytest.raises(AttributeError, match=r"not awaited, so it has no 'push'; write `queue = await connect_async"):
        ackwise.connect_async(store_url).push("q", 1)  # type: ignore[attr-defined]


def test_redrive_of_an_unknown_letter_raises(queue: ackwise.Connection) -> None:
    for call in (queue.redrive, queue.replay):
        with pytest.raises(UnknownDeadLetter, match="no dead letter 'unknown'"):
            call("unknown")


def test_redrive_of_some_unknown_letters_says_which(queue: ackwise.Connection) -> None:
    queue.push("q", 1)
    queue.claim("q").reject("bad")
    (letter,) = queue.dead_letters("q")
    assert queue.redrive([letter, "unknown"]).results == {letter.id: "redriven", "unknown": "not_found"}


@pytest.mark.parametrize("payload", [b"{", b"\xff", b"", b"[" * 100_000])
def test_json_of_other_bytes_raises_an_ackwise_error(queue: ackwise.Connection, payload: bytes) -> None:
    queue.push("q", payload)
    (delivery,) = queue.claim("q")
    with pytest.raises(UndecodablePayload, match=r"is not JSON|nested too deeply"):
        delivery.json()
    with pytest.raises(AckwiseError):
        queue.browse("q")[0].json()
    delivery.reject("bad")
    with pytest.raises(AckwiseError):
        queue.dead_letters("q")[0].json()


def test_json_of_another_type_names_the_field(queue: ackwise.Connection) -> None:
    queue.push("q", {"id": "one"})
    (delivery,) = queue.claim("q")
    with pytest.raises(UndecodablePayload, match=r"does not fit dict: Expected `int`, got `str`"):
        delivery.json(dict[str, int])


def test_first_connection_waits_for_the_server(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The server starts only after the first try has failed."""
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    warned = Warned()
    logging.getLogger(LOGGER).addHandler(warned)
    connected = threading.Event()

    def connect() -> None:
        with ackwise.connect(f"http://127.0.0.1:{port}", clock=clock) as queue:
            queue.push("q", 1)
            connected.set()

    thread = threading.Thread(target=connect)
    thread.start()
    try:
        assert warned.seen.wait(PATIENCE)
        with Running(f"sqlite:///{tmp_path}/q.db?durability=normal", clock, port=port):
            assert connected.wait(PATIENCE)
            thread.join(PATIENCE)
    finally:
        logging.getLogger(LOGGER).removeHandler(warned)
    assert "trying again for 15 seconds" in warned.texts[0]


def test_first_connection_gives_up_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_repeats, "FIRST_PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    with pytest.raises(StoreUnavailable, match=f"no server answers at http://127.0.0.1:{port}"):
        ackwise.connect(f"http://127.0.0.1:{port}")


def test_first_connection_waits_for_postgres(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing listens there: the connection tries more than once, then says so."""
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    with pytest.raises(StoreUnavailable):
        ackwise.connect(f"postgresql://127.0.0.1:{port}/none", patience=0.3)
    assert caplog.text.count("trying again for 0.3 seconds") == 1


def test_async_loop_waits_for_a_queue_that_is_missing(url: str, clock: ManualClock) -> None:
    async def work() -> list[object]:
        async with ackwise.connect_async(url, clock=clock) as queue:
            consumer = asyncio.create_task(first(queue))
            await queue.push("later", 1)
            return [await consumer]

    async def first(queue: ackwise.AsyncConnection) -> object:
        async for delivery in queue.consume("later"):
            async with delivery:
                return delivery.json()
        return None

    assert asyncio.run(work()) == [1]
