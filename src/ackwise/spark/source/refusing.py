"""A reader that says what is wrong with the options. Spark shows an error of a reader's making only in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from ackwise.core.errors import AckwiseError
from ackwise.spark.failing import plainly


class RefusingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Whatever it is asked first, it answers with the problem."""

    def __init__(self, problem: AckwiseError) -> None:
        self._problem = problem

    @plainly
    def _refuse(self) -> NoReturn:
        raise self._problem

    def prepareForTriggerAvailableNow(self) -> None:
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:
        self._refuse()

    def initialOffset(self) -> dict[str, Any]:
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._refuse()
