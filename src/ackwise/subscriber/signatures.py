"""What a handler's signature says. The type of its parameter alone decides who settles."""

from __future__ import annotations

import inspect
import logging
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, NewType, TypeVar, Union, get_args, get_origin

from ackwise.subscriber.depends import Depends, Needs
from ackwise.subscriber.message import Message

log = logging.getLogger("ackwise.subscriber")


class Signature(NamedTuple):
    """`message`: what the handler takes and settles itself; None: it takes the payload, of type `kind`, alone."""

    parameter: str
    kind: Any
    message: type[Message[Any]] | None
    needs: Needs
    in_thread: bool

    @property
    def explicit(self) -> bool:
        return self.message is not None


def read(handler: Callable[..., Any], in_thread: bool | None = None) -> Signature:
    """Refuses, with a `TypeError` that names the function, what could only be misunderstood."""
    name = _name(handler)
    if not (inspect.isfunction(handler) or inspect.ismethod(handler)):
        raise TypeError(f"a subscriber is a function, not {handler!r}")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise TypeError(f"{name} is a generator; a subscriber returns")
    hints = _hints(handler, name)
    payloads: list[tuple[str, Any]] = []
    depends: dict[str, tuple[Depends, Needs]] = {}
    for parameter in inspect.signature(handler).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            raise TypeError(f"{name} takes {stars}{parameter.name}; name the parameters of a subscriber one by one")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise TypeError(f"{name}: {parameter.name} can only be given by position; leave out the /")
        if (found := _depends(hints.get(parameter.name))) is not None:
            depends[parameter.name] = found, needs_of(found.make)
        elif parameter.default is parameter.empty:
            if parameter.name not in hints:
                raise TypeError(f"{name}: {parameter.name} has no type, and the type decides how it is settled")
            payloads.append((parameter.name, hints[parameter.name]))
        elif _mentions_message(hints.get(parameter.name)):
            raise TypeError(f"{name}: {parameter.name} has a default, and a Message is always there; leave it out")
    if len(payloads) != 1:
        raise TypeError(_not_one(name, [one for one, _ in payloads]))
    ((takes, annotation),) = payloads
    kind, message = _kind(annotation, takes, name)
    return Signature(takes, kind, message, Needs(depends), _in_thread(handler, in_thread, name))


def _in_thread(handler: Callable[..., Any], said: bool | None, name: str) -> bool:
    """Whether it runs in a thread: a `def` does, if nothing else is said."""
    if inspect.iscoroutinefunction(handler):
        if said:
            raise TypeError(f"{name} is an async def, which runs on the event loop; leave out in_thread=True")
        return False
    if said is None and inspect.iscoroutinefunction(inspect.unwrap(handler)):
        log.warning(
            "%s is an async def behind a decorator that is not, and runs in a thread; say in_thread=True if the "
            "decorator runs it to its end, in_thread=False if it needs the event loop",
            name,
        )
    return said is not False


def needs_of(make: Callable[..., Any], above: tuple[Any, ...] = ()) -> Needs:
    """What a dependency needs itself."""
    name = _name(make)
    if make in above:
        raise TypeError(f"{name} depends on itself")
    try:
        parameters = inspect.signature(make).parameters.values()
    except ValueError:
        return Needs({})
    hints = _hints(make, name) if any(p.default is p.empty for p in parameters) else {}
    depends: dict[str, tuple[Depends, Needs]] = {}
    message: str | None = None
    for parameter in parameters:
        annotation = hints.get(parameter.name)
        if (found := _depends(annotation)) is not None:
            depends[parameter.name] = found, needs_of(found.make, (*above, make))
        elif _is_message(annotation):
            message = parameter.name
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise TypeError(
                f"{name}, a dependency, takes {parameter.name}, and nothing says where that comes from; "
                "it may take a Message, or Annotated[..., Depends(...)]"
            )
    return Needs(depends, message)


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
        # Annotations in quotes are expressions, and may raise anything.
        raise TypeError(f"{name}: its annotations cannot be resolved ({problem})") from None


def _not_one(name: str, found: list[str]) -> str:
    if not found:
        return f"{name} has no parameter for the payload; write {name}(order: Order) or {name}(msg: Message[Order])"
    return (
        f"{name} has {len(found)} parameters for one payload ({', '.join(found)}); "
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
            raise TypeError(f"{name}: {parameter} is a {bare}; say which payload it has, such as Message[Order]")
        return kind, origin
    if _mentions_message(bare):
        raise TypeError(
            f"{name}: {parameter} is {bare}; a Message is always there and comes alone, so write Message[...] itself"
        )
    return annotation, None


def _bare(annotation: Any) -> Any:
    """Without what stands around it: `Annotated`, a new name for it, an alias."""
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
    """The payload's type of a class that is made from `Message[Order]`; bytes for `Message` itself."""
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
