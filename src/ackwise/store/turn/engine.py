"""One turn: many callers' commands, one `now`, one order, one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ackwise.core import latency
from ackwise.core.answers import Counted
from ackwise.core.commands import (
    AdvanceGroup,
    Beat,
    Break,
    Claim,
    Command,
    ConfigureGroup,
    ConfigureQueue,
    DeleteGroup,
    DeleteQueue,
    Extend,
    PauseQueue,
    PruneQueue,
    PurgeDead,
    Push,
    Redrive,
    Replay,
    SeekGroup,
    Settle,
    Sweep,
    Transaction,
)
from ackwise.core.errors import AckwiseError
from ackwise.core.graph.commands import EndGraphSession, FetchGraph, OpenGraphSession, ReleaseGraph, RunGraph
from ackwise.store.graph import running as graph
from ackwise.store.session import Session
from ackwise.store.turn import advance, catalog, claim, dead, expiry, losing, seek, settle, sweep, transaction
from ackwise.store.turn.checks import Checked, check_push
from ackwise.store.turn.context import Tally, Turn
from ackwise.store.turn.push import Appender

Result = Any
"""An answer of `core.answers`, or the `AckwiseError` that refuses the command."""

_HOUSEKEEPING_LIMIT = 200

_HANDLERS: dict[type[Command], Callable[[Turn, Any], Result]] = {
    Settle: settle.settle,
    Break: lambda turn, c: Counted(losing.break_leases(turn, c)),
    Extend: transaction.extend,
    Transaction: transaction.transact,
    ConfigureQueue: catalog.configure_queue,
    PauseQueue: catalog.pause_queue,
    DeleteQueue: lambda turn, c: Counted(catalog.delete_queue(turn, c)),
    ConfigureGroup: catalog.configure_group,
    SeekGroup: lambda turn, c: Counted(seek.seek(turn, c)),
    AdvanceGroup: lambda turn, c: Counted(advance.advance(turn, c)),
    PruneQueue: lambda turn, c: Counted(sweep.prune(turn, c)),
    DeleteGroup: lambda turn, c: Counted(catalog.delete_group(turn, c)),
    Redrive: dead.redrive,
    Replay: dead.replay,
    PurgeDead: lambda turn, c: Counted(dead.purge(turn, c)),
    Sweep: sweep.sweep,
    Beat: lambda turn, c: Counted(losing.beat(turn, c)),
    Claim: claim.claim,
    RunGraph: graph.run,
    OpenGraphSession: graph.open_session,
    EndGraphSession: graph.end_session,
    ReleaseGraph: graph.release,
    FetchGraph: graph.fetch,
}

_PHASES: tuple[tuple[type[Command], ...], ...] = (
    (Settle, Break, Extend, Transaction, RunGraph, OpenGraphSession, EndGraphSession, ReleaseGraph),
    (
        ConfigureQueue,
        PauseQueue,
        DeleteQueue,
        ConfigureGroup,
        SeekGroup,
        AdvanceGroup,
        PruneQueue,
        DeleteGroup,
        Redrive,
        Replay,
        PurgeDead,
        Sweep,
        Beat,
    ),
    (Push,),
    (Claim,),
    (FetchGraph,),
)


def run(turn: Turn, commands: Sequence[Command]) -> list[Result]:
    """Answers in the order of the commands. A refusal is that command's answer and changes nothing."""
    results: list[Result] = [None] * len(commands)
    for phase in _PHASES:
        mine = [(i, c) for i, c in enumerate(commands) if isinstance(c, phase)]
        if not mine:
            continue
        if phase == (Push,):
            _push(turn, mine, results)
            continue
        if phase == (Claim,):
            turn.claims = len(mine)
            expiry.expire_before_claims(turn, _HOUSEKEEPING_LIMIT)
            sweep.promote(turn, _HOUSEKEEPING_LIMIT)
        for index, command in mine:
            results[index] = _one(turn, command)
    return results


def _one(turn: Turn, command: Command) -> Result:
    try:
        return _HANDLERS[type(command)](turn, command)
    except AckwiseError as refusal:
        return refusal
    finally:
        if not isinstance(command, Settle | Extend | Claim):
            turn.loaded.clear()


def _push(turn: Turn, commands: list[tuple[int, Command]], results: list[Result]) -> None:
    """All pushes of the turn share one segment per lane."""
    appender = Appender(turn)
    checked: dict[int, Checked] = {}
    for index, command in commands:
        assert isinstance(command, Push)
        try:
            checked[index] = check_push(command)
        except AckwiseError as refusal:
            results[index] = refusal
    appender.expect(list(checked.values()))
    for index, one in checked.items():
        try:
            results[index] = appender.push(one)
        except AckwiseError as refusal:
            results[index] = refusal
    appender.flush()


def write_ledger(session: Session, tally: Tally, instance: str) -> None:
    """Add counts to the buckets of their minutes; each broker has its own, so nobody waits for another."""
    for (queue, grp, outcome, minute), (count, sketch) in sorted(tally.items(), key=lambda item: item[0]):
        where = {"queue": queue, "grp": grp, "minute": minute, "outcome": outcome, "instance": instance}
        row = session.row("ledger_get", where)
        old = msgspec.json.decode(row[1], type=dict[int, int]) if row else {}
        text = msgspec.json.encode(latency.merged(old, sketch)).decode()
        session.run("ledger_put", {**where, "n": (row[0] if row else 0) + count, "latency": text})
