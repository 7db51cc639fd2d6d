"""SQL views for people and their tools. Ackwise itself reads none of them.

The views are in the schema `ackwise`. The schema `public` has a view of the same name for each of them, so that plain
`psql` finds it. An object of another program with such a name stays.
"""

from __future__ import annotations

import logging

from psycopg import sql

from ackwise.store import sql_files
from ackwise.store.postgres.connection import Connection

log = logging.getLogger("ackwise.store")

VIEWS = sql_files.load([("ackwise.store.postgres", "views.sql")])
"""Queries of the views, by name."""
_MARK = "Ackwise view"
_FIRST = "say: SET search_path = ackwise, public"


def create(connection: Connection, where: str) -> None:
    """Create the views that do not exist. Warn of those that plain `psql` does not find."""
    for schema in ("ackwise", "public"):
        taken = _relations(connection, schema)
        if schema == "public" and not _may_create(connection):
            break
        for name, query in VIEWS.items():
            if name not in taken:
                _create_view(connection, schema, name, query)
    for note in notes(connection, where):
        log.warning("%s", note)


def _create_view(connection: Connection, schema: str, name: str, query: str) -> None:
    view = sql.Identifier(schema, name)
    if schema == "ackwise":
        body: sql.Composable = sql.SQL(query)
    else:
        body = sql.SQL("SELECT * FROM {}").format(sql.Identifier("ackwise", name))
    connection.execute(sql.SQL("CREATE VIEW {} AS {}").format(view, body))
    connection.execute(sql.SQL("COMMENT ON VIEW {} IS {}").format(view, sql.Literal(_MARK)))


def notes(connection: Connection, where: str) -> list[str]:
    """One text for each view that is not as Ackwise created it."""
    texts = []
    for schema, advice in (("ackwise", "Ackwise itself does not need it"), ("public", _FIRST)):
        relations = _relations(connection, schema)
        missing = [name for name in VIEWS if name not in relations]
        if missing:
            texts.append(f"the schema {schema} of {where} has no view {', '.join(missing)}; {advice}")
        for name, ours in relations.items():
            if not ours:
                texts.append(f"{schema}.{name} of {where} is not the view of Ackwise; {advice}")
    return texts


def _relations(connection: Connection, schema: str) -> dict[str, bool]:
    """The relations of a schema that have the name of a view, and whether Ackwise created them."""
    rows = connection.execute(
        "SELECT c.relname, c.relkind = 'v' AND obj_description(c.oid, 'pg_class') IS NOT DISTINCT FROM %s"
        " FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = ANY (%s) ORDER BY c.relname",
        (_MARK, schema, list(VIEWS)),
    )
    return {str(name): bool(ours) for name, ours in rows}


def _may_create(connection: Connection) -> bool:
    row = connection.execute("SELECT has_schema_privilege(to_regnamespace('public')::oid, 'CREATE')").fetchone()
    return row is not None and bool(row[0])
