"""The ack batcher: waiting callers share a request; acks without a waiting caller are collected up to a bound."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from ackwise.client.aio.ack_batcher import PAUSE_AFTER_FAILURE, AsyncBatcher
from ackwise.client.concurrency.aio import AsyncCoalescer
from ackwise.client.sync.ack_batcher import Batcher
from ackwise.core.errors import AckwiseError, Overloaded
from tests.patience import PATIENCE

Batches = Sequence[tuple[str, Sequence[int]]]


class Far:
    """Where batches are sent: answers each item with its tenfold, refuses while `refuse` is set."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, list[int]]] = []
        self.refuse: set[str] = set()
        self.now = 100.0

    def take(self, batches: Batches) -> list[Sequence[int] | AckwiseError]:
        self.sent += [(key, list(items)) for key, items in batches]
        return [Overloaded("later") if key in self.refuse else [10 * item for item in items] for key, items in batches]

    async def send(self, batches: Batches) -> list[Sequence[int] | AckwiseError]:
        return self.take(batches)

    def batcher(self, size: int = 1, timeout: float | None = 1.0) -> AsyncBatcher[str, int, int]:
        made: AsyncBatcher[str, int, int] = AsyncBatcher(self.send, clock=lambda: self.now)
        made.size, made.timeout = size, timeout
        return made


def test_concurrent_calls_share_request_and_get_own_answers() -> None:
    far = Far()

    async def main() -> list[int]:
        first, go = asyncio.Event(), asyncio.Event()

        async def slow(batches: Batches) -> list[Sequence[int] | AckwiseError]:
            first.set()
            await go.wait()
            return far.take(batches)

        batcher: AsyncBatcher[str, int, int] = AsyncBatcher(slow)
        callers = [asyncio.create_task(batcher.submit("", 0))]
        await first.wait()
        callers += [asyncio.create_task(batcher.submit("", number)) for number in range(1, 30)]
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(*callers)

    assert asyncio.run(main()) == [10 * number for number in range(30)]
    assert far.sent == [("", [0]), ("", list(range(1, 30)))]


def asked_by_threads(take: Callable[[Batches], list[Sequence[int] | AckwiseError]]) -> list[Future[int]]:
    """Twenty callers: one whose request is under way until the others have asked."""
    inside, go = threading.Event(), threading.Event()

    def slow(batches: Batches) -> list[Sequence[int] | AckwiseError]:
        inside.set()
        assert go.wait(PATIENCE)
        return take(batches)

    batcher: Batcher[str, int, int] = Batcher(slow)
    with ThreadPoolExecutor(20) as pool:
        callers = [pool.submit(batcher.submit, "", 0)]
        assert inside.wait(30)
        callers += [pool.submit(batcher.submit, "", number) for number in range(1, 20)]
        while len(batcher._waiting.get("", ())) < 19:
            pass
        go.set()
    return callers


def test_threads_that_ask_together_are_sent_together_too() -> None:
    far = Far()
    callers = asked_by_threads(far.take)
    assert [one.result() for one in callers] == [10 * number for number in range(20)]
    assert [len(items) for _, items in far.sent] == [1, 19]


def test_failed_request_fails_its_callers_and_no_others() -> None:
    far = Far()
    batcher = far.batcher()

    async def main() -> None:
        far.refuse = {"bad"}
        told = await asyncio.gather(*(batcher.submit("bad", n) for n in range(3)), return_exceptions=True)
        assert [type(one) for one in told] == [Overloaded] * 3
        assert await batcher.submit("good", 1) == 10

    asyncio.run(main())


def frames(problem: BaseException) -> int:
    return len(traceback.extract_tb(problem.__traceback__))


def test_failed_batch_raises_a_separate_error_for_each_call() -> None:
    far = Far()
    far.refuse = {"bad"}
    batcher = far.batcher()

    async def fail(items: list[int]) -> list[int]:
        raise Overloaded("later")

    gathering: AsyncCoalescer[int, int] = AsyncCoalescer(fail)

    async def main(ask: Callable[[int], Awaitable[object]]) -> None:
        (alone,) = await asyncio.gather(ask(0), return_exceptions=True)
        told = await asyncio.gather(*map(ask, range(300)), return_exceptions=True)
        assert isinstance(alone, Overloaded)
        for one in told:
            assert isinstance(one, Overloaded)
            assert (one.message, one.details) == (alone.message, alone.details)
            assert frames(one) <= frames(alone) + 1
            one.add_note("mine")
            one.details["mine"] = True
        assert {len(one.__notes__) for one in told if isinstance(one, Overloaded)} == {1}
        assert len(set(map(id, told))) == 300

    asyncio.run(main(lambda number: batcher.submit("bad", number)))
    asyncio.run(main(gathering.submit))


