"""The memory that all answers of a server share."""

from __future__ import annotations

import asyncio

import pytest

from ackwise.core.errors import AnswersFull
from ackwise.protocols import answer_memory
from ackwise.protocols.answer_memory import LARGE, AnswerMemory, PendingAnswer
from tests.patience import PATIENCE

MIB = 1 << 20


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_memory_with_waiting_answers_serves_in_turn() -> None:
    async def main() -> None:
        memory = AnswerMemory(most=10)
        assert memory.reserve(8) is None
        served: list[str] = []

        async def wait(name: str, size: int) -> None:
            room = memory.reserve(size)
            assert room is not None
            await room
            served.append(name)

        tasks = [asyncio.create_task(wait(name, size)) for name, size in (("large", 9), ("small", 1))]
        await _settle()
        assert (served, memory.full) == ([], True)
        with pytest.raises(AnswersFull):
            memory.check()
        memory.free(8)
        await asyncio.gather(*tasks)
        assert (served, memory.used) == (["large", "small"], 10)

    asyncio.run(main())


def test_memory_lets_one_answer_of_any_size_pass() -> None:
    memory = AnswerMemory(most=10)
    assert memory.reserve(1000) is None
    memory.free(1000)
    assert memory.used == 0


def test_memory_gives_one_peer_its_share_only() -> None:
    async def main() -> None:
        memory = AnswerMemory(most=10, share=0.5)
        assert memory.reserve(5, "greedy") is None
        greedy = asyncio.ensure_future(memory.reserve(1, "greedy") or asyncio.sleep(0))
        await _settle()
        with pytest.raises(AnswersFull, match="your address"):
            memory.check("greedy")
        memory.check("modest")
        assert not memory.full
        modest = memory.reserve(4, "modest")
        assert modest is not None
        await modest
        memory.free(5, "greedy")
        await greedy
        assert memory.used == 5

    asyncio.run(main())


def test_memory_below_a_peers_share_is_for_others() -> None:
    """An answer that exceeds its peer's share waits. The peer is still below its share, and holds up no other peer."""

    async def main() -> None:
        memory = AnswerMemory(most=10, share=0.5)
        assert memory.reserve(4, "greedy") is None
        greedy = asyncio.ensure_future(memory.reserve(3, "greedy") or asyncio.sleep(0))
        await _settle()
        assert (memory.used, memory.full) == (4, False)
        memory.check("modest")
        modest = memory.reserve(2, "modest")
        assert modest is not None
        await asyncio.wait_for(modest, PATIENCE)
        assert memory.grow(0, 2, "another")
        assert memory.used == 8
        memory.free(4, "greedy")
        await greedy
        assert memory.used == 7

    asyncio.run(main())


def test_memory_refuses_after_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_memory, "PATIENCE", 0.01)

    async def main() -> None:
        memory = AnswerMemory(most=10)
        memory.add(10)
        room = memory.reserve(5)
        assert room is not None
        with pytest.raises(AnswersFull):
            await room
        memory.free(10)
        assert (memory.used, memory.full) == (0, False)

    asyncio.run(main())


def test_memory_takes_back_what_a_cancelled_wait_got() -> None:
    async def main() -> None:
        memory = AnswerMemory(most=10)
        memory.add(10)
        room = memory.reserve(5)
        assert room is not None
        task = asyncio.ensure_future(room)
        await _settle()
        memory.free(10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert memory.used == 0

    asyncio.run(main())


def test_memory_passes_over_a_wait_cancelled_just_now() -> None:
    """One client may lose two connections at once: one waits for memory, and the other has it."""

    async def main() -> None:
        memory = AnswerMemory(most=10)
        memory.add(10)
        room = memory.reserve(5)
        assert room is not None
        task = asyncio.ensure_future(room)
        await _settle()
        task.cancel()
        memory.free(10)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (memory.used, memory.full) == (0, False)

    asyncio.run(main())


def test_memory_serves_those_behind_a_cancelled_wait() -> None:
    async def main() -> None:
        memory = AnswerMemory(most=10)
        calls: list[int] = []
        memory.when_free(lambda: calls.append(memory.used))
        memory.add(6)
        large = memory.reserve(9)
        assert large is not None
        first = asyncio.ensure_future(large)
        await _settle()
        small = memory.reserve(3)
        assert small is not None
        second = asyncio.ensure_future(small)
        await _settle()
        assert memory.full
        first.cancel()
        await asyncio.wait_for(second, PATIENCE)
        assert (memory.used, calls) == (9, [9])

    asyncio.run(main())


def test_memory_tells_when_it_is_no_longer_full() -> None:
    memory, calls = AnswerMemory(most=10), []
    memory.when_free(lambda: calls.append(memory.used))
    memory.add(10)
    memory.free(1)
    memory.free(1)
    assert calls == [9]


def test_handover_counts_what_was_really_built() -> None:
    memory = AnswerMemory(most=10 * MIB)
    answer = PendingAnswer(memory)
    assert answer.gate(LARGE) is None
    assert memory.used == 0
    assert answer.gate(4 * MIB) is None
    assert answer.gate(40 * MIB) is None, "an answer that holds memory does not wait for more"
    answer.built(3 * MIB)
    assert memory.used == 3 * MIB
    answer.delivered()
    answer.lost()
    assert memory.used == 0


def test_handover_bound_is_lowered_by_callers_only() -> None:
    answer = PendingAnswer(AnswerMemory(each=100))
    assert [answer.bound(asked) for asked in (None, 7, 1000)] == [100, 7, 100]


def test_memory_that_others_fill_refuses_every_address() -> None:
    memory = AnswerMemory(most=10, share=0.5)
    memory.add(5, "one")
    memory.add(5, "two")
    with pytest.raises(AnswersFull):
        memory.check("three")
    memory.free(5, "one")
    memory.check("three")
