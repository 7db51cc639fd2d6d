"""`ackwise run` as a process, with an app to run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

ORDERS = '''
import sys
from ackwise.subscriber import App

app = App("sqlite:///orders.db")
nothing = 1

@app.subscriber("orders", prefetch=5)
async def bill(order: int):
    """Charge the customer."""
    import asyncio
    print("began", order, flush=True)
    while not open("go").read():
        await asyncio.sleep(0.01)
    print("ended", order, flush=True)
'''


@contextmanager
def started(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`ackwise run`; whatever becomes of the test, it ends with it."""
    command = [sys.executable, "-c", "from ackwise.cli import main; main()", "run", "shop_orders:app", *options]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_with(stream: IO[str] | None, what: str) -> str:
    assert stream is not None
    for line in stream:
        if what in line:
            return line
    raise AssertionError(f"no {what!r} was printed")
