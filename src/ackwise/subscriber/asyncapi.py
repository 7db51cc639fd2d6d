"""AsyncAPI document."""

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
    for subscription in app.subscriptions:
        message = _message(channels, subscription.queue, subscription.signature.kind, subscription.codec, schemas)
        described = {"summary": _summary(subscription.handler.__doc__)} if subscription.handler.__doc__ else {}
        operations[_free_name(operations, subscription.name, subscription.queue)] = {
            "action": "receive",
            **_channel_of(subscription.queue, message),
            **described,
        }
    for publisher in app.publishers:
        message = _message(channels, publisher.queue, publisher.kind, publisher.codec, schemas)
        operation = {"action": "send", **_channel_of(publisher.queue, message)}
        earlier = operations.setdefault(f"publish.{publisher.queue}", operation)
        earlier["messages"] += [
            reference for reference in operation["messages"] if reference not in earlier["messages"]
        ]
    parts = urlsplit(app.url if isinstance(app.url, str) else app.url[0])
    return {
        "asyncapi": "3.0.0",
        "info": {"title": title, "version": version},
        "servers": {"default": {"host": parts.netloc.rpartition("@")[2] or "localhost", "protocol": parts.scheme}},
        "channels": channels,
        "operations": operations,
        "components": {"schemas": schemas},
    }


def _channel_of(queue: str, message: str) -> dict[str, Any]:
    channel = f"#/channels/{_escaped(queue)}"
    return {"channel": {"$ref": channel}, "messages": [{"$ref": f"{channel}/messages/{_escaped(message)}"}]}


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _summary(text: str) -> str:
    return text.strip().partition("\n")[0]


def _free_name(operations: dict[str, Any], name: str, queue: str) -> str:
    """A free operation name: one function may subscribe to several queues."""
    free, number = name, 1
    while free in operations:
        free = f"{name}.{queue}" if number == 1 else f"{name}.{queue}.{number}"
        number += 1
    return free


def _message(channels: dict[str, Any], queue: str, kind: Any, codec: Codec | None, schemas: dict[str, Any]) -> str:
    name = str(getattr(kind, "__name__", kind))
    channel = channels.setdefault(queue, {"address": queue, "messages": {}})
    content_type = JSON if codec is None else content_type_of(codec, kind)
    message: dict[str, Any] = {"contentType": content_type}
    if kind is bytes:
        message["payload"] = {"type": "string", "format": "binary"}
    elif content_type == JSON:
        # A user's codec may decode types that have no schema.
        with suppress(TypeError, ValueError):
            message["payload"] = _schema(kind, schemas)
    channel["messages"][name] = {"name": name, **message}
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
    (schema,), parts = msgspec.json.schema_components([kind], ref_template=_REF.format("{name}"))
    schemas.update(parts)
    return schema
