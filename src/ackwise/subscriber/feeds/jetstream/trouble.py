"""What goes wrong with NATS, in our words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nats.errors import Error as NATSError
from nats.errors import NoRespondersError
from nats.js.errors import NoStreamResponseError, ServiceUnavailableError

from ackwise.core.errors import AckwiseError, BadInput, StoreUnavailable


@contextmanager
def refused(where: str, what: str) -> Iterator[None]:
    """Whatever JetStream says no to was asked for by somebody; unless it says nothing."""
    try:
        yield
    except AckwiseError:
        raise
    except (NATSError, ValueError) as problem:
        raise unavailable(where, problem) or BadInput(f"{what}: {problem}") from problem


def unavailable(where: str, problem: Exception) -> StoreUnavailable | None:
    """Where nobody answers for JetStream, nats-py has an error without a word."""
    if isinstance(problem, TimeoutError):
        return StoreUnavailable(f"{where}: JetStream does not answer")
    if isinstance(problem, ServiceUnavailableError) and problem.description:
        return StoreUnavailable(f"{where}: {problem.description}")
    if isinstance(problem, ServiceUnavailableError | NoRespondersError | NoStreamResponseError):
        return StoreUnavailable(f"the NATS server at {where} has no JetStream; start it with -js")
    return None
