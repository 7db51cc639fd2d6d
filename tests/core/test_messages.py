"""How a message is json_value, and the error tree."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwise.core import errors
from ackwise.core.errors import AckwiseError
from ackwise.core.messages import json_value

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
)


@given(values)
def test_json_is_shown_as_itself(value: object) -> None:
    assert json_value(json.dumps(value).encode()) == value


@pytest.mark.parametrize(("payload", "kind"), [(b"\xff\x00", "application/json"), (b"5", "application/octet-stream")])
def test_payload_that_is_not_json_is_shown_as_base64(payload: bytes, kind: str) -> None:
    (encoded,) = json_value(payload, kind).values()
    assert set(json_value(payload, kind)) == {"$base64"}
    assert base64.b64decode(encoded) == payload


def tree(root: type[AckwiseError]) -> list[type[AckwiseError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in tree(child))]


def ours() -> list[type[AckwiseError]]:
    return sorted({kind for kind in tree(AckwiseError) if kind.__module__ == errors.__name__}, key=lambda k: k.__name__)


def test_every_error_has_its_own_code() -> None:
    codes = [kind.code for kind in ours()]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("kind", ours())
def test_every_error_says_something_without_being_told(kind: type[AckwiseError]) -> None:
    assert kind().message == (kind.__doc__ or "").strip() != ""
    told = kind("better words", queue="q")
    assert (told.message, str(told), told.details) == ("better words", "better words", {"queue": "q"})


def test_errors_are_also_the_builtin_ones_people_catch() -> None:
    assert issubclass(errors.BadInput, ValueError)
    assert issubclass(errors.UnknownQueue, LookupError)
    assert issubclass(errors.BadStoreURL, errors.StoreError)
