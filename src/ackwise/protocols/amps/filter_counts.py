"""Filters that each client address uses. Each different filter costs looks at a queue, so their number is bounded."""

from __future__ import annotations

from collections import Counter

from ackwise.core.errors import BadInput

MOST_FILTERS = 500
"""Different filters of all clients at one address."""


class FilterCounts:
    """Subscriptions by address and filter text."""

    def __init__(self) -> None:
        self._by_address: dict[str, Counter[str]] = {}

    def add(self, address: str, text: str) -> None:
        """Count a subscription. Raises `BadInput` if its address has too many different filters."""
        counts = self._by_address.get(address, Counter())
        if text not in counts and len(counts) >= MOST_FILTERS:
            raise BadInput(
                f"the clients at one address have at most {MOST_FILTERS} different filters; end a subscription"
            )
        counts[text] += 1
        self._by_address[address] = counts

    def remove(self, address: str, text: str) -> None:
        counts = self._by_address[address]
        counts[text] -= 1
        if not counts[text]:
            del counts[text]
        if not counts:
            del self._by_address[address]
