"""docs/reference/names.md and the product agree: built names exist, planned names do not, and no name is missing."""

from __future__ import annotations

import re

import pytest

from ackwise.cli.serve import size
from ackwise.core import errors
from ackwise.core.settlement import Outcome, Reason, Verdict
from ackwise.protocols.native.tables import TABLES
from tests.docs import product_names as product
from tests.docs.names_page import PAGE, Name, names

NAMES = list(names())
FLAGS = [name for name in NAMES if name.section == "Flags of ackwise serve" and not name.planned]
CODES = [name for name in NAMES if name.section == "Error codes" and re.fullmatch(r"\d{3}", name.text)]
WITHOUT_URL = {"serve", "demo", "context add", "context use", "context remove", "context list"}
READS = (
    "queue list", "queue show", "group list", "group show", "lease oldest", "lease list", "dlq list", "dlq show",
    "dlq report",
    "check", "lag", "metrics", "consumer list", "context list", "message peek", "message tail", "message show", "top",
)  # fmt: skip


def named(name: Name) -> str:
    return f"{name.section}: {name.name}"


def listed(section: str) -> set[str]:
    return {name.name for name in NAMES if name.section == section}


@pytest.mark.parametrize("name", NAMES, ids=named)
def test_name_is_built_unless_planned(name: Name) -> None:
    exists = product.SECTIONS[name.section](name.name)
    if name.planned:
        assert not exists, f"`{name.name}` is built: remove its mark in {PAGE.name}"
    else:
        assert exists, f"`{name.name}` is in {PAGE.name}, and the product does not have it"


def test_every_section_has_names_and_a_check() -> None:
    assert {name.section for name in NAMES} == set(product.SECTIONS)
    assert len(NAMES) > 250


def test_names_are_distinct_in_each_section() -> None:
    pairs = [(name.section, name.name) for name in NAMES]
    assert sorted(set(pairs)) == sorted(pairs)


def test_line_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="does not begin with names"):
        list(names("## make targets\n- a line without names\n"))
    assert list(names("## A\n- `b` (planned), `c`: text\n")) == [
        Name("A", "b", True, "text"),
        Name("A", "c", False, "text"),
    ]


@pytest.mark.parametrize("section", product.SECTIONS)
def test_made_up_name_is_not_found(section: str) -> None:
    """A check that finds everything checks nothing."""
    made_up = {"Options of commands": "mew --made-up", "Python": "ackwise.made_up", "Routes": "GET /made-up"}
    assert not product.SECTIONS[section](made_up.get(section, "made_up"))


# names that the page lacks


def test_page_has_every_make_target() -> None:
    assert set(product.make_targets()) <= listed("make targets")


def test_page_has_every_command_and_serve_flag() -> None:
    assert set(product.commands()) <= listed("Commands")
    assert set(product.options("serve")) - {"--help"} <= listed("Flags of ackwise serve")


def test_page_has_every_native_route() -> None:
    native = {route for route in product.routes() if route.split()[1].startswith(("/v1", "/mew"))}
    assert native <= listed("Routes")


def test_page_has_every_code_of_the_error_tree() -> None:
    codes = {code for code, kind in product.error_classes().items() if kind.__module__ == errors.__name__}
    assert codes <= listed("Error codes")


def test_page_has_every_word_of_an_enumeration() -> None:
    for section, words in (
        ("Outcomes", Outcome),
        ("Verdicts", Verdict),
        ("Reasons of dead letters", Reason),
    ):
        assert {str(word) for word in words} == listed(section)
    assert set(TABLES) == listed("Tables")
    assert product.mew_outcomes() == listed("Outcomes of an ACK or NACK")
    assert product.line_kinds() == listed("Kinds of lines")
    assert product.numbered_codes() == listed("Numbered codes of MEW")
    assert product.source_columns() == listed("Columns of the source")


# what the page says about names


@pytest.mark.parametrize("flag", FLAGS, ids=named)
def test_serve_flag_has_variable_and_default(flag: Name) -> None:
    option = product.options("serve")[flag.name]
    variables = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    assert f"ACKWISE_{flag.name[2:].replace('-', '_').upper()}" in variables
    if default := re.search(r"default `([^`]+)`$", flag.text):
        shown = ",".join(option.default) if isinstance(option.default, list) else str(option.default)
        assert _same(shown, default[1]), option.default


def _same(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other or (one.endswith("iB") and size(one) == size(other))


@pytest.mark.parametrize("code", CODES, ids=named)
def test_error_code_has_its_status(code: Name) -> None:
    assert product.status(code.name) == int(code.text)


def test_commands_take_url_and_reads_take_json() -> None:
    assert {name for name in product.commands() if "--url" not in product.options(name)} == WITHOUT_URL
    assert [name for name in READS if "--json" not in product.options(name)] == []
