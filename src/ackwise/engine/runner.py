"""Runs the commands of a turn in phases. Registers the handlers and writes the ledger."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ackwise.core import latency
from ackwise.core.answers import Counted, Result
from ackwise.core.commands import (
    AddTrace,
    AdvanceGroup,
    Beat,
    Break,
    Claim,
    Command,
    ConfigureGroup,
    ConfigureQueue,
    DeleteGroup,
    DeleteQueue,
    DrainSpool,
    Extend,
    PauseQueue,
    PruneQueue,
    PurgeDead,
    PurgeQueue,
    Push,
    Redrive,
    RemoveHook,
    Replay,
    ReportPipeline,
    SeekGroup,
    SetHook,
    SetMaintenance,
    Settle,
    SettleHook,
    Spool,
    Sweep,
    TakeHook,
    Transaction,
)
from ackwise.core.errors import AckwiseError
from ackwise.engine import (
    catalog,
    claim,
    cursors,
    dead_letters,
    expiry,
    hooks,
    pipelines,
    queue_purge,
    retention,
    settle,
    spool,
    sweep,
    traces,
    transaction,
)
from ackwise.engine.extensions import Handler, Phase, handles
from ackwise.engine.ports import Session
from ackwise.engine.push import Appender
from ackwise.engine.turn import Tally, Turn

_UPKEEP_LIMIT = 200

_HANDLERS: dict[type[Command], Handler] = dict(
    (
        handles(Settle, settle.settle),
        handles(Break, lambda turn, c: Counted(expiry.break_leases(turn, c))),
        handles(Extend, transaction.extend),
        handles(Transaction, transaction.transact),
        handles(ConfigureQueue, catalog.configure_queue),
        handles(PauseQueue, catalog.pause_queue),
        handles(DeleteQueue, lambda turn, c: Counted(catalog.delete_queue(turn, c))),
        handles(ConfigureGroup, catalog.configure_group),
        handles(SeekGroup, lambda turn, c: Counted(cursors.seek(turn, c))),
        handles(AdvanceGroup, lambda turn, c: Counted(cursors.advance(turn, c))),
        handles(PruneQueue, lambda turn, c: Counted(retention.prune(turn, c))),
        handles(DeleteGroup, lambda turn, c: Counted(catalog.delete_group(turn, c))),
        handles(Redrive, dead_letters.redrive),
        handles(Replay, dead_letters.replay),
        handles(PurgeDead, dead_letters.purge),
        handles(PurgeQueue, queue_purge.purge),
        handles(Sweep, sweep.sweep),
        handles(Beat, lambda turn, c: Counted(expiry.beat(turn, c))),
        handles(Claim, claim.claim),
        handles(AddTrace, traces.add),
        handles(SetMaintenance, spool.set_maintenance),
        handles(Spool, spool.keep),
        handles(DrainSpool, spool.drain),
        handles(SetHook, hooks.set_hook),
        handles(RemoveHook, hooks.remove),
        handles(TakeHook, hooks.take),
        handles(SettleHook, hooks.settle),
        handles(ReportPipeline, pipelines.report),
    )
)

_PHASES: dict[type[Command], Phase] = dict.fromkeys(_HANDLERS, Phase.ADMIN) | {
    Settle: Phase.SETTLE,
    Break: Phase.SETTLE,
    Extend: Phase.SETTLE,
    Transaction: Phase.SETTLE,
    Push: Phase.PUSH,
    Claim: Phase.CLAIM,
}
_ORDER = tuple(Phase)


def run(turn: Turn, commands: Sequence[Command]) -> list[Result]:
    """Run commands and answer in their order. A refused command changes nothing. Its error is its answer."""
    results: list[Result] = [None] * len(commands)
    phases: list[list[tuple[int, Command]]] = [[] for _ in _ORDER]
    for index, command in enumerate(commands):
        kind = type(command)
        phase = _PHASES[kind] if kind in _PHASES else turn.extensions.phase(kind)
        phases[phase].append((index, command))
    for phase, in_phase in zip(_ORDER, phases, strict=True):
        if not in_phase:
            continue
        if phase is Phase.PUSH:
            _push(turn, in_phase, results)
            continue
        if phase is Phase.CLAIM:
            turn.claims = len(in_phase)
            _expire_and_promote(turn)
        for index, command in in_phase:
            results[index] = _run_command(turn, command)
    return results


def _expire_and_promote(turn: Turn) -> None:
    """Expire leases and promote scheduled messages before claims, if the writer's memory does not exclude any."""
    if turn.now >= turn.memory.expires_from:
        expiry.expire_before_claims(turn, _UPKEEP_LIMIT)
    if turn.now >= turn.memory.promotes_from:
        sweep.promote(turn, _UPKEEP_LIMIT)


def _run_command(turn: Turn, command: Command) -> Result:
    try:
        handler = _HANDLERS.get(type(command)) or turn.extensions.handler(type(command))
        return handler(turn, command)
    except AckwiseError as refusal:
        return refusal.detached()
    finally:
        if not isinstance(command, Settle | Extend | Claim):
            turn.loaded.clear()


def _push(turn: Turn, commands: list[tuple[int, Command]], results: list[Result]) -> None:
    """Run all pushes of the turn, which share one segment per lane."""
    appender = Appender(turn)
    pushes = {index: command for index, command in commands if isinstance(command, Push)}
    if len(pushes) > 1:
        appender.expect(list(pushes.values()))
    for index, push in pushes.items():
        try:
            results[index] = appender.push(push)
        except AckwiseError as refusal:
            results[index] = refusal.detached()
    appender.flush()


def write_ledger(session: Session, tally: Tally, instance: str) -> None:
    """Add counts to the ledger rows of their minutes. Each broker has its own rows, so brokers never wait."""
    for (queue, grp, outcome, minute), (count, times) in sorted(tally.items(), key=lambda item: item[0]):
        where = {"queue": queue, "grp": grp, "minute": minute, "outcome": outcome, "instance": instance}
        row = session.row("ledger_get", where)
        old = msgspec.json.decode(row[1], type=dict[int, int]) if row else {}
        text = msgspec.json.encode(latency.merged(old, latency.histogram(times))).decode()
        session.run("ledger_put", {**where, "n": (row[0] if row else 0) + count, "latency": text})
