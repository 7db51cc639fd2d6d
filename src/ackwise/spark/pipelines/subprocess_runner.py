"""Runs the user's function in a child process, so that a record that kills its process (`os._exit`, a segfault, out of
memory) does not kill Spark's worker.

The child writes the number of its current record to shared memory. When the child dies, the worker fails that record
and forks a new child for the others. The task succeeds, and the leases of other records stay.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import pickle
import select
import signal
import stat
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, NoReturn

from ackwise.core.errors import AckwiseError
from ackwise.spark.connections import close_task_connections

_LENGTH = struct.Struct("<Q")
_PR_SET_PDEATHSIG = 1
MOST_UNEXPLAINED = 3
"""Deaths of the child between records after which the task fails."""
LOOK_EVERY = 0.05
TELL_EVERY = 0.002
"""Seconds between partial answers of the child. When a record kills it, at most this much work is repeated."""
PIPE_BYTES = 1 << 20


class WorkerDied(AckwiseError):
    """The child process that ran the function died between records, several times."""

    code = "worker_died"


class _Death(NamedTuple):
    """How a child ended. `culprit` is the number of the record that it worked on, -1 between records."""

    why: str
    kind: str
    culprit: int
    late: bool = False


Handle = Callable[[Any], Any]
Blame = Callable[[Any, str, str], Any]


class Runner:
    """Runs `handle` on records in a child process, and forks a new child after a death. Used by one thread."""

    def __init__(self, handle: Handle, timeout: float | None) -> None:
        self._handle, self._timeout = handle, timeout
        self._mark = mmap.mmap(-1, 8)
        self._at = memoryview(self._mark).cast("q")
        self._pid = 0
        self._to = self._from = -1
        self._pending: Sequence[Any] | None = None
        self._fork()

    def run(self, records: Sequence[Any], blame: Blame) -> list[Any]:
        self.begin(records)
        return self.finish(blame)

    def begin(self, records: Sequence[Any]) -> None:
        """Send records to the child and return. Call `finish` later for the answers."""
        self.discard()
        if not self._pid:
            self._fork()
        self._pending = records
        if len(records):
            self._send(records)

    def discard(self) -> None:
        """Discard pending work after a caller's error, and kill the child."""
        if self._pending is not None:
            self._pending = None
            self._kill()

    def finish(self, blame: Blame) -> list[Any]:
        """Wait for the answer to each record. A record that killed the child gets `blame(record, why, kind)`.

        It may fork, which closes the connections of this process: do not call it while one is in use.
        """
        records = self._pending
        assert records is not None
        answers: dict[int, Any] = {}
        left = list(range(len(records)))
        unexplained = 0
        while left:
            received, death = self._answers(len(left))
            answers |= zip(left, received, strict=False)
            if death is not None and len(received) <= death.culprit < len(left):
                at = left[death.culprit]
                answers[at] = blame(records[at], death.why, death.kind)
            elif death is not None and not death.late:
                unexplained += 1
                if unexplained >= MOST_UNEXPLAINED:
                    raise WorkerDied(f"the process that runs the function died between records: {death.why}")
            left = [at for at in left if at not in answers]
            if left:
                self._fork()
                self._send([records[at] for at in left])
        self._pending = None
        return [answers[at] for at in range(len(records))]

    def _send(self, records: Sequence[Any]) -> None:
        """Send records. It ignores a dead child, which `_answers` detects."""
        self._at[0] = -1
        rest = memoryview(_framed(pickle.dumps(records, pickle.HIGHEST_PROTOCOL)))
        while rest:
            try:
                rest = rest[os.write(self._to, rest) :]
            except BlockingIOError:
                # A grandchild may hold the pipe of a dead child open.
                if not select.select([], [self._to], [], LOOK_EVERY)[1] and self._dead():
                    return
            except (BrokenPipeError, ConnectionResetError):
                return

    def _answers(self, count: int) -> tuple[list[Any], _Death | None]:
        """Read `count` answers. If the child died: the answers before its death, and how it died."""
        answers: list[Any] = []
        late: int | None = None
        while len(answers) < count:
            killed_at = self._wait()
            if killed_at is not None:
                late = killed_at
                continue  # the pipe still holds answers from before the kill
            body = _read(self._piece)
            if body is None:
                return answers, self._buried(late)
            answers += pickle.loads(body)  # noqa: S301 - our own child wrote it
        if late is not None:
            self._buried(late)
        return answers, None

    def _wait(self) -> int | None:
        """Wait until the pipe is readable or the child is dead. Returns the record that timed out, after a kill.

        A grandchild may hold the pipe of a dead child open, so the pipe alone does not show a death.
        """
        seen, since = self._at[0], time.monotonic()
        while not self._readable():
            if self._dead():
                return None
            now = time.monotonic()
            if self._at[0] != seen:
                seen, since = self._at[0], now
            elif self._timeout is not None and now - since > self._timeout:
                os.kill(self._pid, signal.SIGKILL)
                return int(seen)
        return None

    def _readable(self) -> bool:
        return bool(select.select([self._from], [], [], LOOK_EVERY)[0])

    def _dead(self) -> bool:
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _piece(self, size: int) -> bytes:
        """Read a part of an answer. Empty if the child died in the middle of the answer."""
        while not self._readable():
            if self._dead() and not self._readable():
                return b""
        return os.read(self._from, size)

    def _buried(self, late: int | None) -> _Death:
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        culprit = int(self._at[0])
        if late is not None:
            # The child may have reached the next record before the kill. That record is not to blame.
            why = f"it took longer than {self._timeout:g} seconds"
            return _Death(why, "TimeoutError", culprit if culprit == late else -1, late=True)
        code = os.waitstatus_to_exitcode(status)
        how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        return _Death(f"the process that ran it died: {how}", WorkerDied.__name__, culprit)

    def close(self) -> None:
        self._kill()
        self._close_pipes()

    def _kill(self) -> None:
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0

    def _close_pipes(self) -> None:
        for end in (self._to, self._from):
            if end >= 0:
                os.close(end)
        self._to = self._from = -1

    def _fork(self) -> None:
        # SQLite connections and sockets do not survive a fork. The next settlement opens them again.
        close_task_connections()
        self._close_pipes()
        child_in, self._to = _pipe()
        self._from, child_out = _pipe()
        os.set_blocking(self._to, False)
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            _serve(self._handle, self._at, (child_in, child_out), (self._to, self._from), parent)
        os.close(child_in)
        os.close(child_out)


