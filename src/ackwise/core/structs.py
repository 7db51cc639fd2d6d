"""msgspec helpers: type parameters of structs, the answer type of a command, preparation of types for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import msgspec

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Answer_co = TypeVar("Answer_co", covariant=True, default=object)
    """`Command` and `Query` without a parameter accept any answer. Python itself knows defaults since version 3.13."""
    Instant = TypeVar("Instant", default=int)
    """Microseconds, as a store answers. A client makes datetimes of them: `LeaseRow[datetime]`."""
    LatencyBound = TypeVar("LatencyBound", default=int)
    """Microseconds, as a store answers. A client makes seconds of them."""
else:
    from typing import TypeVar

    Answer_co = TypeVar("Answer_co", covariant=True)
    # The bound is what msgspec decodes if a type has no parameter.
    Instant = TypeVar("Instant", bound=int)
    LatencyBound = TypeVar("LatencyBound", bound=int)


def answer_type(kind: type[msgspec.Struct]) -> Any:
    """The answer that a class names in its base: `Receipts` for `class Push(Command[Receipts])`."""
    return get_args(kind.__orig_bases__[0])[0]  # type: ignore[attr-defined]


def prepare_types(*kinds: Any) -> None:
    """Prepare struct types for decoding, while the module is imported.

    msgspec prepares a type at its first use. If another thread uses the type meanwhile, the process crashes.
    """
    for kind in kinds:
        msgspec.json.Decoder(kind)
