"""The user's function runs in a process of its own, forked by Spark's worker, so that a record which kills its process
(`os._exit`, a segfault, out of memory) kills nothing else.

The process says in shared memory which record it is at. When it dies the worker knows the culprit, charges that record
alone, and forks the next process for the others. No task fails, and nobody else's lease is touched.
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
from ackwise.spark.reach import let_go

_LENGTH = struct.Struct("<Q")
_PR_SET_PDEATHSIG = 1
MOST_UNEXPLAINED = 3
LOOK_EVERY = 0.05
TELL_EVERY = 0.002
"""Seconds of finished work that are done again, at most, when a record kills its process."""
PIPE_BYTES = 1 << 20


class WorkerDied(AckwiseError):
    """The process that ran the function died."""

    code = "worker_died"


class _Death(NamedTuple):
    """How a process ended, and at which record: -1 between records."""

    why: str
    kind: str
    culprit: int
    late: bool = False


Handle = Callable[[Any], Any]
Blame = Callable[[Any, str, str], Any]


class Runner:
    """One process that runs `handle` on records, and its successors. Used by one thread."""

    def __init__(self, handle: Handle, timeout: float | None) -> None:
        self._handle, self._timeout = handle, timeout
        self._mark = mmap.mmap(-1, 8)
        self._at = memoryview(self._mark).cast("q")
        self._pid = 0
        self._to = self._from = -1
        self._asked: Sequence[Any] | None = None
        self._fork()

    def run(self, records: Sequence[Any], blame: Blame) -> list[Any]:
        self.begin(records)
        return self.finish(blame)

    def begin(self, records: Sequence[Any]) -> None:
        """Hand records over. The process works on them while the caller does something else until it must `finish`."""
        self.give_up()
        if not self._pid:
            self._fork()
        self._asked = records
        if len(records):
            self._send(records)

    def give_up(self) -> None:
        """Whoever asked came to grief: nobody wants the answers, and nothing more is to be done for them."""
        if self._asked is not None:
            self._asked = None
            self._end()

    def finish(self, blame: Blame) -> list[Any]:
        """The answer for each record; for one that killed its process, what `blame(record, why, kind)` says.

        There may have to be a new process: nobody may be in the middle of using this one's connections.
        """
        records = self._asked
        assert records is not None
        answers: dict[int, Any] = {}
        left = list(range(len(records)))
        unexplained = 0
        while left:
            found, death = self._answers(len(left))
            answers |= zip(left, found, strict=False)
            if death is not None and len(found) <= death.culprit < len(left):
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
        self._asked = None
        return [answers[at] for at in range(len(records))]

    def _send(self, records: Sequence[Any]) -> None:
        """When the process is dead that is found out when its answers are waited for."""
        self._at[0] = -1
        rest = memoryview(_framed(pickle.dumps(records, pickle.HIGHEST_PROTOCOL)))
        while rest:
            try:
                rest = rest[os.write(self._to, rest) :]
            except BlockingIOError:
                # A child of the process may hold its pipe open though nobody reads it any more.
                if not select.select([], [self._to], [], LOOK_EVERY)[1] and self._dead():
                    return
            except (BrokenPipeError, ConnectionResetError):
                return

    def _answers(self, count: int) -> tuple[list[Any], _Death | None]:
        """What it says about so many records; if it died, about those before, and how."""
        found: list[Any] = []
        late: int | None = None
        while len(found) < count:
            killed_at = self._wait()
            if killed_at is not None:
                late = killed_at
                continue  # what it had said before counts
            body = _read(self._piece)
            if body is None:
                return found, self._buried(late)
            found += pickle.loads(body)  # noqa: S301 - our own child wrote it
        if late is not None:
            self._buried(late)
        return found, None

    def _wait(self) -> int | None:
        """None when something can be read, or will never be; else which record took so long that it was killed.

        A child of the process may hold its pipe open, so that it is dead does not show there.
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
        """Some of an answer; nothing when the process died in the middle of it, whoever still holds its pipe."""
        while not self._readable():
            if self._dead() and not self._readable():
                return b""
        return os.read(self._from, size)

    def _buried(self, late: int | None) -> _Death:
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        culprit = int(self._at[0])
        if late is not None:
            # If it came to the next one before it was killed, it was not that one's fault.
            why = f"it took longer than {self._timeout:g} seconds"
            return _Death(why, "TimeoutError", culprit if culprit == late else -1, late=True)
        code = os.waitstatus_to_exitcode(status)
        how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        return _Death(f"the process that ran it died: {how}", WorkerDied.__name__, culprit)

    def close(self) -> None:
        self._end()
        self._hang_up()

    def _end(self) -> None:
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0

    def _hang_up(self) -> None:
        for end in (self._to, self._from):
            if end >= 0:
                os.close(end)
        self._to = self._from = -1

    def _fork(self) -> None:
        # Neither SQLite nor a socket survives a fork; they are opened again when the next chunk is settled.
        let_go()
        self._hang_up()
        theirs_in, self._to = _pipe()
        self._from, theirs_out = _pipe()
        os.set_blocking(self._to, False)
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            _serve(self._handle, self._at, theirs_in, theirs_out, (self._to, self._from), parent)
        os.close(theirs_in)
        os.close(theirs_out)


def _serve(handle: Handle, mark: memoryview, inbox: int, outbox: int, others: tuple[int, int], parent: int) -> NoReturn:
    """The life of the child. It never returns into Spark's worker."""
    code = 1
    try:
        _set_apart(others, parent)
        while (body := _read(partial(os.read, inbox))) is not None:
            answers: list[Any] = []
            said = time.monotonic()
            for at, record in enumerate(pickle.loads(body)):  # noqa: S301 - our own parent wrote it
                mark[0] = at
                answers.append(handle(record))
                # What was told is not done again if a later record kills us.
                if time.monotonic() > said + TELL_EVERY:
                    _tell(outbox, answers)
                    answers, said = [], time.monotonic()
            mark[0] = -1
            _tell(outbox, answers)
        code = 0
    finally:
        os._exit(code)


def _set_apart(others: tuple[int, int], parent: int) -> None:
    """Keep nothing of the worker's: neither its pipes nor its line to Spark. Die with it, and before it."""
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
    """With room for what is usually said, so that neither side waits for the other to read."""
    ends = os.pipe()
    with suppress(OSError, AttributeError):
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return ends


def _framed(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def _tell(end: int, answers: list[Any]) -> None:
    view = memoryview(_framed(pickle.dumps(answers, pickle.HIGHEST_PROTOCOL)))
    while view:
        view = view[os.write(end, view) :]


def _read(piece: Callable[[int], bytes]) -> bytes | None:
    """A frame; None when the other side is gone."""
    head = _exactly(piece, _LENGTH.size)
    return None if head is None else _exactly(piece, _LENGTH.unpack(head)[0])


def _exactly(piece: Callable[[int], bytes], size: int) -> bytes | None:
    pieces: list[bytes] = []
    while size:
        found = piece(min(size, 1 << 20))
        if not found:
            return None
        pieces.append(found)
        size -= len(found)
    return b"".join(pieces)


_runner: tuple[int, str, Runner] | None = None


def runner(token: str, handle: Handle, timeout: float | None) -> Runner:
    """This worker's process for the function that `token` names. It outlives tasks, so what the function keeps in
    globals (a model, a connection) is kept."""
    global _runner
    if _runner is not None and _runner[:2] == (os.getpid(), token):
        return _runner[2]
    if _runner is not None and _runner[0] == os.getpid():
        _runner[2].close()
    _runner = os.getpid(), token, Runner(handle, timeout)
    return _runner[2]
