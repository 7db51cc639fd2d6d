"""Validates administrative commands: names, starts, policies and lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ackwise.core import validation
from ackwise.core.commands import (
    AdvanceGroup,
    Command,
    ConfigureGroup,
    ConfigureQueue,
    DeleteGroup,
    DeleteQueue,
    PauseQueue,
    PruneQueue,
    PurgeDead,
    PurgeQueue,
    RemoveHook,
    Replay,
    ReportPipeline,
    SeekGroup,
    SetHook,
    SettleHook,
    TakeHook,
)
from ackwise.core.errors import BadInput
from ackwise.core.hooks import check_url


def _configure_queue(command: ConfigureQueue) -> None:
    validation.name(command.queue, "queue")
    for what, text in (("namespace", command.namespace), ("task", command.task)):
        if text is not None:
            validation.tag(text, what)
    _name_or_none(command.partition, "partition")


def _queue(command: DeleteQueue | PauseQueue) -> None:
    validation.name(command.queue, "queue")


def _group(command: ConfigureGroup | DeleteGroup | SeekGroup | AdvanceGroup) -> None:
    validation.name(command.queue, "queue")
    validation.name(command.group, "group")


def _configure_group(command: ConfigureGroup) -> None:
    _group(command)
    validation.start(command.start)
    if command.policy is not None:
        command.policy.check()


def _seek(command: SeekGroup) -> None:
    _group(command)
    _name_or_none(command.partition, "partition")
    validation.seek(command.to, command.by, command.partition)


def _advance(command: AdvanceGroup) -> None:
    _group(command)
    _lanes(command.lanes)


def _prune(command: PruneQueue) -> None:
    validation.name(command.queue, "queue")
    _lanes(command.lanes)


def _lanes(lanes: object) -> None:
    if not isinstance(lanes, dict):
        raise BadInput(f"lanes must map lanes to seqs, not be {type(lanes).__name__}")
    for lane, seq in lanes.items():
        validation.count(lane, "lane", most=1 << 62)
        validation.count(seq, "seq", least=0, most=1 << 62)


def _replay(command: Replay) -> None:
    _name_or_none(command.queue, "queue")
    _name_or_none(command.partition, "partition")


def _purge(command: PurgeDead) -> None:
    _name_or_none(command.queue, "queue")
    _name_or_none(command.group, "group")
    if command.behind is not None:
        for what in ("until", "dead_at", "id", "count"):
            validation.instant(getattr(command.behind, what), what)


def _purge_queue(command: PurgeQueue) -> None:
    validation.name(command.queue, "queue")
    if command.until is not None:
        validation.instant(command.until, "until")
    if command.behind is not None:
        validation.instant(command.behind.until, "until")
        for what in ("lane", "messages", "scheduled", "skipped"):
            validation.count(getattr(command.behind, what), what, least=0, most=1 << 62)


def _name_or_none(value: str | None, what: str) -> None:
    if value is not None:
        validation.name(value, what)


def _hook(command: SetHook | RemoveHook | TakeHook | SettleHook) -> None:
    validation.name(command.queue, "queue")
    validation.name(command.name, "name")


def _set_hook(command: SetHook) -> None:
    _hook(command)
    if command.url is not None:
        check_url(command.url)


def _owned_hook(command: TakeHook | SettleHook) -> None:
    _hook(command)
    validation.name(command.owner, "owner")
    validation.count(command.lease, "lease", most=3600 * validation.MICROS)
    if isinstance(command, TakeHook):
        validation.count(command.limit, "limit", most=1000)
    else:
        validation.count(command.mark, "mark", least=0, most=1 << 62)
        validation.count(command.letter, "letter", least=0, most=1 << 62)


def _report_pipeline(command: ReportPipeline) -> None:
    for what in ("id", "queue", "group"):
        validation.name(getattr(command, what), what)
    command.report.check()


ADMIN_CHECKS: dict[type[Command], Callable[[Any], None]] = {
    ConfigureQueue: _configure_queue,
    DeleteQueue: _queue,
    PauseQueue: _queue,
    ConfigureGroup: _configure_group,
    DeleteGroup: _group,
    SeekGroup: _seek,
    AdvanceGroup: _advance,
    PruneQueue: _prune,
    Replay: _replay,
    PurgeDead: _purge,
    PurgeQueue: _purge_queue,
    SetHook: _set_hook,
    RemoveHook: _hook,
    ReportPipeline: _report_pipeline,
    TakeHook: _owned_hook,
    SettleHook: _owned_hook,
}
"""`Redrive` has only ids. An id that is no dead letter is `not_found`."""
