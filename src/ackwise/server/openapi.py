"""OpenAPI 3.1 document: built from the documentation of the routes and the structs that their handlers use."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Iterable, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any

import msgspec

from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route
from ackwise.protocols.product_version import VERSION
from ackwise.protocols.route_docs import COMMON_ERRORS, RouteDoc

PATH = "/openapi.json"
CACHING = (b"cache-control", b"no-cache")
"""A browser keeps the answer. It asks with the ETag whether its copy is still current."""
_REF = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)\}")
_LONGEST_SEGMENT = 512
Schema = dict[str, Any]


def undocumented(routes: Iterable[Route]) -> list[str]:
    """`METHOD /path` of the routes without documentation. Pages need none."""
    return [f"{route.method} {route.path}" for route in routes if route.doc is None and not route.page]


def openapi(routes: Iterable[Route], pages: Mapping[str, RouteDoc]) -> Schema:
    """The document that describes routes, and `pages` by `METHOD /path`. Leaves out routes without documentation."""
    docs = {(route.path, route.method.lower()): route.doc for route in routes if route.doc is not None}
    for name, doc in pages.items():
        method, _, path = name.partition(" ")
        docs[path, method.lower()] = doc
    schemas = _Schemas(docs.values())
    paths: dict[str, Schema] = {}
    for (path, method), doc in docs.items():
        paths.setdefault(path, {})[method] = _operation(path, method, doc, schemas)
    tags = dict.fromkeys(doc.tag for doc in docs.values())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ackwise",
            "version": VERSION,
            "description": "A durable message queue in which every delivery ends in exactly one settlement.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": tag} for tag in tags],
        "paths": paths,
        "components": {"schemas": schemas.components},
    }


class _Schemas:
    """JSON schemas of all types that the routes name."""

    def __init__(self, docs: Iterable[RouteDoc]) -> None:
        kinds = {_key(kind): kind for doc in docs for kind in _types(doc)}
        written, self.components = msgspec.json.schema_components(list(kinds.values()), ref_template=_REF)
        self._written = dict(zip(kinds, written, strict=True))
        for component in self.components.values():
            if "description" in component:
                component["description"] = inspect.cleandoc(component["description"])

    def of(self, kind: Any) -> Schema:
        if kind is bytes:
            return {}
        if isinstance(kind, tuple):
            return {"anyOf": [self.of(member) for member in kind]}
        return self._written[_key(kind)]


def _key(kind: Any) -> str:
    return f"{getattr(kind, '__module__', '')} {kind!r}"


def _types(doc: RouteDoc) -> Iterable[Any]:
    for kind in (doc.body, doc.error, *doc.answers.values()):
        members = kind if isinstance(kind, tuple) else (kind,)
        yield from (member for member in members if member is not None and member is not bytes)


def _operation(path: str, method: str, doc: RouteDoc, schemas: _Schemas) -> Schema:
    operation: Schema = {"summary": doc.summary, "tags": [doc.tag], "operationId": _operation_id(path, method)}
    if doc.internal:
        operation["x-internal"] = True
    parameters = [*_path_parameters(path), *_query_parameters(doc.query), *_header_parameters(doc.headers)]
    if parameters:
        operation["parameters"] = parameters
    if doc.body is not None:
        operation["requestBody"] = _body(doc, schemas)
    operation["responses"] = _responses(doc, schemas)
    return operation


def _operation_id(path: str, method: str) -> str:
    return re.sub(r"\W+", "_", f"{method}{path}").strip("_")


def _path_parameters(path: str) -> list[Schema]:
    schema = {"type": "string", "minLength": 1, "maxLength": _LONGEST_SEGMENT}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in _PARAMETER.findall(path)]


def _query_parameters(kind: type[msgspec.Struct] | None) -> list[Schema]:
    if kind is None:
        return []
    _, components = msgspec.json.schema_components([kind], ref_template=_REF)
    struct = components[kind.__name__]
    required = struct.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in struct["properties"].items()
    ]


def _header_parameters(headers: Mapping[str, str]) -> list[Schema]:
    return [
        {"name": name, "in": "header", "required": False, "description": meaning, "schema": {"type": "string"}}
        for name, meaning in headers.items()
    ]


def _content(schema: Schema, media_types: Iterable[str]) -> Schema:
    """The content of a body. Only JSON has a schema."""
    return {media: {"schema": schema} if media.endswith("json") else {} for media in media_types}


def _body(doc: RouteDoc, schemas: _Schemas) -> Schema:
    return {"required": doc.body_required, "content": _content(schemas.of(doc.body), doc.body_types)}


def _responses(doc: RouteDoc, schemas: _Schemas) -> Schema:
    responses: dict[str, Schema] = {}
    for status, kind in doc.answers.items():
        response: Schema = {"description": HTTPStatus(status).phrase}
        if kind is not None:
            response["content"] = _content(schemas.of(kind), doc.answer_types)
        responses[str(status)] = response
    error = _content(schemas.of(doc.error), [doc.error_type])
    for status in sorted({*COMMON_ERRORS, *doc.errors} - doc.answers.keys()):
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": error}
    return responses


def etag_of(body: bytes) -> bytes:
    return b'"%b"' % hashlib.blake2b(body, digest_size=10).hexdigest().encode()


def cached_answer(
    call: Call, body: bytes, content_type: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> Answer:
    """The body with its ETag, or 304 if the client has this version."""
    tag = etag_of(body)
    headers = (*headers, (b"etag", tag), CACHING, (b"x-content-type-options", b"nosniff"))
    if tag in call.header(b"if-none-match"):
        return Answer(b"", 304, content_type, headers)
    return Answer(body, content_type=content_type, headers=headers)


def openapi_route(routes: list[Route], pages: Mapping[str, RouteDoc]) -> Route:
    """`GET /openapi.json`. The document is built at the first request."""

    @cache
    def document() -> bytes:
        return msgspec.json.encode(openapi([*routes, route], pages))

    async def show(call: Call) -> Answer:
        return cached_answer(call, document(), b"application/json")

    doc = RouteDoc(summary="This document", tag="server", answers={200: dict[str, Any], 304: None})
    route = Route("GET", PATH, show, doc=doc)
    return route
