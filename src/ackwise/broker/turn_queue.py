"""Queue of the commands for the next turn, with bounds on count and bytes."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar
from zlib import crc32

from ackwise.core.answers import Result
from ackwise.core.command_checks import CheckedCommands
from ackwise.core.commands import Break, Command, Extend, Push, Settle, Spool, Transaction
from ackwise.core.errors import AckwiseError, OutcomeUnknown, Overloaded
from ackwise.core.messages import PlainBatch
from ackwise.core.structs import Answer_co

if TYPE_CHECKING:
    from ackwise.broker.broker_state import BrokerState
    from ackwise.broker.long_polls import LongPoll
    from ackwise.store.port import PreparedTurn

A = TypeVar("A")
log = logging.getLogger("ackwise")

TURN_SECONDS = 0.005
TURN_BYTES = 4 << 20
TURN_COMMANDS = 2000
LEAST_COMMANDS = 64
WAITING_BYTES = 64 << 20
_NEVER_DEFERRED = (Settle, Break, Extend, Transaction)


class Submission(Generic[Answer_co]):
    """Commands of one caller that run in the same turn. The parameter is the answer that the commands name.

    The turn sets `results` or `error`. Then `finish` wakes the caller. A turn has submissions with different answers,
    so `assign_results` relies on the engine: the result of a command has the type that the command names.
    """

    __slots__ = ("commands", "error", "finished", "leads", "queued", "results", "size", "urgent", "wake")

    def __init__(self, commands: Sequence[Command[Answer_co]], wake: Callable[[], None]) -> None:
        self.commands = commands
        self.wake = wake
        self.results: list[Answer_co | AckwiseError] | None = None
        self.error: BaseException | None = None
        self.leads = False
        """Whether the caller's thread runs the next turn of its shard."""
        self.queued = False
        """Whether the submission is or was in the queue of its shard."""
        self.finished = False
        self.size = sum(map(payload_bytes, commands))
        self.urgent = any(isinstance(command, _NEVER_DEFERRED) for command in commands)

    @property
    def done(self) -> bool:
        return self.results is not None or self.error is not None

    def finish(self) -> None:
        """Wake the caller. Further calls do nothing."""
        if not self.finished:
            self.finished = True
            self.wake()

    def answers(self) -> list[Answer_co]:
        """Return the answers. Raises the error of the turn, or the first command's refusal."""
        results, problem, result = self.results, self.error, None
        try:
            if problem is not None:
                raise problem
            assert results is not None
            for result in results:
                if isinstance(result, AckwiseError):
                    raise result
            return results  # type: ignore[return-value]  # no refusal is among them
        finally:
            del self, results, problem, result  # the raised error refers to this frame


def payload_bytes(command: Command) -> int:
    """Payload bytes that a command writes."""
    if isinstance(command, Push):
        messages = command.messages
        payloads = messages.payloads if isinstance(messages, PlainBatch) else [message.payload for message in messages]
        return sum(map(len, payloads))
    if isinstance(command, Transaction | Spool):
        return sum(map(payload_bytes, command.pushes))
    return 0


class TurnQueue:
    """Submissions of one shard in arrival order. The queue takes no lock: its shard does."""

    def __init__(self) -> None:
        self._submissions: deque[Submission] = deque()
        self._bytes = 0
        self._seconds_per_command = 0.0

    def __len__(self) -> int:
        return len(self._submissions)

    def add(self, submission: Submission) -> None:
        if self._bytes + submission.size > WAITING_BYTES and self._submissions:
            raise Overloaded(f"{self._bytes >> 20} MiB wait to be written; try again in a second", retry_after=1)
        self._submissions.append(submission)
        self._bytes += submission.size
        submission.queued = True

    def first(self) -> Submission:
        return self._submissions[0]

    def remove(self, submission: Submission) -> bool:
        """Remove a submission whose caller left. Returns False if the queue does not have it: a turn took it."""
        if submission not in self._submissions:
            return False
        self._submissions.remove(submission)
        self._bytes -= submission.size
        return True

    def take(self, taken: list[Submission]) -> None:
        """Move the submissions of the next turn to `taken`.

        The bounds on commands and bytes leave the rest for a later turn. Settlements are never left for later.
        An interrupt loses no submission: the queue and `taken` change in the same statement.
        """
        most = TURN_COMMANDS
        if self._seconds_per_command:
            # The lower bound keeps group commit working after a single slow turn.
            most = max(LEAST_COMMANDS, min(most, int(TURN_SECONDS / self._seconds_per_command)))
        chosen: list[Submission] = []
        later: deque[Submission] = deque()
        commands = size = 0
        for submission in self._submissions:
            fits = not chosen or (commands < most and size + submission.size <= TURN_BYTES)
            if fits or (submission.urgent and not submission.size):
                chosen.append(submission)
                commands += len(submission.commands)
                size += submission.size
            else:
                later.append(submission)
        size = sum(submission.size for submission in later)
        taken[:], self._submissions, self._bytes = chosen, later, size

    def record_duration(self, commands: int, started: float) -> None:
        """Update the moving average of seconds per command, which bounds the next turn."""
        seconds = (time.perf_counter() - started) / max(1, commands)
        average = self._seconds_per_command
        self._seconds_per_command = seconds if not average else 0.8 * average + 0.2 * seconds


