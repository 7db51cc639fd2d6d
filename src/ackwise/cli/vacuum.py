"""`ackwise vacuum`: compact a store."""

from __future__ import annotations

import sys
import time

from ackwise.cli.opening import DEFAULT_URL, URL, AsJSON, must_exist
from ackwise.cli.showing import show_json
from ackwise.client.servers import is_server
from ackwise.core.errors import BadStoreURL
from ackwise.store.sqlite import vacuum as sqlite
from ackwise.store.url import parse, without_password


class _Line:
    """One line on stderr that counts the seconds, where a person looks at it."""

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
    """Compact a store and, if an older Ackwise made the SQLite file, let it give free pages back from now on."""
    if is_server(url):
        raise BadStoreURL(f"{url!r} is a server; stop it and give the URL of its store")
    must_exist(url)
    where = parse(url)
    target = without_password(where.target)
    line = _Line(target)
    try:
        if where.scheme == "sqlite":
            done = sqlite.vacuum(where, line)
        else:
            # Imported when asked for: who uses SQLite need not have a PostgreSQL driver.
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
