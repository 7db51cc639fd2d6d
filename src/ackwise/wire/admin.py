"""Admin commands and queries over the wire."""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from types import ModuleType
from typing import Any, TypeVar

import msgspec

from ackwise.core import commands, ids, queries
from ackwise.core.commands import AdminCommand, Command
from ackwise.core.messages import JSON, Extras, Message
from ackwise.core.queries import Query
from ackwise.core.structs import answer_type, prepare_types

A = TypeVar("A")


def _kinds(module: ModuleType, base: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """The classes below `base` that a module defines."""
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, base)]
    return [kind for kind in kinds if kind is not base]


def _union(kinds: list[type[msgspec.Struct]]) -> Any:
    return reduce(or_, kinds)


ADMIN_COMMANDS = _kinds(commands, AdminCommand)
WIRE_QUERIES = _kinds(queries, Query)


class _MessageBody(msgspec.Struct, omit_defaults=True):
    """A message in an answer."""

    lane: int
    seq: int
    id: str
    txid: str
    created_at: int
    payload: bytes
    headers: dict[str, str] = {}
    content_type: str = JSON


class _SingleSource:
    """Source of one message on the client."""

    __slots__ = ("_body",)

    def __init__(self, body: _MessageBody) -> None:
        self._body = body

    def id_int(self, _: int) -> int:
        return ids.uuid_int(self._body.id) or 0

    def txid(self, _: int) -> str:
        return self._body.txid

    def payload(self, _: int) -> bytes:
        return self._body.payload

    def extras(self, _: int) -> Extras:
        return Extras(self._body.headers, self._body.content_type)


def _write_message(value: object) -> _MessageBody:
    if not isinstance(value, Message):
        raise TypeError(f"{type(value).__name__} cannot be sent over the wire")
    return _MessageBody(
        value.lane, value.seq, value.id, value.txid, value.created_at, value.payload, value.headers, value.content_type
    )


def _read_message(kind: type, value: object) -> object:
    if kind is not Message:
        return value
    body = msgspec.convert(value, _MessageBody)
    return Message(_SingleSource(body), body.lane, body.seq, body.created_at)


prepare_types(_MessageBody)
COMMANDS: msgspec.json.Decoder[AdminCommand] = msgspec.json.Decoder(_union(ADMIN_COMMANDS))
QUERIES: msgspec.json.Decoder[Query] = msgspec.json.Decoder(_union(WIRE_QUERIES))
encode = msgspec.json.Encoder(enc_hook=_write_message).encode


def answers_to(request: Command[A] | Query[A]) -> msgspec.json.Decoder[A]:
    """The decoder for the answer to a command or query."""
    return answer_decoder(type(request))


@cache
def answer_decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(answer_type(kind), dec_hook=_read_message)
