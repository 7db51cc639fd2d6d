"""Rows that the commands of a turn name."""

from __future__ import annotations

from collections.abc import Iterable

from ackwise.core import ids
from ackwise.core.commands import (
    AdvanceGroup,
    Break,
    ByDelivery,
    ByKey,
    ByLease,
    ByRange,
    ByTransaction,
    Claim,
    Command,
    ConfigureGroup,
    ConfigureQueue,
    DeleteGroup,
    DeleteQueue,
    Extend,
    PauseQueue,
    PruneQueue,
    Push,
    Redrive,
    SeekGroup,
    Settle,
    Settlement,
    Transaction,
)
from ackwise.core.messages import PlainBatch

LAST_LANE = 1 << 62
"""No lane has a higher number. A settlement may name any number."""


class LockSet:
    """The rows that commands name, collected without the database."""

    def __init__(self, commands: Iterable[Command]) -> None:
        self.pushed: set[tuple[str, str, int]] = set()
        self.claimed: set[tuple[str, str, int]] = set()
        self.groups: dict[tuple[str, str], set[str | None]] = {}
        """Groups of claims with the exclusivities that the claims request. `AdvanceGroup` requests none."""
        self.queues: set[str] = set()
        """Queues whose own row changes."""
        self.whole_queues: set[str] = set()
        """Queues in which all partitions may change."""
        self.lanes: set[int] = set()
        self.leases: set[int] = set()
        self.partial_leases: set[int] = set()
        """Leases with messages that stay unsettled. The commands name the lanes."""
        self.whole_leases: set[int] = set()
        self.keys: set[tuple[str, str, str]] = set()
        """Claims named by queue, group and key. Their leases change as a whole."""
        self.parts: set[str] = set()
        self.dead: set[str] = set()
        for command in commands:
            self._add(command)

    def _add(self, command: Command) -> None:
        match command:
            case Push():
                self._add_push(command)
            case Settle():
                self._add_settlements(command.entries)
            case Claim() if command.queue is not None:
                self._add_claim(command.queue, command)
            case Extend(claim=ByKey() as claim):
                self._add_key(claim)
            case Break():
                for text in command.lease_ids:
                    self.whole_leases |= self._add_lease(text)
            case Extend():
                self._add_lease(command.lease_id)
            case Transaction():
                self._add_settlements(command.settlements)
                for push in command.pushes:
                    self._add_push(push)
                for text in command.required_leases:
                    self._add_lease(text)
            case ConfigureQueue() | DeleteQueue() | PauseQueue():
                self.queues.add(command.queue)
            case ConfigureGroup() | DeleteGroup() | SeekGroup():
                self.whole_queues.add(command.queue)
            case AdvanceGroup():
                # The lock on the queue prevents that another turn creates or deletes the group.
                self.queues.add(command.queue)
                self.groups.setdefault((command.queue, command.group), set())
                self.lanes |= command.lanes.keys()
            case PruneQueue():
                self.lanes |= command.lanes.keys()
            case Redrive():
                self.dead |= {uuid for uuid in command.ids if ids.uuid_int(uuid) is not None}

    def _add_push(self, push: Push) -> None:
        if isinstance(push.messages, PlainBatch):
            self.pushed.add((push.queue, push.messages.partition, push.messages.priority))
        else:
            self.pushed |= {(push.queue, message.partition, message.priority) for message in push.messages}

    def _add_claim(self, queue: str, command: Claim) -> None:
        self.groups.setdefault((queue, command.group), set()).add(command.exclusivity)
        self.claimed |= {(queue, part, 0) for part in command.partitions or ()}

    def _add_settlements(self, entries: list[Settlement]) -> None:
        for entry in entries:
            match entry.selector:
                case ByDelivery(delivery_id=text):
                    key = ids.parse_delivery_id(text)
                    if key is not None:
                        self.lanes.add(key.lane)
                        self.partial_leases.add(key.lease)
                case ByRange(lease_id=text, lane=lane):
                    self.lanes |= {lane} if 0 < lane <= LAST_LANE else set()
                    self.partial_leases |= _lease(text)
                case ByLease(lease_id=text):
                    self.whole_leases |= self._add_lease(text)
                case ByKey() as claim:
                    self._add_key(claim)
                case ByTransaction(partition_id=uuid, lease_id=text):
                    self.parts.add(uuid)
                    self._add_lease(text)

    def _add_key(self, claim: ByKey) -> None:
        self.keys.add((claim.queue, claim.group, claim.key))

    def _add_lease(self, text: object) -> set[int]:
        leases = _lease(text)
        self.leases |= leases
        return leases


def _lease(text: object) -> set[int]:
    key = ids.parse_lease_id(text)
    return {key[0]} if key is not None else set()
