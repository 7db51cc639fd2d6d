"""Spark types: their Arrow types, and the decoders that read their values from JSON."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from typing import Annotated, Any

import msgspec

from ackwise.core.errors import BadInput
from ackwise.core.extras import needed

with needed("spark", "ackwise.spark.types"):
    import pyarrow as pa
    from pyspark.sql import types as t
    from pyspark.sql.pandas.types import to_arrow_schema

    from ackwise.spark.ddl_parser import DdlParser

Converter = Callable[[Any], Any]

_UNFIT = (pa.ArrowException, OverflowError, InvalidOperation, ValueError)
_BITS: dict[type[t.DataType], int] = {t.ByteType: 7, t.ShortType: 15, t.IntegerType: 31, t.LongType: 63}


def from_ddl(text: str | t.StructType, what: str) -> t.StructType:
    """Schema of a JSON payload, from a `StructType`, from DDL (`name type, …`) or from Spark's JSON form.

    A mistake in the text raises `BadInput` with one line. `what` names the text in that line.
    """
    try:
        schema = text if isinstance(text, t.StructType) else _parse(text)
    except Exception as problem:
        line = next((line for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
        raise BadInput(f"{what} is not a schema such as 'order long, amount double': {line}") from None
    if not isinstance(schema, t.StructType) or not schema.names:
        raise BadInput(f"{what} must name its columns, as in 'order long, amount double'")
    names = [name.lower() for name in schema.names]
    for name in schema.names:
        if names.count(name.lower()) > 1:
            raise BadInput(f"{what} has the column {name!r} twice")
    try:
        _struct(schema)
    except BadInput as problem:
        raise BadInput(f"{what}: {problem}") from None
    return schema


def _parse(text: str) -> t.DataType:
    """Parse with Spark's own parser where a JVM runs. Spark makes readers in processes without a JVM."""
    from pyspark import SparkContext

    if text.lstrip().startswith("{"):
        return t.StructType.fromJson(msgspec.json.decode(text))
    if SparkContext._active_spark_context is not None:
        return t._parse_datatype_string(text)
    return DdlParser(text).columns()


def arrow_schema(schema: t.StructType) -> pa.Schema:
    """Arrow schema that Spark compares with the batches of a reader."""
    return to_arrow_schema(schema, timezone="UTC")


class JsonColumns:
    """Decodes JSON texts into the columns of a schema. A text that does not fit becomes an error, not a cast value."""

    def __init__(self, schema: t.StructType) -> None:
        self._names = schema.names
        self._types = [arrow_schema(schema).field(name).type for name in schema.names]
        self._decode = msgspec.json.Decoder(_struct(schema)).decode
        self._converters = [_converter(field.dataType) for field in schema.fields]

    def columns(self, texts: Iterable[str | None]) -> tuple[list[pa.Array], pa.Array]:
        """The columns, and a column of errors. A text that does not fit has an error, and null in every column."""
        rows: list[Any] = []
        errors: list[str | None] = []
        for text in texts:
            try:
                rows.append(self._decode(text or "null"))
                errors.append(None)
            except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
                rows.append(None)
                errors.append(f"{problem}")
        try:
            arrays = [self._column(at, rows) for at in range(len(self._types))]
        except _UNFIT:
            # A number or a time is valid JSON and too large for its type. That is rare, so each row is tried by itself.
            self._reject_unfit(rows, errors)
            arrays = [self._column(at, rows) for at in range(len(self._types))]
        return arrays, pa.array(errors, pa.string())

    def _reject_unfit(self, rows: list[Any], errors: list[str | None]) -> None:
        """Replace each row that its Arrow types cannot hold by None, and note its error."""
        for number, row in enumerate(rows):
            try:
                for at in range(len(self._types)):
                    self._column(at, [row])
            except _UNFIT as problem:
                rows[number], errors[number] = None, f"{self._names[at]}: {problem}"

    def _column(self, at: int, rows: list[Any]) -> pa.Array:
        field, convert = attrgetter(f"f{at}"), self._converters[at]
        values = [None if row is None else field(row) for row in rows]
        return pa.array(values if convert is None else list(map(convert, values)), self._types[at])


