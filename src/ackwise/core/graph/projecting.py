"""From rows of entities to what a RETURN says: columns, aggregates, order, limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ackwise.core.graph import faults
from ackwise.core.graph import syntax as s
from ackwise.core.graph.budget import weight
from ackwise.core.graph.evaluating import AGGREGATES, Scope, evaluate, holds
from ackwise.core.graph.ordering import sort_text
from ackwise.core.graph.values import Entity, kind_of

Names = Mapping[str, Entity]
Rows = list[list[Any]]
Count = Callable[[Any], None]
MOST_AGGREGATED = 256 << 20
"""Characters of the strings that expressions build for one aggregate."""
MOST_EVENT = 16 << 20
"""Bytes that an event carries. Values beyond them are null: a large RETURN of a watch must not fail other callers."""


def plain(value: Any) -> Any:
    """A value as JSON shows it."""
    if isinstance(value, Entity):
        return value.shown()
    if isinstance(value, list):
        return [plain(one) for one in value]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def aggregates_in(expr: s.Expr | None) -> bool:
    """Whether an aggregate is somewhere in the expression."""
    match expr:
        case s.Call(name=name, args=args):
            return _is_aggregate(expr) or (name.lower() not in AGGREGATES and any(map(aggregates_in, args)))
        case s.Binary(left=left, right=right):
            return aggregates_in(left) or aggregates_in(right)
        case s.Unary(of=of) | s.IsNull(of=of) | s.Attr(of=of):
            return aggregates_in(of)
        case s.ListOf(items=items):
            return any(map(aggregates_in, items))
        case _:
            return False


def _varies(expr: s.Expr) -> bool:
    """Whether the expression depends on the row."""
    match expr:
        case s.Name() | s.Exists():
            return True
        case s.Call(args=items) | s.ListOf(items=items):
            return any(map(_varies, items))
        case s.Binary(left=left, right=right):
            return _varies(left) or _varies(right)
        case s.Unary(of=of) | s.IsNull(of=of) | s.Attr(of=of):
            return _varies(of)
        case _:
            return False


def _is_aggregate(call: s.Call) -> bool:
    name = call.name.lower()
    return name in AGGREGATES and (len(call.args) <= 1 or name not in ("min", "max"))


def columns_of(returns: s.Return, variables: Iterable[str]) -> list[s.Projection]:
    """The projections with `*` spelled out."""
    found: list[s.Projection] = []
    for projection in returns.projections:
        if projection.of is None:
            found += [s.Projection(s.Name(name), name) for name in variables]
        else:
            found.append(projection)
    return found


def match_of(returns: s.Return, variables: Iterable[str], names: Names, scope: Scope) -> dict[str, Any]:
    """What a watch's event carries: one whole node flat, anything else by column."""
    columns = columns_of(returns, variables)
    here = scope.with_names(names)
    if len(columns) == 1 and isinstance(columns[0].of, s.Name) and columns[0].alias is None:
        found: dict[str, Any] = _shown(columns[0].of, here)
        return found
    left = MOST_EVENT
    values: list[Any] = []
    for column in columns:
        if column.of is not None:
            value = _shown(column.of, here)
            left -= weight(value)
            values.append(value if left >= 0 else None)
    return {column.name: value for column, value in zip(columns, values, strict=True)}


def _shown(expr: s.Expr, scope: Scope) -> Any:
    """What cannot be worked out is null: an event must not fail whoever caused it."""
    try:
        return plain(evaluate(expr, scope))
    except faults.GraphError:
        return None


def project(
    match: s.Match, variables: Iterable[str], rows: Iterable[Names], scope: Scope, count: Count
) -> tuple[list[str], Rows]:
    """Columns and rows of a MATCH. Calls `count` with each value before it builds the next one."""
    assert match.returns is not None
    columns = columns_of(match.returns, variables)
    if any(aggregates_in(column.of) for column in columns):
        found = _grouped(columns, rows, scope, match.order, count)
    else:
        found = []
        for here in map(scope.with_names, rows):
            values = [_counted(plain(evaluate(column.of, here)), count) for column in columns if column.of is not None]
            found.append((values, _order_key(match.order, columns, here, count)))
    if match.returns.distinct:
        found = _distinct(found)
    if match.order:
        found.sort(key=lambda pair: pair[1])
    first = _whole(match.offset, "OFFSET") or 0
    last = None if match.limit is None else first + (_whole(match.limit, "LIMIT") or 0)
    return [column.name for column in columns], [values for values, _ in found[first:last]]


def _counted(value: Any, count: Count) -> Any:
    count(value)
    return value


def _whole(expr: s.Expr | None, what: str) -> int | None:
    if expr is None:
        return None
    if not isinstance(expr, s.Literal) or not isinstance(expr.value, int) or isinstance(expr.value, bool):
        raise faults.wrong_type(f"{what} needs a whole number")
    if expr.value < 0:
        raise faults.constraint(f"{what} must not be negative")
    return expr.value


