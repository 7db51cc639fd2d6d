"""Logging of long-running commands."""

from __future__ import annotations

import logging
import sys

from ackwise.core.errors import BadInput


def set_up_logs(level: str) -> None:
    """Log to stderr from this level on."""
    if level.upper() not in logging.getLevelNamesMapping():
        raise BadInput(f"--log-level {level}: use debug, info, warning or error")
    logging.basicConfig(
        level=level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