def decoder_for(schema: t.StructType) -> Callable[[str | bytes], Any]:
    """Decoder of JSON texts. For a text that does not fit it raises a `msgspec.DecodeError` that names the place."""
    return msgspec.json.Decoder(_struct(schema)).decode


def returned_type(schema: t.StructType) -> type[msgspec.Struct]:
    """Struct type that validates a value as one row of a schema."""
    return _struct(schema)


class _Row(msgspec.Struct):
    """Fields by position (`f0`, `f1`, …), because a JSON name may be no valid Python name."""

    def __getitem__(self, at: int) -> Any:
        return getattr(self, self.__struct_fields__[at])


def _struct(schema: t.StructType) -> type[msgspec.Struct]:
    fields: list[Any] = []
    for at, field in enumerate(schema.fields):
        kind = _json_type(field.dataType)
        if field.nullable:
            fields.append((f"f{at}", kind | None, msgspec.field(name=field.name, default=None)))
        else:
            fields.append((f"f{at}", kind, msgspec.field(name=field.name)))
    return msgspec.defstruct("Payload", fields, bases=(_Row,), kw_only=True)


def _json_type(kind: t.DataType) -> Any:
    """Python type that msgspec decodes a JSON value of this Spark type into."""
    if type(kind) in _BITS:
        bits = _BITS[type(kind)]
        return Annotated[int, msgspec.Meta(ge=-(1 << bits), le=(1 << bits) - 1)]
    match kind:
        case t.StringType():
            return str
        case t.BooleanType():
            return bool
        case t.DoubleType() | t.FloatType():
            return float
        case t.DecimalType():
            return Decimal
        case t.DateType():
            return dt.date
        case t.TimestampType():
            return dt.datetime
        case t.BinaryType():
            return bytes
        case t.ArrayType():
            return list[_json_type(kind.elementType) | None]  # type: ignore[misc]
        case t.MapType():
            if not isinstance(kind.keyType, t.StringType):
                raise BadInput(f"{kind.simpleString()}: the keys of a JSON object are strings")
            return dict[str, _json_type(kind.valueType) | None]  # type: ignore[misc]
        case t.StructType():
            return _struct(kind)
        case _:
            raise BadInput(f"{kind.simpleString()} cannot be read from JSON")


def _converter(kind: t.DataType) -> Converter | None:
    """Converter from a decoded value to the value that Arrow takes. None if Arrow takes decoded values as they are."""
    match kind:
        case t.TimestampType():
            return _unless_none(_with_zone)
        case t.DecimalType():
            step = Decimal(1).scaleb(-kind.scale)
            return _unless_none(lambda value: value.quantize(step))
        case t.ArrayType():
            return _array_converter(kind)
        case t.MapType():
            return _map_converter(kind)
        case t.StructType():
            return _struct_converter(kind)
        case _:
            return None


def _unless_none(convert: Converter) -> Converter:
    return lambda value: None if value is None else convert(value)


def _with_zone(instant: dt.datetime) -> dt.datetime:
    return instant if instant.tzinfo else instant.replace(tzinfo=dt.UTC)


def _array_converter(kind: t.ArrayType) -> Converter | None:
    convert = _converter(kind.elementType)
    if convert is None:
        return None
    return _unless_none(lambda elements: [convert(element) for element in elements])


def _map_converter(kind: t.MapType) -> Converter:
    convert = _converter(kind.valueType)
    if convert is None:
        return _unless_none(lambda pairs: list(pairs.items()))
    return _unless_none(lambda pairs: [(key, convert(value)) for key, value in pairs.items()])


def _struct_converter(kind: t.StructType) -> Converter:
    fields = [(field.name, _converter(field.dataType) or _same) for field in kind.fields]
    return _unless_none(lambda row: {name: convert(row[at]) for at, (name, convert) in enumerate(fields)})


def _same(value: Any) -> Any:
    return value