def shard_of(commands: Sequence[Command], shards: int) -> int:
    """The shard that runs the commands: a hash of the first queue name, so that a queue always has the same shard."""
    if shards == 1:
        return 0
    for command in commands:
        name: str | None = getattr(command, "queue", None)
        if name is not None:
            return crc32(name.encode()) % shards
    return crc32(repr(commands[0]).encode("utf-8", "replace")) % shards if commands else 0


def refused(checked: CheckedCommands[A]) -> Submission[A]:
    """The answer to commands that are all invalid. They join no turn."""
    submission: Submission[A] = Submission((), lambda: None)
    submission.results = checked.answers([])
    return submission


def with_refusals(submission: Submission[A], checked: CheckedCommands[A]) -> Submission[A]:
    """Add the refusals of invalid commands to the results of the valid ones."""
    if submission.results is not None:
        submission.results = checked.answers(submission.results)
    return submission


def commands_of(submissions: Iterable[Submission]) -> list[Command]:
    """The commands of all submissions, in order."""
    return [command for submission in submissions for command in submission.commands]


def assign_results(submissions: Sequence[Submission], results: Sequence[Result]) -> None:
    """Give each submission the results of its own commands. `results` has one entry per command of the turn."""
    start = 0
    for submission in submissions:
        submission.results = list(results[start : start + len(submission.commands)])
        start += len(submission.commands)


def finish_turn(
    state: BrokerState,
    taken: Sequence[Submission],
    riders: Sequence[LongPoll],
    prepared: PreparedTurn,
    leader: Submission | None = None,
) -> None:
    """Wake the callers of a committed turn, listeners, and parked claims that the commit may serve.

    An interrupt is raised after every caller has its answer. The leader is the calling thread and needs no wake-up.
    """
    unparked: list[LongPoll] | None = None
    try:
        assign_results([*taken, *riders], prepared.results)
        unparked = []
        if state.listeners.callbacks:
            state.listeners.notify(prepared.offered)
        if riders or (prepared.woken and state.long_polls.watched):
            state.long_polls.unpark_after_commit(prepared.woken, riders, unparked)
        finish_all((*taken, *unparked), leader)
    except BaseException as problem:
        if unparked is None:
            assign_results([*taken, *riders], prepared.results)
        state.finish_interrupted(taken, [*riders, *(unparked or ())], leader)
        if not isinstance(problem, Exception):
            raise
        log.exception("a caller of a committed turn could not be woken")


def fail(submissions: Sequence[Submission], problem: BaseException, leader: Submission | None = None) -> None:
    """Finish the submissions of a failed turn. Each gets the error.

    The leader gets `problem` itself and needs no wake-up. If `problem` is an interrupt, the other callers get
    `OutcomeUnknown`.
    """
    for submission in submissions:
        interrupted = submission is not leader and not isinstance(problem, Exception)
        submission.error = _interruption() if interrupted else problem
    finish_all(submissions, leader)


def finish_all(submissions: Sequence[Submission], leader: Submission | None = None) -> None:
    """Wake all callers but the leader. If one wake-up fails or is interrupted, the others wake nevertheless."""
    try:
        for submission in submissions:
            if submission is not leader:
                submission.finish()
    except BaseException:
        wake_again(submissions)
        raise


def wake_again(submissions: Iterable[Submission]) -> None:
    """Wake callers. Some of them may be awake already: a second wake-up does nothing."""
    for submission in submissions:
        submission.finished = True
        # A lock that is released twice raises RuntimeError.
        with suppress(RuntimeError):
            submission.wake()


def _interruption() -> OutcomeUnknown:
    """Error of the callers whose turn ended because its leader was cancelled or received a signal."""
    return OutcomeUnknown("the turn was interrupted; its commands may or may not have been committed")
