"""A record that kills its process is charged alone, and nothing else is disturbed."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ackwise.spark.pipelines import subprocess_runner
from ackwise.spark.pipelines.subprocess_runner import Runner, WorkerDied, runner

Blamed = tuple[Any, str, str]


def blame(record: Any, why: str, kind: str) -> Blamed:
    return record, why, kind


@pytest.fixture
def process() -> Iterator[Callable[..., Runner]]:
    made: list[Runner] = []

    def make(handle: Callable[[Any], Any], timeout: float | None = None) -> Runner:
        made.append(Runner(handle, timeout))
        return made[-1]

    yield make
    for one in made:
        one.close()


Make = Callable[..., Runner]


def deadly(record: Any) -> Any:
    match record:
        case "exit":
            os._exit(3)
        case "segfault":
            faulthandler.disable()  # pytest's would fill the screen
            ctypes.string_at(0)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raises":
            raise RuntimeError("nobody caught it")
        case "sleeps":
            time.sleep(3600)
        case _:
            return record


def test_answers_come_in_order(process: Make) -> None:
    one = process(lambda record: record * 2)
    assert one.run(list(range(5000)), blame) == [2 * number for number in range(5000)]
    assert one.run([], blame) == []
    assert one.run([7], blame) == [14]


def test_function_runs_in_a_child_that_keeps_its_state(process: Make) -> None:
    seen: list[Any] = []

    def remembers(record: Any) -> tuple[int, int]:
        seen.append(record)
        return os.getpid(), len(seen)

    one = process(remembers)
    answers = one.run([1, 2], blame) + one.run([3], blame)
    assert [count for _, count in answers] == [1, 2, 3]
    assert {pid for pid, _ in answers}.isdisjoint({os.getpid()})
    assert seen == []


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("exit", "the process that ran it died: exit code 3"),
        ("segfault", "the process that ran it died: signal 11 (SIGSEGV)"),
        ("killed", "the process that ran it died: signal 9 (SIGKILL)"),
        ("raises", "the process that ran it died: exit code 1"),
    ],
)
@pytest.mark.parametrize("at", [0, 5, 9])
def test_culprit_alone_is_blamed(process: Make, how: str, told: str, at: int) -> None:
    records: list[Any] = list(range(10))
    records[at] = how
    answers = process(deadly).run(records, blame)
    assert answers.pop(at) == (how, told, "WorkerDied")
    assert answers == [number for number in range(10) if number != at]


def test_child_that_dies_while_it_answers_is_repeated(
    process: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grandchild still holds the pipe, so the pipe does not report the child's death.

    The child sends all answers at once: a single record in doubt would be blamed.
    """
    monkeypatch.setattr(subprocess_runner, "TELL_EVERY", 60.0)

    def half(end: int, answers: list[Any]) -> None:
        if os.fork():
            body = subprocess_runner._framed(pickle.dumps(answers))
            os.write(end, body[: len(body) // 2])
            os._exit(9)
        time.sleep(20)
        os._exit(0)

    def breaks_once(record: Any) -> Any:
        if not (tmp_path / "done").exists():
            (tmp_path / "done").touch()
            subprocess_runner._send_answers = half
        return record

    assert process(breaks_once).run(list(range(100)), blame) == list(range(100))


def test_deadly_records_are_each_blamed(process: Make) -> None:
    records = ["exit", "exit", 1, "segfault", 2, 3, "killed", "exit"]
    answers = process(deadly).run(records, blame)
    assert [answer if isinstance(answer, int) else answer[0] for answer in answers] == records
    assert (
        process(deadly).run(["exit"] * 5, blame)
        == [("exit", "the process that ran it died: exit code 3", "WorkerDied")] * 5
    )


def test_runner_works_after_the_death_of_a_child(process: Make) -> None:
    one = process(deadly)
    one.run([1, "exit", 2], blame)
    assert one.run([4, 5], blame) == [4, 5]


def test_runner_works_before_its_answers_are_asked_for(process: Make, tmp_path: Path) -> None:
    done = tmp_path / "done"
    one = process(lambda record: done.write_text(record))
    one.begin(["x"])
    while not done.exists():
        time.sleep(0.01)
    assert one.finish(blame) == [1]


def test_uncollected_answers_are_not_given_to_other_calls(process: Make) -> None:
    one = process(deadly)
    one.begin([1, "sleeps"])
    assert one.run([2, "exit", 3], blame)[::2] == [2, 3]
    one.begin([4])
    assert one.run([5], blame) == [5]


def test_record_that_takes_too_long(process: Make) -> None:
    answers = process(deadly, 2.5).run([1, "sleeps", 2], blame)
    assert answers == [1, ("sleeps", "it took longer than 2.5 seconds", "TimeoutError"), 2]


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_child_that_dies_and_leaves_a_grandchild_is_reported(
    process: Make, tmp_path: Path, timeout: float | None
) -> None:
    left = tmp_path / "left"

    def forks(record: Any) -> Any:
        if record != "forks":
            return record
        pid = os.fork()
        if not pid:
            time.sleep(3600)
        left.write_text(str(pid))
        os._exit(3)

    try:
        answers = process(forks, timeout).run([1, "forks", 2], blame)
        assert answers == [1, ("forks", "the process that ran it died: exit code 3", "WorkerDied"), 2]
    finally:
        os.kill(int(left.read_text()), signal.SIGKILL)


def test_record_larger_than_a_pipe_passes(process: Make) -> None:
    large = b"x" * 10_000_000
    assert process(lambda record: record + b"y").run([large, b""], blame) == [large + b"y", b"y"]


def test_death_that_no_record_explains_is_an_error(process: Make) -> None:
    with pytest.raises(WorkerDied, match="died between records: the process that ran it died: exit code 1"):
        process(lambda record: lambda: record).run([1], blame)


def test_records_answered_before_a_death_are_not_repeated(process: Make, tmp_path: Path) -> None:
    """A function that takes longer than the pipe is told about at once."""

    def notes(record: Any) -> Any:
        with (tmp_path / "calls").open("a") as calls:
            calls.write(f"{record}\n")
        time.sleep(2 * subprocess_runner.TELL_EVERY)
        return deadly(record)

    records = [*range(10), "exit", *range(10, 20), "killed"]
    answers = process(notes).run(records, blame)
    assert [answer for answer in answers if isinstance(answer, int)] == list(range(20))
    assert (tmp_path / "calls").read_text().split() == [str(record) for record in records]


def test_late_record_that_ends_before_its_kill_is_kept(
    process: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next record runs when the kill arrives. It runs again, and is not charged."""
    real, is_late, next_runs = os.kill, tmp_path / "late", tmp_path / "next"

    def wait_for(file: Path) -> None:
        while not file.exists():
            time.sleep(0.001)

    def kill_late(pid: int, how: int) -> None:
        is_late.touch()
        wait_for(next_runs)
        real(pid, how)

    def handle(record: Any) -> Any:
        if record == "slow":
            wait_for(is_late)
        elif record == "next" and not next_runs.exists():
            next_runs.touch()
            time.sleep(3600)
        return record

    runner = process(handle, 1.0)
    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", kill_late)
        assert runner.run(["slow", "next", "last"], blame) == ["slow", "next", "last"]


def test_large_chunk_for_one_whose_child_still_holds_its_pipe(process: Make, tmp_path: Path) -> None:
    def forks(record: Any) -> int:
        if record == b"fork" and not os.fork():
            while not (tmp_path / "over").exists():
                time.sleep(0.01)
            os._exit(0)
        return len(record)

    one = process(forks)
    assert one.run([b"fork"], blame) == [4]
    os.kill(one._pid, signal.SIGKILL)
    assert one.run([b"x" * 3_000_000], blame) == [3_000_000]
    (tmp_path / "over").touch()


def test_given_up_work_is_not_awaited(process: Make, tmp_path: Path) -> None:
    def touches(record: str) -> int:
        (tmp_path / record).touch()
        while record == "first":
            time.sleep(0.01)
        return os.getpid()

    one = process(touches)
    one.begin(["first", "second"])
    while not (tmp_path / "first").exists():
        time.sleep(0.001)
    pid = one._pid
    one.discard()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert one.run(["third"], blame) != [pid]
    assert not (tmp_path / "second").exists()


def test_death_while_nothing_runs_charges_no_record(process: Make) -> None:
    one = process(deadly)
    os.kill(one._pid, signal.SIGKILL)
    assert one.run([1, 2], blame) == [1, 2]


def open_pipes() -> int:
    """Pipes of this process. Other threads open sockets and files meanwhile, but no pipes."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum(link.startswith("pipe:") for link in links)


def test_runner_leaves_no_pipe_and_no_process_behind(process: Make) -> None:
    one = process(deadly)
    before = open_pipes()
    one.run([*(["exit", "segfault"] * 5), 1], blame)
    assert open_pipes() == before
    pid = one._pid
    one.close()
    assert open_pipes() == before - 2
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_process_sees_none_of_our_connections(process: Make) -> None:
    import socket

    def sockets(_: Any) -> list[str]:
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        return [os.readlink(one) for one in links if os.path.exists(one) and "socket" in os.readlink(one)]

    with socket.create_server(("127.0.0.1", 0)):
        assert process(sockets).run([1], blame) == [[]]


def test_each_function_has_a_process_of_its_own() -> None:
    def pid(_: Any) -> int:
        return os.getpid()

    try:
        first = runner("one", pid, None)
        assert runner("one", pid, None) is first
        (before,) = first.run([1], blame)
        second = runner("two", pid, None)
        assert second.run([1], blame) != [before]
        with pytest.raises(ProcessLookupError):
            os.kill(before, 0)
    finally:
        if subprocess_runner._runner is not None:
            subprocess_runner._runner[2].close()
            subprocess_runner._runner = None
