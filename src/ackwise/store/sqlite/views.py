"""SQL views for people and their tools. Ackwise itself reads none of them."""

from __future__ import annotations

import logging
import re

import apsw

from ackwise.store import sql_files

log = logging.getLogger("ackwise.store")

_INSTANT = r"strftime('%Y-%m-%d %H:%M:%S', \1 / 1000000, 'unixepoch') || printf('.%06d', \1 % 1000000)"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_BASE_36 = "||".join(f"substr('{_DIGITS}',1+e.no/{36**power}%36,1)" for power in range(12, -1, -1))
_EXPRESSIONS = {
    "{uuid}": "||'-'||".join(f"substr(t.h,{at},{size})" for at, size in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))),
    "{lease_id}": f"'L'||ltrim({_BASE_36},'0')||'-'||printf('%08x',e.tag)",
    "{shift}": "coalesce((SELECT a.shift FROM anchor AS a), 0)",
}


def _definition(name: str, query: str) -> str:
    query = re.sub(r"\{instant ([\w.]+)\}", _INSTANT, query)
    for placeholder, expression in _EXPRESSIONS.items():
        query = query.replace(placeholder, expression)
    return f"CREATE VIEW {name} AS\n{query}"


_QUERIES = sql_files.load([("ackwise.store.sqlite", "views.sql")])
VIEWS = {name: _definition(name, query) for name, query in _QUERIES.items()}
"""Statements that create the views, by name."""


def create(connection: apsw.Connection, path: str) -> None:
    """Create the views that do not exist. A table or view of another program with such a name stays."""
    stored = _stored(connection)
    for name, statement in VIEWS.items():
        if name not in stored:
            connection.execute(statement).fetchall()
    for note in notes(connection, path):
        log.warning("%s", note)


def notes(connection: apsw.Connection, path: str) -> list[str]:
    """One text for each view that is not as Ackwise created it."""
    stored = _stored(connection)
    texts = []
    for name, statement in VIEWS.items():
        if name not in stored:
            texts.append(f"{path} has no view {name}. Ackwise itself does not need it")
        elif stored[name] != statement:
            texts.append(f"{name} in {path} is not the view of Ackwise; rename yours if you want the view")
    return texts


def _stored(connection: apsw.Connection) -> dict[str, str]:
    """The tables and views that have the name of a view, with the statements that created them."""
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type IN ('table', 'view')")
    return {str(name): str(statement) for name, statement in rows if str(name) in VIEWS}
