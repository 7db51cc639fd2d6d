"""What msgspec has to know of a struct, learnt while a module is imported."""

from __future__ import annotations

from typing import Any

import msgspec


def learn(*kinds: Any) -> None:
    """msgspec learns about a struct when it first decodes one. A thread that converts to it meanwhile finds it half
    learnt, and the process dies of that."""
    for kind in kinds:
        msgspec.json.Decoder(kind)