def test_thread_is_told_of_it_by_an_error_of_its_own() -> None:
    told = [one.exception() for one in asked_by_threads(lambda batches: [Overloaded("no")])]
    assert [str(one) for one in told] == ["no"] * 20
    assert len(set(map(id, told))) == 20


def test_caller_cancelled_mid_batch_fails_no_other() -> None:
    far = Far()

    async def main() -> None:
        inside, go = asyncio.Semaphore(0), asyncio.Semaphore(0)

        async def send(batches: Batches) -> list[Sequence[int] | AckwiseError]:
            inside.release()
            await go.acquire()
            return far.take(batches)

        batcher: AsyncBatcher[str, int, int] = AsyncBatcher(send)
        callers = [asyncio.create_task(batcher.submit("", 0))]
        await inside.acquire()
        callers += [asyncio.create_task(batcher.submit("", number)) for number in range(1, 6)]
        await asyncio.sleep(0)
        callers[2].cancel()  # it waits
        callers[0].cancel()  # it sends
        await asyncio.sleep(0)
        assert batcher.unanswered() == [0, 1, 3, 4, 5]
        go.release()
        await inside.acquire()
        callers[1].cancel()  # it sends by now, for the others too
        go.release()
        told = await asyncio.gather(*callers, return_exceptions=True)
        assert [type(one) for one in told[:3]] == [asyncio.CancelledError] * 3
        assert told[3:] == [30, 40, 50]
        go.release()
        assert await batcher.submit("", 7) == 70
        assert batcher.unanswered() == []

    asyncio.run(asyncio.wait_for(main(), 30))
    assert far.sent == [("", [0]), ("", [1, 3, 4, 5]), ("", [7])], "what is under way is sent once"


def test_interrupted_send_fails_no_other_caller() -> None:
    far = Far()
    inside, go = threading.Event(), threading.Event()

    def send(batches: Batches) -> list[Sequence[int] | AckwiseError]:
        if 1 in batches[0][1]:
            raise KeyboardInterrupt
        inside.set()
        assert go.wait(PATIENCE)
        return far.take(batches)

    batcher: Batcher[str, int, int] = Batcher(send)
    with ThreadPoolExecutor(4) as pool:
        callers = [pool.submit(batcher.submit, "", 0)]
        assert inside.wait(30)
        for number in (1, 2, 3):
            callers.append(pool.submit(batcher.submit, "", number))
            while len(batcher._waiting.get("", ())) < number:
                pass
        go.set()
        assert isinstance(callers[1].exception(30), KeyboardInterrupt)
        assert [callers[at].result(30) for at in (0, 2, 3)] == [0, 20, 30]
    assert far.sent == [("", [0]), ("", [2, 3])]


def test_caller_cancelled_in_flight_is_not_next_leader() -> None:
    """Followers are cancelled while their items are in flight, then their leader is: no follower can lead."""
    far = Far()

    async def main() -> None:
        inside, go = asyncio.Semaphore(0), asyncio.Semaphore(0)

        async def send(batches: Batches) -> list[Sequence[int] | AckwiseError]:
            inside.release()
            await go.acquire()
            return far.take(batches)

        batcher: AsyncBatcher[str, int, int] = AsyncBatcher(send)
        callers = [asyncio.create_task(batcher.submit("", 0))]
        await inside.acquire()
        callers += [asyncio.create_task(batcher.submit("", number)) for number in (1, 2, 3)]
        await asyncio.sleep(0)
        go.release()
        await inside.acquire()
        for one in (callers[2], callers[3], callers[1]):
            one.cancel()
            await asyncio.sleep(0)
        go.release()
        go.release()
        assert await batcher.submit("", 4) == 40

    asyncio.run(asyncio.wait_for(main(), 10))
    assert far.sent == [("", [0]), ("", [1, 2, 3]), ("", [4])]


def test_full_batch_is_due_and_is_sent_in_pieces_of_its_size() -> None:
    far = Far()
    batcher = far.batcher(size=3)
    assert [batcher.add("k", number) for number in range(3)] == [True, False, True], "one begins, one is full"
    for number in range(3, 7):
        batcher.add("k", number)
    batcher.add("other", 9)
    assert batcher.pause() == 0.0
    assert asyncio.run(batcher.flush_due()) == []
    assert far.sent == [("k", [0, 1, 2]), ("k", [3, 4, 5])]
    assert len(batcher) == 2


def test_age_counts_from_the_oldest_of_a_key() -> None:
    far = Far()
    batcher = far.batcher(size=100, timeout=0.5)
    assert batcher.pause() is None
    batcher.add("a", 1)
    far.now += 0.3
    batcher.add("a", 2)
    batcher.add("b", 3)
    assert batcher.pause() == pytest.approx(0.2)
    assert asyncio.run(batcher.flush_due()) == []
    assert far.sent == []
    far.now += 0.2
    asyncio.run(batcher.flush_due())
    assert far.sent == [("a", [1, 2])]
    assert batcher.pause() == pytest.approx(0.3)


