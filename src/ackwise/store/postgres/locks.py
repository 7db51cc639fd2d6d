"""What a turn's commands name, locked in one order before the first of them runs: queues, groups, partitions, leases.

Two brokers that settle, push and claim across the same partitions would otherwise wait for each other in a ring.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ackwise.core.commands import Command, Push
from ackwise.store.postgres.footprint import Footprint, changes_graph
from ackwise.store.postgres.session import PostgresSession
from ackwise.store.session import Outdated, Row
from ackwise.store.turn.catalog import queue_policy

MOST_LANES_KNOWN = 100_000
LaneParts = dict[int, int]
"""Which partition a lane belongs to; that never changes."""


def lock(session: PostgresSession, commands: Sequence[Command], known: LaneParts) -> list[Row]:
    """Own everything the commands name; the rows of their leases come back as they are now."""
    if any(changes_graph(command) for command in commands):
        session.lock_graph()  # before anything else, so that nobody waits for it who has a partition
    footprint = Footprint(commands)
    if len(footprint.pushed) <= 1 and all(isinstance(command, Push) for command in commands):
        return []  # whoever pushes to one lane only locks it on the way
    claims = _leases_of_keys(session, footprint)
    footprint.leases |= claims
    footprint.whole_leases |= claims
    queues, parts = _named(session, footprint)
    groups, missing = _groups(session, footprint)
    if queues or missing:
        session.lock_queues(sorted(queues | missing.keys()))
        # Somebody may have made or deleted them while we waited for the queue.
        groups, missing = _groups(session, footprint)
        footprint.whole_queues |= set(missing.values())
    for group, alone in sorted(groups.items()):
        session.lock_group(group, alone=alone)
    parts |= _other_parts(session, footprint) | _lane_parts(session, footprint.lanes, known)
    if parts:
        session.lock_parts(sorted(parts))
        if footprint.pushed:
            _learn_lanes(session, parts)
    if claims != _leases_of_keys(session, footprint):
        raise Outdated("a claim changed hands meanwhile")
    return _own_leases(session, footprint)


def _own_leases(session: PostgresSession, footprint: Footprint) -> list[Row]:
    leases = sorted(footprint.leases | footprint.pieces)
    if not leases:
        return []
    pieces = sorted(footprint.pieces - footprint.leases)
    rows = session.rows("leases_lock", {"leases": leases, "pieces": pieces})
    # Read when the others are owned: who waited for them would see these as they were before.
    owned = {row[0] for row in rows}
    bulk = [lease for lease in pieces if lease not in owned]
    return rows + session.rows("leases_read", {"leases": bulk}) if bulk else rows


def _learn_lanes(session: PostgresSession, parts: set[int]) -> None:
    """Where pushes will append, read at once instead of one by one."""
    for queue, name, part, uuid, prio, lane, head in session.rows("footprint_heads", {"parts": sorted(parts)}):
        session.remember("part_by_name", {"queue": queue, "name": name}, (part, uuid))
        session.remember("lane_of_part", {"part": part, "prio": prio}, (lane, head))


def _leases_of_keys(session: PostgresSession, footprint: Footprint) -> set[int]:
    """Of claims that are named by their keys."""
    if not footprint.keys:
        return set()
    queues, groups, keys = zip(*footprint.keys, strict=True)
    rows = session.rows("footprint_keys", {"queues": list(queues), "groups": list(groups), "keys": list(keys)})
    return {row[0] for row in rows}


def _named(session: PostgresSession, footprint: Footprint) -> tuple[set[int], set[int]]:
    """Queues that are changed or in which a lane has to be made, and the partitions that are there."""
    queues: set[int] = set()
    parts: set[int] = set()
    changed = footprint.queues | footprint.whole_queues
    if changed:
        queues |= {row[0] for row in session.rows("footprint_queues", {"names": sorted(changed)})}
    wanted = [*footprint.pushed, *footprint.claimed]
    if wanted:
        owners, names, prios = zip(*wanted, strict=True)
        rows = session.rows("footprint", {"queues": list(owners), "names": list(names), "prios": list(prios)})
        queues |= {queue for n, queue, _, lane in rows if lane is None and n <= len(footprint.pushed)}
        parts |= {part for _, _, part, _ in rows if part is not None}
    return queues, parts


def _groups(session: PostgresSession, footprint: Footprint) -> tuple[dict[int, bool], dict[int, str]]:
    """Groups that are claimed in, alone where a claim excludes the whole queue; and queues in which one is missing."""
    found: dict[int, bool] = {}
    missing: dict[int, str] = {}
    if not footprint.groups:
        return found, missing
    owners, names = zip(*footprint.groups, strict=True)
    for queue, owner, policy, name, group in session.rows(
        "footprint_groups", {"queues": list(owners), "names": list(names)}
    ):
        if group is None:
            missing[queue] = owner
        else:
            asked = {one or queue_policy(policy).exclusivity for one in footprint.groups[owner, name]}
            found[group] = "queue" in asked
    return found, missing


def _other_parts(session: PostgresSession, footprint: Footprint) -> set[int]:
    asked: dict[str, tuple[str, Collection[int | str]]] = {
        "footprint_queue_parts": ("names", footprint.whole_queues),
        "footprint_leases": ("leases", footprint.whole_leases),
        "footprint_parts": ("uuids", footprint.parts),
        "footprint_dead": ("uuids", footprint.dead),
    }
    return {
        row[0] for name, (what, values) in asked.items() if values for row in session.rows(name, {what: list(values)})
    }


def _lane_parts(session: PostgresSession, lanes: set[int], known: LaneParts) -> set[int]:
    unknown = [lane for lane in lanes if lane not in known]
    if unknown:
        if len(known) > MOST_LANES_KNOWN:
            known.clear()
        known.update(session.rows("footprint_lanes", {"lanes": unknown}))
    return {known[lane] for lane in lanes if lane in known}
