"""Spark's types as Arrow's, and as what decodes JSON into them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from typing import Annotated, Any, ClassVar

import msgspec
import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from ackwise.core.errors import BadInput

_UNFIT = (pa.ArrowException, OverflowError, InvalidOperation, ValueError)
_BITS: dict[type[t.DataType], int] = {t.ByteType: 7, t.ShortType: 15, t.IntegerType: 31, t.LongType: 63}


def from_ddl(text: str | t.StructType, what: str) -> t.StructType:
    """A schema of JSON, given itself, as `name type, …` or as Spark spells one in JSON. It is parsed here, so that a
    mistake is one line."""
    try:
        found = text if isinstance(text, t.StructType) else _parsed(text)
    except Exception as problem:
        line = next((line for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
        raise BadInput(f"{what} is not a schema such as 'order long, amount double': {line}") from None
    if not isinstance(found, t.StructType) or not found.names:
        raise BadInput(f"{what} must name its columns, as in 'order long, amount double'")
    names = [name.lower() for name in found.names]
    for name in found.names:
        if names.count(name.lower()) > 1:
            raise BadInput(f"{what} has the column {name!r} twice")
    try:
        _struct(found)
    except BadInput as problem:
        raise BadInput(f"{what}: {problem}") from None
    return found


def _parsed(text: str) -> t.DataType:
    """Spark's own parser needs its JVM; readers are made in processes that have none."""
    from pyspark import SparkContext

    if text.lstrip().startswith("{"):
        return t.StructType.fromJson(msgspec.json.decode(text))
    if SparkContext._active_spark_context is not None:
        return t._parse_datatype_string(text)
    return _Parser(text).columns()


