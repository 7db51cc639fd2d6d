"""An archive that the version before the new package layout wrote is replayed."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from ackwise import connect
from ackwise.spark.jobs import replay
from tests.data.before_18.contents import unpack


def test_old_archive_is_replayed_into_a_new_queue(spark: SparkSession, url: str, tmp_path: Path) -> None:
    path = str(unpack("archive", tmp_path / "archive"))
    counts = [tuple(row) for row in replay(spark, path, url, to_queue="again").collect()]
    assert counts == [("again", 8, 0)]
    with connect(url) as queue:
        messages = queue.browse("again")
    numbers: dict[str, list[int]] = {}
    for message in messages:
        if message.partition.startswith("p"):
            numbers.setdefault(message.partition, []).append(message.json()["n"])
    assert numbers == {"p0": [0, 2, 4], "p1": [1, 3, 5]}
    (picture,) = (message for message in messages if message.content_type == "image/png")
    assert (picture.payload, picture.headers) == (b"\xff\x00", {"to": "x"})
    assert sum(message.payload == b"{broken" for message in messages) == 1
