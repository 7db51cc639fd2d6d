"""Locks the rows that a turn's commands name, always in the same order. Limits the lock waits after a timeout.

The order prevents deadlocks between brokers that settle, push and claim in the same partitions.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from psycopg import errors as pg

from ackwise.core.commands import Command, Push
from ackwise.core.errors import StoreLocked
from ackwise.engine.catalog import queue_policy
from ackwise.engine.ports import Outdated, Row
from ackwise.store.postgres.lock_set import LockSet
from ackwise.store.postgres.session import PostgresSession

MOST_LANES_KNOWN = 100_000
LaneParts = dict[int, int]
"""Lane to partition. A lane never changes its partition."""


def lock(session: PostgresSession, commands: Sequence[Command], known: LaneParts) -> list[Row]:
    """Lock every row that the commands name. Returns the current rows of their leases."""
    lock_set = LockSet(commands)
    if len(lock_set.pushed) <= 1 and all(isinstance(command, Push) for command in commands):
        return []  # a turn that pushes to one lane locks it when it appends
    claims = _leases_of_keys(session, lock_set)
    lock_set.leases |= claims
    lock_set.whole_leases |= claims
    queues, parts = _queues_and_parts(session, lock_set)
    groups, missing = _groups(session, lock_set)
    if queues or missing:
        session.lock_queues(sorted(queues | missing.keys()))
        # Another turn may have created or deleted groups before this turn got the lock.
        groups, missing = _groups(session, lock_set)
        lock_set.whole_queues |= set(missing.values())
    for group, alone in sorted(groups.items()):
        session.lock_group(group, alone=alone)
    parts |= _other_parts(session, lock_set) | _lane_parts(session, lock_set.lanes, known)
    if parts:
        session.lock_parts(sorted(parts))
        if lock_set.pushed:
            _cache_lanes(session, parts)
    if claims != _leases_of_keys(session, lock_set):
        raise Outdated("the lease of a claim key changed meanwhile")
    return _lock_leases(session, lock_set)


def _lock_leases(session: PostgresSession, lock_set: LockSet) -> list[Row]:
    leases = sorted(lock_set.leases | lock_set.partial_leases)
    if not leases:
        return []
    partial_leases = sorted(lock_set.partial_leases - lock_set.leases)
    rows = session.rows("leases_lock", {"leases": leases, "pieces": partial_leases})
    # A separate statement after the locks: a statement that waits for locks would return older versions of these rows.
    locked = {row[0] for row in rows}
    bulk = [lease for lease in partial_leases if lease not in locked]
    return rows + session.rows("leases_read", {"leases": bulk}) if bulk else rows


def _cache_lanes(session: PostgresSession, parts: set[int]) -> None:
    """Read the heads of all lanes to which pushes append, with one statement."""
    for queue, name, part, uuid, prio, lane, head in session.rows("footprint_heads", {"parts": sorted(parts)}):
        session.cache_row("part_by_name", {"queue": queue, "name": name}, (part, uuid))
        session.cache_row("lane_of_part", {"part": part, "prio": prio}, (lane, head))


def _leases_of_keys(session: PostgresSession, lock_set: LockSet) -> set[int]:
    """Leases of the claims that commands name by key."""
    if not lock_set.keys:
        return set()
    queues, groups, keys = zip(*lock_set.keys, strict=True)
    rows = session.rows("footprint_keys", {"queues": list(queues), "groups": list(groups), "keys": list(keys)})
    return {row[0] for row in rows}


def _queues_and_parts(session: PostgresSession, lock_set: LockSet) -> tuple[set[int], set[int]]:
    """Queues that change or need a new lane, and the named partitions that exist."""
    queues: set[int] = set()
    parts: set[int] = set()
    changed = lock_set.queues | lock_set.whole_queues
    if changed:
        queues |= {row[0] for row in session.rows("footprint_queues", {"names": sorted(changed)})}
    lanes = [*lock_set.pushed, *lock_set.claimed]
    if lanes:
        owners, names, prios = zip(*lanes, strict=True)
        rows = session.rows("footprint", {"queues": list(owners), "names": list(names), "prios": list(prios)})
        queues |= {queue for n, queue, _, lane in rows if lane is None and n <= len(lock_set.pushed)}
        parts |= {part for _, _, part, _ in rows if part is not None}
    return queues, parts


def _groups(session: PostgresSession, lock_set: LockSet) -> tuple[dict[int, bool], dict[int, str]]:
    """Groups of claims, and whether a claim excludes the whole queue.

    Also returns the queues in which such a group is missing.
    """
    existing: dict[int, bool] = {}
    missing: dict[int, str] = {}
    if not lock_set.groups:
        return existing, missing
    owners, names = zip(*lock_set.groups, strict=True)
    for queue, owner, policy, name, group in session.rows(
        "footprint_groups", {"queues": list(owners), "names": list(names)}
    ):
        if group is None:
            missing[queue] = owner
        else:
            default = queue_policy(policy)[0].exclusivity
            existing[group] = "queue" in {requested or default for requested in lock_set.groups[owner, name]}
    return existing, missing


def _other_parts(session: PostgresSession, lock_set: LockSet) -> set[int]:
    statements: dict[str, tuple[str, Collection[int | str]]] = {
        "footprint_queue_parts": ("names", lock_set.whole_queues),
        "footprint_leases": ("leases", lock_set.whole_leases),
        "footprint_parts": ("uuids", lock_set.parts),
        "footprint_dead": ("uuids", lock_set.dead),
    }
    return {
        row[0]
        for name, (parameter, values) in statements.items()
        if values
        for row in session.rows(name, {parameter: list(values)})
    }


def _lane_parts(session: PostgresSession, lanes: set[int], known: LaneParts) -> set[int]:
    unknown = [lane for lane in lanes if lane not in known]
    if unknown:
        if len(known) > MOST_LANES_KNOWN:
            known.clear()
        known.update(session.rows("footprint_lanes", {"lanes": unknown}))
    return {known[lane] for lane in lanes if lane in known}


SHARE = 0.5
"""Part of the lock timeout that all commands of a turn share. Their turn has already waited for the full timeout."""
LEAST_SECONDS = 0.01

LockName = tuple[object, ...]
"""Kind and key of a row that a command names."""


class LockBudget:
    """Bounds the lock waits of commands that run one by one after their turn got a lock timeout.

    A command fails without a wait if it names rows for which an earlier command's wait timed out.
    """

    def __init__(self, busy_timeout: float) -> None:
        self._left = SHARE * busy_timeout
        self._locked: dict[LockName, pg.LockNotAvailable] = {}

    @contextmanager
    def limit(self, command: Command) -> Iterator[float]:
        """Yield the seconds that a command may wait for each lock. Run the command inside the block."""
        names = _lock_names(command)
        for name in names & self._locked.keys():
            raise StoreLocked(f"{(StoreLocked.__doc__ or '').strip()} ({self._locked[name]})")
        started = time.monotonic()
        try:
            yield max(LEAST_SECONDS, self._left / 4)
        except pg.LockNotAvailable as problem:
            self._left -= time.monotonic() - started
            if len(names) == 1:
                self._locked[names.pop()] = problem
            raise


def _lock_names(command: Command) -> set[LockName]:
    """The partitions, lanes, leases and other rows that a command names."""
    lock_set = LockSet([command])
    return {
        *(("named", queue, part) for queue, part, _ in lock_set.pushed | lock_set.claimed),
        *(("group", *group) for group in lock_set.groups if not lock_set.claimed),
        *(("queue", queue) for queue in lock_set.queues | lock_set.whole_queues),
        *(("lane", lane) for lane in lock_set.lanes),
        *(("lease", lease) for lease in lock_set.leases | lock_set.partial_leases if not lock_set.lanes),
        *(("claim", *key) for key in lock_set.keys),
        *(("part", uuid) for uuid in lock_set.parts),
        *(("dead", uuid) for uuid in lock_set.dead),
    }
