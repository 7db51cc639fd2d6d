"""Queen's maintenance: its switches, and the spool that keeps pushes until the push maintenance ends."""

from __future__ import annotations

import msgspec

from ackwise.core.answers import Counted, Maintenance, Swept
from ackwise.core.command_checks import check_push
from ackwise.core.commands import DrainSpool, Push, SetMaintenance, Spool
from ackwise.core.errors import AckwiseError
from ackwise.core.events import MaintenanceChanged, SpoolReplayed
from ackwise.core.messages import NewMessage, PlainBatch
from ackwise.core.policy import QueuePolicy
from ackwise.engine import push
from ackwise.engine.ports import Session
from ackwise.engine.turn import Turn

CHANGED = ""
"""Announced to other brokers after a switch changed. No queue has this name."""
PUSHES_AT_ONCE = 50
MESSAGES_AT_ONCE = 500
BYTES_AT_ONCE = 1 << 20
"""Pushes that one turn replays end at these bounds. At least one push is replayed."""
MOST_RETRIED = 1000
_LONGEST_REASON = 500


class _KeptPush(msgspec.Struct, array_like=True):
    """A push in the spool."""

    queue: str
    messages: list[NewMessage]
    create: QueuePolicy | None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_KeptPush)


def switches(session: Session) -> Maintenance:
    enabled = {name for name, value in session.rows("maintenance_list") if value}
    return Maintenance(push="push" in enabled, pop="pop" in enabled)


def is_waiting(session: Session) -> bool:
    """Whether the spool has a push that waits."""
    return bool(session.rows("spool_sizes", {"limit": 1}))


def set_maintenance(turn: Turn, command: SetMaintenance) -> Maintenance:
    """Turn switches on or off. The end of a push maintenance also lets refused pushes wait again."""
    before = switches(turn.session)
    after = Maintenance(
        before.push if command.push is None else command.push, before.pop if command.pop is None else command.pop
    )
    for name, old, new in (("push", before.push, after.push), ("pop", before.pop, after.pop)):
        if old != new:
            turn.session.run("maintenance_set", {"name": name, "enabled": int(new), "now": turn.wall})
    if command.push is False:
        turn.session.run("spool_retry", {"limit": MOST_RETRIED})
    if before != after:
        turn.reported.append(MaintenanceChanged(after.push, after.pop))
        turn.announce(CHANGED)
    return after


def keep(turn: Turn, command: Spool) -> Counted:
    """Keep pushes during a push maintenance, and behind pushes that still wait. Otherwise keep nothing."""
    if not (switches(turn.session).push or is_waiting(turn.session)):
        return Counted(0)
    rows = []
    count = 0
    for kept in command.pushes:
        messages = kept.messages.messages() if isinstance(kept.messages, PlainBatch) else kept.messages
        body = _encoder.encode(_KeptPush(kept.queue, messages, kept.create))
        rows.append({"messages": len(messages), "bytes": len(body), "created_at": turn.now, "body": body})
        count += len(messages)
    turn.session.many("spool_insert", rows)
    return Counted(count)


def drain(turn: Turn, _: DrainSpool) -> Swept:
    """Push the oldest kept pushes in their order. A push leaves the spool in the turn that stores it.

    A refused push stays in the spool with its error and does not stop the others. One broker at a time drains.
    """
    if switches(turn.session).push:
        return Swept({"spool": 0})
    lock = turn.session.row("spool_lock")
    if lock is None or not lock[0]:
        return Swept({"spool": 0}, more=True)
    sizes = turn.session.rows("spool_sizes", {"limit": PUSHES_AT_ONCE + 1})
    replayed = refused = size = taken = 0
    for no, messages, length in sizes[:PUSHES_AT_ONCE]:
        if taken and (replayed + refused + messages > MESSAGES_AT_ONCE or size + length > BYTES_AT_ONCE):
            break
        taken += 1
        size += length
        if _replay(turn, no):
            replayed += messages
        else:
            refused += messages
    if taken:
        turn.reported.append(SpoolReplayed(replayed, refused))
    return Swept({"spool": replayed + refused}, more=len(sizes) > taken)


def _replay(turn: Turn, no: int) -> bool:
    """Store a kept push in its queue. Returns False if it is refused."""
    row = turn.session.row("spool_get", {"no": no})
    assert row is not None
    kept = _decoder.decode(row[1])
    waited = max(0, turn.now - row[0])
    for message in kept.messages:
        message.delay = max(0, message.delay - waited)
    turn.savepoint()
    try:
        push.push_now(turn, [check_push(Push(queue=kept.queue, messages=kept.messages, create=kept.create))], "ok")
    except AckwiseError as refusal:
        turn.undo()
        turn.session.run("spool_fail", {"no": no, "error": refusal.message[:_LONGEST_REASON]})
        return False
    turn.keep()
    turn.session.run("spool_delete", {"no": no})
    return True
