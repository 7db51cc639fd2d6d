"""What a function returned or raised, as an outcome and outputs."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import functools
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest
from pyspark.sql import Row as SparkRow

from ackwise import Reject, Retry
from ackwise.core.settlement import Outcome
from ackwise.spark.pipelines.record_handler import Answer, Failure, Handler, Record, takes_record
from ackwise.spark.types import from_ddl

RECORD = Record("id", "tx", "q", "p", 1, 2, 3, {"k": "v"}, dt.datetime(2026, 1, 1, tzinfo=dt.UTC))


def run(
    function: Callable[..., Any], payload: str = "{}", *, expects: str | None = None, returns: str | None = None
) -> Answer:
    schemas = [None if one is None else from_ddl(one, "x") for one in (expects, returns)]
    with_record = takes_record(function)
    item = (payload.encode(errors="surrogatepass"), RECORD) if with_record else payload.encode(errors="surrogatepass")
    return Handler(function, *schemas, with_record=with_record)(item)


def returning(value: Any, returns: str | None = None) -> Answer:
    return run(lambda _: value, returns=returns)


@dataclasses.dataclass
class Data:
    n: int
    s: str | None = None


class Struct(msgspec.Struct):
    n: int
    s: str | None = None


Named = collections.namedtuple("Named", "n s")


@pytest.mark.parametrize(
    "value",
    [
        {"n": 1, "s": "x"},
        (1, "x"),
        Data(1, "x"),
        Struct(1, "x"),
        SparkRow(n=1, s="x"),
        Named(1, "x"),
        collections.OrderedDict(s="x", n=1),
    ],
)
def test_row_of_any_shape(value: Any) -> None:
    assert returning(value, "n long, s string") == b'{"n":1,"s":"x"}'


def test_missing_field_of_the_schema_is_null() -> None:
    assert returning({"n": 1}, "n long, s string") == b'{"n":1,"s":null}'


@pytest.mark.parametrize(
    ("value", "returns", "text"),
    [
        (7, "n long", b'{"n":7}'),
        ("x", "s string", b'{"s":"x"}'),
        ((Decimal("1.50"), dt.date(2026, 1, 2)), "a decimal(5,2), d date", b'{"a":"1.50","d":"2026-01-02"}'),
        ({"a": [1, None], "m": {"k": 1.5}}, "a array<int>, m map<string,double>", b'{"a":[1,null],"m":{"k":1.5}}'),
        ({"o": {"x": 1}}, "o struct<x: int>", b'{"o":{"x":1}}'),
        ({"a b": True}, "`a b` boolean", b'{"a b":true}'),
        ((np.int64(3), np.float32(0.5), np.str_("x")), "n long, d double, s string", b'{"n":3,"d":0.5,"s":"x"}'),
    ],
)
def test_values_of_a_schema(value: Any, returns: str, text: bytes) -> None:
    assert returning(value, returns) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"n": 1, "when": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}, b'{"n":1,"when":"2026-01-01T00:00:00Z"}'),
        ("text", b'"text"'),
        (0, b"0"),
        ("", b'""'),
        ({}, b"{}"),
        (False, b"false"),
        (Data(1), b'{"n":1,"s":null}'),
        ((1, 2), b"[1,2]"),
        (np.int64(3), b"3"),
        ({"n": np.float64(0.5), "a": np.array([1, 2])}, b'{"n":0.5,"a":[1,2]}'),
    ],
)
def test_result_without_a_schema_is_json(value: Any, text: bytes) -> None:
    assert returning(value) == text


def test_function_result_none_acks_and_a_list_gives_several() -> None:
    def counts(_: Any) -> Iterator[int]:
        yield from range(3)

    assert returning(None) is None
    assert returning(None, "n long") is None
    assert returning([], "n long") == []
    assert returning([1, 2], "n long") == [b'{"n":1}', b'{"n":2}']
    assert run(counts) == [b"0", b"1", b"2"]
    assert returning(iter([{"a": 1}])) == [b'{"a":1}']


@pytest.mark.parametrize(
    ("value", "returns", "told"),
    [
        ({"n": "1"}, "n long", "returned {'n': '1'}, which is not struct<n:bigint>: Expected `int | null`, got `str`"),
        ({"n": 1.5}, "n long", "Expected `int"),
        ({"n": 2**31}, "n int", "<= 2147483647"),
        ({"n": 1, "m": 2}, "n long", "returned a field 'm' that returns does not have"),
        ({}, "n long not null", "missing required field `n`"),
        ((1, 2, 3), "n long, s string", "returned 3 values where returns has 2"),
        ("x", "n long, s string", "('str') where returns has the fields n, s: return a dict, a tuple or a dataclass"),
        ([1, "x"], "n long", "Expected `int"),
        (object(), "n long", "Expected `int"),
        (True, "n long", "Expected `int"),
        (object(), None, "returned a value that JSON cannot hold"),
        ({1: {2, 3}, "x": object}, None, "returned a value that JSON cannot hold"),
        (b"\xff", "s string", "Expected `str"),
        ({"n": float("nan")}, "n double", "returned NaN or an infinite number, which JSON does not have"),
        ({"n": float("inf")}, "n double not null", "returned NaN or an infinite number"),
        ([{"a": 1}, {"a": [None, {"b": (-float("inf"),)}]}], None, "returned NaN or an infinite number"),
        (np.array([1.0, np.nan]), None, "returned NaN or an infinite number"),
        (Data(float("nan")), None, "returned NaN or an infinite number"),  # type: ignore[arg-type]
    ],
)
def test_result_of_a_wrong_type_is_refused(value: Any, returns: str | None, told: str) -> None:
    found = returning(value, returns)
    assert isinstance(found, Failure)
    assert (found.outcome, found.error_type) == (Outcome.RETRY, "WrongType")
    assert told.replace("('str')", "(str)") in str(found.error)


def test_null_that_is_none() -> None:
    assert returning({"n": None, "s": "null", "x": 1.5}) == b'{"n":null,"s":"null","x":1.5}'


def test_list_that_is_wrong_in_one_place_has_no_outputs() -> None:
    assert isinstance(returning([{"n": 1}, {"n": "x"}], "n long"), Failure)


def raising(problem: BaseException) -> Failure:
    def function(_: Any) -> None:
        raise problem

    found = run(function)
    assert isinstance(found, Failure)
    return found


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (ValueError("order 7 is bad"), Failure(Outcome.RETRY, None, "order 7 is bad", "ValueError")),
        (KeyError("n"), Failure(Outcome.RETRY, None, "'n'", "KeyError")),
        (Reject("never"), Failure(Outcome.REJECT, None, "never", None)),
        (Reject(ValueError("bad")), Failure(Outcome.REJECT, None, "bad", "ValueError")),
        (Retry(delay=1.5), Failure(Outcome.RETRY, 1_500_000, None, None)),
        (Retry(delay=dt.timedelta(minutes=1), error="busy"), Failure(Outcome.RETRY, 60_000_000, "busy", None)),
        (Retry(error=OSError("gone")), Failure(Outcome.RETRY, None, "gone", "OSError")),
        (SystemExit(3), Failure(Outcome.RETRY, None, "SystemExit: 3", "SystemExit")),
        (KeyboardInterrupt(), Failure(Outcome.RETRY, None, "KeyboardInterrupt: ", "KeyboardInterrupt")),
        (StopIteration(1), Failure(Outcome.RETRY, None, "1", "StopIteration")),
    ],
)
def test_exception_of_a_function_becomes_a_failure(problem: BaseException, expected: Failure) -> None:
    assert raising(problem) == expected


def test_retry_with_a_delay_that_is_none_is_a_retry() -> None:
    found = raising(Retry(delay=-1))
    assert (found.outcome, found.delay, found.error_type) == (Outcome.RETRY, None, "BadInput")
    assert "delay must be between" in str(found.error)


def test_error_as_long_as_a_book_is_cut() -> None:
    assert len(str(raising(ValueError("x" * 100_000)).error)) == 8192
    assert raising(ValueError("a\0b\ud800")).error == "a\ufffdb?"


def test_endless_recursion_is_its_own_fault() -> None:
    def forever(value: Any) -> Any:
        return forever(value)

    found = run(forever)
    assert isinstance(found, Failure)
    assert found.error_type == "RecursionError"


@pytest.mark.parametrize(
    ("payload", "expects", "told"),
    [
        ("{", None, "Input data was truncated"),
        ("", None, "Input data was truncated"),
        ("\ud800", None, "malformed"),
        ('{"n": "x"}', "n long", "Expected `int | null`, got `str` - at `$.n`"),
        ("{}", "n long not null", "missing required field `n`"),
        ("[1]", "n long", "Expected `object`, got `array`"),
        ("[" * 100_000, None, ""),
    ],
)
def test_unfit_payload_is_rejected_before_function_runs(payload: str, expects: str | None, told: str) -> None:
    def never(_: Any) -> None:
        pytest.fail("it was called")

    found = run(never, payload, expects=expects)
    assert isinstance(found, Failure)
    assert (found.outcome, found.undecodable) == (Outcome.REJECT, True)
    assert str(found.error).startswith("the payload does not fit: ")
    assert told in str(found.error)


def test_payload_is_plain_python() -> None:
    text = '{"n":1,"f":1.5,"big":123456789012345678901234567890,"a":[null,true],"s":"é"}'
    seen: list[Any] = []
    assert run(seen.append, text, expects="n long") is None
    assert seen == [{"n": 1, "f": 1.5, "big": 123456789012345678901234567890, "a": [None, True], "s": "é"}]


def with_default(value: Any, more: int = 1) -> Any:
    return (value, more)


def test_function_that_takes_two_gets_the_record() -> None:
    assert run(lambda value, record: record.headers) == b'{"k":"v"}'
    assert run(lambda value, record: [record.attempt, record.seq]) == [b"3", b"2"]


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (lambda value: 1, False),
        (lambda value, record: 1, True),
        (with_default, False),
        (lambda *args: 1, False),
        (lambda value, *, flag=1: 1, False),
        (functools.partial(with_default, more=2), False),
        (functools.partial(lambda more, value, record: 1, 1), True),
        (print, False),
        (str, False),
        (sys.intern, False),
    ],
)
def test_function_with_a_second_parameter_takes_the_record(function: Callable[..., Any], takes: bool) -> None:
    assert takes_record(function) is takes


def test_object_that_is_called() -> None:
    class Counts:
        def __call__(self, value: Any, record: Record) -> str:
            return record.message_id

    assert run(Counts()) == b'"id"'
