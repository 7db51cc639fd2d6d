"""Several servers, tries again, the circuit breaker, and acks that travel together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Literal

import pytest

from ackwise import errors
from ackwise.client.breaking import Breaker, Resilience
from ackwise.client.retrying import Tries
from ackwise.client.wires.reply import Broken, Unsent
from ackwise.fluent import Client
from ackwise.store.clock import ManualClock
from tests.client.flaky import Flaky, refusal
from tests.server.running import Running

LOST: Literal["lose the request"] = "lose the request"
FAST = Resilience(pauses=(0.001, 0.001, 0.001), failures=5, rest=60)


@pytest.fixture
def doors(store_url: str, clock: ManualClock) -> Iterator[tuple[Flaky, Flaky]]:
    """Two ways to one store."""
    with ExitStack() as stack:
        server = stack.enter_context(Running(store_url, clock))
        doors = Flaky(server.address), Flaky(server.address)
        for door in doors:
            stack.callback(door.down)
        yield doors


def test_another_server_is_used_when_one_is_down(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    first, second = doors
    with Client([first.url, second.url], resilience=FAST, clock=clock) as client:
        client.push("q", None, {"data": 1})
        first.down()
        client.push("q", None, {"data": 2})
        messages = client.queue("q").batch(2).wait(0).pop()
        assert [client.ack(one) for one in messages] == ["acked", "acked"]
        assert second.count("/v1/push") == 1
        first.up()
        second.down()
        client.push("q", None, {"data": 3})
        assert first.count("/v1/push") == 2


def test_the_first_server_may_be_down_from_the_start(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    first, second = doors
    first.down()
    with Client([first.url, second.url], resilience=FAST, clock=clock) as client:
        client.push("q", None, {"data": 1})
    assert second.count("/v1/push") == 1


def test_a_push_whose_answer_got_lost_is_repeated_elsewhere_and_stored_once(
    doors: tuple[Flaky, Flaky], clock: ManualClock
) -> None:
    first, second = doors
    with Client([first.url, second.url], resilience=FAST, clock=clock) as client:
        first.fail("/v1/push", "lose the answer")
        (receipt,) = client.push("q", None, {"data": 1})
        assert receipt.status == "queued"
        assert (first.count("/v1/push"), second.count("/v1/push")) == (1, 1)
        assert client.connection.stats("q").messages == 1


def test_a_server_that_cannot_now_is_passed_over(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    first, second = doors
    with Client([first.url, second.url], resilience=FAST, clock=clock) as client:
        first.fail("/v1/push", refusal(503, "store_unavailable"))
        client.push("q", None, {"data": 1})
        assert second.count("/v1/push") == 1


def test_after_three_more_tries_the_error_says_what_is_the_matter(
    doors: tuple[Flaky, Flaky], clock: ManualClock
) -> None:
    door = doors[0]
    with Client(door.url, resilience=FAST, clock=clock) as client:
        door.fail("/v1/push", *[LOST] * 4)
        with pytest.raises(errors.OutcomeUnknown):
            client.push("q", None, {"data": 1})
        assert (door.count("/v1/push"), door.used_up) == (4, True)
        client.push("q", None, {"data": 1})


def test_the_circuit_opens_after_five_failures_and_says_so(doors: tuple[Flaky, Flaky], clock: ManualClock) -> None:
    door = doors[0]
    with Client(door.url, resilience=Resilience(pauses=(), failures=5, rest=60), clock=clock) as client:
        door.fail("/v1/push", *[LOST] * 5)
        for _ in range(5):
            with pytest.raises(errors.OutcomeUnknown):
                client.push("q", None, {"data": 1})
        with pytest.raises(errors.CircuitOpen, match="circuit breaker is open"):
            client.push("q", None, {"data": 1})
        assert door.count("/v1/push") == 5


def test_the_breaker_rests_and_lets_one_try() -> None:
    now = 0.0
    breaker = Breaker(5, 60, lambda: now)
    for _ in range(4):
        breaker.failed()
    assert breaker.allows()
    breaker.worked()
    for _ in range(5):
        assert breaker.allows()
        breaker.failed()
    assert (breaker.allows(), breaker.open) == (False, True)
    now = 59.9
    assert not breaker.allows()
    now = 60.0
    assert [breaker.allows(), breaker.allows()] == [True, False]
    breaker.failed()
    now = 119.9
    assert not breaker.allows()
    now = 120.0
    assert breaker.allows()
    breaker.worked()
    assert (breaker.allows(), breaker.open) == (True, False)


def test_pauses_are_one_two_and_four_seconds_with_jitter() -> None:
    assert Resilience() == Resilience((1.0, 2.0, 4.0), 5, 60.0)
    spread = set()
    for _ in range(20):
        tries = Tries("http://x", 15.0, again=True, pauses=Resilience().pauses)
        pauses = [tries.broken(Broken("x")) for _ in range(3)]
        for pause, most in zip(pauses, (1, 2, 4), strict=True):
            assert most / 2 <= pause <= most
        spread.add(round(pauses[0], 6))
        with pytest.raises(errors.OutcomeUnknown):
            tries.broken(Broken("x"))
    assert len(spread) > 10
    tries = Tries("http://x", 15.0, again=False, pauses=(0.0,))
    assert tries.unsent(Unsent("x")) == 0.0
    with pytest.raises(errors.StoreUnavailable, match="nothing was changed"):
        tries.unsent(Unsent("x"))


def test_several_urls_are_those_of_servers() -> None:
    for urls in ([], ["sqlite:///a.db", "sqlite:///b.db"], ["http://127.0.0.1:1", "sqlite:///b.db"]):
        with pytest.raises(errors.BadStoreURL):
            Client(urls).open()


def test_many_acks_at_once_are_few_requests_and_each_has_its_own_verdict(
    doors: tuple[Flaky, Flaky], clock: ManualClock
) -> None:
    door = doors[0]
    with Client(door.url, resilience=FAST, clock=clock) as client:
        client.push("q", None, [{"data": number} for number in range(40)])
        (lost,) = client.queue("q").lease(1).wait(0).pop()
        messages = client.queue("q").batch(39).wait(0).pop()
        clock.advance(2)
        client.connection.stats("q")
        verdicts: dict[int, str] = {}
        hold = threading.Event()
        door.fail("/v1/settle", hold)

        def ack(number: int, message: object) -> None:
            try:
                verdicts[number] = client.ack(message)  # type: ignore[arg-type]
            except errors.LeaseLost as problem:
                verdicts[number] = problem.code

        threads = [threading.Thread(target=ack, args=(n, one)) for n, one in enumerate([*messages, lost])]
        for thread in threads:
            thread.start()
        waiting = client.connection.transport._acks._asked  # type: ignore[attr-defined]
        pause = threading.Event()
        while sum(map(len, list(waiting.values()))) < len(threads) - door.count("/v1/settle"):
            pause.wait(0.005)
        hold.set()
        for thread in threads:
            thread.join(20)
        assert door.count("/v1/settle") == 2
        assert verdicts == dict.fromkeys(range(39), "acked") | {39: "lease_lost"}
