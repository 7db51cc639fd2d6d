"""The user's function runs in a process of its own, forked by Spark's worker, so that a record which kills its process
(`os._exit`, a segfault, out of memory) kills nothing else.

The process says in shared memory which record it is at. When it dies the worker knows the culprit, charges that record
alone, and forks the next process for the others. No task fails, and nobody else's lease is touched.
"""

from __future__ import annotations

import ctypes
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
from typing import Any, NoReturn

from ackwise.core.errors import AckwiseError
from ackwise.spark.reach import let_go

_LENGTH = struct.Struct("<Q")
_PR_SET_PDEATHSIG = 1
MOST_UNEXPLAINED = 3
LOOK_EVERY = 0.05
_LATE, _DEAD = "late", "dead"


class WorkerDied(AckwiseError):
    """The process that ran the function died."""

    code = "worker_died"


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
        if self._asked is not None:
            # Whoever asked before came to grief; nobody wants those answers.
            self._end()
        if not self._pid:
            self._fork()
        self._asked = records
        self._send(records)

    def finish(self, blame: Blame) -> list[Any]:
        """The answer for each record; for one that killed its process, what `blame(record, why, kind)` says.

        There may have to be a new process: nobody may be in the middle of using this one's connections.
        """
        records = self._asked
        assert records is not None
        answers: dict[int, Any] = {}
        left = list(range(len(records)))
        unexplained = 0
        while True:
            found = self._answers()
            if isinstance(found, list):
                self._asked = None
                answers |= zip(left, found, strict=True)
                return [answers[at] for at in range(len(records))]
            why, kind = found
            culprit = self._at[0]
            if culprit < 0 or culprit >= len(left):
                unexplained += 1
                if unexplained >= MOST_UNEXPLAINED:
                    raise WorkerDied(f"the process that runs the function died between records: {why}")
            else:
                at = left[culprit]
                answers[at] = blame(records[at], why, kind)
            self._fork()
            left = [at for at in left if at not in answers]
            self._send([records[at] for at in left])

    def _send(self, records: Sequence[Any]) -> None:
        self._at[0] = -1
        with suppress(BrokenPipeError, ConnectionResetError):
            _write(self._to, pickle.dumps(records, pickle.HIGHEST_PROTOCOL))

    def _answers(self) -> list[Any] | tuple[str, str]:
        """What it says, or how the process died."""
        end = self._wait()
        body = _read(self._piece) if end is None else None
        if body is None:
            return self._buried(late=end is _LATE)
        found: list[Any] = pickle.loads(body)  # noqa: S301 - our own child wrote it
        return found

    def _wait(self) -> str | None:
        """None when something can be read; else how it ended: killed because one record took too long, or dead.

        A child of the process may hold its pipe open, so that it is dead does not show there.
        """
        seen, since = self._at[0], time.monotonic()
        while not self._readable():
            if self._dead():
                return None if self._readable() else _DEAD
            now = time.monotonic()
            if self._at[0] != seen:
                seen, since = self._at[0], now
            elif self._timeout is not None and now - since > self._timeout:
                os.kill(self._pid, signal.SIGKILL)
                return _LATE
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

    def _buried(self, *, late: bool) -> tuple[str, str]:
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        if late:
            return f"it took longer than {self._timeout:g} seconds", "TimeoutError"
        code = os.waitstatus_to_exitcode(status)
        how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        return f"the process that ran it died: {how}", WorkerDied.__name__

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
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
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
            answers = []
            for at, record in enumerate(pickle.loads(body)):  # noqa: S301 - our own parent wrote it
                mark[0] = at
                answers.append(handle(record))
            mark[0] = -1
            _write(outbox, pickle.dumps(answers, pickle.HIGHEST_PROTOCOL))
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


def _write(end: int, body: bytes) -> None:
    view = memoryview(_LENGTH.pack(len(body)) + body)
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
