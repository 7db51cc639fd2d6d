"""Converts errors of nats-py to Ackwise errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nats.errors import Error as NATSError
from nats.errors import NoRespondersError
from nats.js.errors import NoStreamResponseError, ServiceUnavailableError

from ackwise.core.errors import AckwiseError, BadInput, StoreUnavailable


@contextmanager
def refused(where: str, what: str) -> Iterator[None]:
    """Raise JetStream's refusals as `BadInput`, and missing answers as `StoreUnavailable`."""
    try:
        yield
    except AckwiseError:
        raise
    except (NATSError, ValueError) as problem:
        raise unavailable(where, problem) or BadInput(f"{what}: {problem}") from problem


def unavailable(where: str, problem: Exception) -> StoreUnavailable | None:
    """The error for a server that does not answer. None for any other. nats-py's own error has no text."""
    if isinstance(problem, TimeoutError):
        return StoreUnavailable(f"{where}: JetStream does not answer")
    if isinstance(problem, ServiceUnavailableError) and problem.description:
        return StoreUnavailable(f"{where}: {problem.description}")
    if isinstance(problem, ServiceUnavailableError | NoRespondersError | NoStreamResponseError):
        return StoreUnavailable(f"the NATS server at {where} has no JetStream; start it with -js")
    return None
