"""Options of logs that long-running commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from ackwise.observability.log_records import LogFormat

DEFAULT_LEVEL = ["info"]

LogLevel = Annotated[
    list[str],
    typer.Option(
        "--log-level",
        envvar="ACKWISE_LOG_LEVEL",
        help="debug, info, warning or error; for one logger ackwise.store=debug; repeatable.",
    ),
]
LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", envvar="ACKWISE_LOG_FORMAT", help="Format of the log: text or json.")
]
