"""`ackwise vacuum`: compact a store."""

from __future__ import annotations

import sys
import time

from ackwise.cli.arguments import DEFAULT_URL, URL, AsJSON, must_exist
from ackwise.cli.output import show_json
from ackwise.client.server_url import is_server
from ackwise.core.errors import BadStoreURL
from ackwise.store.sqlite import vacuum as sqlite
from ackwise.wire.store_url import parse, without_password


class _Line:
    """Progress line on stderr that counts the seconds. Shown only on a terminal."""

    def __init__(self, target: str) -> None:
        self._target, self._started = target, time.monotonic()
        self._shown = sys.stderr.isatty()

    def __call__(self) -> None:
        if self._shown:
            seconds = time.monotonic() - self._started
            print(f"\rcompacting {self._target}, {seconds:.0f} s", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print(file=sys.stderr)


def vacuum(url: URL = DEFAULT_URL, as_json: AsJSON = False) -> None:
    """Compact a store. Convert a SQLite file of an older Ackwise, so that the file gives free pages back by itself."""
    if is_server(url):
        raise BadStoreURL(f"{url!r} is a server; stop the server and pass the URL of its store")
    must_exist(url)
    where = parse(url)
    target = without_password(where.target)
    line = _Line(target)
    try:
        if where.scheme == "sqlite":
            done = sqlite.vacuum(where, line)
        else:
            # Imported only when needed: SQLite does not require a PostgreSQL driver.
            from ackwise.store.postgres import vacuum as postgres

            done = postgres.vacuum(where, line)
    finally:
        line.end()
    if as_json:
        show_json({"target": target, "before": done.before, "after": done.after, "converted": done.converted})
        return
    print(f"{target}: {done.before} bytes before, {done.after} bytes after")
    if done.converted:
        print("the file gives free pages back from now on")
