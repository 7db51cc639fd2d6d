"""Schemas as text, and JSON read into their columns."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as t

from ackwise.core.errors import BadInput
from ackwise.spark.ddl_parser import DdlParser
from ackwise.spark.types import JsonColumns, arrow_schema, from_ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD = [
    "n long",
    "n bigint, s string , b boolean",
    "N INT, d DOUBLE, f Float",
    "a byte, b tinyint, c short, d smallint, e integer",
    "a array<long>, m map<string, double>",
    "o struct<street: string, no: int, tags: array<struct<k: string, v: binary>>>",
    "o struct<a int, b string>",
    "p decimal, q decimal(5), r decimal(12, 2), s numeric(3,1), t dec(3)",
    "d date, ts timestamp",
    "n long not null, s string NOT NULL, o Struct<x: int not null>",
    "`a b` long, `c,d` string, `e``f` int",
    "n:long,s:string",
]
BAD = [
    "n longg",
    "n",
    "n long,",
    "n long s string",
    "a array<long",
    "a array<>",
    "m map<string>",
    "n long not",
    ",",
    "(",
    ">",
]


def test_ours_reads_as_spark_does(spark: SparkSession) -> None:
    """Readers are made where there is no JVM to ask."""
    for text in GOOD:
        assert DdlParser(text).columns() == t._parse_datatype_string(text), text
    for text in BAD:
        for parse in (lambda one: DdlParser(one).columns(), t._parse_datatype_string):
            with pytest.raises(Exception):  # noqa: B017, PT011 - Spark has several
                parse(text)


def test_schema_goes_through_text(spark: SparkSession) -> None:
    for text in GOOD:
        schema = from_ddl(text, "x")
        assert from_ddl(schema.json(), "x") == schema
        assert from_ddl(schema, "x") is schema


@pytest.mark.parametrize("text", [*BAD, "", "{", '{"type": "struct"}', "[]"])
def test_schema_that_is_none(text: str) -> None:
    with pytest.raises(BadInput, match=r"^returns (is not a schema such as|must name its columns)") as caught:
        from_ddl(text, "returns")
    assert "\n" not in str(caught.value)


def test_schema_that_is_none_for_spark(spark: SparkSession) -> None:
    for text in ("n longg", "n long,", "array<long>", "long", "n interval day", ""):
        with pytest.raises(BadInput, match=r"^returns") as caught:
            from_ddl(text, "returns")
        assert "\n" not in str(caught.value)


def columns(schema: str, *texts: str | None) -> tuple[dict[str, list[Any]], list[str | None]]:
    made = from_ddl(schema, "x")
    arrays, errors = JsonColumns(made).columns(texts)
    for name, array in zip(made.names, arrays, strict=True):
        array.validate(full=True)
        assert array.type == arrow_schema(made).field(name).type
    return {name: array.to_pylist() for name, array in zip(made.names, arrays, strict=True)}, errors.to_pylist()


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ("x long", "9223372036854775807", 2**63 - 1),
        ("x byte", "-128", -128),
        ("x int", "null", None),
        ("x double", "1", 1.0),
        ("x float", "0.5", 0.5),
        ("x boolean", "true", True),
        ("x string", '"é\\n"', "é\n"),
        ("x binary", '"AQI="', b"\x01\x02"),
        ("x decimal(6,2)", "12.5", Decimal("12.50")),
        ("x decimal(6,2)", '"12.50"', Decimal("12.50")),
        ("x date", '"2026-01-31"', dt.date(2026, 1, 31)),
        ("x timestamp", '"2026-01-31T12:00:00Z"', dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)),
        ("x timestamp", '"2026-01-31T12:00:00+02:00"', dt.datetime(2026, 1, 31, 10, tzinfo=dt.UTC)),
        ("x timestamp", '"2026-01-31T12:00:00"', dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)),
        ("x array<int>", "[1, null]", [1, None]),
        ("x map<string,long>", '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        ("x map<string,timestamp>", '{"a": "1970-01-01"}', None),
        ("x struct<a: int, b: string>", '{"b": "y", "c": 1}', {"a": None, "b": "y"}),
        ("x array<struct<a: decimal(3,1)>>", '[{"a": 1}, null]', [{"a": Decimal("1.0")}, None]),
    ],
)
def test_json_value_becomes_its_column_type(schema: str, text: str, value: Any) -> None:
    found, (error,) = columns(schema, f'{{"x": {text}, "more": [{{}}]}}')
    assert found == {"x": [value]}
    assert (error is None) == (value is not None or text == "null")


@pytest.mark.parametrize(
    ("schema", "text", "told"),
    [
        ("x long", '"1"', "Expected `int | null`, got `str` - at `$.x`"),
        ("x long", "1.5", "Expected `int | null`, got `float` - at `$.x`"),
        ("x byte", "128", "Expected `int` <= 127 - at `$.x`"),
        ("x int", "2147483648", "<= 2147483647"),
        ("x long", "9223372036854775808", "$.x"),
        ("x string", "1", "Expected `str | null`, got `int`"),
        ("x boolean", "0", "$.x"),
        ("x decimal(3,1)", "1234.5", "x: "),
        ("x decimal(3,1)", '"much"', "$.x"),
        ("x date", '"31.01.2026"', "$.x"),
        ("x timestamp", '"2026-01-31"', "$.x"),
        ("x timestamp", "1769860800", "$.x"),
        ("x array<int>", '["a"]', "$.x[0]"),
        ("x map<string,int>", '{"a": "b"}', "$.x[...]"),
        ("x struct<a: struct<b: int>>", '{"a": {"b": "c"}}', "$.x.a.b"),
        ("x binary", '"?"', "$.x"),
    ],
)
def test_values_that_do_not_fit(schema: str, text: str, told: str) -> None:
    good = '{"x": null}'
    found, errors = columns(schema, good, f'{{"x": {text}}}', good)
    assert found == {"x": [None, None, None]}
    assert (errors[0], errors[2]) == (None, None)
    assert told in str(errors[1])


def test_text_that_does_not_fit_spoils_its_row_only() -> None:
    texts = ['{"a": 1, "b": "x"}', '{"a": "1", "b": "y"}', "", None, "[]", "{", '{"a": 2}', "{}", "\ud800"]
    found, errors = columns("a int, b string", *texts)
    assert found == {
        "a": [1, None, None, None, None, None, 2, None, None],
        "b": ["x", None, None, None, None, None, None, None, None],
    }
    assert [error is None for error in errors] == [True, False, False, False, False, False, True, True, False]


def test_number_that_the_type_cannot_hold_spoils_its_row_only() -> None:
    found, errors = columns("a decimal(3,0), b int", '{"a": 1, "b": 1}', '{"a": 12345, "b": 2}', '{"a": 3, "b": 3}')
    assert found == {"a": [Decimal(1), None, Decimal(3)], "b": [1, None, 3]}
    assert str(errors[1]).startswith("a: ")


def test_field_that_must_be_there() -> None:
    found, errors = columns("a int not null, o struct<x: int not null>", "{}", '{"a": 1}', '{"a": 1, "o": {}}')
    assert found["a"] == [None, 1, None]
    assert ["a" in str(errors[0]), errors[1], "x" in str(errors[2])] == [True, None, True]


def test_deep_json_becomes_null_beside_good_rows() -> None:
    deep = '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"
    found, errors = columns("a array<int>", deep, '{"a": [1]}')
    assert found == {"a": [None, [1]]}
    assert errors[1] is None


def test_types_that_json_has_not() -> None:
    for schema in ("x map<int, string>", "x array<map<double, int>>"):
        with pytest.raises(BadInput, match=r"^returns: map<.*: the keys of a JSON object are strings$"):
            from_ddl(schema, "returns")
    with pytest.raises(BadInput, match=r"^returns: void cannot be read from JSON$"):
        from_ddl(t.StructType([t.StructField("x", t.NullType())]), "returns")
