"""Brokers tell each other when something becomes claimable, once for many commits."""

from __future__ import annotations

import threading

from ackwise.core.commands import Claim
from ackwise.core.settlement import Outcome
from ackwise.store.postgres import PostgresStore
from ackwise.store.postgres.notify import encode, sender
from tests.patience import PATIENCE
from tests.postgres.conftest import Opener, Raw
from tests.postgres.support import claim, kill_all, push, settle_lease, text, until


def listening(opened: Opener) -> tuple[PostgresStore, threading.Event]:
    """A store that hears, and the event that is set when it does."""
    store, heard = opened(), threading.Event()
    assert store.listening(PATIENCE)
    until(store.changed)
    store.on_change = heard.set
    return store, heard


def test_another_broker_hears_of_a_push(opened: Opener) -> None:
    first = opened()
    push(first, text("x"))
    claim(first, Claim(queue="q", most=9))
    second, heard = listening(opened)
    assert not second.changed()
    push(first, text("y"))
    assert heard.wait(PATIENCE)
    assert second.changed()
    assert not second.changed()


def test_broker_ignores_own_and_old_notifications(opened: Opener) -> None:
    first, own = listening(opened)
    push(first, text("x"))
    claim(first, Claim(queue="q", auto_ack=True))
    second, heard = listening(opened)
    push(first, text("x"))
    assert heard.wait(PATIENCE)
    heard.clear()
    push(first, text("y"))
    push(first, text("other"), queue="other")
    held = claim(first, Claim(queue="q", exclusivity="partition"))
    settle_lease(first, held, Outcome.RETRY)
    assert heard.wait(PATIENCE), "a returned message is news"
    assert not own.is_set()
    assert not first.changed()
    assert second.changed()


def test_listener_listens_again_after_its_connection_breaks(opened: Opener, raw: Raw) -> None:
    first = opened()
    push(first, text("x"))
    claim(first, Claim(queue="q"))
    _, heard = listening(opened)
    kill_all(raw)
    assert heard.wait(PATIENCE), "what was missed meanwhile counts as news"


def test_long_list_of_queues_is_any_queue() -> None:
    assert encode("me", ["b", "a"]) == '["me",["a","b"]]'
    assert encode("me", [str(i) * 99 for i in range(100)]) == '["me",["*"]]'
    assert sender('["me",["*"]]') == "me"
    assert sender("from somebody else") is None
