"""Evaluates expressions over the entities of a match."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, assert_never

from ackwise.graph import ast as s
from ackwise.graph import errors
from ackwise.graph.errors import NOWHERE, At
from ackwise.graph.values import LEAST, MOST, Duration, Entity, Timestamp, kind_of

LONG_LIST = 1000
"""Longer lists and chains check the time limit first."""
LONGEST_STRING = 16 << 20
"""Characters of one string that an expression builds."""
MOST_BUILT = 64 << 20
"""Characters of all strings that the expressions of one row build."""
Function = tuple[Callable[..., Any], int, int]
"""A function, with its least and most number of arguments."""
AGGREGATES = ("count", "sum", "avg", "min", "max")


class Scope:
    """Environment of an expression: entities by name, the time, and access to other entities."""

    __slots__ = ("built", "check", "exists", "find", "names", "now", "tick")

    def __init__(
        self,
        names: Mapping[str, Entity],
        now: int = 0,
        tick: int = 0,
        *,
        exists: Callable[[s.Exists, Mapping[str, Entity]], bool] | None = None,
        find: Callable[[str], Entity | None] | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """`check` raises if the statement has run for too long."""
        self.names, self.now, self.tick, self.exists, self.find, self.check = names, now, tick, exists, find, check
        self.built = 0

    def build(self, value: Any, at: At) -> Any:
        """Count the characters of a built string, and return it. A list may hold many long strings."""
        if type(value) is str:
            self.built += len(value)
            if self.built > MOST_BUILT:
                raise errors.statement_limit("strings", MOST_BUILT, at)
        return value

    def with_names(self, names: Mapping[str, Entity]) -> Scope:
        return Scope(names, self.now, self.tick, exists=self.exists, find=self.find, check=self.check)


def holds(expr: s.Expr | None, scope: Scope) -> bool:
    """Whether a condition is true. Null counts as false."""
    if expr is None:
        return True
    value = evaluate(expr, scope)
    if value is None or isinstance(value, bool):
        return value is True
    raise errors.wrong_type(f"a condition is true or false, not {kind_of(value)}")


def surely_holds(expr: s.Expr | None, scope: Scope) -> bool:
    """As `holds`, for watches: an error counts as false, so that it does not fail the statement of another caller."""
    try:
        return holds(expr, scope)
    except errors.GraphError:
        return False


def evaluate(expr: s.Expr, scope: Scope) -> Any:
    match expr:
        case s.Binary():
            return _binary(expr, scope)
        case s.Chain():
            return _chain(expr, scope)
        case s.Attr(of=s.IdRef() as ref, name=name, at=at):
            return _attribute(_referenced(scope, ref, at), name, at)
        case s.Attr(of=of, name=name, at=at):
            return _attribute(evaluate(of, scope), name, at)
        case s.Literal():
            return literal(expr)
        case s.Name(name=name, at=at):
            return named(scope, name, at)
        case s.IdRef(id=entity_id):
            return entity_id
        case s.FunctionCall():
            return _call(expr, scope)
        case s.Unary():
            return _unary(expr, scope)
        case s.IsNull(of=of, negated=negated):
            return (evaluate(of, scope) is None) is not negated
        case s.ListOf(items=items):
            if len(items) > LONG_LIST and scope.check is not None:
                scope.check()
            return [evaluate(item, scope) for item in items]
        case s.Exists():
            if scope.exists is None:
                raise errors.not_supported("exists() here")
            return scope.exists(expr, scope.names)
        case s.Param(name=name, at=at):
            raise errors.missing_parameter(name, at)
        case s.Sorted():
            raise errors.wrong_type("ASC and DESC belong into ORDER BY and attribute(...)")
        case s.Wild():
            raise errors.wrong_type("_ has no value")
        case _:
            assert_never(expr)


def _referenced(scope: Scope, ref: s.IdRef, at: At) -> Entity:
    entity = scope.find(ref.id) if scope.find is not None else None
    if entity is None:
        raise errors.unknown(f"there is nothing with the id '{ref.shown or ref.id}'", at)
    return entity


def named(scope: Scope, name: str, at: At = NOWHERE) -> Entity:
    entity = scope.names.get(name)
    if entity is None:
        raise errors.unknown(f"'{name}' is not known here", at)
    return entity


def literal(expr: s.Literal) -> Any:
    if expr.kind == "timestamp":
        return Timestamp(expr.value)  # type: ignore[arg-type]
    return Duration(expr.value) if expr.kind == "duration" else expr.value  # type: ignore[arg-type]


def _attribute(of: Any, name: str, at: At) -> Any:
    if of is None:
        return None
    if not isinstance(of, Entity):
        raise errors.wrong_type(f"{kind_of(of)} has no attributes", at)
    return of.value(name, at)


def _unary(expr: s.Unary, scope: Scope) -> Any:
    value = evaluate(expr.of, scope)
    if value is None:
        return None
    if expr.op == "not":
        if not isinstance(value, bool):
            raise errors.wrong_type(f"not needs true or false, not {kind_of(value)}")
        return not value
    if not _is_number(value) and not isinstance(value, Duration):
        raise errors.wrong_type(f"- needs a number, not {kind_of(value)}")
    return Duration(-value) if isinstance(value, Duration) else _bounded(-value, NOWHERE)


_LAZY = ("and", "or", "??")


def _binary(expr: s.Binary, scope: Scope) -> Any:
    left = evaluate(expr.left, scope)
    if expr.op in _LAZY:
        return _lazy(expr.op, left, expr.right, expr.at, scope)
    return _strict(expr.op, left, evaluate(expr.right, scope), expr.at, scope)


def _chain(expr: s.Chain, scope: Scope) -> Any:
    """The value of a chain, from left to right. A loop, because a chain may have thousands of operators."""
    if len(expr.operands) > LONG_LIST and scope.check is not None:
        scope.check()
    value = evaluate(expr.operands[0], scope)
    for op, operand in zip(expr.operators, expr.operands[1:], strict=True):
        if op in _LAZY:
            value = _lazy(op, value, operand, expr.at, scope)
        else:
            value = _strict(op, value, evaluate(operand, scope), expr.at, scope)
    return value


def _strict(op: str, left: Any, right: Any, at: At, scope: Scope) -> Any:
    """Operators that need both sides."""
    if op in ("=", "!="):
        return equal(left, right, at) is (op == "=")
    if op == "in":
        return _contained(left, right, at)
    if op in _ORDERING:
        return _compared(op, left, right, at)
    if op in _TEXT_TESTS:
        return _tested(op, left, right, at)
    if left is None or right is None:
        return None
    if op == "++":
        return scope.build(_joined(left, right, at), at)
    return _arithmetic(op, left, right, at)


def _contained(value: Any, items: Any, at: At) -> bool:
    if value is None or items is None:
        return False
    if not isinstance(items, list):
        raise errors.wrong_type(f"in needs a list, not {kind_of(items)}", at)
    return any(_same_kind(value, item) and equal(value, item, at) for item in items)


def _compared(op: str, left: Any, right: Any, at: At) -> bool:
    if left is None or right is None:
        return False
    if not _same_kind(left, right) or isinstance(left, bool | list | Entity):
        raise errors.wrong_type(f"{kind_of(left)} and {kind_of(right)} cannot be compared", at)
    return _ORDERING[op](left, right)


def _tested(op: str, left: Any, right: Any, at: At) -> bool:
    """STARTS WITH, ENDS WITH and CONTAINS. They are false for null, as comparisons are."""
    if left is None or right is None:
        return False
    if not isinstance(left, str) or not isinstance(right, str):
        raise errors.wrong_type(f"{op.upper()} compares strings, not {kind_of(left)} and {kind_of(right)}", at)
    return _TEXT_TESTS[op](left, right)


def _joined(left: Any, right: Any, at: At) -> str:
    if not isinstance(left, str) or not isinstance(right, str):
        raise errors.wrong_type(f"++ joins strings, not {kind_of(left)} and {kind_of(right)}", at)
    if len(left) + len(right) > LONGEST_STRING:
        raise errors.statement_limit("string", LONGEST_STRING, at)
    return left + right


_ORDERING: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "starts with": str.startswith,
    "ends with": str.endswith,
    "contains": operator.contains,
}


def _lazy(op: str, left: Any, right: s.Expr, at: At, scope: Scope) -> Any:
    """`and`, `or` and `??`: the right side is evaluated only if it decides."""
    if op == "??":
        return evaluate(right, scope) if left is None else left
    _check_boolean(left, op, at)
    if op == "and":
        if left is not True:
            return False
        value = evaluate(right, scope)
        _check_boolean(value, op, at)
        return value is True
    if left is True:
        return True
    value = evaluate(right, scope)
    _check_boolean(value, op, at)
    return value


def _check_boolean(value: Any, op: str, at: At) -> None:
    if value is not None and not isinstance(value, bool):
        raise errors.wrong_type(f"{op} needs true or false, not {kind_of(value)}", at)


def equal(left: Any, right: Any, at: At = NOWHERE) -> bool:
    """Equality: null equals null, and an entity equals its id."""
    if left is None or right is None:
        return left is right
    if not _same_kind(left, right):
        raise errors.wrong_type(f"{kind_of(left)} and {kind_of(right)} cannot be compared", at)
    if isinstance(left, Entity):
        left = left.id
    if isinstance(right, Entity):
        right = right.id
    return bool(left == right)


def _same_kind(left: Any, right: Any) -> bool:
    return _family(left) == _family(right)


def _family(value: Any) -> str:
    kind = kind_of(value)
    if kind in ("Int", "Float"):
        return "number"
    return "String" if isinstance(value, Entity) else kind


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool | Timestamp | Duration)


def _arithmetic(op: str, left: Any, right: Any, at: At) -> Any:
    match op, left, right:
        case "-", Timestamp(), Timestamp():
            return Duration(int(left) - int(right))
        case (("+" | "-"), Timestamp(), int()) if not isinstance(right, Timestamp | bool):
            return Timestamp(_bounded(int(left) + (int(right) if op == "+" else -int(right)), at))
        case "+", int(), Timestamp() if not isinstance(left, Timestamp | bool):
            return Timestamp(_bounded(int(left) + int(right), at))
        case (("+" | "-"), Duration(), Duration()):
            return Duration(_bounded(int(left) + (int(right) if op == "+" else -int(right)), at))
        case "*", Duration(), _ if _is_number(right):
            return Duration(_bounded(round(int(left) * right), at))
        case "*", _, Duration() if _is_number(left):
            return Duration(_bounded(round(left * int(right)), at))
        case "/", Duration(), _ if _is_number(right):
            return Duration(_divided(int(left), round(right), at))
    if not _is_number(left) or not _is_number(right):
        raise errors.wrong_type(f"{op} does not work with {kind_of(left)} and {kind_of(right)}", at)
    match op:
        case "+":
            return _bounded(left + right, at)
        case "-":
            return _bounded(left - right, at)
        case "*":
            return _bounded(left * right, at)
        case "/":
            return _divided(left, right, at)
        case _:
            return _remainder(left, right, at)


def _divided(left: Any, right: Any, at: At) -> Any:
    """Division. Whole numbers are rounded toward zero."""
    if right == 0:
        raise errors.wrong_type("division by zero", at)
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return left / right


def _remainder(left: Any, right: Any, at: At) -> Any:
    if right == 0:
        raise errors.wrong_type("division by zero", at)
    if isinstance(left, int) and isinstance(right, int):
        return left - right * _divided(left, right, at)
    return math.fmod(left, right)


def _bounded(value: Any, at: At) -> Any:
    if isinstance(value, int) and not LEAST <= value <= MOST:
        raise errors.wrong_type("the result does not fit into 64 bits", at)
    return value


# functions


def _call(expr: s.FunctionCall, scope: Scope) -> Any:
    name = expr.name.lower()
    match name:
        case "now" | "wall_time":
            return Timestamp(scope.now // 1000)
        case "logical_time":
            return scope.tick
        case "coalesce":
            values = (evaluate(arg, scope) for arg in expr.args)
            return next((value for value in values if value is not None), None)
        case "type_of":
            _arity(expr, 1, 1)
            value = evaluate(expr.args[0], scope)
            return value.type.name if isinstance(value, Entity) else kind_of(value)
    function = _FUNCTIONS.get(name)
    if function is None:
        if name in AGGREGATES:
            raise errors.constraint(f"{expr.name.upper()} is an aggregate and belongs into RETURN", expr.at)
        raise errors.unknown(f"there is no function '{expr.name}'", expr.at)
    return _applied(function, expr, scope)


def _applied(function: Function, expr: s.FunctionCall, scope: Scope) -> Any:
    """Call a function. It returns null if an argument is null."""
    compute, least, most = function
    _arity(expr, least, most)
    values = [evaluate(arg, scope) for arg in expr.args]
    if any(value is None for value in values):
        return None
    try:
        return scope.build(_bounded(compute(*values), expr.at), expr.at)
    except errors.StatementLimit:
        raise
    except (TypeError, ValueError, OverflowError, AttributeError):
        kinds = ", ".join(map(kind_of, values))
        raise errors.wrong_type(f"{expr.name} does not work with {kinds}", expr.at) from None


def _arity(expr: s.FunctionCall, least: int, most: int) -> None:
    if expr.star or expr.distinct or expr.where is not None or not least <= len(expr.args) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise errors.constraint(f"{expr.name} takes {wanted} argument(s)", expr.at)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: Any) -> Any:
    if not _is_number(value):
        raise TypeError
    return value


def _extreme(pick: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    def chosen(*values: Any) -> Any:
        if len({_family(value) for value in values}) > 1 or isinstance(values[0], bool | list | Entity):
            raise TypeError
        return pick(list(values))

    return chosen


def _substring(text: str, start: int, length: int | None = None) -> str:
    if start < 0 or (length is not None and length < 0):
        raise ValueError
    return _text(text)[start : None if length is None else start + length]


def _replaced(value: str, old: str, new: str) -> str:
    size = len(_text(value)) + value.count(_text(old)) * (len(_text(new)) - len(old))
    if size > LONGEST_STRING:
        raise errors.statement_limit("string", LONGEST_STRING)
    return value.replace(old, new)


def _rounded(value: Any) -> int:
    """Round to the nearest whole number, halves away from zero."""
    return int(math.copysign(math.floor(abs(_number(value)) + 0.5), value)) if isinstance(value, float) else value


_MANY = 32
_FUNCTIONS: dict[str, Function] = {
    "length": (lambda value: len(value if isinstance(value, list) else _text(value)), 1, 1),
    "lower": (lambda value: _text(value).lower(), 1, 1),
    "upper": (lambda value: _text(value).upper(), 1, 1),
    "trim": (lambda value: _text(value).strip(), 1, 1),
    "contains": (lambda value, part: _text(part) in _text(value), 2, 2),
    "starts_with": (lambda value, part: _text(value).startswith(_text(part)), 2, 2),
    "ends_with": (lambda value, part: _text(value).endswith(_text(part)), 2, 2),
    "substring": (_substring, 2, 3),
    "replace": (_replaced, 3, 3),
    "abs": (lambda value: abs(_number(value)), 1, 1),
    "floor": (lambda value: math.floor(_number(value)), 1, 1),
    "ceil": (lambda value: math.ceil(_number(value)), 1, 1),
    "round": (_rounded, 1, 1),
    "min": (_extreme(min), 2, _MANY),
    "max": (_extreme(max), 2, _MANY),
}
