"""A pattern becomes a statement that goes through indexes: no table of the graph is ever scanned."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackwise.graph.ast import Match
from ackwise.graph.engine.entity_reads import Reader
from ackwise.graph.engine.pattern_sql import Search, _Query
from ackwise.graph.language import parse
from ackwise.graph.patterns import joined_exists, plan_pattern
from ackwise.mew import Session
from ackwise.store.sqlite.connection import open_reader
from ackwise.store.sqlite.session import SQLiteSession
from ackwise.wire.store_url import parse as parse_url


@pytest.mark.parametrize(
    ("text", "through"),
    [
        ('MATCH j: Job WHERE j.title = "x" RETURN j', "attr=? AND value=?"),
        ("MATCH j: Job WHERE j.size = 3 RETURN j", "attr=? AND value=?"),
        ("MATCH j: Job WHERE j.size > 3 and j.size <= 7 RETURN j", "attr=?"),
        ('MATCH j: Job WHERE j.id = "x" RETURN j', "sqlite_autoindex_mew_entity"),
        ("MATCH j: Job RETURN j", "mew_entity_type"),
        ("MATCH j: Job, waits_in(j, #q) RETURN j", "mew_end_node"),
        ('MATCH j: Job, waits_in(j, q), q: Queue WHERE q.name = "x" RETURN j', "mew_end_node"),
        ("MATCH j: Job, waits_in(j, q) AS w WHERE w.since = 3 RETURN j", "attr=?"),
        ("MATCH l: _DeadLetter, _watch_dead_letter(#q, l) RETURN l", "mew_end_node"),
    ],
)
def test_plan_uses_an_index(tmp_path: Path, text: str, through: str) -> None:
    url = f"sqlite:///{tmp_path}/plan.db"
    with Session(url) as session:
        session.run("node Queue { name: String } node Job { title: String, size: Int } ")
        session.run('edge waits_in(job: Job, queue: Queue) { since: Int = 1 } SPAWN q: Queue { name = "q" }')
        text = text.replace("#q", f'#"{session.names["q"]}"')
    connection = open_reader(parse_url(url))
    try:
        reader = Reader(SQLiteSession(connection), 0)
        (statement,) = parse(text).statements
        assert isinstance(statement, Match)
        query = _Query(reader, plan_pattern(statement.pattern, reader.ontology), statement.where, Search())
        compiled = query.finish()
        steps = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {compiled.text}", compiled.params)]
    finally:
        connection.close()
    assert not [step for step in steps if step.startswith("SCAN")], steps
    assert any(through in step for step in steps), steps


@pytest.mark.parametrize("variable", ["w", "q", "t"])
def test_joined_exists_is_searched_through_an_index(tmp_path: Path, variable: str) -> None:
    url = f"sqlite:///{tmp_path}/plan.db"
    with Session(url) as session:
        session.run("node Queue { name: String } node Job { title: String } edge waits_in(job: Job, queue: Queue)")
        session.run("edge twin(one: Queue, other: Queue) [symmetric]")
    connection = open_reader(parse_url(url))
    try:
        reader = Reader(SQLiteSession(connection), 0)
        text = "MATCH j: Job WHERE not exists(waits_in(j, q) AS w, twin(q, p) AS t) RETURN j"
        (statement,) = parse(text).statements
        assert isinstance(statement, Match)
        (joined,) = joined_exists(statement.where, plan_pattern(statement.pattern, reader.ontology), reader.ontology)
        compiled = _Query(reader, joined.plan, statement.where, Search({variable: 7})).finish(["j"])
        steps = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {compiled.text}", compiled.params)]
    finally:
        connection.close()
    assert not [step for step in steps if step.startswith("SCAN")], steps
