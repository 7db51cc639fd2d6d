"""When a function that was called has returned."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any


class Ending:
    """One that runs in a thread may outlive whoever waited for it; a coroutine is cancelled, and ends with that."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._over.set()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, to be called at once."""
        if inspect.iscoroutinefunction(function):
            return function
        over = self._over = threading.Event()

        @functools.wraps(function)
        def noted(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            finally:
                over.set()

        return noted
