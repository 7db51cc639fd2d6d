"""The connection breaks repeatedly, at any moment: no message is lost and no client hangs."""

from __future__ import annotations

import contextlib
import random
import threading

import ackwise
from ackwise.amps import Client, Message
from ackwise.core.errors import AckwiseError
from tests.amps.tap import Tap

COUNT = 300
CUTS = 25


def test_messages_all_arrive_despite_many_cuts(tap: Tap, orders: ackwise.Connection) -> None:
    orders.create_queue("orders", retry_limit=None, delivery_limit=None, backoff=ackwise.Backoff())
    orders.push_many("orders", range(COUNT))
    seen: set[int] = set()
    some, everything = threading.Semaphore(0), threading.Event()

    def handle(message: Message) -> None:
        seen.add(message.json())
        some.release()
        if len(seen) == COUNT:
            everything.set()

    dice = random.Random(1)
    with Client("tested").connect(tap.uri).logon() as client:
        client.set_auto_ack(True).set_ack_batch_size(7).set_ack_timeout(0.01)
        for _ in range(3):
            client.subscribe("queue://orders", handle, max_backlog=5)
        for _ in range(CUTS):
            some.acquire(timeout=dice.random() * 0.05)
            tap.cut()
        assert everything.wait(60), len(seen)
        assert client.wait_connected(60)
        until_all_acked(client, orders)
        assert {one.sub_id for one in tap.said if one.command == "subscribe"} == {"1", "2", "3"}


def until_all_acked(client: Client, orders: ackwise.Connection) -> None:
    pause = threading.Event()
    for _ in range(2000):
        with contextlib.suppress(AckwiseError):
            client.flush_acks()
        if not sum(group.lag for group in orders.groups("orders")):
            return
        pause.wait(0.02)
    raise AssertionError("not everything was acked")
