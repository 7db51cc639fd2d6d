"""A client that goes away in the middle of a poll is handed nothing."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest

from ackwise.engine.turn import Turn
from ackwise.store.sqlite import SQLiteStore
from tests.broker.watched import until
from tests.patience import PATIENCE
from tests.protocols.native.native_api import NativeApi
from tests.server.running import Running


def poll(server: Running, **more: Any) -> socket.socket:
    """A claim that waits, on a socket of its own."""
    line = socket.create_connection(server.address, PATIENCE)
    body = json.dumps({"queue": "q", "wait_seconds": 60, **more}).encode()
    line.sendall(b"POST /v1/claim HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    return line


@pytest.mark.parametrize("more", [{}, {"poll": "mine"}, {"settle": []}])
def test_poll_of_a_client_that_left_takes_nothing(native: NativeApi, server: Running, more: dict[str, Any]) -> None:
    native.admin("configure_queue", queue="q")
    line = poll(server, **more)
    server.until_waiting(1)
    line.close()
    server.until_waiting(0)
    native.push("q", 1)
    (found,) = native.claim("q")["messages"]
    assert (found["attempt"], found["failures"]) == (1, 0)


@pytest.mark.parametrize(("key", "kept"), [(None, 0), ("job", 1)])
def test_grants_wait_for_a_client_that_can_ask_for_them_again(
    native: NativeApi, server: Running, monkeypatch: pytest.MonkeyPatch, key: str | None, kept: int
) -> None:
    """The client disconnects while its claim is written. Without a key, no later call could find the claim."""
    native.push("q", 1)
    store, state = server.server.runtime.broker().store, server.server.server_state
    assert isinstance(store, SQLiteStore)
    commit, began, go_on = store._writer.commit, threading.Event(), threading.Event()

    def held_up(turn: Turn) -> None:
        began.set()
        assert go_on.wait(PATIENCE)
        commit(turn)

    monkeypatch.setattr(store._writer, "commit", held_up)
    others = len(state.connections)
    line = poll(server, wait_seconds=0, grants_only=True, key=key)
    assert began.wait(PATIENCE)
    line.close()
    until(lambda: len(state.connections) == others)
    go_on.set()
    until(lambda: not state.tasks)
    until(lambda: len(native.rows("leases")) == kept)
    (grant,) = native.claim("q", grants_only=True, key=key)["grants"]
    assert (grant["attempt"], grant["failures"]) == (2, 0)


def test_disconnected_poll_keeps_its_settlements(native: NativeApi, server: Running) -> None:
    native.push("q", 1)
    lease = native.claim("q")["lease_id"]
    line = poll(server, settle=[{"lease_id": lease, "outcome": "ack"}])
    server.until_waiting(1)
    line.close()
    server.until_waiting(0)
    assert native.group("q")["acked"] == 1


def test_push_right_after_a_good_bye_is_there_for_others(native: NativeApi, server: Running) -> None:
    """In any order of the two inside the server: the message does not stay leased to a client that is gone."""
    native.admin("configure_queue", queue="q", policy={"lease_seconds": 3600})
    for number in range(20):
        line = poll(server)
        server.until_waiting(1)
        line.close()
        native.push("q", number)
        (found,) = native.claim("q", wait_seconds=20, auto_ack=True)["messages"]
        assert (found["payload"], found["failures"]) == (number, 0)
