"""Heartbeat of a pipeline: reports its counts to the store every few seconds, from a thread of its own.

A report that fails never fails the pipeline. The first failure is logged.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Callable

from ackwise.client.transport import Transport
from ackwise.core.commands import ReportPipeline
from ackwise.core.errors import BadInput
from ackwise.core.pipelines import PipelineReport
from ackwise.core.validation import MAX_NAME

log = logging.getLogger("ackwise.spark")

EVERY = 5.0
"""Seconds between two reports."""
LAST_SECONDS = 5.0
"""Seconds that the end of a pipeline waits for its last report."""
_ONE_RUN = re.compile(r"\.run-[0-9a-f]{8}$")
"""End of the claim name of a run without a checkpoint. The next such run is the same pipeline."""


def pipeline_id(queue: str, group: str, claim_name: str) -> str:
    """Id of a pipeline, which stays the same in each of its runs: a store keeps a bounded number of ids."""
    name = _ONE_RUN.sub("", claim_name)
    text = f"{queue}/{group}" if name in (group, group.replace("/", ".")) else f"{queue}/{group}/{name}"
    if len(text) <= MAX_NAME:
        return text
    return f"{text[: MAX_NAME - 17]}-{hashlib.blake2s(text.encode(), digest_size=8).hexdigest()}"


class PipelineHeartbeat:
    """Sends what `collect` returns: at the start, every few seconds, and at the end."""

    def __init__(self, transport: Transport, name: str, queue: str, group: str) -> None:
        self._transport, self._id, self._queue, self._group = transport, name, queue, group
        self._collect: Callable[[], PipelineReport] = PipelineReport
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed = False
        self._refused = False
        """Whether the server does not know reports: an older version."""

    def start(self, collect: Callable[[], PipelineReport]) -> None:
        """Send the first report, and further ones until `stop`."""
        self._collect = collect
        self._thread = threading.Thread(target=self._run, name="ackwise-heartbeat", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._refused:
            self._send(self._collect)
            if self._over.wait(EVERY):
                return

    def stop(self, last: Callable[[], PipelineReport] | None) -> None:
        """End the thread and send the last report, if there is one."""
        self._over.set()
        sending = threading.Thread(target=self._finish, args=(last,), name="ackwise-last-report", daemon=True)
        sending.start()
        sending.join(LAST_SECONDS)

    def _finish(self, last: Callable[[], PipelineReport] | None) -> None:
        if self._thread is not None:
            self._thread.join()
        if last is not None and not self._refused:
            self._send(last)

    def _send(self, collect: Callable[[], PipelineReport]) -> None:
        try:
            command = ReportPipeline(id=self._id, queue=self._queue, group=self._group, report=collect())
            self._transport.send(command)
        except Exception as problem:  # whatever it is, the pipeline goes on
            self._refused = isinstance(problem, BadInput)
            if not self._failed:
                self._failed = True
                log.warning("the pipeline of %s/%s could not report itself: %s", self._queue, self._group, problem)
