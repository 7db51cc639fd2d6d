"""Everything else that can be asked: commands about queues, groups and dead letters, and every query."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

import msgspec

from ackwise.core import ids
from ackwise.core import queries as q
from ackwise.core.answers import Counted, QueueInfo, Redriven
from ackwise.core.commands import (
    AdvanceGroup,
    Command,
    ConfigureGroup,
    ConfigureQueue,
    DeleteGroup,
    DeleteQueue,
    PauseQueue,
    PruneQueue,
    PurgeDead,
    Redrive,
    Replay,
    SeekGroup,
)
from ackwise.core.learning import learn
from ackwise.core.messages import JSON, Extras, Message

AdminCommand = (
    ConfigureQueue
    | DeleteQueue
    | PauseQueue
    | ConfigureGroup
    | SeekGroup
    | AdvanceGroup
    | PruneQueue
    | DeleteGroup
    | Redrive
    | Replay
    | PurgeDead
)
AnyQuery = (
    q.ListQueues
    | q.GetQueue
    | q.Browse
    | q.FindMessage
    | q.ListDead
    | q.ListGroups
    | q.ListGroupNames
    | q.ListCursors
    | q.ListPlaces
    | q.ListPartitions
    | q.ListLanes
    | q.ListLeases
    | q.ListHeld
    | q.ListDepths
    | q.IsHeld
    | q.ReadLedger
    | q.QueueStats
    | q.ListStats
)

_ANSWERS: dict[type[msgspec.Struct], Any] = {
    ConfigureQueue: QueueInfo,
    DeleteQueue: Counted,
    PauseQueue: QueueInfo,
    ConfigureGroup: Counted,
    SeekGroup: Counted,
    AdvanceGroup: Counted,
    PruneQueue: Counted,
    DeleteGroup: Counted,
    Redrive: Redriven,
    Replay: Redriven,
    PurgeDead: Counted,
    q.ListQueues: list[QueueInfo],
    q.GetQueue: QueueInfo,
    q.Browse: list[q.BrowsedMessage],
    q.FindMessage: q.FoundMessage,
    q.ListDead: q.DeadPage,
    q.ListGroups: list[q.GroupStats],
    q.ListGroupNames: list[str],
    q.ListCursors: list[q.CursorRow],
    q.ListPlaces: list[q.Place],
    q.ListPartitions: list[q.PartitionRow],
    q.ListLanes: list[q.LaneRow],
    q.ListLeases: list[q.LeaseRow],
    q.ListHeld: list[q.HeldRow],
    q.ListDepths: list[q.Depth],
    q.IsHeld: bool,
    q.ReadLedger: list[q.LedgerRow],
    q.QueueStats: q.Stats,
    q.ListStats: list[q.QueueSummary],
}


class _Shown(msgspec.Struct, omit_defaults=True):
    """A message by itself."""

    lane: int
    seq: int
    id: str
    txid: str
    created_at: int
    payload: bytes
    headers: dict[str, str] = {}
    content_type: str = JSON


class _Alone:
    """The source of one message at the other end."""

    __slots__ = ("_shown",)

    def __init__(self, shown: _Shown) -> None:
        self._shown = shown

    def id_int(self, _: int) -> int:
        return ids.uuid_int(self._shown.id) or 0

    def txid(self, _: int) -> str:
        return self._shown.txid

    def payload(self, _: int) -> bytes:
        return self._shown.payload

    def extras(self, _: int) -> Extras:
        return Extras(self._shown.headers, self._shown.content_type)


def _write_message(value: object) -> _Shown:
    if not isinstance(value, Message):
        raise TypeError(f"{type(value).__name__} does not go over the wire")
    return _Shown(
        value.lane, value.seq, value.id, value.txid, value.created_at, value.payload, value.headers, value.content_type
    )


def _read_message(kind: type, value: object) -> object:
    if kind is not Message:
        return value
    shown = msgspec.convert(value, _Shown)
    return Message(_Alone(shown), shown.lane, shown.seq, shown.created_at)


learn(_Shown)
COMMANDS = msgspec.json.Decoder(AdminCommand)
QUERIES = msgspec.json.Decoder(AnyQuery)
_ADMIN = get_args(AdminCommand)
encode = msgspec.json.Encoder(enc_hook=_write_message).encode


def is_admin(command: Command) -> bool:
    return isinstance(command, _ADMIN)


@cache
def answers_to(kind: type[Command] | type[q.Query]) -> msgspec.json.Decoder[Any]:
    """What reads the answer to a command or query."""
    return msgspec.json.Decoder(_ANSWERS[kind], dec_hook=_read_message)


def answer(command: Command, result: object) -> object:
    """What is sent back: of a group that was configured only that it was, for its row is the store's own."""
    return Counted(1) if isinstance(command, ConfigureGroup) else result
