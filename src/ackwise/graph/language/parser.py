"""Parses text to statements. After an error it returns the statements before it, and where the next one begins."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any

import msgspec
from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ackwise.graph import ast as s
from ackwise.graph.errors import At, GraphError, not_supported, statement_limit
from ackwise.graph.language import diagnostics, text_limits
from ackwise.graph.language.ast_builder import Builder
from ackwise.graph.language.diagnostics import Skipped, blank_skipped

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_START = re.compile(
    r"(?im)^[ \t]*(?:ontology|type|node|edge|abstract|sealed|spawn|link|set|kill|unlink|match|inspect|begin|commit"
    r"|rollback|tick|watch|ack|nack|pause|resume|cancel|alter|\w+[ \t]*=[ \t]*watch)\b"
)
SHORT = 4 << 10
"""Longest text that the parser caches."""
BRIEF = 512
"""Longest text that the parser handles within milliseconds."""
MOST_CACHED = 1024
"""Texts in the cache."""
DEEPEST = 150
"""Levels of operators, calls and attributes inside each other. A chain such as `a + b + c` is one level."""
LONGEST_SOURCE = 4 << 10
"""Errors in longer lines do not quote the line: one line may have thousands of errors."""


class Parsed(msgspec.Struct):
    """Statements of a text up to the first error. `resume` is where the next statement begins."""

    statements: list[s.Statement]
    error: GraphError | None = None
    resume: int = 0
    skipped: list[Skipped] = []


_cached: dict[str, Parsed] = {}


@cache
def grammar() -> str:
    return resources.files("ackwise.graph.language").joinpath("mew.lark").read_text("utf-8")


@cache
def _lark() -> Lark:
    return Lark(grammar(), parser="lalr", propagate_positions=True, maybe_placeholders=False)


def is_quick(text: str) -> bool:
    """Whether an event loop may parse this text itself."""
    return len(text) <= BRIEF or text in _cached


def parse(text: str) -> Parsed:
    """Parse a text. Caches short texts: clients repeat statements with other parameters."""
    parsed = _cached.get(text)
    if parsed is None:
        parsed = _parse(text)
        if len(text) <= SHORT:
            if len(_cached) >= MOST_CACHED:
                _cached.clear()
            _cached[text] = parsed
    return parsed


def _parse(text: str) -> Parsed:
    limit = text_limits.exceeded(text)
    if limit is not None:
        return Parsed([], limit, len(text))
    blanked, skipped = blank_skipped(text)
    trees, problem = _read(blanked)
    builder = Builder(text)
    statements: list[s.Statement] = []
    for tree in trees:
        try:
            statements.append(_shallow(_statement(builder.build(tree)), _at(tree)))
        except GraphError as refusal:
            end = tree.meta.end_pos if not tree.meta.empty else len(text)
            return Parsed(statements, pointed(refusal, text), end, skipped)
        except ValueError:  # Python reads no number of more than a few thousand digits
            error = GraphError("parse_error", "a number has too many digits", at=_at(tree))
            return Parsed(statements, pointed(error, text), len(text), skipped)
        except RecursionError:
            return Parsed(statements, _too_deep(), len(text), skipped)
    if problem is None:
        return Parsed(statements, None, len(text), skipped)
    if isinstance(problem, RecursionError):
        return Parsed(statements, _too_deep(), len(text), skipped)
    last = trees[-1].meta.end_pos if trees and not trees[-1].meta.empty else 0
    error, place = _explained(problem, text, last)
    return Parsed(statements, pointed(error, text), _resume(blanked, place, last), skipped)


def _too_deep() -> GraphError:
    return statement_limit("depth", DEEPEST)


def _shallow(statement: s.Statement, at: At) -> s.Statement:
    """Refuse a statement so deeply nested that recursive functions would crash."""
    ahead: list[tuple[Any, int]] = [(statement, 0)]
    while ahead:
        node, depth = ahead.pop()
        if depth > DEEPEST:
            raise statement_limit("depth", DEEPEST, at)
        if isinstance(node, tuple):
            ahead += [(part, depth) for part in node if isinstance(part, tuple | msgspec.Struct)]
        else:
            ahead += [
                (value, depth + 1)
                for field in node.__struct_fields__
                if isinstance(value := getattr(node, field), tuple | msgspec.Struct)
            ]
    return statement


def _at(tree: Tree[Token]) -> At:
    return (tree.meta.line, tree.meta.column) if not tree.meta.empty else (0, 0)


def _statement(built: Any) -> s.Statement:
    if isinstance(built, s.AliasDecl | s.NodeDecl | s.EdgeDecl):
        return s.OntologyDecl((built,), None, built.at)
    return built  # type: ignore[no-any-return]


def _read(text: str) -> tuple[list[Tree[Token]], UnexpectedInput | RecursionError | None]:
    """Parse trees of the complete statements, up to the first error."""
    parser = _lark().parse_interactive(text)
    state = parser.parser_state
    last: Token | None = None
    try:
        for token in parser.lexer_thread.lex(state):  # type: ignore[no-untyped-call]
            last = token
            _feed(state, token)
        end = Token.new_borrow_pos("$END", "", last) if last is not None else Token("$END", "", 0, 1, 1)
        tree = state.feed_token(end, True)
        return list(tree.children), None
    except (UnexpectedInput, RecursionError) as problem:
        return _items(state.value_stack), problem


def _feed(state: Any, token: Token) -> None:
    """Feed a token to the parser. A keyword counts as a name where only a name fits."""
    try:
        state.feed_token(token)
    except UnexpectedToken:
        if token.type == "NAME" or not _WORD.fullmatch(token):
            raise
        state.feed_token(Token.new_borrow_pos("NAME", str(token), token))


def _items(stack: list[Any]) -> list[Tree[Token]]:
    """The statements that were complete at the error. They are at the bottom of the parser's stack."""
    items: list[Tree[Token]] = []
    for entry in stack:
        if isinstance(entry, Tree) and entry.data.startswith("__start"):
            items += [child for child in entry.children if isinstance(child, Tree)]
    return items