def count_asked(match: s.Match, variables: Iterable[str]) -> str | None:
    """The column of a query that asks only how many matches there are; None for any other."""
    if match.returns is None or len(match.returns.projections) != 1 or match.order or match.limit or match.offset:
        return None
    column = match.returns.projections[0]
    match column.of:
        case s.Call(name=name, star=True, distinct=False, where=None) if name.lower() == "count":
            return column.name
        case s.Call(name=name, args=(s.Name(name=variable),), distinct=False, where=None) if name.lower() == "count":
            return column.name if variable in variables else None
        case _:
            return None


def limit_of(match: s.Match) -> int | None:
    """How many rows are enough; None when all have to be seen."""
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

    return sort_text((value(one.by), one.descending) for one in order)


def _distinct(found: list[tuple[list[Any], str]]) -> list[tuple[list[Any], str]]:
    seen: dict[str, tuple[list[Any], str]] = {}
    for pair in found:
        seen.setdefault(repr(pair[0]), pair)
    return list(seen.values())


# aggregates


def _grouped(
    columns: list[s.Projection], rows: Iterable[Names], scope: Scope, order: tuple[s.Sorted, ...], count: Count
) -> list[tuple[list[Any], str]]:
    """Columns without an aggregate say what the groups are; without any there is one group, even of nothing."""
    keys = [c.of for c in columns if c.of is not None and not aggregates_in(c.of) and _varies(c.of)]
    groups: dict[str, list[Names]] = {}
    for names in rows:
        here = scope.with_names(names)
        groups.setdefault(repr([_counted(plain(evaluate(key, here)), count) for key in keys]), []).append(names)
    if not keys and not groups:
        groups[""] = []
    found = []
    for members in groups.values():
        values = [_aggregate(column.of, members, scope) for column in columns if column.of is not None]
        shown = [_counted(plain(value), count) for value in values]
        found.append((shown, _group_key(order, columns, values, members, scope)))
    return found


def _group_key(
    order: tuple[s.Sorted, ...], columns: list[s.Projection], values: list[Any], members: list[Names], scope: Scope
) -> str:
    named = {column.name: value for column, value in zip(columns, values, strict=True)}
    return sort_text(
        (
            named[one.by.name]
            if isinstance(one.by, s.Name) and one.by.name in named
            else _aggregate(one.by, members, scope),
            one.descending,
        )
        for one in order
    )


def _aggregate(expr: s.Expr, members: list[Names], scope: Scope) -> Any:
    match expr:
        case s.Call() if _is_aggregate(expr):
            return _aggregated(expr, members, scope)
        case s.Binary(op=op, left=left, right=right, at=at) if aggregates_in(expr):
            sides = [_constant(_aggregate(side, members, scope)) for side in (left, right)]
            return evaluate(s.Binary(op, sides[0], sides[1], at), scope)
        case s.Call(name=name, args=args, at=at) if aggregates_in(expr):
            given = tuple(_constant(_aggregate(arg, members, scope)) for arg in args)
            return evaluate(s.Call(name, given, at=at), scope)
        case _:
            return evaluate(expr, scope.with_names(members[0] if members else {}))


def _constant(value: Any) -> s.Expr:
    kinds: dict[str, s.Kind] = {"String": "string", "Int": "int", "Float": "float", "Bool": "bool", "null": "null"}
    kinds |= {"Timestamp": "timestamp", "Duration": "duration"}
    return s.Literal(kinds[kind_of(value)], value)


def _aggregated(call: s.Call, members: list[Names], scope: Scope) -> Any:
    name = call.name.lower()
    if scope.check is not None:
        scope.check()
    chosen = [scope.with_names(names) for names in members]
    if call.where is not None:
        chosen = [here for here in chosen if holds(call.where, here)]
    if call.star or not call.args:
        if name != "count":
            raise faults.constraint(f"{call.name} needs something to work on", call.at)
        return len(chosen)
    values = []
    built = 0
    for here in chosen:
        value = evaluate(call.args[0], here)
        built += here.built
        if built > MOST_AGGREGATED:
            raise faults.statement_limit("bytes", MOST_AGGREGATED, call.at)
        if value is not None:
            values.append(value)
    if call.distinct:
        values = list({repr(plain(value)): value for value in values}.values())
    if name == "count":
        return len(values)
    if not values:
        return 0 if name == "sum" else None
    try:
        match name:
            case "sum":
                total = sum(values)
                return type(values[0])(total) if isinstance(values[0], int) and isinstance(total, int) else total
            case "avg":
                return sum(values) / len(values)
            case "min":
                return min(values)
            case _:
                return max(values)
    except TypeError:
        kinds = ", ".join(sorted({kind_of(value) for value in values}))
        raise faults.wrong_type(f"{call.name} does not work with {kinds}", call.at) from None
