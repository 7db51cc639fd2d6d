"""Options that are wrong are refused by name, before anything is opened."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ackwise.core.errors import AckwiseError, BadInput
from ackwise.spark.source.options import parse_options
from ackwise.spark.types import from_ddl
from tests.spark.source.asking import source

NOWHERE = "sqlite:////nowhere/at/all.db"
GIVEN = {"queue": "q", "group": "g"}


def first_answer(url: str | None, options: dict[str, Any], schema: str | None = None) -> None:
    """What Spark does before it reads: it makes a stream, and asks it where it begins."""
    made = source(url, options)
    reader: Any = made.streamReader(made.schema() if schema is None else from_ddl(schema, "schema"))
    reader.initialOffset()


def planned(url: str, options: dict[str, Any], schema: str | None = None) -> None:
    """The same for a batch."""
    made = source(url, options)
    made.reader(made.schema() if schema is None else from_ddl(schema, "schema"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"claimNam": "x"}, "the ackwise source has no option 'claimnam'; did you mean claimName?"),
        ({"maxRowPerTrigger": 5}, "no option 'maxrowpertrigger'; did you mean maxRowsPerTrigger?"),
        ({"xyz": 5}, "no option 'xyz'; it has url, queue, group"),
        ({"mode": "lock"}, "option mode is 'lock'; it must be one of lease, log"),
        ({"mode": "LOG"}, "option mode is 'LOG'; it must be one of lease, log"),
        ({"table": "dead"}, "option table is 'dead'; it must be one of messages, dead_letters"),
        ({"queue": ""}, "option queue must not be empty"),
        ({"group": "x" * 256}, "option group is longer than 255 characters"),
        ({"claimName": "a/b"}, "option claimName is 'a/b': it must not contain a slash"),
        ({"claimName": "x" * 217}, "option claimName is longer than 216 characters"),
        ({"claimName": ""}, "option claimName must not be empty"),
        ({"maxRowsPerTrigger": 0}, "option maxRowsPerTrigger must be between 1 and 1000000"),
        ({"maxRowsPerTrigger": "many"}, "option maxRowsPerTrigger must be a whole number, not 'many'"),
        ({"maxRowsPerTrigger": "1e3"}, "option maxRowsPerTrigger must be a whole number, not '1e3'"),
        ({"maxBytesPerTrigger": 0}, "option maxBytesPerTrigger must be between 1 and"),
        ({"maxBytesPerTrigger": "16MiB"}, "option maxBytesPerTrigger must be a whole number, not '16MiB'"),
        ({"maxBytesPerTrigger": 5, "mode": "log"}, "option maxBytesPerTrigger is for mode=lease"),
        ({"maxPartitions": -1}, "option maxPartitions must be between 1 and 100000"),
        ({"leaseSeconds": "long"}, "option leaseSeconds is 'long': it is not a number"),
        ({"leaseSeconds": "nan"}, "option leaseSeconds is 'nan': lease must be a finite number"),
        ({"leaseSeconds": 0}, "option leaseSeconds is '0': lease must be between"),
        ({"leaseSeconds": 1e9}, "option leaseSeconds is '1000000000.0': lease must be between"),
        ({"startingPosition": "earliest"}, "option startingPosition must be an ISO time"),
        ({"startingPosition": "2026-01-01T00:00:00"}, "option startingPosition has no timezone"),
        ({"startingPosition": "1960-01-01T00:00:00Z"}, "option startingPosition lies before 1970"),
        ({"failOnDataLoss": "no"}, "option failOnDataLoss is 'no'; it must be one of true, false"),
        ({"unsettled": "reject"}, "option unsettled is 'reject'; it must be one of ack, release, retry"),
        ({"payloadSchema": "n longg"}, "option payloadSchema is not a schema such as"),
        ({"payloadSchema": "n long, N string"}, "option payloadSchema has the column 'n' twice"),
        ({"payloadSchema": "struct<"}, "option payloadSchema is not a schema such as"),
        ({"payloadSchema": "{}"}, "option payloadSchema is not a schema such as"),
        ({"payloadSchema": "payload string"}, "option payloadSchema: the source has a column 'payload' already"),
        ({"payloadSchema": "_corrupt string"}, "option payloadSchema: the source has a column '_corrupt' already"),
        ({"payloadSchema": "m map<int, string>"}, "option payloadSchema: map<int,string>: the keys of a JSON object"),
    ],
)
def test_option_that_is_wrong(options: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput) as caught:
        first_answer(NOWHERE, {**GIVEN, **options})
    text = str(caught.value)
    assert text.startswith("ackwise: ")
    assert told in text
    assert text.endswith(" [bad_input]")
    assert "\n" not in text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"group": "g"}, 'option queue is missing: .option("queue", "orders")'),
        ({"queue": "q"}, "option group is missing: a lease belongs to a group"),
        ({"group": "g", "mode": "log"}, "option queue is missing"),
        (
            {**GIVEN, "table": "groups"},
            "option table is 'groups': tables are read as batches, with spark.read",
        ),
        ({**GIVEN, "table": "groups", "mode": "log"}, "option table is 'groups': tables are read as batches"),
    ],
)
def test_option_that_is_missing(options: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=re.escape(told)):
        first_answer(NOWHERE, options)


def test_source_without_a_url_uses_the_variable_or_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACKWISE_URL", raising=False)
    with pytest.raises(BadInput, match=r"^ackwise: option url is missing: .*or set ACKWISE_URL \[bad_input\]$"):
        source(None, GIVEN).schema()
    monkeypatch.setenv("ACKWISE_URL", "sqlite:///relative.db")
    assert parse_options({}).url.startswith("sqlite:////")


@pytest.mark.usefixtures("short_hello")
@pytest.mark.parametrize(
    ("url", "told"),
    [
        (NOWHERE, "/nowhere/at does not exist"),
        ("sqlite:///", "option url"),
        ("mysql://x/y", "mysql"),
        ("http://127.0.0.1:9", "no server answers at http://127.0.0.1:9"),
    ],
)
def test_url_where_nothing_is(url: str, told: str) -> None:
    for asked, options in ((first_answer, GIVEN), (planned, {**GIVEN, "table": "groups"})):
        with pytest.raises(AckwiseError) as caught:
            asked(url, options)
        assert str(caught.value).startswith("ackwise: ")
        assert told in str(caught.value)


def test_batch_needs_a_queue_for_messages(local_url: str) -> None:
    for options in ({}, {"table": "messages"}):
        with pytest.raises(BadInput, match="ackwise: option queue is missing"):
            planned(local_url, options)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("seq int", "schema: the column 'seq' is bigint, not int"),
        ("sequence long", "schema: the source has no column 'sequence'; it has delivery_id, message_id"),
        ("SEQ long", "schema: the source has no column 'SEQ'; it has delivery_id"),
        ("headers map<string,int>", "schema: the column 'headers' is map<string,string>, not map<string,int>"),
    ],
)
def test_schema_that_the_source_does_not_have(schema: str, told: str) -> None:
    for asked in (first_answer, planned):
        with pytest.raises(BadInput) as caught:
            asked(NOWHERE, GIVEN, schema)
        assert told in str(caught.value)
