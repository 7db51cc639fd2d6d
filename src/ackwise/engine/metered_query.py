"""Queries that run under a meter: they have limits and can be cancelled."""

from __future__ import annotations

from typing import ClassVar

from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.queries import Query
from ackwise.core.structs import Answer_co
from ackwise.engine.statement_limits import DEFAULT_LIMITS, StatementLimits
from ackwise.engine.statement_meter import Overrun


class MeteredQuery(Query[Answer_co], kw_only=True):
    """A query that may take long, because a user wrote its statement."""

    TRIES_SHORT: ClassVar[bool] = True
    """Whether the query first runs beside short queries, for a moment."""

    limits: StatementLimits = DEFAULT_LIMITS
    caller: str = ""
    """The caller whose share of the waiting places this query uses."""

    def limit_error(self, problem: Overrun) -> AckwiseError:
        """The error that the caller gets after the statement exceeded a limit. An extension may have its own."""
        return BadInput(f"the query exceeded its limit {problem.limit} of {problem.value:g}; ask for less")
