"""Catalog rows kept in memory."""

from __future__ import annotations

from ackwise.engine.ports import Params, Row

CATALOG_STATEMENTS = frozenset(
    ("queue_by_name", "queue_by_id", "group_by_name", "group_by_id", "part_by_name", "part_by_id", "part_by_uuid")
)
_MOST_ROWS = 20_000
_CHANGING = ("queue_", "part_", "group_")


class _Changes(dict[str, bool]):
    """Whether a statement may change cached rows, by its name. Decides once for each name."""

    def __init__(self, prefixes: tuple[str, ...]) -> None:
        super().__init__()
        self._prefixes = prefixes

    def __missing__(self, name: str) -> bool:
        changes = self[name] = name.startswith(self._prefixes)
        return changes


class RowCache:
    """Cache of rows by statement and parameters. A statement that may change cached rows clears the cache.

    Every statement of a turn asks `names` and `changes`, so these are plain containers: a session looks without a call.
    """

    def __init__(self, names: frozenset[str] = CATALOG_STATEMENTS, changed_by: tuple[str, ...] = ()) -> None:
        self.names = names
        """Statements whose rows are cached."""
        self.changes = _Changes(_CHANGING + changed_by)
        """Whether a statement that is not cached clears the cache."""
        self.rows: dict[tuple[object, ...], Row] = {}
        """Rows by (statement, *parameters)."""

    def put(self, name: str, params: Params, row: Row) -> None:
        if len(self.rows) >= _MOST_ROWS:
            self.rows.clear()
        self.rows[(name, *params.values())] = row
