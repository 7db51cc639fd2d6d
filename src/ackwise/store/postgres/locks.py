"""What a turn's commands name, locked in one order before the first of them runs: queues, partitions, then leases.

Two brokers that settle and push across the same partitions would otherwise wait for each other in a ring.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ackwise.core import ids, limits
from ackwise.core.commands import (
    ByDelivery,
    ByLease,
    ByRange,
    ByTransaction,
    Claim,
    Command,
    Extend,
    Push,
    Settle,
    Settlement,
    Transaction,
)
from ackwise.core.errors import BadInput
from ackwise.core.messages import PlainBatch
from ackwise.store.postgres.session import PostgresSession
from ackwise.store.session import Row

MOST_LANES_KNOWN = 100_000
LaneParts = dict[int, int]
"""Which partition a lane belongs to; that never changes."""


class Footprint:
    """The queues, lanes, partitions and leases that commands name. What is not well formed is left for its refusal."""

    def __init__(self, commands: Iterable[Command]) -> None:
        self.places: set[tuple[str, str, int]] = set()
        self.named: set[tuple[str, str, int]] = set()
        self.lanes: set[int] = set()
        self.leases: set[int] = set()
        self.whole: set[int] = set()
        self.uuids: set[str] = set()
        for command in commands:
            try:
                self._add(command)
            except (AttributeError, TypeError, BadInput):
                continue

    @property
    def alone(self) -> bool:
        """Whether nothing but a name is asked for: then whoever uses it may lock it."""
        return not (self.lanes or self.leases or self.uuids)

    def _add(self, command: Command) -> None:
        match command:
            case Push():
                self._add_push(command)
            case Settle():
                self._add_settlements(command.entries)
            case Extend():
                self._add_lease(command.lease_id)
            case Transaction():
                self._add_settlements(command.settlements)
                for push in command.pushes:
                    self._add_push(push)
                for text in command.required_leases:
                    self._add_lease(text)
            case Claim() if command.partitions is not None and command.queue is not None:
                self.named |= {(_name(command.queue), _name(part), 0) for part in command.partitions}

    def _add_push(self, push: Push) -> None:
        queue = _name(push.queue)
        if isinstance(push.messages, PlainBatch):
            wanted = {(push.messages.partition, 0)}
        else:
            wanted = {(message.partition, message.priority) for message in push.messages}
        self.places |= {
            (queue, _name(part), limits.count(prio, "priority", least=0, most=limits.MAX_PRIORITY))
            for part, prio in wanted
        }

    def _add_settlements(self, entries: list[Settlement]) -> None:
        for entry in entries:
            match entry.selector:
                case ByDelivery(delivery_id=text):
                    key = ids.parse_delivery_id(text)
                    if key is not None:
                        self.lanes.add(key.lane)
                        self.leases.add(key.lease)
                case ByRange(lease_id=text, lane=lane):
                    self.lanes.add(limits.count(lane, "lane", most=1 << 62))
                    self._add_lease(text)
                case ByLease(lease_id=text):
                    self.whole |= self._add_lease(text)
                case ByTransaction(partition_id=uuid, lease_id=text):
                    self.uuids.add(_name(uuid))
                    self._add_lease(text)

    def _add_lease(self, text: object) -> set[int]:
        key = ids.parse_lease_id(text)
        found = {key[0]} if key is not None else set()
        self.leases |= found
        return found


def _name(value: object) -> str:
    return limits.name(value)


def lock(session: PostgresSession, commands: Sequence[Command], known: LaneParts) -> list[Row]:
    """Own everything the commands name; the rows of their leases come back as they are now."""
    footprint = Footprint(commands)
    parts = _named_parts(session, footprint) | _lane_parts(session, footprint.lanes, known)
    if footprint.whole:
        rows = session.rows("footprint_leases", {"leases": sorted(footprint.whole)})
        parts |= {row[0] for row in rows}
    if footprint.uuids:
        parts |= {row[0] for row in session.rows("footprint_parts", {"uuids": sorted(footprint.uuids)})}
    if parts:
        session.lock_parts(sorted(parts))
    return session.rows("leases_lock", {"leases": sorted(footprint.leases)}) if footprint.leases else []


def _named_parts(session: PostgresSession, footprint: Footprint) -> set[int]:
    """Partitions by name. Queues in which one has to be made are locked first: that is the order of all turns."""
    wanted = [*footprint.places, *footprint.named]
    if not wanted or (len(wanted) == 1 and footprint.alone):
        return set()
    queues, names, prios = zip(*wanted, strict=True)
    rows = session.rows("footprint", {"queues": list(queues), "names": list(names), "prios": list(prios)})
    making = {queue for n, queue, _, lane in rows if lane is None and n <= len(footprint.places)}
    if making:
        session.lock_queues(sorted(making))
    return {part for _, _, part, _ in rows if part is not None}


def _lane_parts(session: PostgresSession, lanes: set[int], known: LaneParts) -> set[int]:
    unknown = [lane for lane in lanes if lane not in known]
    if unknown:
        if len(known) > MOST_LANES_KNOWN:
            known.clear()
        known.update(session.rows("footprint_lanes", {"lanes": unknown}))
    return {known[lane] for lane in lanes if lane in known}
