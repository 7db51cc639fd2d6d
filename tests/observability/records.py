"""Log records with fields, as tests read them."""

from __future__ import annotations

from typing import Any

import pytest


def logged(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    """Fields of the records with this message, in order."""
    records = [record.args for record in caplog.records if record.msg == "%s %s"]
    return [dict(args[1]) for args in records if isinstance(args, tuple) and args[0] == message]  # type: ignore[call-overload]