class _Parser:
    """The part of Spark's DDL that describes JSON: names, simple types, decimal, array, map and struct."""

    _SIMPLE: ClassVar[dict[str, t.DataType]] = {
        "boolean": t.BooleanType(),
        "byte": t.ByteType(),
        "tinyint": t.ByteType(),
        "short": t.ShortType(),
        "smallint": t.ShortType(),
        "int": t.IntegerType(),
        "integer": t.IntegerType(),
        "long": t.LongType(),
        "bigint": t.LongType(),
        "float": t.FloatType(),
        "real": t.FloatType(),
        "double": t.DoubleType(),
        "string": t.StringType(),
        "binary": t.BinaryType(),
        "date": t.DateType(),
        "timestamp": t.TimestampType(),
    }

    def __init__(self, text: str) -> None:
        self._words = _words(text)
        self._at = 0

    def _peek(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _next(self, *wanted: str) -> str:
        word = self._peek()
        if not word or (wanted and word not in wanted):
            raise ValueError(f"expected {' or '.join(wanted) or 'more'} at {word or 'the end'!r}")
        self._at += 1
        return word

    def columns(self) -> t.StructType:
        found = self._fields("")
        if self._peek():
            raise ValueError(f"nothing is expected at {self._peek()!r}")
        return found

    def _fields(self, end: str) -> t.StructType:
        fields: list[t.StructField] = []
        while True:
            name = self._next()
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            if self._peek() == ":":
                self._next()
            kind = self._type()
            nullable = True
            if self._peek().lower() == "not":
                self._next()
                if self._next().lower() != "null":
                    raise ValueError("expected null behind not")
                nullable = False
            fields.append(t.StructField(name, kind, nullable))
            if self._peek() != ",":
                break
            self._next()
        if end:
            self._next(end)
        return t.StructType(fields)

    def _type(self) -> t.DataType:
        word = self._next().lower()
        match word:
            case "array":
                self._next("<")
                inner = self._type()
                self._next(">")
                return t.ArrayType(inner)
            case "map":
                self._next("<")
                key = self._type()
                self._next(",")
                value = self._type()
                self._next(">")
                return t.MapType(key, value)
            case "struct":
                self._next("<")
                return self._fields(">")
            case "decimal" | "dec" | "numeric":
                return self._decimal()
            case _ if word in self._SIMPLE:
                return self._SIMPLE[word]
            case _:
                raise ValueError(f"there is no type {word!r}")

    def _decimal(self) -> t.DecimalType:
        if self._peek() != "(":
            return t.DecimalType(10, 0)
        self._next()
        precision, scale = int(self._next()), 0
        if self._peek() == ",":
            self._next()
            scale = int(self._next())
        self._next(")")
        return t.DecimalType(precision, scale)


def _words(text: str) -> list[str]:
    words, word, quoted = [], "", False
    for letter in text:
        if letter == "`":
            quoted = not quoted
            word += letter
        elif not quoted and (letter.isspace() or letter in "<>,:()"):
            if word:
                words.append(word)
            word = ""
            if not letter.isspace():
                words.append(letter)
        else:
            word += letter
    return [*words, word] if word else words


def arrow_schema(schema: t.StructType) -> pa.Schema:
    """As Spark compares it with what a reader yields."""
    return to_arrow_schema(schema, timezone="UTC")


class Rows:
    """JSON texts decoded into the columns of a schema, strictly: a text that does not fit is named, not bent."""

    def __init__(self, schema: t.StructType) -> None:
        self._names = schema.names
        self._types = [arrow_schema(schema).field(name).type for name in schema.names]
        self._decode = msgspec.json.Decoder(_struct(schema)).decode
        plain = [_plainer(field.dataType) for field in schema.fields]
        self._plain: list[Callable[[Any], Any] | None] = plain

    def columns(self, texts: Iterable[str | None]) -> tuple[list[pa.Array], pa.Array]:
        """The columns, and per row None or why it does not fit; a row that does not is null everywhere."""
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
            # A number or a time that JSON can say and the type cannot hold: found one by one, as it is rare.
            for number, row in enumerate(rows):
                try:
                    for at in range(len(self._types)):
                        self._column(at, [row])
                except _UNFIT as problem:
                    rows[number], errors[number] = None, f"{self._names[at]}: {problem}"
            arrays = [self._column(at, rows) for at in range(len(self._types))]
        return arrays, pa.array(errors, pa.string())

    def _column(self, at: int, rows: list[Any]) -> pa.Array:
        field, made = attrgetter(f"f{at}"), self._plain[at]
        found = [None if row is None else field(row) for row in rows]
        return pa.array(found if made is None else list(map(made, found)), self._types[at])


def decoder_for(schema: t.StructType) -> Callable[[str | bytes], Any]:
    """Decodes a JSON text that fits; one that does not raises a `msgspec.DecodeError` that says where."""
    return msgspec.json.Decoder(_struct(schema)).decode


def returned_type(schema: t.StructType) -> type[msgspec.Struct]:
    """What a value must be to be one row of a schema."""
    return _struct(schema)


class _Row(msgspec.Struct):
    """Fields by place: their names in JSON need not be names in Python."""

    def __getitem__(self, at: int) -> Any:
        return getattr(self, self.__struct_fields__[at])


def _struct(schema: t.StructType) -> type[msgspec.Struct]:
    fields: list[Any] = []
    for at, field in enumerate(schema.fields):
        kind = _json_type(field.dataType)
        spelled = msgspec.field(name=field.name) if not field.nullable else msgspec.field(name=field.name, default=None)
        fields.append((f"f{at}", kind if not field.nullable else kind | None, spelled))
    return msgspec.defstruct("Payload", fields, bases=(_Row,), kw_only=True)


def _json_type(kind: t.DataType) -> Any:
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
            raise BadInput(f"{kind.simpleString()} is not read from JSON")


def _plainer(kind: t.DataType) -> Callable[[Any], Any] | None:
    """What turns a decoded value into what Arrow takes; None when it is that already."""
    match kind:
        case t.TimestampType():
            return lambda value: value if value is None or value.tzinfo else value.replace(tzinfo=dt.UTC)
        case t.DecimalType():
            step = Decimal(1).scaleb(-kind.scale)
            return lambda value: None if value is None else value.quantize(step)
        case t.ArrayType():
            make = _plainer(kind.elementType)
            if make is None:
                return None
            return lambda value: None if value is None else [make(one) for one in value]
        case t.MapType():
            inner = _plainer(kind.valueType)
            if inner is None:
                return lambda value: None if value is None else list(value.items())
            return lambda value: None if value is None else [(key, inner(one)) for key, one in value.items()]
        case t.StructType():
            made = [(field.name, _plainer(field.dataType)) for field in kind.fields]
            return lambda value: (
                None
                if value is None
                else {name: value[at] if make is None else make(value[at]) for at, (name, make) in enumerate(made)}
            )
        case _:
            return None
