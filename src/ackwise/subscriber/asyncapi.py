"""What an app receives and sends, as an AsyncAPI 3.0 document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from ackwise.subscriber.codecs import RAW, is_pydantic

if TYPE_CHECKING:
    from ackwise.subscriber.app import App

_REF = "#/components/schemas/{}"


def document(app: App, title: str, version: str) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for one in app.subscriptions:
        message = _message(channels, one.queue, one.signature.kind, schemas)
        described = {"summary": _summary(one.handler.__doc__)} if one.handler.__doc__ else {}
        operations[one.name] = {"action": "receive", **_of(one.queue, message), **described}
    for sends in app.publishers:
        message = _message(channels, sends.queue, sends.kind, schemas)
        operations.setdefault(f"publish.{sends.queue}", {"action": "send", **_of(sends.queue, message)})
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


def _message(channels: dict[str, Any], queue: str, kind: Any, schemas: dict[str, Any]) -> str:
    name = str(getattr(kind, "__name__", kind))
    channel = channels.setdefault(queue, {"address": queue, "messages": {}})
    if kind is bytes:
        told = {"contentType": RAW, "payload": {"type": "string", "format": "binary"}}
    else:
        told = {"contentType": "application/json", "payload": _schema(kind, schemas)}
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
