"""What an app receives and sends, as an AsyncAPI 3.0 document."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from ackwise.core.messages import JSON
from ackwise.subscriber.codecs import Codec, content_type_of, is_pydantic

if TYPE_CHECKING:
    from ackwise.subscriber.app import App

_REF = "#/components/schemas/{}"


def document(app: App, title: str, version: str) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for one in app.subscriptions:
        message = _message(channels, one.queue, one.signature.kind, one.codec, schemas)
        described = {"summary": _summary(one.handler.__doc__)} if one.handler.__doc__ else {}
        operations[_free(operations, one.name, one.queue)] = {
            "action": "receive",
            **_of(one.queue, message),
            **described,
        }
    for sends in app.publishers:
        message = _message(channels, sends.queue, sends.kind, sends.codec, schemas)
        told = {"action": "send", **_of(sends.queue, message)}
        earlier = operations.setdefault(f"publish.{sends.queue}", told)
        earlier["messages"] += [one for one in told["messages"] if one not in earlier["messages"]]
    parts = urlsplit(app.url if isinstance(app.url, str) else app.url[0])
    return {
        "asyncapi": "3.0.0",
        "info": {"title": title, "version": version},
        "servers": {"default": {"host": parts.netloc.rpartition("@")[2] or "localhost", "protocol": parts.scheme}},
        "channels": channels,
        "operations": operations,
        "components": {"schemas": schemas},
    }


def _of(queue: str, message: str) -> dict[str, Any]:
    channel = f"#/channels/{_escaped(queue)}"
    return {"channel": {"$ref": channel}, "messages": [{"$ref": f"{channel}/messages/{_escaped(message)}"}]}


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _summary(text: str) -> str:
    return text.strip().partition("\n")[0]


def _free(operations: dict[str, Any], name: str, queue: str) -> str:
    """One function may be fed from several queues, for several groups."""
    found, number = name, 1
    while found in operations:
        found = f"{name}.{queue}" if number == 1 else f"{name}.{queue}.{number}"
        number += 1
    return found


def _message(channels: dict[str, Any], queue: str, kind: Any, codec: Codec | None, schemas: dict[str, Any]) -> str:
    name = str(getattr(kind, "__name__", kind))
    channel = channels.setdefault(queue, {"address": queue, "messages": {}})
    content_type = JSON if codec is None else content_type_of(codec, kind)
    told: dict[str, Any] = {"contentType": content_type}
    if kind is bytes:
        told["payload"] = {"type": "string", "format": "binary"}
    elif content_type == JSON:
        # A codec of somebody's own may read what no schema can tell.
        with suppress(TypeError, ValueError):
            told["payload"] = _schema(kind, schemas)
    channel["messages"][name] = {"name": name, **told}
    return name


def _schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    if is_pydantic(kind):
        from pydantic import TypeAdapter

        schema = TypeAdapter(kind).json_schema(ref_template=_REF.format("{model}"))
        schemas.update(schema.pop("$defs", {}))
        if "title" in schema and schema.get("type") == "object":
            schemas[schema["title"]] = schema
            return {"$ref": _REF.format(schema["title"])}
        return schema
    (found,), parts = msgspec.json.schema_components([kind], ref_template=_REF.format("{name}"))
    schemas.update(parts)
    return found
