"""One record through the user's function: what it returned or raised becomes an outcome and outputs."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import GeneratorType
from typing import Any, NamedTuple

import msgspec
from pyspark.sql.types import Row as SparkRow
from pyspark.sql.types import StructType

from ackwise.client import settling
from ackwise.core.commands import ByDelivery
from ackwise.core.errors import BadInput
from ackwise.core.settlement import Outcome
from ackwise.spark.types import decoder_for, returned_type

_NOBODY = ByDelivery("")


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy's as Python's own; whoever works with pandas returns them without knowing."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _from_numpy(value: Any) -> Any:
    if not hasattr(value, "tolist"):
        raise TypeError(f"{type(value).__name__} cannot be written as JSON")
    return value.tolist()


_encode = msgspec.json.Encoder(enc_hook=_from_numpy).encode
_decode = msgspec.json.Decoder().decode


def _encoded(value: Any) -> bytes:
    """As JSON, which has no word for NaN: it would be a null, and nobody would know."""
    text = _encode(value)
    if b"null" in text and _has_nan(value):
        raise WrongType(
            "the function returned NaN or an infinite number, which JSON does not have; return None or a text"
        )
    return text


def _has_nan(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_nan, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_nan, value))
    if isinstance(value, msgspec.Struct):
        return any(map(_has_nan, msgspec.structs.astuple(value)))
    if dataclasses.is_dataclass(value):
        return any(_has_nan(getattr(value, field.name)) for field in dataclasses.fields(value))
    if hasattr(value, "tolist"):
        return _has_nan(value.tolist())
    return isinstance(value, float) and not math.isfinite(value)


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """What is known of a message besides its payload; a function that takes two arguments gets it as the second."""

    message_id: str
    transaction_id: str
    queue: str
    partition: str
    priority: int
    seq: int
    attempt: int
    headers: dict[str, str]
    created_at: datetime


Item = bytes | tuple[bytes, Record]
"""The payload, or for a function that takes two arguments both."""


class Failed(NamedTuple):
    """An outcome that is not an ack. `delay` is in microseconds."""

    outcome: Outcome
    delay: int | None
    error: str | None
    error_type: str | None
    undecodable: bool = False


Answer = bytes | list[bytes] | Failed | None
"""One output, several, what failed, or an ack without output."""


class WrongType(TypeError):
    """A function returned what its `returns` does not allow."""


def takes_record(function: Callable[..., Any]) -> bool:
    """Whether it wants to know about the message, too."""
    try:
        params = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    placed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(1 for one in params if one.kind in placed and one.default is inspect.Parameter.empty) >= 2


class Handler:
    """What the isolated process does with a record."""

    def __init__(
        self, function: Callable[..., Any], expects: StructType | None, returns: StructType | None, *, with_record: bool
    ) -> None:
        self._function, self._with_record = function, with_record
        self._expects, self._returns = expects, returns
        self._check: Callable[[str | bytes], Any] | None = None
        self._type: type[msgspec.Struct] | None = None
        self._names: list[str] = []
        self._known: frozenset[str] = frozenset()

    def __call__(self, item: Item) -> Answer:
        payload, record = item if isinstance(item, tuple) else (item, None)
        try:
            value = self._value(payload)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
            return Failed(
                Outcome.REJECT, None, f"the payload does not fit: {problem}", type(problem).__name__, undecodable=True
            )
        try:
            found = self._function(value, record) if self._with_record else self._function(value)
            return self._outputs(found)
        except Exception as problem:
            return _failed(problem)
        except BaseException as problem:  # a SystemExit ends the record, not the pipeline
            return _failed(RuntimeError(f"{type(problem).__name__}: {problem}"), type(problem).__qualname__)

    def _value(self, payload: bytes) -> Any:
        if self._expects is not None:
            if self._check is None:
                self._check = decoder_for(self._expects)
            self._check(payload)
        return _decode(payload)

    def _outputs(self, found: Any) -> Answer:
        if found is None:
            return None
        # A dict is what nearly every function returns, and what the next line takes longest to find out about.
        if type(found) is not dict and isinstance(found, list | GeneratorType | Iterator):
            return [self._output(one) for one in found]
        return self._output(found)

    def _output(self, value: Any) -> bytes:
        if self._returns is None:
            try:
                return _encoded(value)
            except WrongType:
                raise
            except (TypeError, ValueError, RecursionError) as problem:
                raise WrongType(f"the function returned what is not JSON: {problem}") from None
        if self._type is None:
            self._type, self._names = returned_type(self._returns), self._returns.names
            self._known = frozenset(self._names)
        found = value if type(value) is dict and value.keys() <= self._known else self._named(value)
        try:
            return _encoded(msgspec.convert(found, self._type))
        except msgspec.ValidationError:
            pass
        try:
            return _encoded(msgspec.convert(_plain(found), self._type))
        except msgspec.ValidationError as problem:
            told = self._returns.simpleString()
            raise WrongType(f"the function returned {value!r:.80}, which is not {told}: {problem}") from None

    def _named(self, value: Any) -> Mapping[str, Any]:
        """Fields by name, whatever shape the function chose."""
        if isinstance(value, Mapping):
            found = dict(value)
        elif isinstance(value, SparkRow) and hasattr(value, "__fields__"):
            found = value.asDict(recursive=True)
        elif isinstance(value, tuple):
            if len(value) != len(self._names):
                raise WrongType(f"the function returned {len(value)} values where returns has {len(self._names)}")
            found = dict(zip(self._names, value, strict=True))
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            found = dataclasses.asdict(value)
        elif isinstance(value, msgspec.Struct):
            found = msgspec.structs.asdict(value)
        elif len(self._names) == 1:
            found = {self._names[0]: value}
        else:
            raise WrongType(
                f"the function returned {value!r:.80} ({type(value).__name__}) where returns has the fields "
                f"{', '.join(self._names)}: return a dict, a tuple or a dataclass"
            )
        unknown = sorted(set(found) - set(self._names))
        if unknown:
            raise WrongType(f"the function returned a field {unknown[0]!r:.60} that returns does not have")
        return found


def _failed(problem: Exception, kind: str | None = None) -> Failed:
    try:
        asked = settling.asked(_NOBODY, problem)
    except BadInput as wrong:
        # A Retry with a delay that is none: its own fault, and the record is tried again.
        asked = settling.asked(_NOBODY, wrong)
    return Failed(asked.outcome, asked.delay, asked.error, kind or asked.error_type)
