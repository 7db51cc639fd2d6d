"""Heartbeats of pipelines that run elsewhere, on Spark for example: the report, its bounds, and when it is old."""

from __future__ import annotations

from typing import Literal, get_args
from urllib.parse import urlsplit

import msgspec

from ackwise.core import validation
from ackwise.core.errors import BadInput

PipelineState = Literal["running", "stopped", "failed"]
SILENT_AFTER = 60 * validation.MICROS
"""A running pipeline without a report for this time is silent: its driver was killed or cannot reach the store."""
KEPT_FOR = 7 * 24 * 3600 * validation.MICROS
"""Retention removes a pipeline without a report for this time."""
MOST_PIPELINES = 10_000
"""Pipelines that a store keeps. The pipeline with the oldest report goes first."""
LONGEST_ERROR = 2000
LONGEST_HOST = 255
LONGEST_URL = 2000
_STATES: tuple[str, ...] = get_args(PipelineState)
_COUNTS = ("rows", "acked", "retried", "dead", "outputs", "batches")
_LARGEST = 1 << 62


class PipelineReport(msgspec.Struct, kw_only=True, frozen=True):
    """State of a pipeline since its start. Instants follow the wall clock. `lag` is None if it is unknown."""

    state: PipelineState
    started_at: int
    rows: int = 0
    acked: int = 0
    retried: int = 0
    dead: int = 0
    outputs: int = 0
    batches: int = 0
    lag: int | None = None
    last_error: str | None = None
    last_error_at: int | None = None
    host: str = ""
    application_id: str = ""
    ui_url: str | None = None
    """URL of the engine's own page, such as Spark's UI."""


def check_report(report: object) -> None:
    """Raise `BadInput` for a report with values that no pipeline has."""
    if not isinstance(report, PipelineReport):
        raise BadInput(f"report must be a PipelineReport, not {type(report).__name__}")
    validation.one_of(report.state, "state", _STATES)
    validation.instant(report.started_at, "started_at")
    for what in _COUNTS:
        validation.count(getattr(report, what), what, least=0, most=_LARGEST)
    if report.lag is not None:
        validation.count(report.lag, "lag", least=0, most=_LARGEST)
    if report.last_error_at is not None:
        validation.instant(report.last_error_at, "last_error_at")
    if report.last_error is not None:
        validation.storable(validation.at_most(report.last_error, "last_error", LONGEST_ERROR), "last_error")
    for what in ("host", "application_id"):
        validation.storable(validation.at_most(getattr(report, what), what, LONGEST_HOST), what)
    if report.ui_url is not None:
        _check_page(report.ui_url)


def _check_page(url: str) -> None:
    """Refuse what a page must not link to, such as `javascript:`."""
    validation.at_most(url, "ui_url", LONGEST_URL)
    try:
        usable = url.isascii() and url.isprintable() and urlsplit(url).scheme in ("http", "https")
    except ValueError:
        usable = False
    if not usable:
        raise BadInput("ui_url must be a plain http or https URL")
