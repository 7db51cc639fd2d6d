"""Steps: requests of a flow to the broker that drives it.

A flow is a generator without I/O. It decides, and yields a step for everything that waits. The broker executes the step
and sends its result into the flow, or throws its error.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Generator, Sequence
from typing import Any, TypeVar

import msgspec

from ackwise.broker.deliveries import Gate
from ackwise.broker.long_polls import LongPoll, QueueVersion
from ackwise.broker.turn_queue import Submission
from ackwise.core.answers import Claimed
from ackwise.core.commands import Command, Settle
from ackwise.core.queries import Query

T = TypeVar("T")


class Submit(msgspec.Struct, gc=False):
    """Run valid commands in one turn. The result is their `Submission`. A closed broker raises `Draining`."""

    commands: Sequence[Command]


class Read(msgspec.Struct, gc=False):
    """Read the messages of a claim after its gate let it through. The result is a `Handed`."""

    claimed: Claimed
    gate: Gate | None


class Park(msgspec.Struct, gc=False):
    """Park a claim until a turn or a wake-up finishes it, `seconds` pass, or `stopped` is done.

    A claim whose queue has changed since the version `seen` does not park: it must try again at once.
    """

    poll: LongPoll
    seen: QueueVersion
    seconds: float
    stopped: Future[None] | None


class Release(msgspec.Struct, gc=False):
    """Run the release of a claim. The result is its `Submission`. A closed broker still releases."""

    command: Settle


class Join(msgspec.Struct, gc=False):
    """Wait until the turn that has the submission of a cancelled caller is over."""

    submission: Submission


class Background(msgspec.Struct, gc=False):
    """Run a flow for a caller that may be cancelled. An event loop starts a task, a thread runs the flow at once."""

    flow: Generator[Step, Any, None]


class Sleep(msgspec.Struct, gc=False):
    """Sleep until the broker closes, at most `seconds`. The result is whether the broker is closed."""

    seconds: float


class Ask(msgspec.Struct, gc=False):
    """Run a query. The result is its answer."""

    query: Query


class Maintain(msgspec.Struct, gc=False):
    """Let the store maintain itself, for example write a checkpoint."""


Step = Submit | Read | Park | Release | Join | Background | Sleep | Ask | Maintain
Flow = Generator[Step, Any, T]
