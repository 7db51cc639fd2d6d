"""Tags: names of classes that are stored in watches or sent over the wire. Each is a literal beside its class."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.graph import ast as s
from ackwise.graph import commands as g

SHAPES = Path(__file__).parent.parent / "data" / "before_18" / "tagged_shapes.txt"
"""Each tag with the fields of its class in the version before."""
COMMANDS = """
    advance_group beat break claim configure_group configure_queue delete_group delete_queue end_graph_session extend
    fetch_graph open_graph_session pause_queue prune_queue purge_dead push redrive release_graph replay run_graph
    seek_group settle sweep transaction
"""
QUERIES = """
    ask_graph browse describe_graph find_graph find_message get_queue is_held is_session_here list_available
    list_cursors list_dead list_depths list_group_names list_groups list_held list_lanes list_leases list_oldest_leases
    list_partitions list_places list_queues list_stats queue_stats read_ledger
"""
NODES = """
    AliasDecl Alter Attr AttributeDecl Begin Binary Call Chain Chosen Commit EdgeDecl EdgeElement Exists IdRef Inspect
    IsNull Kill Link ListOf Literal Manage Match Modifier Name NodeDecl NodeElement Ontology Option Param Projection Return
    Returning Rollback Set Settle Sorted Spawn SpawnItem Tick TypeRef Unary Unlink Watch Wild
"""


def leaves(base: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """Classes below `base` that have no class below them."""
    below = base.__subclasses__()
    return [leaf for one in below for leaf in leaves(one)] if below else [base]


def tags(base: type[msgspec.Struct]) -> list[str]:
    return sorted(str(leaf.__struct_config__.tag) for leaf in leaves(base) if leaf.__module__.startswith("ackwise."))


def test_command_tags_are_as_ever() -> None:
    assert tags(c.Command) == COMMANDS.split()


def test_query_tags_are_as_ever() -> None:
    assert tags(q.Query) == QUERIES.split()


def test_syntax_tags_are_as_ever() -> None:
    assert tags(s.Node) == NODES.split()


def test_tags_keep_the_fields_that_were_stored() -> None:
    """A tag that moves to another class, a renamed field or a new field without a default breaks stored bytes."""
    classes = {str(leaf.__struct_config__.tag): leaf for base in (c.Command, q.Query, s.Node) for leaf in leaves(base)}
    for line in SHAPES.read_text().splitlines():
        tag, _, listed = line.rstrip(")").partition("(")
        before = tuple(filter(None, listed.split(", ")))
        fields = {field.encode_name: field for field in msgspec.structs.fields(classes[tag])}
        assert tuple(fields)[: len(before)] == before, tag
        added = [field for name, field in fields.items() if name not in before]
        assert all(not field.required for field in added), tag


def test_command_bytes_are_as_ever() -> None:
    assert msgspec.json.encode(c.DeleteQueue(queue="a")) == b'{"type":"delete_queue","queue":"a"}'
    assert msgspec.json.encode(c.ByLease(lease_id="x")).startswith(b'{"type":"lease"')
    assert msgspec.json.encode(q.GetQueue(queue="a")) == b'{"type":"get_queue","queue":"a"}'
    assert msgspec.json.encode(g.DescribeGraph()) == b'{"type":"describe_graph"}'


def test_watch_pattern_bytes_are_as_ever() -> None:
    pattern = s.NodeElement("j", ("Job",))
    where = s.Binary("=", s.Attr(s.Name("j"), "state"), s.Literal("string", "new"))
    assert msgspec.json.encode([pattern, where]) == (
        b'[{"_":"NodeElement","name":"j","types":["Job"]},'
        b'{"_":"Binary","op":"=","left":{"_":"Attr","of":{"_":"Name","name":"j"},"name":"state"},'
        b'"right":{"_":"Literal","kind":"string","value":"new"}}]'
    )
