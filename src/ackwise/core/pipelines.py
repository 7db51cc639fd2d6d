"""Report of a pipeline that runs elsewhere, on Spark for example: what it has done and how it is."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

import msgspec

from ackwise.core import validation
from ackwise.core.errors import BadInput

LONGEST_ERROR = 2000
LONGEST_URL = 2000
PipelineState = Literal["running", "stopped", "failed"]


class PipelineReport(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Counts since the pipeline started, and how it is now. `lag` is None if the pipeline does not know it."""

    state: PipelineState = "running"
    rows: int = 0
    acked: int = 0
    retried: int = 0
    dead: int = 0
    outputs: int = 0
    """Messages that the pipeline pushed."""
    lag: int | None = None
    batches: int = 0
    last_error: str = ""
    last_error_at: int | None = None
    host: str = ""
    application_id: str = ""
    ui_url: str = ""
    """Page of the engine that runs the pipeline, http or https."""

    def check(self) -> None:
        """Raise `BadInput` for values that no store can hold, and for a link that no page may show."""
        validation.one_of(self.state, "state", ("running", "stopped", "failed"))
        for field in ("rows", "acked", "retried", "dead", "outputs", "batches"):
            validation.count(getattr(self, field), field, least=0, most=1 << 62)
        if self.lag is not None:
            validation.count(self.lag, "lag", least=0, most=1 << 62)
        if self.last_error_at is not None:
            validation.instant(self.last_error_at, "last_error_at")
        for field, longest in (
            ("last_error", LONGEST_ERROR),
            ("host", validation.MAX_NAME),
            ("application_id", validation.MAX_NAME),
            ("ui_url", LONGEST_URL),
        ):
            validation.storable(validation.at_most(getattr(self, field), field, longest), field)
        if self.ui_url and not _is_web_address(self.ui_url):
            raise BadInput(f"ui_url must begin with http:// or https:// and name a host, not be {self.ui_url!r:.60}")


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)