def _serve(handle: Handle, mark: memoryview, pipes: tuple[int, int], others: tuple[int, int], parent: int) -> NoReturn:
    """Main loop of the child. It never returns into the code of Spark's worker."""
    inbox, outbox = pipes
    code = 1
    try:
        _isolate(others, parent)
        while (body := _read(partial(os.read, inbox))) is not None:
            answers: list[Any] = []
            sent_at = time.monotonic()
            for at, record in enumerate(pickle.loads(body)):  # noqa: S301 - our own parent wrote it
                mark[0] = at
                answers.append(handle(record))
                # The parent does not repeat records that it has answers for, if a later record kills this process.
                if time.monotonic() > sent_at + TELL_EVERY:
                    _send_answers(outbox, answers)
                    answers, sent_at = [], time.monotonic()
            mark[0] = -1
            _send_answers(outbox, answers)
        code = 0
    finally:
        os._exit(code)


def _isolate(others: tuple[int, int], parent: int) -> None:
    """Close the worker's pipes and sockets. The kernel kills the child with its parent, or first if memory is short."""
    for end in others:
        os.close(end)
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.close(int(name))
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    if os.getppid() != parent:
        os._exit(0)


def _pipe() -> tuple[int, int]:
    """Pipe with a large buffer, so that a writer rarely waits for the reader."""
    ends = os.pipe()
    with suppress(OSError, AttributeError):
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return ends


def _framed(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def _send_answers(end: int, answers: list[Any]) -> None:
    view = memoryview(_framed(pickle.dumps(answers, pickle.HIGHEST_PROTOCOL)))
    while view:
        view = view[os.write(end, view) :]


def _read(piece: Callable[[int], bytes]) -> bytes | None:
    """Read one frame. None if the other side closed the pipe."""
    head = _exactly(piece, _LENGTH.size)
    return None if head is None else _exactly(piece, _LENGTH.unpack(head)[0])


def _exactly(piece: Callable[[int], bytes], size: int) -> bytes | None:
    pieces: list[bytes] = []
    while size:
        part = piece(min(size, 1 << 20))
        if not part:
            return None
        pieces.append(part)
        size -= len(part)
    return b"".join(pieces)


_runner: tuple[int, str, Runner] | None = None


def runner(token: str, handle: Handle, timeout: float | None) -> Runner:
    """This worker's runner for the function that `token` names.

    The child outlives tasks, so globals of the function (a model, a connection) stay in memory.
    """
    global _runner
    if _runner is not None and _runner[:2] == (os.getpid(), token):
        return _runner[2]
    if _runner is not None and _runner[0] == os.getpid():
        _runner[2].close()
    _runner = os.getpid(), token, Runner(handle, timeout)
    return _runner[2]
