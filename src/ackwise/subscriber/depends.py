"""What a handler gets besides its message: `Annotated[T, Depends(make)]`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

from ackwise.subscriber.message import Message


class Depends:
    """Made by calling `make` once for each message. What stands after a `yield` in it runs when the handler is through.

    `make` may depend on others in turn, and may take the `Message`.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        if not callable(make):
            raise TypeError(f"Depends takes a function, not {make!r}")
        self.make = make

    def __repr__(self) -> str:
        return f"Depends({getattr(self.make, '__qualname__', self.make)})"


class Needs:
    """The dependencies of one function, by the names of its parameters."""

    def __init__(self, depends: Mapping[str, tuple[Depends, Needs]], message: str | None = None) -> None:
        self._depends, self._message = depends, message

    def __bool__(self) -> bool:
        return bool(self._depends) or self._message is not None

    async def fill(
        self, message: Message[Any], made: dict[Any, Any], stack: AsyncExitStack, instead: Mapping[Any, Any]
    ) -> dict[str, Any]:
        """The arguments; `made` remembers what was made for this message, `instead` is what tests put in place."""
        given: dict[str, Any] = {} if self._message is None else {self._message: message}
        for name, (depends, needs) in self._depends.items():
            if depends.make not in made:
                if depends.make in instead:
                    made[depends.make] = await _made(instead[depends.make], {}, stack)
                else:
                    inner = await needs.fill(message, made, stack, instead)
                    made[depends.make] = await _made(depends.make, inner, stack)
            given[name] = made[depends.make]
        return given


async def _made(make: Callable[..., Any], arguments: dict[str, Any], stack: AsyncExitStack) -> Any:
    if inspect.isasyncgenfunction(make):
        return await stack.enter_async_context(asynccontextmanager(make)(**arguments))
    if inspect.isgeneratorfunction(make):
        return stack.enter_context(contextmanager(make)(**arguments))
    if inspect.iscoroutinefunction(make):
        return await make(**arguments)
    made = make(**arguments)
    return await made if asyncio.isfuture(made) or inspect.isawaitable(made) else made
