"""Every query and every command has a function, which returns what the query or command names."""

from __future__ import annotations

from types import GenericAlias
from typing import Any, ForwardRef, get_args, get_origin, get_type_hints

import msgspec
import pytest

from ackwise.core.answers import Counted
from ackwise.core.errors import BadInput
from ackwise.core.queries import GetQueue, ListQueues, Query
from ackwise.core.rows import Page
from ackwise.core.structs import answer_type
from ackwise.engine import runner
from ackwise.engine.reads import registry
from ackwise.graph import commands as graph_commands
from ackwise.graph.commands import AskGraph, DescribeGraph, FindGraph, IsSessionHere
from ackwise.graph.engine import queries as graph_queries
from ackwise.graph.engine.extension import GRAPH
from ackwise.store.port import Store
from ackwise.wire import admin
from tests.engine.store_harness import StoreHarness


class UnansweredQuery(Query[int], tag="unanswered_query"):
    """A query without a function."""


def returned(kind: Any) -> Any:
    """The return type of the function that answers a query. A page is a list over the wire."""
    result = get_type_hints(registry._FUNCTIONS[kind].answer)["return"]
    return GenericAlias(list, get_args(result)) if get_origin(result) is Page else result


@pytest.mark.parametrize("kind", admin.WIRE_QUERIES, ids=lambda kind: str(kind.__struct_config__.tag))
def test_function_of_a_query_returns_its_answer_type(kind: type[msgspec.Struct]) -> None:
    assert returned(kind) == answer_type(kind)


HANDLERS: dict[Any, Any] = dict(runner._HANDLERS) | {kind: handler for kind, (_, handler) in GRAPH.commands.items()}
NAMED = [kind for kind, handler in HANDLERS.items() if handler.__name__ != "<lambda>"]


@pytest.mark.parametrize("kind", NAMED, ids=lambda kind: str(kind.__name__))
def test_handler_of_a_command_returns_its_answer_type(kind: type[msgspec.Struct]) -> None:
    named = answer_type(kind)
    if isinstance(named, ForwardRef):
        named = vars(graph_commands)[named.__forward_arg__]
    assert get_type_hints(HANDLERS[kind])["return"] == named


def test_lambda_handlers_belong_to_commands_that_count() -> None:
    assert {answer_type(kind) for kind in HANDLERS.keys() - set(NAMED)} == {Counted}


def test_store_port_has_twelve_members() -> None:
    """A new query or extension needs no new member."""
    members = {*Store.__annotations__, *vars(Store)}
    assert len([name for name in members if not name.startswith("_")]) == 12


def test_graph_package_registers_the_queries_of_the_graph() -> None:
    for kind in (AskGraph, FindGraph, DescribeGraph, IsSessionHere):
        assert registry._FUNCTIONS[kind].answer.__module__ == graph_queries.__name__


def test_query_without_a_function_is_bad_input(harness: StoreHarness) -> None:
    with pytest.raises(BadInput, match="UnansweredQuery"):
        harness.store.ask(UnansweredQuery())


def test_registered_function_answers_a_new_query(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_FUNCTIONS", dict(registry._FUNCTIONS))

    @registry.answers(UnansweredQuery)
    def count_queues(snapshot: registry.Snapshot, _: UnansweredQuery) -> int:
        assert snapshot.now == harness.clock.now()
        return len(snapshot.session.rows("queues_page", {"after": "", "limit": 10}))

    harness.push("a")
    assert harness.store.ask(UnansweredQuery()) == 1 == len(harness.store.ask(ListQueues()))


@pytest.mark.parametrize("name", ["", None])
def test_query_is_validated_before_it_reads(harness: StoreHarness, name: Any) -> None:
    with pytest.raises(BadInput, match="queue"):
        harness.store.ask(GetQueue(queue=name))
