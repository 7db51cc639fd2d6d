"""What the files of this folder hold, for the script that wrote them and for the tests that read them."""

from __future__ import annotations

import lzma
import os
import tarfile
import time
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from ackwise import Reject

FOLDER = Path(__file__).resolve().parent
STARTED = 1_760_000_000_000_000
"""Microseconds. The script's clock shows this instant until the script moves it."""
ENDED = STARTED + 120_000_000
"""The script's clock when the script ended. Leases of ten minutes are still live."""
SESSION = "before_18"
"""The MEW session that owns the watches."""
BLOCK = "BEFORE_18_BLOCK"
"""Environment variable: a file that `bill` creates before it blocks at the order `BLOCKED`."""
ORDERS = 12
REFUSED, BLOCKED = 3, 6
BATCH = 4


class Expected(msgspec.Struct):
    """Names that the script was given by the store: deliveries that it left open, and others that tests need."""

    held: str
    """Delivery of `orders` for `billing`, unsettled, lease of ten minutes."""
    keyed: str
    """Lease of `orders` for `audit` under the claim key `nightly/1`."""
    delivered: str
    """Delivery of a job to the watch `jobs`, unsettled."""


def bill(order: dict[str, Any]) -> dict[str, Any]:
    """The function of the pipeline."""
    if order["id"] == REFUSED:
        raise Reject("no such customer")
    if order["id"] == BLOCKED and BLOCK in os.environ:
        Path(os.environ[BLOCK]).touch()
        time.sleep(600)
    return {"order": order["id"], "cents": 100 * order["id"]}


def unpack(name: str, folder: Path) -> Path:
    """Unpack `name.tar.xz` into the folder. The answer is the folder."""
    with tarfile.open(FOLDER / f"{name}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder


def pack(name: str, folder: Path) -> None:
    """Pack a folder as `name.tar.xz`, with neither owners nor times."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = STARTED // 1_000_000
        return entry

    with tarfile.open(FOLDER / f"{name}.tar.xz", "w:xz", preset=9) as packed:
        for path in sorted(folder.iterdir()):
            packed.add(path, path.name, filter=plain)


def expected(store: str) -> Expected:
    """The names of the store `sqlite` or `postgres`."""
    return msgspec.json.decode((FOLDER / f"{store}.json").read_bytes(), type=Expected)


def restore(url: str) -> None:
    """Write the PostgreSQL dump into an empty database."""
    dump = lzma.decompress((FOLDER / "postgres.sql.xz").read_bytes())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS ackwise CASCADE")
        connection.execute(dump)
