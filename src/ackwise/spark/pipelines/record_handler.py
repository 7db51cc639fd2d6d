"""Handles one record in the child process: decodes the payload, calls the function, encodes the outputs."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from itertools import pairwise
from types import GeneratorType
from typing import Any, NamedTuple, overload

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.types import Row as SparkRow
from pyspark.sql.types import StructType

from ackwise.client import settlements, tracing
from ackwise.core.commands import ByDelivery
from ackwise.core.errors import BadInput
from ackwise.core.settlement import Outcome
from ackwise.spark.types import decoder_for, returned_type

_NO_DELIVERY = ByDelivery("")
_NO_SPAN = nullcontext()


def _plain(value: Any) -> Any:
    """Convert NumPy numbers and arrays to Python values. Functions that use pandas often return them."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _from_numpy(value: Any) -> Any:
    if not hasattr(value, "tolist"):
        raise TypeError(f"{type(value).__name__} cannot be written as JSON")
    return value.tolist()


_encode = msgspec.json.Encoder(enc_hook=_from_numpy).encode
_decode = msgspec.json.Decoder().decode


def _encoded(value: Any) -> bytes:
    """Encode as JSON. Rejects NaN, which the encoder would silently write as null."""
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
    """Properties of a message besides its payload. A function with two parameters gets it as the second argument."""

    message_id: str
    transaction_id: str
    queue: str
    partition: str
    priority: int
    seq: int
    attempt: int
    headers: dict[str, str]
    created_at: datetime


HandlerInput = bytes | tuple[bytes, Record]
"""Payload, or payload and record for a function with two parameters."""


class Failure(NamedTuple):
    """Outcome of a failed record. `delay` is in microseconds."""

    outcome: Outcome
    delay: int | None
    error: str | None
    error_type: str | None
    undecodable: bool = False


Answer = bytes | list[bytes] | Failure | None
"""One output, several outputs, a failure, or None for an ack without output."""


class WrongType(TypeError):
    """A function returned a value that does not fit `returns`."""


def _span(record: Record | None) -> AbstractContextManager[None]:
    """The `process` span of a record, if the function gets records and the worker has set up OpenTelemetry."""
    if record is None or not tracing.is_configured():
        return _NO_SPAN
    return tracing.process_span(record.queue, record.message_id, record.headers, record.attempt)


def takes_record(function: Callable[..., Any]) -> bool:
    """Whether the function has two required positional parameters, so that it gets the `Record`."""
    try:
        params = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    placed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(1 for param in params if param.kind in placed and param.default is inspect.Parameter.empty) >= 2


class Handler:
    """Runs in the child process: calls the function on one record and returns the answer."""

    def __init__(
        self, function: Callable[..., Any], expects: StructType | None, returns: StructType | None, *, with_record: bool
    ) -> None:
        self._function, self._with_record = function, with_record
        self._expects, self._returns = expects, returns
        self._check: Callable[[str | bytes], Any] | None = None
        self._type: type[msgspec.Struct] | None = None
        self._names: list[str] = []
        self._known: frozenset[str] = frozenset()

    def __call__(self, item: HandlerInput) -> Answer:
        payload, record = item if isinstance(item, tuple) else (item, None)
        try:
            value = self._value(payload)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
            return Failure(
                Outcome.REJECT, None, f"the payload does not fit: {problem}", type(problem).__name__, undecodable=True
            )
        try:
            with _span(record):
                result = self._function(value, record) if self._with_record else self._function(value)
                return self._outputs(result)
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

    def _outputs(self, result: Any) -> Answer:
        if result is None:
            return None
        # Most functions return a dict, for which the `isinstance` below is slowest.
        if type(result) is not dict and isinstance(result, list | GeneratorType | Iterator):
            return [self._output(value) for value in result]
        return self._output(result)

    def _output(self, value: Any) -> bytes:
        if self._returns is None:
            try:
                return _encoded(value)
            except WrongType:
                raise
            except (TypeError, ValueError, RecursionError) as problem:
                raise WrongType(f"the function returned a value that JSON cannot hold: {problem}") from None
        if self._type is None:
            self._type, self._names = returned_type(self._returns), self._returns.names
            self._known = frozenset(self._names)
        row = value if type(value) is dict and value.keys() <= self._known else self._named(value)
        try:
            return _encoded(msgspec.convert(row, self._type))
        except msgspec.ValidationError:
            pass
        try:
            return _encoded(msgspec.convert(_plain(row), self._type))
        except msgspec.ValidationError as problem:
            expected = self._returns.simpleString()
            raise WrongType(f"the function returned {value!r:.80}, which is not {expected}: {problem}") from None

    def _named(self, value: Any) -> Mapping[str, Any]:
        """Fields by name, from a mapping, Spark row, tuple, dataclass, struct or single value."""
        if isinstance(value, Mapping):
            fields = dict(value)
        elif isinstance(value, SparkRow) and hasattr(value, "__fields__"):
            fields = value.asDict(recursive=True)
        elif isinstance(value, tuple):
            if len(value) != len(self._names):
                raise WrongType(f"the function returned {len(value)} values where returns has {len(self._names)}")
            fields = dict(zip(self._names, value, strict=True))
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.asdict(value)
        elif isinstance(value, msgspec.Struct):
            fields = msgspec.structs.asdict(value)
        elif len(self._names) == 1:
            fields = {self._names[0]: value}
        else:
            raise WrongType(
                f"the function returned {value!r:.80} ({type(value).__name__}) where returns has the fields "
                f"{', '.join(self._names)}: return a dict, a tuple or a dataclass"
            )
        unknown = sorted(set(fields) - set(self._names))
        if unknown:
            raise WrongType(f"the function returned a field {unknown[0]!r:.60} that returns does not have")
        return fields


def _failed(problem: Exception, kind: str | None = None) -> Failure:
    try:
        asked = settlements.settlement_for(_NO_DELIVERY, problem)
    except BadInput as wrong:
        # A `Retry` with an invalid delay: the record is retried without it.
        asked = settlements.settlement_for(_NO_DELIVERY, wrong)
    return Failure(asked.outcome, asked.delay, asked.error, kind or asked.error_type)


class TextColumn(Sequence[bytes]):
    """Texts of an Arrow column as UTF-8, in two buffers that are cheap to pickle."""

    __slots__ = ("_data", "_ends")

    def __init__(self, data: bytes, ends: bytes) -> None:
        self._data, self._ends = data, ends

    @classmethod
    def of(cls, column: pa.Array) -> TextColumn:
        """From an Arrow string or large_string column without nulls."""
        _, places, data = column.buffers()
        kind = np.int64 if pa.types.is_large_string(column.type) else np.int32
        ends = np.frombuffer(places, kind)[column.offset : column.offset + len(column) + 1].astype(np.int64)
        text = b"" if data is None else memoryview(data)[ends[0] : ends[-1]].tobytes()
        return cls(text, (ends - ends[0]).tobytes())

    def __reduce__(self) -> tuple[type[TextColumn], tuple[bytes, bytes]]:
        return type(self), (self._data, self._ends)

    def __len__(self) -> int:
        return len(self._ends) // 8 - 1

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return list(self)[at]
        ends = memoryview(self._ends).cast("q")
        return self._data[ends[at] : ends[at + 1]]

    def __iter__(self) -> Iterator[bytes]:
        ends = memoryview(self._ends).cast("q").tolist()
        data = self._data
        return (data[lo:hi] for lo, hi in pairwise(ends))
