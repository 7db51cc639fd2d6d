"""Leases that a keeper can extend, and when an extension is due."""

from __future__ import annotations

from typing import Protocol

HALF = 0.5


class KeptLease(Protocol):
    """A lease that a keeper can extend. Times are microseconds of the keeper's clock."""

    @property
    def duration(self) -> int:
        """The time that an extension gives the lease."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the lease needs no extension any more."""
        ...

    @property
    def is_ending(self) -> bool:
        """Whether the lease has ended or is being settled. Then the keeper never reports it as lost."""
        ...

    @property
    def in_doubt(self) -> bool:
        """Whether the lease may be lost. The keeper extends it at once: the answer shows whether it is lost."""
        ...

    def remaining(self, now: int) -> int:
        """Time until the deadline."""
        ...


def is_due(lease: KeptLease, now: int, fraction: float = HALF) -> bool:
    """Whether to extend the lease now: `fraction` of its time is over, or it is in doubt."""
    return not lease.ended and (lease.in_doubt or lease.remaining(now) < lease.duration * (1 - fraction))
