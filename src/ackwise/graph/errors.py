"""Statement errors with code and position."""

from __future__ import annotations

from typing import Any

from ackwise.core.errors import BadInput
from ackwise.engine.statement_meter import Cancelled, Overrun

At = tuple[int, int]
"""Line and column, from 1."""
NOWHERE: At = (0, 0)


class GraphError(BadInput):
    """Error of a statement. The statement changed nothing."""

    def __init__(self, word: str, message: str, *, name: str = "", at: At = NOWHERE, **details: Any) -> None:
        super().__init__(message, **details)
        self.word, self.name, self.at = word, name or word.upper(), at
        self.hint = ""

    @property
    def told(self) -> str:
        """Code, name and message in one line."""
        if self.word[:1] == "E" and self.word[1:].isdigit():
            named = self.message.startswith(self.name + ":")
            return f"{self.word} {self.message}" if named else f"{self.word} {self.name}: {self.message}"
        return f"{self.word}: {self.message}"


class StatementLimit(GraphError):
    """A statement exceeded a limit. It changed nothing."""

    code = "statement_limit"


_LIMITS = {
    "seconds": "the statement ran longer than {value:g} seconds",
    "writer": "the statement held the writer longer than {value:g} seconds; change fewer entities at once",
    "rows": "the statement read more than {value:,} rows; narrow its pattern, or add conditions",
    "bytes": "the statement read or built more than {value:,} bytes; narrow its pattern, or return less",
    "changes": "the statement changes more than {value:,} entities; change them in several statements",
    "text": "the text is longer than {value:,} bytes; send it in pieces",
    "tokens": "the text has more than {value:,} tokens; send it in pieces",
    "nesting": "the statement is nested too deeply: more than {value:,} levels",
    "depth": "an expression is too deep: more than {value:,} operators, calls and attributes inside each other",
    "params": "the parameters hold more than {value:,} values; send them in pieces",
    "string": "a string of the statement is longer than {value:,} characters",
    "strings": "the statement builds more than {value:,} characters for one row",
    "transaction": "the transaction holds more than {value:,} bytes; commit it, and continue in another one",
    "transactions": "open transactions of all sessions hold more than {value:,} bytes; try again in a moment",
    "call_rows": "the statements of this call return more than {value:,} rows; send them in several calls",
    "call_bytes": "the statements of this call return more than {value:,} bytes; send them in several calls",
}


def statement_limit(limit: str, value: float, at: At = NOWHERE) -> StatementLimit:
    """The error of an exceeded limit: `limit` is its name, `value` its number."""
    message = f"{_LIMITS[limit].format(value=value)} (limit {limit}: {value})"
    return StatementLimit("statement_limit", message, at=at, limit=limit, value=value)


def limit_error(problem: Overrun) -> GraphError:
    """The error that the caller of a stopped statement gets."""
    if isinstance(problem, Cancelled):
        return GraphError("cancelled", "the statement was cancelled; nothing was changed")
    return statement_limit(problem.limit, problem.value)


class MatchFirst(GraphError):
    """The turn has no time to match this statement's pattern: ask `FindGraph`, and add its matches to the command."""

    def __init__(self) -> None:
        super().__init__("match_first", self.__doc__ or "")


class Outrun(GraphError):
    """Other commands changed the matches of `FindGraph`: match again."""

    def __init__(self) -> None:
        super().__init__("outrun", self.__doc__ or "")


class Postponed(GraphError):
    """The turn's time for the graph is used up: send the command again."""

    def __init__(self) -> None:
        super().__init__("postponed", self.__doc__ or "")


class SplitGroup(GraphError):
    """The turn has no time for a whole group of statements: send the first `steps` of them on their own."""

    def __init__(self, steps: int) -> None:
        super().__init__("split_group", self.__doc__ or "")
        self.steps = steps


class MinimumUnmet(GraphError):
    """A node has fewer edges than the minimum of its type when its statements commit. They changed nothing."""


class MinimumPending(GraphError):
    """A minimum is not met, but further statements of the text may meet it: send more of them together."""

    def __init__(self) -> None:
        super().__init__("minimum_pending", self.__doc__ or "")


def minimum_unmet(node: str, least: int, edge: str, at: At) -> MinimumUnmet:
    message = f"cardinality: '{node}' needs at least {least} '{edge}' edge(s) when its statement commits"
    return MinimumUnmet("constraint", message, at=at)


def watch_too_large(shown: str) -> GraphError:
    """The error of a watch that was cancelled because one change exceeded the limits."""
    message = f"watch '{shown}' was cancelled because one change exceeded the limits; narrow the pattern of the watch"
    return StatementLimit("statement_limit", message, handle=shown)


def answers_full() -> GraphError:
    """The error of a statement whose rows the server has no memory for."""
    message = "other answers wait for their readers and fill the server's memory; try again in a second"
    return GraphError("answers_full", message, name="ANSWERS_FULL")


def conflict(at: At = NOWHERE) -> GraphError:
    """The error of a statement whose matched entities changed twice while it ran."""
    return GraphError(
        "conflict", "other calls changed the matched entities twice; the statement changed nothing, run it again", at=at
    )


def constraint(message: str, at: At = NOWHERE) -> GraphError:
    """The error of a statement that breaks a rule of the ontology or of the language."""
    return GraphError("constraint", message, at=at)


def unknown(message: str, at: At = NOWHERE) -> GraphError:
    """The error for a type, attribute, variable or entity that does not exist."""
    return GraphError("constraint", message, name="NOT_FOUND", at=at)


