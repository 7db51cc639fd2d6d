"""Reads a handler's signature and its dependencies."""

from __future__ import annotations

import asyncio
import inspect
import logging
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Annotated, Any, NamedTuple, NewType, TypeVar, Union, get_args, get_origin

from ackwise.subscriber.message import Message


class Depends:
    """A dependency: `make` is called once for each message, and its result is passed to the handler.

    If `make` is a generator, the code after its `yield` runs when the handler has returned. `make` may have
    dependencies itself, and may take the `Message`.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        if not callable(make):
            raise TypeError(f"Depends takes a function, not {make!r}")
        self.make = make

    def __repr__(self) -> str:
        return f"Depends({getattr(self.make, '__qualname__', self.make)})"


class Dependencies:
    """The dependencies of one function, by parameter name."""

    def __init__(self, depends: Mapping[str, tuple[Depends, Dependencies]], message: str | None = None) -> None:
        self._depends, self._message = depends, message

    def __bool__(self) -> bool:
        return bool(self._depends) or self._message is not None

    async def fill(
        self, message: Message[Any], cache: dict[Any, Any], stack: AsyncExitStack, overrides: Mapping[Any, Any]
    ) -> dict[str, Any]:
        """Make the arguments for one message.

        `cache` holds the values made for this message. `overrides` replaces dependencies in tests.
        """
        arguments: dict[str, Any] = {} if self._message is None else {self._message: message}
        for name, (depends, dependencies) in self._depends.items():
            if depends.make not in cache:
                if depends.make in overrides:
                    cache[depends.make] = await _make(overrides[depends.make], {}, stack)
                else:
                    inner = await dependencies.fill(message, cache, stack, overrides)
                    cache[depends.make] = await _make(depends.make, inner, stack)
            arguments[name] = cache[depends.make]
        return arguments


async def _make(make: Callable[..., Any], arguments: dict[str, Any], stack: AsyncExitStack) -> Any:
    if inspect.isasyncgenfunction(make):
        return await stack.enter_async_context(asynccontextmanager(make)(**arguments))
    if inspect.isgeneratorfunction(make):
        return stack.enter_context(contextmanager(make)(**arguments))
    if inspect.iscoroutinefunction(make):
        return await make(**arguments)
    value = make(**arguments)
    return await value if asyncio.isfuture(value) or inspect.isawaitable(value) else value


log = logging.getLogger("ackwise.subscriber")


class Signature(NamedTuple):
    """Signature of a handler. `message` is the `Message` class that it takes. None if it takes only the payload."""

    parameter: str
    kind: Any
    message: type[Message[Any]] | None
    dependencies: Dependencies
    in_thread: bool

    @property
    def explicit(self) -> bool:
        return self.message is not None


def read(handler: Callable[..., Any], in_thread: bool | None = None) -> Signature:
    """Read a handler's signature. Raises a `TypeError` with the function's name if the signature is ambiguous."""
    name = _name(handler)
    if not (inspect.isfunction(handler) or inspect.ismethod(handler)):
        raise TypeError(f"a subscriber is a function, not {handler!r}")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise TypeError(f"{name} is a generator; a subscriber must be a plain or async function")
    hints = _hints(handler, name)
    payloads: list[tuple[str, Any]] = []
    depends: dict[str, tuple[Depends, Dependencies]] = {}
    for parameter in inspect.signature(handler).parameters.values():
        _check_parameter(parameter, name)
        if (dependency := _depends(hints.get(parameter.name))) is not None:
            depends[parameter.name] = dependency, dependencies_of(dependency.make)
        elif parameter.default is parameter.empty:
            if parameter.name not in hints:
                raise TypeError(f"{name}: {parameter.name} has no type; the type decides who settles the message")
            payloads.append((parameter.name, hints[parameter.name]))
        elif _mentions_message(hints.get(parameter.name)):
            raise TypeError(
                f"{name}: {parameter.name} has a default, but a Message is always passed; leave the default out"
            )
    if len(payloads) != 1:
        raise TypeError(_payload_error(name, [parameter for parameter, _ in payloads]))
    ((takes, annotation),) = payloads
    kind, message = _kind(annotation, takes, name)
    return Signature(takes, kind, message, Dependencies(depends), _in_thread(handler, in_thread, name))


def _check_parameter(parameter: inspect.Parameter, name: str) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise TypeError(f"{name} takes {stars}{parameter.name}; name the parameters of a subscriber one by one")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError(f"{name}: {parameter.name} can only be given by position; leave out the /")


def _in_thread(handler: Callable[..., Any], in_thread: bool | None, name: str) -> bool:
    """Whether the handler runs in a thread: by default a `def` does."""
    if inspect.iscoroutinefunction(handler):
        if in_thread:
            raise TypeError(f"{name} is an async def, which runs on the event loop; leave out in_thread=True")
        return False
    if in_thread is None and inspect.iscoroutinefunction(inspect.unwrap(handler)):
        log.warning(
            "%s is an async def behind a decorator that is not, and runs in a thread; say in_thread=True if the "
            "decorator runs it to its end, in_thread=False if it needs the event loop",
            name,
        )
    return in_thread is not False


def dependencies_of(make: Callable[..., Any], above: tuple[Any, ...] = ()) -> Dependencies:
    """The dependencies of a dependency."""
    name = _name(make)
    if make in above:
        raise TypeError(f"{name} depends on itself")
    try:
        parameters = inspect.signature(make).parameters.values()
    except ValueError:
        return Dependencies({})
    hints = _hints(make, name) if any(p.default is p.empty for p in parameters) else {}
    depends: dict[str, tuple[Depends, Dependencies]] = {}
    message: str | None = None
    for parameter in parameters:
        annotation = hints.get(parameter.name)
        if (dependency := _depends(annotation)) is not None:
            depends[parameter.name] = dependency, dependencies_of(dependency.make, (*above, make))
        elif _is_message(annotation):
            message = parameter.name
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise TypeError(
                f"{name}, a dependency, takes {parameter.name}, and Ackwise cannot provide it; "
                "it may take a Message, or Annotated[..., Depends(...)]"
            )
    return Dependencies(depends, message)


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", repr(function)))


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    target = function.__init__ if inspect.isclass(function) else function
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as problem:
        raise TypeError(
            f"{name}: its annotations cannot be resolved ({problem}); a class that is defined inside a function is "
            "not found under `from __future__ import annotations`"
        ) from None
    except Exception as problem:
        # Annotations in quotes are expressions and may raise anything.
        raise TypeError(f"{name}: its annotations cannot be resolved ({problem})") from None


def _payload_error(name: str, payloads: list[str]) -> str:
    if not payloads:
        return f"{name} has no parameter for the payload; write {name}(order: Order) or {name}(msg: Message[Order])"
    return (
        f"{name} has {len(payloads)} parameters for one payload ({', '.join(payloads)}); "
        "what is not the payload is Annotated[..., Depends(...)] or has a default"
    )


def _depends(annotation: Any) -> Depends | None:
    if get_origin(annotation) is not Annotated:
        return None
    return next((extra for extra in get_args(annotation)[1:] if isinstance(extra, Depends)), None)


def _kind(annotation: Any, parameter: str, name: str) -> tuple[Any, type[Message[Any]] | None]:
    bare = _bare(annotation)
    if _is_message(bare):
        origin = get_origin(bare) or bare
        kind = next(iter(get_args(bare)), _bound(origin))
        if isinstance(kind, TypeVar) or _mentions_message(kind):
            raise TypeError(f"{name}: {parameter} is a {bare}; name its payload type, such as Message[Order]")
        return kind, origin
    if _mentions_message(bare):
        raise TypeError(f"{name}: {parameter} is {bare}; a Message is always passed; write Message[...] alone")
    return annotation, None


def _bare(annotation: Any) -> Any:
    """Strip `Annotated`, `NewType` and type aliases."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation


def _bound(kind: type[Message[Any]]) -> Any:
    """The payload type of a subclass of `Message[Order]`, or bytes for `Message` itself."""
    for above in kind.__mro__:
        for base in getattr(above, "__orig_bases__", ()):
            if _is_message(base) and get_args(base):
                return get_args(base)[0]
    return bytes


def _is_message(annotation: Any) -> bool:
    annotation = _bare(annotation)
    origin = get_origin(annotation) or annotation
    return isinstance(origin, type) and issubclass(origin, Message)


def _mentions_message(annotation: Any) -> bool:
    annotation = _bare(annotation)
    if _is_message(annotation):
        return True
    inside = get_origin(annotation) in (Union, types.UnionType) or get_args(annotation)
    return bool(inside) and any(_mentions_message(part) for part in get_args(annotation))
