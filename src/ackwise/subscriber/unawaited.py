"""Detects coroutines that a handler made and never awaited.

A plain function that calls an async one without `await` does nothing of it. Python only warns, and the message would be
acked although its work was not done.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

_active = threading.local()
_HOOK = "_warn_unawaited_coroutine"
"""The function of `warnings` that Python calls for each coroutine that is deleted before it is awaited."""


class UnawaitedCoroutine(RuntimeError):
    """A handler called an async function without `await`, so the function did not run."""


def watch_coroutines() -> None:
    """Note coroutines that are never awaited. Does nothing after the first call, or if Python has no such hook."""
    warn: Callable[[Coroutine[Any, Any, Any]], None] | None = getattr(warnings, _HOOK, None)
    if warn is None or hasattr(warn, "for_handlers"):
        return

    def note(coroutine: Coroutine[Any, Any, Any]) -> None:
        names: list[str] | None = getattr(_active, "names", None)
        if names is None:
            warn(coroutine)
        else:
            names.append(getattr(coroutine, "__qualname__", repr(coroutine)))

    note.for_handlers = True  # type: ignore[attr-defined]
    setattr(warnings, _HOOK, note)


@contextmanager
def no_unawaited_coroutine() -> Iterator[None]:
    """Raise `UnawaitedCoroutine` if the block, on this thread, leaves a coroutine that was never awaited."""
    names: list[str] = []
    before, _active.names = getattr(_active, "names", None), names
    try:
        yield
    finally:
        _active.names = before
    if names:
        raise UnawaitedCoroutine(f"{names[0]} was called without await and did not run; await it in an async handler")
