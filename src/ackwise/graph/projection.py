"""RETURN: computes columns and aggregates, and applies order and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ackwise.engine.statement_limits import weight
from ackwise.graph import ast as s
from ackwise.graph import errors
from ackwise.graph.expressions import AGGREGATES, Scope, evaluate, holds
from ackwise.graph.values import Entity, kind_of, sort_text

Names = Mapping[str, Entity]
Rows = list[list[Any]]
Count = Callable[[Any], None]
MOST_AGGREGATED = 256 << 20
"""Characters of the strings that expressions build for one aggregate."""
MOST_EVENT = 16 << 20
"""Bytes of one event. Further values are null: a large RETURN of a watch must not fail other callers."""


def plain(value: Any) -> Any:
    """A value as JSON shows it."""
    if isinstance(value, Entity):
        return value.shown()
    if isinstance(value, list):
        return [plain(item) for item in value]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def aggregates_in(expr: s.Expr | None) -> bool:
    """Whether the expression contains an aggregate."""
    match expr:
        case s.FunctionCall(name=name, args=args):
            return _is_aggregate(expr) or (name.lower() not in AGGREGATES and any(map(aggregates_in, args)))
        case s.Binary(left=left, right=right):
            return aggregates_in(left) or aggregates_in(right)
        case s.Unary(of=of) | s.IsNull(of=of) | s.Attr(of=of):
            return aggregates_in(of)
        case s.ListOf(items=items) | s.Chain(operands=items):
            return any(map(aggregates_in, items))
        case _:
            return False


def _varies(expr: s.Expr) -> bool:
    """Whether the expression depends on the row."""
    match expr:
        case s.Name() | s.Exists():
            return True
        case s.FunctionCall(args=items) | s.ListOf(items=items) | s.Chain(operands=items):
            return any(map(_varies, items))
        case s.Binary(left=left, right=right):
            return _varies(left) or _varies(right)
        case s.Unary(of=of) | s.IsNull(of=of) | s.Attr(of=of):
            return _varies(of)
        case _:
            return False


def _is_aggregate(call: s.FunctionCall) -> bool:
    name = call.name.lower()
    return name in AGGREGATES and (len(call.args) <= 1 or name not in ("min", "max"))


def columns_of(returns: s.Return, variables: Iterable[str]) -> list[s.Projection]:
    """The projections, with a column for each variable instead of `*`."""
    columns: list[s.Projection] = []
    for projection in returns.projections:
        if projection.of is None:
            columns += [s.Projection(s.Name(name), name) for name in variables]
        else:
            columns.append(projection)
    return columns


def match_of(returns: s.Return, variables: Iterable[str], names: Names, scope: Scope) -> dict[str, Any]:
    """The match in an event of a watch: the attributes of a single node, or the values by column."""
    columns = columns_of(returns, variables)
    row_scope = scope.with_names(names)
    if len(columns) == 1 and isinstance(columns[0].of, s.Name) and columns[0].alias is None:
        attributes: dict[str, Any] = _shown(columns[0].of, row_scope)
        return attributes
    left = MOST_EVENT
    values: list[Any] = []
    for column in columns:
        if column.of is not None:
            value = _shown(column.of, row_scope)
            left -= weight(value)
            values.append(value if left >= 0 else None)
    return {column.name: value for column, value in zip(columns, values, strict=True)}


def _shown(expr: s.Expr, scope: Scope) -> Any:
    """The value of an expression. An error counts as null, so that it does not fail the statement of another caller."""
    try:
        return plain(evaluate(expr, scope))
    except errors.GraphError:
        return None


def project(
    match: s.Match, variables: Iterable[str], rows: Iterable[Names], scope: Scope, count: Count
) -> tuple[list[str], Rows]:
    """Columns and rows of a MATCH. Passes each value to `count` before it builds the next one."""
    assert match.returns is not None
    columns = columns_of(match.returns, variables)
    if any(aggregates_in(column.of) for column in columns):
        sortable = _grouped(columns, rows, scope, match.order, count)
    else:
        sortable = [_projected(columns, row_scope, match.order, count) for row_scope in map(scope.with_names, rows)]
    if match.returns.distinct:
        sortable = _distinct(sortable)
    if match.order:
        sortable.sort(key=lambda pair: pair[1])
    first = _whole(match.offset, "OFFSET") or 0
    last = None if match.limit is None else first + (_whole(match.limit, "LIMIT") or 0)
    return [column.name for column in columns], [values for values, _ in sortable[first:last]]


def _projected(
    columns: list[s.Projection], scope: Scope, order: tuple[s.Sorted, ...], count: Count
) -> tuple[list[Any], str]:
    """The values of one row, and its sort key."""
    values = [_counted(plain(evaluate(column.of, scope)), count) for column in columns if column.of is not None]
    return values, _order_key(order, columns, scope, count)


def _counted(value: Any, count: Count) -> Any:
    count(value)
    return value


def _whole(expr: s.Expr | None, what: str) -> int | None:
    if expr is None:
        return None
    if not isinstance(expr, s.Literal) or not isinstance(expr.value, int) or isinstance(expr.value, bool):
        raise errors.wrong_type(f"{what} needs a whole number")
    if expr.value < 0:
        raise errors.constraint(f"{what} must not be negative")
    return expr.value


def count_column(match: s.Match, variables: Iterable[str]) -> str | None:
    """The column of a query that only counts its matches. None for any other query."""
    if match.returns is None or len(match.returns.projections) != 1 or match.order or match.limit or match.offset:
        return None
    column = match.returns.projections[0]
    match column.of:
        case s.FunctionCall(name=name, star=True, distinct=False, where=None) if name.lower() == "count":
            return column.name
        case s.FunctionCall(name=name, args=(s.Name(name=variable),), distinct=False, where=None) if (
            name.lower() == "count"
        ):
            return column.name if variable in variables else None
        case _:
            return None


def limit_of(match: s.Match) -> int | None:
    """How many rows the query needs. None if it needs all."""
    if match.order or match.limit is None or match.returns is None or match.returns.distinct:
        return None
    if any(aggregates_in(projection.of) for projection in match.returns.projections):
        return None
    return (_whole(match.limit, "LIMIT") or 0) + (_whole(match.offset, "OFFSET") or 0)


def _order_key(order: tuple[s.Sorted, ...], columns: list[s.Projection], scope: Scope, count: Count) -> str:
    if not order:
        return ""
    by_name = {column.name: column.of for column in columns if column.alias is not None}

    def value(expr: s.Expr) -> Any:
        if isinstance(expr, s.Name) and expr.name in by_name and expr.name not in scope.names:
            expr = by_name[expr.name] or expr
        return _counted(evaluate(expr, scope), count)

    return sort_text((value(key.by), key.descending) for key in order)


def _distinct(rows: list[tuple[list[Any], str]]) -> list[tuple[list[Any], str]]:
    seen: dict[str, tuple[list[Any], str]] = {}
    for pair in rows:
        seen.setdefault(repr(pair[0]), pair)
    return list(seen.values())


# aggregates


def _grouped(
    columns: list[s.Projection], rows: Iterable[Names], scope: Scope, order: tuple[s.Sorted, ...], count: Count
) -> list[tuple[list[Any], str]]:
    """Group rows by the columns without an aggregate. Without such columns there is one group, even of no rows."""
    keys = [c.of for c in columns if c.of is not None and not aggregates_in(c.of) and _varies(c.of)]
    groups: dict[str, list[Names]] = {}
    for names in rows:
        row_scope = scope.with_names(names)
        group = repr([_counted(plain(evaluate(key, row_scope)), count) for key in keys])
        groups.setdefault(group, []).append(names)
    if not keys and not groups:
        groups[""] = []
    sortable = []
    for members in groups.values():
        values = [_aggregate(column.of, members, scope) for column in columns if column.of is not None]
        shown = [_counted(plain(value), count) for value in values]
        sortable.append((shown, _group_key(order, columns, values, members, scope)))
    return sortable


def _group_key(
    order: tuple[s.Sorted, ...], columns: list[s.Projection], values: list[Any], members: list[Names], scope: Scope
) -> str:
    named = {column.name: value for column, value in zip(columns, values, strict=True)}

    def value(expr: s.Expr) -> Any:
        if isinstance(expr, s.Name) and expr.name in named:
            return named[expr.name]
        return _aggregate(expr, members, scope)

    return sort_text((value(key.by), key.descending) for key in order)


def _aggregate(expr: s.Expr, members: list[Names], scope: Scope) -> Any:
    match expr:
        case s.FunctionCall() if _is_aggregate(expr):
            return _aggregated(expr, members, scope)
        case s.Binary(op=op, left=left, right=right, at=at) if aggregates_in(expr):
            sides = [_constant(_aggregate(side, members, scope)) for side in (left, right)]
            return evaluate(s.Binary(op, sides[0], sides[1], at), scope)
        case s.Chain(operands=operands, operators=operators, at=at) if aggregates_in(expr):
            constants = tuple(_constant(_aggregate(operand, members, scope)) for operand in operands)
            return evaluate(s.Chain(constants, operators, at), scope)
        case s.FunctionCall(name=name, args=args, at=at) if aggregates_in(expr):
            constants = tuple(_constant(_aggregate(arg, members, scope)) for arg in args)
            return evaluate(s.FunctionCall(name, constants, at=at), scope)
        case _:
            return evaluate(expr, scope.with_names(members[0] if members else {}))


def _constant(value: Any) -> s.Expr:
    kinds: dict[str, s.Kind] = {"String": "string", "Int": "int", "Float": "float", "Bool": "bool", "null": "null"}
    kinds |= {"Timestamp": "timestamp", "Duration": "duration"}
    return s.Literal(kinds[kind_of(value)], value)


def _aggregated(call: s.FunctionCall, members: list[Names], scope: Scope) -> Any:
    """Compute one aggregate over the members of a group. Nulls do not count."""
    name = call.name.lower()
    if scope.check is not None:
        scope.check()
    scopes = [row_scope for row_scope in map(scope.with_names, members) if holds(call.where, row_scope)]
    if call.star or not call.args:
        if name != "count":
            raise errors.constraint(f"{call.name} needs something to work on", call.at)
        return len(scopes)
    values = _argument_values(call, scopes)
    if not values:
        return 0 if name in ("count", "sum") else None
    try:
        return _AGGREGATIONS[name](values)
    except TypeError:
        kinds = ", ".join(sorted({kind_of(value) for value in values}))
        raise errors.wrong_type(f"{call.name} does not work with {kinds}", call.at) from None


def _argument_values(call: s.FunctionCall, scopes: list[Scope]) -> list[Any]:
    values = []
    built = 0
    for scope in scopes:
        value = evaluate(call.args[0], scope)
        built += scope.built
        if built > MOST_AGGREGATED:
            raise errors.statement_limit("bytes", MOST_AGGREGATED, call.at)
        if value is not None:
            values.append(value)
    if call.distinct:
        return list({repr(plain(value)): value for value in values}.values())
    return values


def _sum(values: list[Any]) -> Any:
    """The sum. Durations add up to a duration."""
    total = sum(values)
    return type(values[0])(total) if isinstance(values[0], int) and isinstance(total, int) else total


_AGGREGATIONS: dict[str, Callable[[list[Any]], Any]] = {
    "count": len,
    "sum": _sum,
    "avg": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
}