def test_batcher_after_a_flush_keeps_the_age_of_the_rest() -> None:
    far = Far()
    batcher = far.batcher(size=2, timeout=1.0)
    batcher.add("k", 1)
    batcher.add("k", 2)
    far.now += 0.4
    batcher.add("k", 3)
    far.now += 0.1
    asyncio.run(batcher.flush_due())
    assert far.sent == [("k", [1, 2])]
    assert batcher.pause() == pytest.approx(0.9)


def test_batcher_without_a_timeout_has_nothing_due() -> None:
    far = Far()
    batcher = far.batcher(size=2, timeout=None)
    batcher.add("k", 1)
    far.now += 1e6
    assert batcher.pause() is None
    assert asyncio.run(batcher.flush_due()) == []
    assert far.sent == []


def test_flushing_sends_one_batch_for_each_key_in_sorted_order() -> None:
    far = Far()
    batcher = far.batcher(size=2)
    for key in ("c", "a", "b", "a", "a"):
        batcher.add(key, len(batcher))
    asyncio.run(batcher.flush())
    assert far.sent == [("a", [1, 3, 4]), ("b", [2]), ("c", [0])]
    asyncio.run(batcher.flush())
    assert len(far.sent) == 3


def test_failed_batch_stays_in_front_and_waits_for_a_pause() -> None:
    far = Far()
    batcher = far.batcher(size=2)
    far.refuse = {"bad"}
    for key in ("bad", "good"):
        batcher.add(key, 1)
        batcher.add(key, 2)
    (problem,) = asyncio.run(batcher.flush_due())
    assert isinstance(problem, Overloaded)
    assert len(batcher) == 2
    batcher.add("bad", 3)
    assert batcher.pause() == PAUSE_AFTER_FAILURE
    assert asyncio.run(batcher.flush_due()) == []
    with pytest.raises(Overloaded):
        asyncio.run(batcher.flush())
    far.refuse = set()
    asyncio.run(batcher.flush())
    assert far.sent[-1] == ("bad", [1, 2, 3])
    assert len(batcher) == 0


def test_discard_removes_an_item_and_clear_forgets_all() -> None:
    far = Far()
    batcher = far.batcher(size=10)
    for number in range(4):
        batcher.add("k", number)
    batcher.add("k", 3)
    batcher.discard(1, lambda key: key == "k")
    batcher.discard(2, lambda key: key == "other")
    assert batcher.clear() == 3
    asyncio.run(batcher.flush())
    assert far.sent == []


def test_call_in_flight_during_clear_does_not_return() -> None:
    far = Far()
    batcher: AsyncBatcher[str, int, int]

    async def send(batches: Batches) -> list[Sequence[int] | AckwiseError]:
        assert batcher.clear() == 2
        return [Overloaded("lost")]

    batcher = AsyncBatcher(send)
    batcher.add("k", 1)
    batcher.add("k", 2)
    with pytest.raises(Overloaded):
        asyncio.run(batcher.flush())
    assert len(batcher) == 0
    assert far.sent == []


def test_key_has_own_bound_and_is_dropped_when_empty() -> None:
    far = Far()
    batcher = far.batcher(size=10, timeout=None)
    batcher.caps["small"] = 2
    for key in ("small", "large"):
        batcher.add(key, 1)
        batcher.add(key, 2)
    assert batcher.pause() == 0
    asyncio.run(batcher.flush_due())
    assert far.sent == [("small", [1, 2])]
    batcher.discard(1, lambda key: True)
    batcher.discard(2, lambda key: True)
    assert batcher._buffers == {}


def test_clear_while_sending_drops_only_what_has_not_arrived() -> None:
    batcher: AsyncBatcher[str, int, int]

    async def send(batches: Batches) -> list[Sequence[int] | AckwiseError]:
        batcher.arrived(1)
        assert (batcher.clear(), batcher.clear()) == (2, 0)
        return [Overloaded("lost")]

    batcher = AsyncBatcher(send)
    for number in range(3):
        batcher.add("k", number)
    with pytest.raises(Overloaded):
        asyncio.run(batcher.flush())


def test_timeout_counts_from_the_oldest_item_in_threads_too() -> None:
    far = Far()
    batcher: Batcher[str, int, int] = Batcher(far.take, clock=lambda: far.now)
    batcher.size, batcher.timeout = 100, 0.5
    for number in range(5):
        batcher.add("", number)
        far.now += 0.125
    assert batcher.pause() == 0.0
    batcher.flush_due()
    assert far.sent == [("", [0, 1, 2, 3, 4])]
