"""What long-running commands write to the standard error."""

from __future__ import annotations

import logging
import sys

from ackwise.core.errors import BadInput


def begin(level: str) -> None:
    if level.upper() not in logging.getLevelNamesMapping():
        raise BadInput(f"--log-level {level}: it is debug, info, warning or error")
    logging.basicConfig(
        level=level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
