"""Tags: names of classes that are stored in watches or sent over the wire. Each is a literal beside its class."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.graph import ast as s
from tests.core import tagged_examples

SHAPES = Path(__file__).parent.parent / "data" / "before_18" / "tagged_shapes.txt"
"""Each tag with the fields of its class in the version before."""
COMMITTED = tagged_examples.BYTES.read_text().splitlines()
COMMANDS = """
    add_trace advance_group beat break claim configure_group configure_queue delete_group delete_queue drain_spool
    end_graph_session extend fetch_graph open_graph_session pause_queue prune_queue purge_dead purge_queue push
    redrive release_graph remove_hook replay report_pipeline restart_graph_clocks run_graph seek_group set_hook
    set_maintenance settle settle_hook spool sweep take_hook transaction
"""
QUERIES = """
    ask_graph browse browse_newest count_dead count_dead_by_time count_named_traces database_stats describe_graph
    find_graph find_message get_group get_lease get_maintenance get_queue graph_stats is_held is_session_here
    ledger_series list_available list_consumers list_cursors list_dead list_dead_kinds list_depths list_graph_dead
    list_graph_types list_group_names list_groups list_held list_hooks list_lanes list_leases list_named_traces
    list_newest list_oldest_leases list_partitions list_pipelines list_places list_pools list_queues list_stats
    list_trace_names list_traces list_watches message_timeline preview_purge preview_seek queue_stats read_ledger
    store_size sum_ledger total_ledger
"""
NODES = """
    AliasDecl Alter Attr AttributeDecl Begin Binary Call Chain Chosen Commit EdgeDecl EdgeElement Exists IdRef
    Inspect IsNull Kill Link ListOf Literal Manage Match Modifier Name NodeDecl NodeElement Ontology Option Param
    Projection Return Returning Rollback Set Settle Sorted Spawn SpawnItem Tick TypeRef Unary Unlink Watch Wild
"""


def leaves(base: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """Classes below `base` that have no class below them."""
    below = base.__subclasses__()
    return [leaf for kind in below for leaf in leaves(kind)] if below else [base]


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


@pytest.mark.parametrize("kind", tagged_examples.tagged_classes(), ids=lambda kind: kind.__name__)
def test_tagged_class_has_the_bytes_of_the_committed_file(kind: type[msgspec.Struct]) -> None:
    """A renamed class, tag or field changes the line of its class. A new field with a default adds to the line."""
    encoded = msgspec.json.encode(tagged_examples.example(kind))
    assert encoded.decode() in COMMITTED
    assert msgspec.json.encode(msgspec.json.decode(encoded, type=kind)) == encoded


def test_committed_bytes_have_a_class_each() -> None:
    assert tagged_examples.lines() == COMMITTED
    tags_before = {line.partition("(")[0] for line in SHAPES.read_text().splitlines()}
    tags_now = {str(kind.__struct_config__.tag) for kind in tagged_examples.tagged_classes()}
    assert tags_before <= tags_now


def test_watch_pattern_bytes_are_as_ever() -> None:
    pattern = s.NodeElement("j", ("Job",))
    where = s.Binary("=", s.Attr(s.Name("j"), "state"), s.Literal("string", "new"))
    assert msgspec.json.encode([pattern, where]) == (
        b'[{"_":"NodeElement","name":"j","types":["Job"]},'
        b'{"_":"Binary","op":"=","left":{"_":"Attr","of":{"_":"Name","name":"j"},"name":"state"},'
        b'"right":{"_":"Literal","kind":"string","value":"new"}}]'
    )
