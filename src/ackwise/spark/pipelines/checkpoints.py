"""Identity of a pipeline: a file in its checkpoint."""

from __future__ import annotations

import uuid

import msgspec

from ackwise.core.errors import Conflict
from ackwise.spark.hadoop_files import HadoopFolder

FILE = "ackwise.json"


class Identity(msgspec.Struct, frozen=True):
    """Identity of a query. The nonce is stored before the first claim, so a restart can take over every claim."""

    nonce: str
    queue: str
    group: str
    claim_name: str


def identity(folder: HadoopFolder, queue: str, group: str, claim_name: str) -> Identity:
    """Read the identity from a checkpoint, or create it."""
    expected = Identity(uuid.uuid4().hex, queue, group, claim_name)
    if not folder.exists(FILE):
        if not folder.create(FILE, msgspec.json.encode(expected).decode()):
            raise Conflict(f"another pipeline starts from the checkpoint {folder.url} now; use another checkpoint")
        return expected
    try:
        stored = msgspec.json.decode(folder.text(FILE), type=Identity)
    except msgspec.DecodeError as problem:
        raise Conflict(f"{folder.url}/{FILE} is not the file of a pipeline: {problem}") from None
    for what in ("queue", "group", "claim_name"):
        if getattr(stored, what) != getattr(expected, what):
            raise Conflict(
                f"the checkpoint {folder.url} belongs to {what} {getattr(stored, what)!r}, and this pipeline has "
                f"{getattr(expected, what)!r}; give each pipeline a checkpoint of its own"
            )
    _remove_drafts(folder)
    return stored


def _remove_drafts(folder: HadoopFolder) -> None:
    """Remove the draft of the first offset that a killed Spark left.

    Spark cannot start from a checkpoint that has only this draft.
    """
    names = folder.names("offsets")
    if all(name.startswith(".") for name in names):
        for name in names:
            folder.remove(f"offsets/{name}")
