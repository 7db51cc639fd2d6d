"""Drive a server with an official client: one JSON line per scenario on stdout, exit code 1 when one failed.

Run with the Python of a client's environment: `python -m tests.protocols.queen_clients.drive URL MODE`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import io
import json
import sys
import traceback
from typing import Any

from queen import Queen

from tests.protocols.queen_clients.scenarios import SCENARIOS
from tests.protocols.queen_clients.stage import Play, Stage

AT_ONCE = 24
DEADLINE = 180.0
SWALLOWED = ("Pop failed", "DLQ query failed", "Flush error", "Lease renewal failed", "Error flushing")
QUIET = "the_client_swallowed_no_error"


class Overheard(io.TextIOBase):
    """What the client prints; some of its calls report an error only so, and answer as if nothing was there."""

    def __init__(self) -> None:
        self.swallowed: list[str] = []

    def write(self, text: str) -> int:
        if text.startswith(SWALLOWED):
            self.swallowed.append(text)
        return len(text)


async def played(play: Play, stage: Stage) -> str | None:
    """When it fails the traceback, with what the scenario knew."""
    try:
        async with asyncio.timeout(DEADLINE):
            await play(stage)
    except Exception as problem:
        ours = [
            frame for frame, _ in traceback.walk_tb(problem.__traceback__) if "/scenarios/" in frame.f_code.co_filename
        ]
        known = [f"{name} = {value!r:.500}" for frame in ours for name, value in frame.f_locals.items()]
        return traceback.format_exc() + "\n".join(known)
    return None


async def drive(url: str, mode: str, report: Any) -> bool:
    version = importlib.metadata.version("queen-mq")
    overheard = Overheard()
    failed = False

    def tell(name: str, problem: str | None) -> None:
        nonlocal failed
        failed = failed or problem is not None
        print(json.dumps({"scenario": name, "problem": problem}), file=report, flush=True)

    with contextlib.redirect_stdout(overheard):
        async with Queen(url) as queen:
            room = asyncio.Semaphore(AT_ONCE)

            async def run(name: str, play: Play) -> None:
                stage = Stage(queen, lambda *urls: Queen([*urls, url]), version, mode, name.replace("_", "-"))
                async with room:
                    tell(name, await played(play, stage))

            mine = [one for one in SCENARIOS if version in one.versions]
            await asyncio.gather(*(run(one.name, one.play) for one in mine if not one.alone))
            for one in mine:
                if one.alone:
                    await run(one.name, one.play)
    tell(QUIET, "\n".join(overheard.swallowed) or None)
    return failed


if __name__ == "__main__":
    sys.exit(asyncio.run(drive(sys.argv[1], sys.argv[2], sys.stdout)))
