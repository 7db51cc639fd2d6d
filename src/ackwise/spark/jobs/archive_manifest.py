"""Manifests of an archive: each run commits by creating one.

A run writes its files to a staging folder. Then it creates a manifest, which names the files and the archived position
of every lane. The manifest is the commit. Then the run moves the files to their final folders. A run that dies before
its manifest has archived nothing. After a later death, the next run finishes the moves. Two runs cannot create a
manifest with the same number. The folder of an archive:

    queue=orders/day=2030-01-31/00000007-0001.parquet    messages
    _ackwise/00000007.json                               the manifest of run 7
    _ackwise/00000008-<id>/…                             staging folder of a run
"""

from __future__ import annotations

import re
from uuid import uuid4

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType, StructField, StructType

from ackwise.core.errors import Conflict, NotFound, StoreCorrupt
from ackwise.spark.hadoop_files import HadoopFolder
from ackwise.spark.source import schemas

_MANIFESTS = "_ackwise"
_MANIFEST = re.compile(r"(\d{8})\.json")
_STAGED = re.compile(r"(\d{8})-[0-9a-f]{32}")

MESSAGES = StructType([field for field in schemas.TABLES["messages"].fields if field.name != "state"])
SCHEMA = StructType([*MESSAGES.fields, StructField("day", DateType())])
"""`day` is that of `created_at`, in UTC."""


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """Commit of one run. `files` are pairs of staging path and final path."""

    number: int
    made_at: str
    messages: int
    files: list[tuple[str, str]]
    places: dict[str, int]
    """By lane (`partition id/priority`): the archive has all messages below this seq."""


def place_name(partition_id: str, priority: int) -> str:
    return f"{partition_id}/{priority}"


class Archive:
    """An archive. On opening it finishes the moves of the last committed run."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark, self._folder = spark, HadoopFolder(spark, path)
        self.url = self._folder.url
        numbers = [int(match[1]) for name in self._folder.names(_MANIFESTS) if (match := _MANIFEST.fullmatch(name))]
        self.last = self._read(max(numbers)) if numbers else None
        if self.last is not None:
            self._finish(self.last)
        for name in self._folder.names(_MANIFESTS):
            match = _STAGED.fullmatch(name)
            # The manifest with this number exists, so the run of this staging folder can never commit.
            if match is not None and int(match[1]) < self.number:
                self._folder.remove(f"{_MANIFESTS}/{name}")

    @property
    def number(self) -> int:
        """Number of the next run."""
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
        """Write messages to a new staging folder and return its name."""
        name = f"{_MANIFESTS}/{self.number:08d}-{uuid4().hex}"
        messages.write.partitionBy("queue", "day").parquet(f"{self.url}/{name}")
        return name

    def staged(self, name: str) -> DataFrame:
        return self._spark.read.schema(SCHEMA).parquet(f"{self.url}/{name}")

    def commit(self, staged: str | None, places: dict[str, int], messages: int, made_at: str) -> None:
        """Commit a run: create its manifest and move its files. Raises `Conflict` if another run came first."""
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
                f"another run of archive to {self.url} finished first; this run archived nothing, run it again"
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
    return f"{_MANIFESTS}/{number:08d}.json"
