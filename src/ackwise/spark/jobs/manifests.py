"""What an archive holds, and how a run becomes part of it: at once, and never twice.

A run writes its files aside, then a manifest that names them and says how far every lane is archived by now. With
that it counts; only then are the files moved to where they are read. Whoever dies before has archived nothing; after
it, the next run finishes the moves. Two runs cannot both make the manifest of one number. What lies in the folder:

    queue=orders/day=2030-01-31/00000007-0001.parquet    messages
    _ackwise/00000007.json                               the manifest of run 7
    _ackwise/00000008-<id>/…                             a run on its way
"""

from __future__ import annotations

import re
from uuid import uuid4

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType, StructField, StructType

from ackwise.core.errors import Conflict, NotFound, StoreCorrupt
from ackwise.spark.folders import Folder
from ackwise.spark.source import schemas

_BOOKS = "_ackwise"
_MANIFEST = re.compile(r"(\d{8})\.json")
_STAGED = re.compile(r"(\d{8})-[0-9a-f]{32}")

MESSAGES = StructType([field for field in schemas.TABLES["messages"].fields if field.name != "state"])
SCHEMA = StructType([*MESSAGES.fields, StructField("day", DateType())])
"""`day` is that of `created_at`, in UTC."""


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """One run. `files` are moved from where they were written to where they are read."""

    number: int
    made_at: str
    messages: int
    files: list[tuple[str, str]]
    places: dict[str, int]
    """Every lane ever archived, as `partition id/priority`: what is below its seq is here."""


def place_name(partition_id: str, priority: int) -> str:
    return f"{partition_id}/{priority}"


class Archive:
    """An archive as it is now: every run that counts is finished first."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark, self._folder = spark, Folder(spark, path)
        self.url = self._folder.url
        numbers = [int(found[1]) for name in self._folder.names(_BOOKS) if (found := _MANIFEST.fullmatch(name))]
        self.last = self._read(max(numbers)) if numbers else None
        if self.last is not None:
            self._finish(self.last)
        for name in self._folder.names(_BOOKS):
            found = _STAGED.fullmatch(name)
            # A run that aims at a number that is taken can never count.
            if found is not None and int(found[1]) < self.number:
                self._folder.remove(f"{_BOOKS}/{name}")

    @property
    def number(self) -> int:
        """Of the next run."""
        return 1 if self.last is None else self.last.number + 1

    @property
    def places(self) -> dict[str, int]:
        return {} if self.last is None else self.last.places

    def _read(self, number: int) -> Manifest:
        name = _manifest(number)
        try:
            return msgspec.json.decode(self._folder.text(name), type=Manifest)
        except msgspec.DecodeError as problem:
            raise StoreCorrupt(f"{self.url}/{name} is damaged: {problem}") from None

    def _finish(self, manifest: Manifest) -> None:
        for source, target in manifest.files:
            if self._folder.exists(source):
                self._folder.move(source, target)

    def stage(self, messages: DataFrame) -> str:
        """Write messages aside; where."""
        name = f"{_BOOKS}/{self.number:08d}-{uuid4().hex}"
        messages.write.partitionBy("queue", "day").parquet(f"{self.url}/{name}")
        return name

    def staged(self, name: str) -> DataFrame:
        return self._spark.read.schema(SCHEMA).parquet(f"{self.url}/{name}")

    def commit(self, staged: str | None, places: dict[str, int], messages: int, made_at: str) -> None:
        """From here on it counts. Refused if another run came first."""
        files: list[tuple[str, str]] = []
        for at, name in enumerate(self._folder.tree(staged) if staged is not None else ()):
            place = name.rpartition("/")[0]
            files.append((f"{staged}/{name}", f"{place}/{self.number:08d}-{at:04d}.parquet"))
        self._folder.keep([source for source, _ in files])
        manifest = Manifest(self.number, made_at, messages, files, {**self.places, **places})
        if not self._folder.create(_manifest(self.number), msgspec.json.encode(manifest).decode()):
            if staged is not None:
                self._folder.remove(staged)
            raise Conflict(
                f"another run of archive to {self.url} finished meanwhile; nothing was archived twice, run again"
            )
        self.last = manifest
        self._finish(manifest)
        if staged is not None:
            self._folder.remove(staged)

    def read(self) -> DataFrame:
        """Every archived message."""
        if self.last is None:
            raise NotFound(f"there is no archive at {self.url}")
        return self._spark.read.schema(SCHEMA).parquet(self.url)


def _manifest(number: int) -> str:
    return f"{_BOOKS}/{number:08d}.json"
