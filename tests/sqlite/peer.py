"""Another process on the same file, run with `-m tests.sqlite.peer`: one JSON request a line, one answer a line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ackwise.clock import ManualClock
from ackwise.core import commands as c
from tests.sqlite.support import open_store, push


def main() -> int:
    path, generation = Path(sys.argv[1]), int(sys.argv[2])
    store = open_store(path, ManualClock(), dedupe_generation=generation)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        answer: Any
        if verb == "push":
            answer = push(store, *arguments)
        else:
            (claimed,) = store.transact([c.Claim(queue="q", most=arguments[0], exclusivity=arguments[1])])
            answer = [seq for grant in claimed.grants for seq in range(grant.lo, grant.hi)]
        print(json.dumps(answer), flush=True)
    store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
