"""`/openapi.json` describes every route, and the server answers as the document says (Schemathesis)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ackwise.broker import AsyncBroker
from ackwise.connect import open_store
from ackwise.protocols.http_response import Route
from ackwise.protocols.mew.http import MewServer
from ackwise.protocols.native import list_docs
from ackwise.protocols.native.request_arguments import Arguments
from ackwise.protocols.native.tables import LISTS
from ackwise.protocols.problem_documents import NativeError, Problem
from ackwise.protocols.pushpop.sinks import Sinks
from ackwise.server import docs_pages, health
from ackwise.server.observer import Observer
from ackwise.server.openapi import undocumented
from ackwise.server.server import all_routes
from ackwise.server.settings import Settings
from tests.patience import PATIENCE
from tests.server.running import Running

CHECKS = [
    checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
FACES = ("native", "queen", "pushpop", "mew")
KNOWN = {"queue": "q", "group": "g", "consumerGroup": "g", "partition": "Default"}
"""Names that exist in the store of the tests. Without them almost every call would be 404."""
USUAL: dict[str, list[Any]] = {
    "table": ["messages", "dead_letters", "leases", "ledger", "groups", "nothing"],
    "cursor": ["x"],
    "after": ["2000-01-01T00:00:00Z"],
    "before": ["2100-01-01T00:00:00Z"],
    "If-Match": ["*", "x"],
    "create": [None],
    "payloads": [None],
    "transaction_ids": [None],
    "content_type": ["application/json"],
    "delay_seconds": [0, 1],
    "lease_seconds": [30],
    "add_seconds": [None],
    "max": [1, 5],
    "max_bytes": [None, 1000],
    "max_partitions": [None, 1],
    "namespace": [None],
    "task": [None],
    "priority": [0, 1],
    "pushed_by": [None],
    "start": ["all", "new"],
    "to": ["start", "end"],
    "seq": [None],
    "reason": [None],
    "limit": [1, 10],
    "batch": ["1", "10"],
    "offset": [0],
    "settle": [None],
    "key": [None],
    "claim": [None],
    "ahead": [None],
}
"""Values with which a request gets beyond the checks of its input."""
WITHOUT = {"/queue/{queue}/sink/http/register"}
"""Routes that send requests themselves."""


@pytest.fixture
def routes(tmp_path: Path) -> list[Route]:
    async def listed() -> list[Route]:
        store = open_store(f"sqlite:///{tmp_path}/routes.db")
        broker = await AsyncBroker.start(store)
        settings = Settings(port=0)
        observer = Observer(store, settings)
        try:
            return all_routes(broker, settings, Sinks(broker, ()), MewServer(broker), own=observer.routes(broker))
        finally:
            observer.stop_listening()
            await broker.close()
            store.close()

    return asyncio.run(listed())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(f"sqlite:///{tmp_path}/openapi.db?durability=normal") as running:
        yield running


@pytest.fixture
def http(server: Running) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=PATIENCE) as client:
        yield client


def test_every_route_has_documentation(routes: list[Route]) -> None:
    missing = undocumented(routes)
    assert missing == [], (
        f"no documentation for {missing}: give the Route a doc=RouteDoc(...), or add it to DOCS of the protocol's "
        "route_docs.py"
    )


def test_every_health_page_has_documentation() -> None:
    application: Any = health.make_pages(lambda: None, None)  # type: ignore[arg-type,return-value] # only its routes
    pages = {f"GET {page.path}" for page in application.routes}
    assert pages == set(health.DOCS), "add the page to DOCS in server/health.py"


def test_document_has_every_route_once(http: httpx2.Client, routes: list[Route]) -> None:
    document = http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    described = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert described == {f"{r.method} {r.path}" for r in routes if r.doc is not None} | set(health.DOCS)
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    names = [operation["operationId"] for operation in operations]
    assert sorted(set(names)) == sorted(names)
    internal = {name for name, operation in zip(names, operations, strict=True) if operation.get("x-internal")}
    assert internal == {"post_v1_admin", "post_v1_ask"}


def test_document_refers_only_to_its_components(http: httpx2.Client) -> None:
    document = http.get("/openapi.json").json()
    components = document["components"]["schemas"]
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in components


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for member in value.values():
            yield from references(member)
    elif isinstance(value, list):
        for member in value:
            yield from references(member)


class NotedArguments(Arguments):
    """Arguments of a query, with the names that the list reads."""

    def __init__(self, query: dict[str, str]) -> None:
        super().__init__(query)
        self.names: set[str] = set()

    def text(self, name: str) -> str | None:
        self.names.add(name)
        return super().text(name)


@pytest.mark.parametrize("name", LISTS)
def test_documented_filters_are_those_that_a_list_reads(name: str) -> None:
    arguments = NotedArguments({"queue": "q"})
    LISTS[name].query(arguments)
    documented = {field.name for field in msgspec.structs.fields(list_docs.query_struct(name))} - {"limit", "cursor"}
    assert documented == arguments.names, f"add the filters of {name!r} to _FILTERS in protocols/native/list_docs.py"


def test_document_with_a_known_etag_is_not_sent_again(http: httpx2.Client) -> None:
    first = http.get("/openapi.json")
    again = http.get("/openapi.json", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = http.get("/openapi.json", headers={"if-none-match": '"other"'})
    assert (other.status_code, other.content) == (200, first.content)


# errors


NEVER_REFUSES = ["GET /v1"]
"""Native routes that read nothing of a request."""


def test_error_of_every_native_route_is_as_documented(http: httpx2.Client, routes: list[Route]) -> None:
    """Requests with a wrong body, a wrong parameter and unknown names. Older routes keep `error` and `code`."""
    answered = []
    for route in routes:
        if route.doc is None or not f"{route.path}/".startswith("/v1/"):
            continue
        path = re.sub(r"\{\w+\}", "unknown", route.path)
        reply = http.request(route.method, path, params={"nonsense": "1"}, content=b"{")
        if reply.status_code == 200:
            answered.append(f"{route.method} {route.path}")
            continue
        assert reply.headers["content-type"] == route.doc.error_type, route
        error = msgspec.convert(reply.json(), route.doc.error)
        assert isinstance(error, Problem | NativeError), route
        assert set(reply.json()) == set(msgspec.structs.asdict(error)) - {"details"} | set(reply.json()) & {"details"}
        assert (error.status, error.type) == (reply.status_code, f"/docs/errors#{error.code}"), route
    assert answered == NEVER_REFUSES


# the page


def test_docs_page_allows_no_inline_script(http: httpx2.Client) -> None:
    page = http.get("/docs")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "<script>" not in page.text
    assert "//" not in page.text.replace("</", "").replace("<!doctype", "")


def test_docs_page_without_files_says_how_to_get_them(
    http: httpx2.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(docs_pages.FILES, "swagger-ui.css", tmp_path)
    page = http.get("/docs")
    assert page.status_code == 200
    assert "make venv" in page.text


def test_docs_page_is_a_page_for_links_of_other_sites(http: httpx2.Client) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert http.get("/docs", headers=link).status_code == 200
    assert http.get("/openapi.json", headers=link).status_code == 403
    assert http.get("/docs/..%2fhealth.py").status_code == 404
    assert http.get("/docs/start.js").headers["content-type"].startswith("text/javascript")


# Schemathesis


def fill(http: httpx2.Client) -> dict[str, str]:
    """A queue with a group, messages, a lease and dead letters. Returns values of parameters that name them."""
    http.post("/v1/queues", json={"queue": "q"})
    http.post("/v1/queues/q/resume").raise_for_status()
    http.post("/v1/queues/q/groups", json={"group": "g"})
    pushed = http.post("/v1/messages", json={"queue": "q", "messages": [{"payload": {"n": n}} for n in range(5)]})
    http.post("/v1/queues/q/groups/g/seek", json={"to": "start"}).raise_for_status()
    lease = http.post("/v1/claim", json={"queue": "q", "group": "g"}).json()["lease_id"]
    http.post("/v1/settle", json={"entries": [{"lease_id": lease, "outcome": "reject"}]}).raise_for_status()
    receipt = pushed.json()["receipts"][0]
    letter = http.get("/v1/dead-letters?queue=q").json()["dead_letters"][0]["id"]
    lease = http.post("/v1/claim", json={"queue": "q", "group": "g"}).json()["lease_id"]
    receipt = {name: receipt[name] for name in ("partition_id", "transaction_id")}
    return {
        **KNOWN,
        **receipt,
        "transactionId": receipt["transaction_id"],
        "partitionId": receipt["partition_id"],
        "lease_id": lease,
        "lease": lease,
        "id": letter,
    }


def prepared(document: dict[str, Any], usual: dict[str, list[Any]]) -> dict[str, Any]:
    """The document with usual values in requests instead of arbitrary ones, and without waits."""
    components = document["components"]["schemas"]
    for name, struct in json.loads(_of_requests(components)).items():
        for field, schema in struct.get("properties", {}).items():
            struct["properties"][field] = with_usual(field, schema, usual)
        components[f"Request.{name}"] = struct
    for methods in document["paths"].values():
        for operation in methods.values():
            if "requestBody" in operation:
                operation["requestBody"] = json.loads(_of_requests(operation["requestBody"]))
            for parameter in operation.get("parameters", ()):
                parameter["schema"] = with_usual(parameter["name"], parameter["schema"], usual)
    return document


def _of_requests(value: Any) -> str:
    """JSON of a value that refers to the components of requests."""
    return json.dumps(value).replace("#/components/schemas/", "#/components/schemas/Request.")


def with_usual(name: str, schema: dict[str, Any], usual: dict[str, list[Any]]) -> dict[str, Any]:
    if name in ("wait_seconds", "wait"):
        return {"const": 0} if schema.get("type") == "number" else {"const": "false"}
    if name == "timeout":
        return {"const": "0"}
    return {"enum": usual[name]} if name in usual else schema


def face_of(path: str) -> str:
    first = path.strip("/").partition("/")[0]
    return {"api": "queen", "queue": "pushpop", "mew": "mew"}.get(first, "native")


def only(document: dict[str, Any], path: str, method: str) -> dict[str, Any]:
    """A copy of the document with one operation."""
    copy: dict[str, Any] = json.loads(json.dumps(document))
    copy["paths"] = {path: {method: copy["paths"][path][method]}}
    return copy


def examine(server: Running, http: httpx2.Client, face: str, examples: int) -> int:
    """Sends generated requests to every operation of a face. Returns the number of operations."""
    document = http.get("/openapi.json").json()
    names = [(path, method) for path, methods in document["paths"].items() for method in methods]
    names = [(path, method) for path, method in names if face_of(path) == face and path not in WITHOUT]
    for path, method in names:
        known = {name: [value, "unknown"] for name, value in fill(http).items()}
        for usual in ({}, {**USUAL, **known}):
            schema = schemathesis.openapi.from_dict(prepared(only(document, path, method), usual))
            send_examples(schema[path][method], server.url, examples)
    return len(names)


def send_examples(operation: Any, url: str, examples: int) -> None:
    @given(case=operation.as_strategy())
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case: Any) -> None:
        case.call_and_validate(base_url=url, checks=CHECKS, timeout=PATIENCE)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES)
def test_face_answers_as_documented(server: Running, http: httpx2.Client, face: str) -> None:
    assert examine(server, http, face, 4) >= 2


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("face", FACES)
def test_face_answers_as_documented_to_many_requests(server: Running, http: httpx2.Client, face: str) -> None:
    assert examine(server, http, face, 200) >= 2
