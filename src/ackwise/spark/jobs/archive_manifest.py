"""Archive on any Hadoop file system: staging, reading and the schema of its files."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType, StructField, StructType

from ackwise.core.errors import NotFound
from ackwise.spark.archive_folder import ArchiveFolder
from ackwise.spark.hadoop_files import HadoopFolder
from ackwise.spark.source import schemas

MESSAGES = StructType([field for field in schemas.TABLES["messages"].fields if field.name != "state"])
SCHEMA = StructType([*MESSAGES.fields, StructField("day", DateType())])
"""`day` is that of `created_at`, in UTC."""


class Archive(ArchiveFolder):
    """An archive that Spark reads and writes."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        super().__init__(HadoopFolder(spark, path))

    def stage(self, messages: DataFrame) -> str:
        """Write messages to a new staging folder and return its name."""
        name = self.new_stage()
        messages.write.partitionBy("queue", "day").parquet(f"{self.url}/{name}")
        return name

    def staged(self, name: str) -> DataFrame:
        return self._spark.read.schema(SCHEMA).parquet(f"{self.url}/{name}")

    def read(self) -> DataFrame:
        """Every archived message."""
        if self.last is None:
            raise NotFound(f"there is no archive at {self.url}")
        return self._spark.read.schema(SCHEMA).parquet(self.url)
