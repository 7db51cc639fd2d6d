"""Rows of the catalogue that a writer has read: asked for again and again, and rarely changed."""

from __future__ import annotations

from ackwise.store.session import Params, Row

CATALOGUE = frozenset(
    ("queue_by_name", "queue_by_id", "group_by_name", "group_by_id", "part_by_name", "part_by_id", "part_by_uuid")
)
_MOST = 20_000
_CHANGES_IT = ("queue_", "part_", "group_")


class Memory:
    """Remembers rows of some statements until one that may change them runs."""

    def __init__(self, names: frozenset[str] = CATALOGUE, changed_by: tuple[str, ...] = ()) -> None:
        self._names, self._changed_by = names, _CHANGES_IT + changed_by
        self._rows: dict[tuple[object, ...], Row] = {}

    def keeps(self, name: str) -> bool:
        """Whether rows of this statement are remembered; one that may change them makes everything forgotten."""
        if name in self._names:
            return True
        if name.startswith(self._changed_by):
            self.forget()
        return False

    def get(self, name: str, params: Params) -> Row | None:
        return self._rows.get((name, *params.values()))

    def put(self, name: str, params: Params, row: Row) -> None:
        if len(self._rows) >= _MOST:
            self._rows.clear()
        self._rows[(name, *params.values())] = row

    def forget(self) -> None:
        self._rows.clear()
