"""What a pipeline keeps in its checkpoint beside Spark's own files: who it is, and what it reads."""

from __future__ import annotations

import uuid

import msgspec

from ackwise.core.errors import Conflict
from ackwise.spark.folders import Folder

FILE = "ackwise.json"


class Identity(msgspec.Struct, frozen=True):
    """The nonce is there before the first claim is made, so whoever starts from the checkpoint can take over any."""

    nonce: str
    queue: str
    group: str
    claim_name: str


def identity(folder: Folder, queue: str, group: str, claim_name: str) -> Identity:
    """The identity in a checkpoint, made when there is none."""
    mine = Identity(uuid.uuid4().hex, queue, group, claim_name)
    if not folder.exists(FILE):
        if not folder.create(FILE, msgspec.json.encode(mine).decode()):
            raise Conflict(f"somebody else starts from the checkpoint {folder.url} at this moment")
        return mine
    try:
        found = msgspec.json.decode(folder.text(FILE), type=Identity)
    except msgspec.DecodeError as problem:
        raise Conflict(f"{folder.url}/{FILE} is not a pipeline's: {problem}") from None
    for what in ("queue", "group", "claim_name"):
        if getattr(found, what) != getattr(mine, what):
            raise Conflict(
                f"the checkpoint {folder.url} belongs to {what} {getattr(found, what)!r}, and this pipeline has "
                f"{getattr(mine, what)!r}; give each pipeline a checkpoint of its own"
            )
    _remove_drafts(folder)
    return found


def _remove_drafts(folder: Folder) -> None:
    """Spark that was killed while it wrote its first offset would refuse what it left behind, for ever."""
    found = folder.names("offsets")
    if all(name.startswith(".") for name in found):
        for name in found:
            folder.remove(f"offsets/{name}")
