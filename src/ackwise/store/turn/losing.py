"""Holders that are lost: a connection that broke, or every connection to a broker that died."""

from __future__ import annotations

from ackwise.core import ids, limits
from ackwise.core.commands import Beat, Break
from ackwise.core.errors import BadInput
from ackwise.core.limits import MICROS
from ackwise.store.turn.context import Turn
from ackwise.store.turn.expiry import expire_lease, lock_lease
from ackwise.store.turn.settle import find_lease

SILENT_FOR = 30 * MICROS
"""A broker that has not beaten for so long is dead."""
_ALL = 1 << 40


def break_leases(turn: Turn, command: Break) -> int:
    """How many leases ended by it; those that are not known or not live are left alone."""
    if not isinstance(command.lease_ids, list):
        raise BadInput("lease_ids must be a list")
    return sum(_break(turn, lease.no) for text in command.lease_ids if (lease := find_lease(turn, text)) is not None)


def beat(turn: Turn, command: Beat) -> int:
    """Note that a broker is alive. Its first beat looks at once who of the others is gone, later ones who is silent."""
    limits.name(command.instance, "instance")
    opening = turn.session.row("instance_get", {"id": command.instance}) is None
    noted = turn.session.run("instance_beat", {"id": command.instance, "now": turn.now})
    for instance, heard_at in turn.session.rows("instances_other", {"id": command.instance}):
        if heard_at <= turn.now - SILENT_FOR or (opening and turn.session.gone(instance)):
            _break_connections(turn, instance)
    return noted


def _break_connections(turn: Turn, instance: str) -> None:
    """Leases that others work on now are left to the next beat."""
    rows = turn.session.rows("leases_of_connections", {"instance": instance, "prefix": ids.connection_prefix(instance)})
    locked = [no for (no,) in rows if lock_lease(turn, no)]
    for no in locked:
        _break(turn, no)
    if len(locked) == len(rows):
        turn.session.run("instance_delete", {"id": instance})


def _break(turn: Turn, no: int) -> bool:
    lease = turn.lease(no)
    if lease is None or not lease.live(turn.now):
        return False
    expire_lease(turn, lease, _ALL, "broken", "connection lost")
    return True
