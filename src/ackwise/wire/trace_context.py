"""W3C trace context: the headers `traceparent` and `tracestate` of requests and messages."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from ackwise.core.commands import Push
from ackwise.core.messages import PlainBatch

PARENT, STATE = "traceparent", "tracestate"
LONGEST_STATE = 512
_PARENT = re.compile("(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def context_of(parent: str | None, state: str | None) -> dict[str, str]:
    """Headers for a message from the headers of a request. An invalid context is ignored, as W3C says."""
    if parent is None or _PARENT.fullmatch(parent) is None:
        return {}
    return {PARENT: parent, STATE: state} if state and len(state) <= LONGEST_STATE else {PARENT: parent}


def with_context(push: Push, context: Mapping[str, str]) -> Push:
    """The push with a context in the headers of its messages. A message keeps a context of its own."""
    if not context:
        return push
    messages = push.messages
    traced = [
        message
        if message.headers and PARENT in message.headers
        else msgspec.structs.replace(message, headers={**(message.headers or {}), **context})
        for message in (messages.messages() if isinstance(messages, PlainBatch) else messages)
    ]
    return msgspec.structs.replace(push, messages=traced)
