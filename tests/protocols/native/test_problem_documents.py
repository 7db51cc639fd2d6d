"""Errors as problem documents, and the page that lists their codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackwise.core import errors
from ackwise.protocols.problem_documents import native_error_answer, problem_answer, title_of, type_of
from ackwise.wire.http_status import status_of
from tests.protocols.native.native_api import NativeApi

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "errors.md"


def error_kinds() -> list[type[errors.AckwiseError]]:
    kinds = (kind for kind in vars(errors).values() if isinstance(kind, type))
    return [kind for kind in kinds if issubclass(kind, errors.AckwiseError)]


@pytest.mark.parametrize("kind", error_kinds(), ids=lambda kind: kind.code)
def test_error_page_lists_the_code_with_its_status(kind: type[errors.AckwiseError]) -> None:
    line = next((line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{kind.code}` |")), None)
    assert line is not None, f"{PAGE.name} lacks the code {kind.code}"
    assert line.split("|")[2].strip() == str(status_of(kind("text")))


@pytest.mark.parametrize("kind", error_kinds(), ids=lambda kind: kind.code)
def test_title_of_a_code_is_one_short_sentence(kind: type[errors.AckwiseError]) -> None:
    title = title_of(kind)
    assert 5 < len(title) < 100
    assert title[0].isupper()
    assert not title.endswith(".")
    assert "_" not in title.split()[0]


def test_older_native_route_keeps_error_and_code(native: NativeApi) -> None:
    reply = native.http.post("/v1/ask", json={"type": "queue_stats", "queue": "none"})
    assert (reply.status_code, reply.headers["content-type"]) == (404, "application/json")
    assert reply.json() == {
        "error": "there is no queue 'none'; push to it or create it first",
        "code": "unknown_queue",
        "details": {"queue": "none"},
        "type": "/docs/errors#unknown_queue",
        "title": "There is no queue of that name",
        "status": 404,
    }


def test_unknown_native_path_is_a_problem_with_error(native: NativeApi) -> None:
    reply = native.http.get("/v1/nothing")
    problem = reply.json()
    assert (reply.status_code, reply.headers["content-type"]) == (404, "application/problem+json")
    assert problem["error"] == problem["detail"]
    assert (problem["code"], problem["status"]) == ("no_such_route", 404)


def test_retryable_problem_has_retry_after() -> None:
    for write in (problem_answer, native_error_answer):
        reply = write(errors.Overloaded("busy", retry_after=3))
        assert (reply.status, dict(reply.headers)[b"retry-after"]) == (429, b"3")


def test_unexpected_exception_tells_nothing_of_itself() -> None:
    for write in (problem_answer, native_error_answer):
        reply = write(None)
        assert reply.status == 500
        assert type_of("internal").encode() in reply.body


def test_page_of_error_types_has_an_anchor_for_each_code(native: NativeApi) -> None:
    page = native.http.get("/docs/errors")
    assert page.headers["content-type"].startswith("text/html")
    for kind in error_kinds()[1:]:
        assert f'id="{kind.code}"' in page.text
