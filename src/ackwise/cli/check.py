"""`ackwise check`."""

from __future__ import annotations

from importlib.metadata import version

import typer

from ackwise.cli.arguments import DEFAULT_URL, URL, AsJSON, must_exist
from ackwise.cli.output import counted, show_json
from ackwise.connect import open_store
from ackwise.core.queries import ListHooks, ListQueues
from ackwise.core.rows import HookRow
from ackwise.wire.store_url import parse, without_password


def check(url: URL = DEFAULT_URL, as_json: AsJSON = False) -> None:
    """Check the stored data and print the settings in force. The exit code is 1 if the data has a problem."""
    must_exist(url)
    store = open_store(url)
    where = parse(url)
    try:
        problems, notes = store.audit(), store.notes()
        queues = store.ask(ListQueues())
        notes += [hook_note(hook) for hook in store.ask(ListHooks()) if hook.paused or hook.failures]
    finally:
        store.close()
    settings = {
        "version": version("ackwise"),
        "store": where.scheme,
        "target": without_password(where.target),
        "durability": where.durability,
        "busy_timeout": where.busy_timeout,
        "queues": len(queues),
    }
    if as_json:
        show_json({**settings, "problems": problems, "notes": notes})
    else:
        for name, value in settings.items():
            print(f"{name:13} {value}")
        for problem in problems:
            print(f"PROBLEM {problem}")
        for note in notes:
            print(f"NOTE {note}")
        print("sound" if not problems else counted(len(problems), "problem"))
    if problems:
        raise typer.Exit(1)


def hook_note(hook: HookRow) -> str:
    """Describes a hook that does not report its letters."""
    state = "is paused; set it again to resume it" if hook.paused else f"failed {counted(hook.failures, 'time')}"
    return f"the hook {hook.name} of queue {hook.queue} {state}: {hook.error}"
