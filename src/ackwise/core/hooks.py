"""Hooks of dead letters: when a failed report is tried again, and when a hook pauses."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from ackwise.core.errors import BadInput
from ackwise.core.validation import MICROS

WEBHOOK = "webhook"
"""Name of the hook whose letters a server posts to a URL."""
FIRST_DELAY = MICROS
LONGEST_DELAY = 300 * MICROS
GIVES_UP_AFTER = 24 * 3600 * MICROS
"""A hook pauses after it has failed for this time."""
LONGEST_URL = 2000
LONGEST_ERROR = 500


class HookFailure(NamedTuple):
    """State of a hook after a failed report."""

    failing_from: int
    failures: int
    next_at: int
    paused: bool


def after_failure(now: int, failing_from: int | None, failures: int) -> HookFailure:
    """State after one more failure. The delay doubles from 1 second to 5 minutes. After 24 hours the hook pauses."""
    began = now if failing_from is None else failing_from
    delay = min(LONGEST_DELAY, FIRST_DELAY << min(failures, 32))
    return HookFailure(began, failures + 1, now + delay, now - began >= GIVES_UP_AFTER)


def check_url(url: object) -> str:
    """Check that the text is an http or https URL without a user name. Returns the text."""
    if not isinstance(url, str) or not url:
        raise BadInput("url is required")
    plain = len(url) <= LONGEST_URL and url.isascii() and url.isprintable() and " " not in url
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
        _ = parts.port
    except ValueError:
        usable = False
    if not plain or not usable:
        raise BadInput("url must be a plain http or https URL")
    return url
