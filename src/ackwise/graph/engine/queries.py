"""Answers the graph's queries. Importing this module registers them."""

from __future__ import annotations

from ackwise.engine.reads.registry import Snapshot, answers
from ackwise.graph import ast as s
from ackwise.graph import declarations
from ackwise.graph.commands import AskGraph, DescribeGraph, FindGraph, GraphRows, IsSessionHere, ReaderMatches, TypeRow
from ackwise.graph.engine import early_matches
from ackwise.graph.engine.entity_reads import Reader
from ackwise.graph.engine.session_commands import ask_match, inspect


@answers(AskGraph)
def ask(snapshot: Snapshot, query: AskGraph) -> GraphRows:
    """Answer a MATCH or INSPECT. If a delivery is past its deadline, the answer is `due`: expire it first."""
    if snapshot.session.row("mew_leases_expired", {"now": snapshot.now, "limit": 1}) is not None:
        return GraphRows([], [], due=True)
    if isinstance(query.statement, s.Inspect):
        return inspect(_reader(snapshot), query.statement)
    return ask_match(_reader(snapshot), query.statement)


@answers(FindGraph)
def find(snapshot: Snapshot, query: FindGraph) -> tuple[ReaderMatches, ...]:
    """Match the patterns of a statement that changes the graph, before its turn."""
    return early_matches.find(_reader(snapshot), query.statement)


def _reader(snapshot: Snapshot) -> Reader:
    return Reader(snapshot.session, snapshot.wall, snapshot.meter)


@answers(DescribeGraph)
def describe(snapshot: Snapshot, _: DescribeGraph) -> list[TypeRow]:
    """The users' types, each with its declaration and the number of its entities."""
    ontology = _reader(snapshot).ontology
    counts = {row[0]: row[1] for row in snapshot.session.rows("mew_counts")}
    rows = []
    for name, declared in ontology.declared.items():
        if not name.startswith("_"):
            kind = ontology.nodes.get(name) or ontology.edges.get(name)
            rows.append(TypeRow(name, declarations.declaration(declared), counts.get(kind.id, 0) if kind else 0))
    return rows


@answers(IsSessionHere)
def is_here(snapshot: Snapshot, query: IsSessionHere) -> bool:
    """Whether the session belongs to the broker that asks."""
    row = snapshot.session.row("mew_session_by_id", {"id": query.session})
    return row is not None and row[2] == snapshot.instance