def wrong_type(message: str, at: At = NOWHERE) -> GraphError:
    return GraphError("constraint", message, name="TYPE_ERROR", at=at)


def not_supported(what: str, at: At = NOWHERE) -> GraphError:
    return GraphError("not_supported", f"{what} is not supported", at=at)


def missing_parameter(name: str, at: At = NOWHERE) -> GraphError:
    return GraphError("missing_parameter", f"Parameter '${name}' not provided", at=at)


def protected(type_name: str, at: At = NOWHERE) -> GraphError:
    return GraphError("constraint", f"Cannot create protected type '{type_name}'", name="PROTECTED", at=at)


def pattern_denied(reason: str, at: At = NOWHERE) -> GraphError:
    return GraphError(
        "E8001",
        f"WATCH_PATTERN_DENIED: Watch pattern rejected by policy ({reason})",
        name="WATCH_PATTERN_DENIED",
        at=at,
        reason=reason,
    )


def watch_not_found(shown: str, at: At = NOWHERE, cannot: str | None = None) -> GraphError:
    why = f"Cannot {cannot} cancelled watch '{shown}'" if cannot else f"Watch handle '{shown}' does not exist"
    return GraphError("E8002", f"WATCH_NOT_FOUND: {why}", name="WATCH_NOT_FOUND", at=at, handle=shown)


def ack_timeout(delivery_id: str, timeout: str) -> GraphError:
    return GraphError(
        "E8003",
        f"Acknowledgment timeout: delivery '{delivery_id}' not acknowledged within {timeout}",
        name="ACK_TIMEOUT",
        delivery_id=delivery_id,
        timeout=timeout,
    )


def invalid_delivery(delivery_id: str, at: At = NOWHERE) -> GraphError:
    return GraphError(
        "E8004",
        f"Invalid delivery ID: '{delivery_id}' not found or already processed",
        name="INVALID_DELIVERY_ID",
        at=at,
        delivery_id=delivery_id,
    )


def buffer_overflow(shown: str, size: int) -> GraphError:
    return GraphError(
        "E8005",
        "WATCH_BUFFER_OVERFLOW: Buffer full and on_full: error configured; watch cancelled",
        name="WATCH_BUFFER_OVERFLOW",
        handle=shown,
        buffer_size=size,
    )


def buffer_blocked(shown: str, at: At = NOWHERE) -> GraphError:
    """The error of a statement that a watch with `on_full: block` stops. The session sends the statement again."""
    return GraphError(
        "constraint",
        f"the buffer of watch '{shown}' is full and on_full: block holds this statement up",
        name="BLOCKED",
        at=at,
    )


def too_many_watches(current: int, limit: int, at: At = NOWHERE) -> GraphError:
    return GraphError(
        "E8006",
        "WATCH_LIMIT_EXCEEDED: Too many active watches per session or globally",
        name="WATCH_LIMIT_EXCEEDED",
        at=at,
        current=current,
        limit=limit,
    )


def dead_letter_failed(delivery_id: str, shown: str, reason: str, at: At = NOWHERE) -> GraphError:
    return GraphError(
        "E8007",
        f"Dead letter failed: could not move delivery '{delivery_id}' to '{shown}' - {reason}",
        name="DEAD_LETTER_FAILED",
        at=at,
        delivery_id=delivery_id,
        dead_letter=shown,
        reason=reason,
    )


def delete_failed(delivery_id: str, reason: str, at: At = NOWHERE) -> GraphError:
    """The error for an item that the watch should delete, because it names no dead_letter node, but cannot."""
    return GraphError(
        "E8007",
        f"Dead letter failed: could not delete what delivery '{delivery_id}' was for - {reason}",
        name="DEAD_LETTER_FAILED",
        at=at,
        delivery_id=delivery_id,
        reason=reason,
    )


def immutable_option(key: str, at: At = NOWHERE) -> GraphError:
    return GraphError(
        "E8008",
        f"IMMUTABLE_WATCH_OPTION: Option '{key}' cannot be changed after watch creation",
        name="IMMUTABLE_WATCH_OPTION",
        at=at,
        option=key,
    )


def invalid_option(key: str, expected: str, at: At = NOWHERE) -> GraphError:
    return GraphError(
        "E8009",
        f"INVALID_WATCH_OPTION: Invalid value for option '{key}': expected {expected}",
        name="INVALID_WATCH_OPTION",
        at=at,
        option=key,
    )


def access_denied(shown: str, at: At = NOWHERE) -> GraphError:
    return GraphError(
        "E8010",
        f"WATCH_ACCESS_DENIED: Watch '{shown}' is not owned by current session",
        name="WATCH_ACCESS_DENIED",
        at=at,
        handle=shown,
    )


def kill_prevented(what: str, edge_type: str, at: At = NOWHERE) -> GraphError:
    return GraphError(
        "E3302",
        f"Cannot kill '{what}': referenced by '{edge_type}' with prevent action",
        name="KILL_PREVENTED",
        at=at,
    )


def cascade_too_large(code: str, what: str, at: At = NOWHERE) -> GraphError:
    return GraphError(code, f"Cascade {what} exceeded", name=f"CASCADE_{what.split()[0].upper()}_EXCEEDED", at=at)


def bad_tick(amount: int, at: At = NOWHERE) -> GraphError:
    why = f"must be positive, got {amount}" if amount <= 0 else f"is too large: {amount}"
    return GraphError(
        "E9001",
        f"INVALID_TICK_AMOUNT: Tick amount {why}",
        name="INVALID_TICK_AMOUNT",
        at=at,
    )
