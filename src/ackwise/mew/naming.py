"""What the names of a session at a server stand for, learnt from what it answers."""

from __future__ import annotations

from ackwise.dialects.mew.lines import Line, Note, Result


class Names:
    """Follows the lines of a session into the dictionary it is given."""

    def __init__(self, known: dict[str, str]) -> None:
        self._known = known
        self._before: dict[str, str] | None = None
        """As it was when the transaction began."""

    def heed(self, line: Line) -> None:
        if isinstance(line, Note) and line.kind == "error":
            self._take_back()
        if not isinstance(line, Result):
            return
        if line.statement == "BEGIN":
            self._before = dict(self._known)
        elif line.statement == "COMMIT":
            self._before = None
        elif line.statement == "ROLLBACK":
            self._take_back()
            self._before = None
        self._known.update(line.done.bindings)
        if line.handle is not None and line.done.handle is not None:
            self._known[line.handle.removeprefix("#")] = line.done.handle

    def _take_back(self) -> None:
        """What a transaction that failed has named is gone with it."""
        if self._before is not None:
            self._known.clear()
            self._known.update(self._before)
