"""Options of a watch: parses and checks them, and derives the policy of its deliveries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ackwise.core.policy import QueuePolicy
from ackwise.core.settlement import Reason
from ackwise.graph import ast as s
from ackwise.graph import errors, system_types
from ackwise.graph.ontology import Ontology
from ackwise.graph.patterns import (
    PatternPlan,
    check_bounds,
    check_names,
    check_size,
    is_connected,
    joined_exists,
    plan_pattern,
    reads_clock,
    reads_other_entity,
)
from ackwise.graph.projection import aggregates_in

Mode = Literal["watch", "consume"]
MUTABLE = ("buffer", "on_full", "delivery", "filter")
_KNOWN = (
    *("mode", "group", "ordering", "delivery", "visibility", "window", "buffer", "on_full", "ack_timeout"),
    *("max_redeliveries", "dead_letter", "initial", "filter", "deliver_on"),
)
_WORDS = {
    "mode": ("watch", "consume"),
    "delivery": ("best_effort", "reliable"),
    "visibility": ("committed", "immediate"),
    "on_full": ("drop", "block", "error"),
    "deliver_on": ("commit", "tick"),
}
MOST_BUFFER = 1_000_000
MOST_WATCHES = 1000
"""Default for the active watches of one session."""
MOST_WATCHES_IN_ALL = 100_000


class WatchSpec(msgspec.Struct, frozen=True):
    """A watch as it is stored: pattern, condition, columns and options."""

    pattern: tuple[s.Element, ...]
    returns: s.Return
    where: s.Expr | None = None
    text: str = ""
    mode: Mode = "watch"
    group: str | None = None
    ordering: tuple[s.Sorted, ...] = ()
    ordering_text: str = "arrival"
    delivery: str = "best_effort"
    visibility: str = "committed"
    buffer: int = 1000
    on_full: str = "drop"
    ack_timeout: int = 30_000
    ack_timeout_text: str = "30s"
    max_redeliveries: int = 3
    dead_letter: s.IdRef | None = None
    initial: Literal["full", "none"] | int = "full"
    filter: s.Expr | None = None
    deliver_on: str = "commit"
    name: str = ""
    """The name of its handle."""

    @property
    def consumes(self) -> bool:
        return self.mode == "consume"

    @property
    def policy(self) -> QueuePolicy:
        """Policy of its deliveries: a NACK or timeout is a failure, and failure number `max_redeliveries` is final."""
        return QueuePolicy(
            lease_seconds=self.ack_timeout / 1000, retry_limit=self.max_redeliveries, delivery_limit=None
        )

    @property
    def read_exprs(self) -> tuple[s.Expr | None, ...]:
        """Every expression that a change of the graph may affect: condition, columns, ordering."""
        return self.condition, *(projection.of for projection in self.returns.projections), *self.ordering

    @property
    def condition(self) -> s.Expr | None:
        """WHERE and the filter together."""
        if self.where is None or self.filter is None:
            return self.where if self.filter is None else self.filter
        return s.Binary("and", self.where, self.filter)


def reason_shown(reason: Reason) -> str:
    """The reason of a dead letter, as MEW names it."""
    return "no_retry" if reason is Reason.REJECTED else "max_redeliveries_exceeded"


def spec_of(watch: s.Watch, ontology: Ontology) -> WatchSpec:
    """The checked watch of a WATCH statement."""
    chosen = _chosen(watch.options)
    spec = WatchSpec(watch.pattern, watch.returns, watch.where, watch.text, name=watch.name or "", **_fields(chosen))
    plan = plan_pattern(watch.pattern, ontology)
    for expr in (*spec.ordering, *(p.of for p in watch.returns.projections)):
        _check(expr, plan, ontology, watch.at)
    _check_condition(spec.condition, plan, ontology, watch.at)
    _check_watchable(plan, plan.names, watch.at)
    kinds = [ontology.by_id[number] for number in plan.types(plan.first)]
    if spec.consumes:
        if any(kind.protected for kind in kinds):
            raise errors.pattern_denied("protected type", watch.at)
        if any(aggregates_in(projection.of) for projection in watch.returns.projections):
            raise errors.constraint("a consume watch returns matches, not aggregates", watch.at)
    elif any(aggregates_in(projection.of) for projection in watch.returns.projections):
        raise errors.not_supported("an aggregate in a WATCH", watch.at)
    return spec


def altered(spec: WatchSpec, options: tuple[s.Option, ...], ontology: Ontology) -> WatchSpec:
    for option in options:
        if option.key in _KNOWN and option.key not in MUTABLE:
            raise errors.immutable_option(option.key, option.at)
    changed = msgspec.structs.replace(spec, **_fields(_chosen(options)))
    _check_condition(changed.filter, plan_pattern(spec.pattern, ontology), ontology, options[0].at)
    return changed


def _check(expr: s.Expr | None, plan: PatternPlan, ontology: Ontology, at: errors.At) -> None:
    check_names(expr, plan, ontology)
    if reads_other_entity(expr):
        raise errors.not_supported("an attribute of #name in a WATCH (put its node into the pattern)", at)
    for joined in joined_exists(expr, plan, ontology):
        if not is_connected(joined):
            raise errors.not_supported("an exists() in a WATCH that no edge joins to the watch's own pattern", at)
        check_size(joined.plan, at)
        _check_watchable(joined.plan, joined.own, at)


def _check_watchable(plan: PatternPlan, names: Iterable[str], at: errors.At) -> None:
    if any(plan.types(name) <= system_types.UNWATCHABLE for name in names):
        raise errors.not_supported("a WATCH of events or of the tick (what they say changes with every commit)", at)


def _check_condition(expr: s.Expr | None, plan: PatternPlan, ontology: Ontology, at: errors.At) -> None:
    """Check the condition of a watch. It must not depend on the clock: only a change of the graph evaluates it."""
    _check(expr, plan, ontology, at)
    check_bounds(expr, plan, ontology)
    if reads_clock(expr):
        raise errors.not_supported("the time in the condition of a WATCH (it is judged when the graph changes)", at)


def _chosen(options: tuple[s.Option, ...]) -> dict[str, s.Option]:
    chosen: dict[str, s.Option] = {}
    for option in options:
        if option.key in ("branch", "branches"):
            raise errors.not_supported(f"the option '{option.key}'", option.at)
        if option.key not in _KNOWN:
            raise errors.invalid_option(option.key, f"one of the options {', '.join(_KNOWN)}", option.at)
        if option.key in chosen:
            raise errors.invalid_option(option.key, "it once", option.at)
        chosen[option.key] = option
    return chosen


def _fields(chosen: dict[str, s.Option]) -> dict[str, Any]:
    """Fields of `WatchSpec` that the options set."""
    fields: dict[str, Any] = {}
    for key, option in chosen.items():
        fields |= _option_fields(key, option)
    return fields


def _option_fields(key: str, option: s.Option) -> dict[str, Any]:
    match key:
        case "group":
            return {key: _group(option)}
        case "ordering":
            ordering, text = _ordering(option)
            return {"ordering": ordering, "ordering_text": text}
        case "window":
            if _word(option.value) != "none":
                raise errors.not_supported("a window", option.at)
            return {}
        case "buffer":
            return {key: _count(option, 1, MOST_BUFFER, "a whole number of at least 1")}
        case "max_redeliveries":
            return {key: _count(option, 0, 1_000_000, "a whole number")}
        case "ack_timeout":
            milliseconds, text = _timeout(option)
            return {"ack_timeout": milliseconds, "ack_timeout_text": text}
        case "dead_letter":
            if not isinstance(option.value, s.IdRef):
                raise errors.invalid_option(key, "a node, as #name", option.at)
            return {key: option.value}
        case "initial":
            return {key: _initial(option)}
        case "filter":
            return {key: _filter(option)}
        case _:
            word = _word(option.value)
            if word not in _WORDS[key]:
                raise errors.invalid_option(key, " or ".join(_WORDS[key]), option.at)
            return {key: word}


def _filter(option: s.Option) -> s.Expr:
    value = option.value
    is_constant = isinstance(value, s.Literal) and value.kind not in ("bool", "null")
    if is_constant or isinstance(value, s.Sorted | s.IdRef | s.Wild | s.ListOf):
        raise errors.invalid_option("filter", "a condition", option.at)
    return value


def _word(expr: s.Expr) -> str | None:
    return expr.name.lower() if isinstance(expr, s.Name) else None


def _group(option: s.Option) -> str:
    value = option.value
    if not isinstance(value, s.Literal) or not isinstance(value.value, str) or not 0 < len(value.value) <= 255:
        raise errors.invalid_option("group", "a string of 1 to 255 characters", option.at)
    return value.value


def _count(option: s.Option, least: int, most: int, expected: str) -> int:
    value = option.value.value if isinstance(option.value, s.Literal) and option.value.kind == "int" else None
    if not isinstance(value, int) or not least <= value <= most:
        raise errors.invalid_option(option.key, expected, option.at)
    return value


def _timeout(option: s.Option) -> tuple[int, str]:
    value = option.value
    if not isinstance(value, s.Literal) or value.kind != "duration" or not isinstance(value.value, int):
        raise errors.invalid_option("ack_timeout", "a duration such as 30s", option.at)
    if not 0 < value.value <= 365 * 86_400_000:
        raise errors.invalid_option("ack_timeout", "a duration of more than nothing and at most a year", option.at)
    return value.value, value.text or f"{value.value}ms"


def _initial(option: s.Option) -> str | int:
    value = option.value
    if _word(value) in ("full", "none"):
        return str(_word(value))
    if isinstance(value, s.FunctionCall) and value.name.lower() == "since" and len(value.args) == 1:
        tick = value.args[0]
        if isinstance(tick, s.Literal) and isinstance(tick.value, int) and tick.value >= 0:
            return tick.value
    raise errors.invalid_option("initial", "full, none or since(tick)", option.at)


def _ordering(option: s.Option) -> tuple[tuple[s.Sorted, ...], str]:
    value = option.value
    if _word(value) in ("arrival", "causal"):
        return (), str(_word(value))
    if isinstance(value, s.FunctionCall) and value.name.lower() == "attribute" and value.args and not value.star:
        return tuple(arg if isinstance(arg, s.Sorted) else s.Sorted(arg) for arg in value.args), "attribute"
    raise errors.invalid_option("ordering", "arrival, causal or attribute(expression, ...)", option.at)