def _explained(problem: UnexpectedInput, text: str, last: int) -> tuple[GraphError, int]:
    """The error for a Lark exception, and its offset in the text."""
    if isinstance(problem, UnexpectedCharacters):
        place = getattr(problem, "pos_in_stream", None) or 0
        found, expected = text[place : place + 1], set[str](problem.allowed or ())
    elif isinstance(problem, UnexpectedToken):
        place = len(text.rstrip()) if problem.token.type == "$END" else (problem.token.start_pos or 0)
        found, expected = str(problem.token), set(problem.expected)
    else:
        place, found, expected = len(text), "", set()
    at = position(text, place)
    beginning = _WORD.search(text, last)
    first = beginning[0].upper() if beginning and beginning.start() <= place else ""
    unsupported = diagnostics.unsupported(first, found, text[last : place + len(found)])
    if unsupported:
        return not_supported(unsupported, at), place
    ended = place >= len(text.rstrip())
    message = "the statement ends too early" if ended else f"unexpected {found[:40]!r}"
    error = GraphError("parse_error", message, at=at)
    error.hint = diagnostics.hint(first, found, expected, ended)
    return error, place


def position(text: str, offset: int) -> At:
    """Line and column of an offset, from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def pointed(error: GraphError, text: str) -> GraphError:
    """Add the source line, and a caret under the column, to an error."""
    line, column = error.at
    lines = text.splitlines()
    if line and line <= len(lines) and len(lines[line - 1]) <= LONGEST_SOURCE:
        error.details["source"] = lines[line - 1]
        error.details["caret"] = " " * (column - 1) + "^"
    return error


def _resume(text: str, place: int, last: int) -> int:
    """Where parsing resumes after an error: after the next `;`, or at a line that begins with a statement."""
    semicolon = text.find(";", place)
    beginning = _START.search(text, text.find("\n", place) + 1) if "\n" in text[place:] else None
    choices = [semicolon + 1] if semicolon >= 0 else []
    choices += [beginning.start()] if beginning else []
    return max(min(choices, default=len(text)), last)
