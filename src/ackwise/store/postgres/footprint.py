"""What commands name: queues, groups, partitions, lanes and leases. What is not well formed is left for its refusal."""

from __future__ import annotations

from collections.abc import Iterable

from ackwise.core import ids, limits
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
    PruneQueue,
    Push,
    Redrive,
    SeekGroup,
    Settle,
    Settlement,
    Sweep,
    Transaction,
)
from ackwise.core.errors import BadInput
from ackwise.core.graph.commands import GraphCommand
from ackwise.core.messages import PlainBatch


def changes_graph(command: Command) -> bool:
    return isinstance(command, GraphCommand) or (isinstance(command, Sweep) and "graph" in command.duties)


class Footprint:
    """Gathered without looking at the database."""

    def __init__(self, commands: Iterable[Command]) -> None:
        self.pushed: set[tuple[str, str, int]] = set()
        self.claimed: set[tuple[str, str, int]] = set()
        self.groups: dict[tuple[str, str], set[str | None]] = {}
        """Groups that are claimed in, with the exclusivities asked for, or moved on, which asks for none."""
        self.queues: set[str] = set()
        """Queues that are changed themselves."""
        self.whole_queues: set[str] = set()
        """Queues of which every partition is touched."""
        self.lanes: set[int] = set()
        self.leases: set[int] = set()
        self.pieces: set[int] = set()
        """Leases of which pieces are settled, in lanes that are named."""
        self.whole_leases: set[int] = set()
        self.keys: set[tuple[str, str, str]] = set()
        """Claims by queue, group and key: their leases are touched as a whole."""
        self.parts: set[str] = set()
        self.dead: set[str] = set()
        for command in commands:
            try:
                self._add(command)
            except (AttributeError, TypeError, BadInput):
                continue

    def _add(self, command: Command) -> None:
        match command:
            case Push():
                self._add_push(command)
            case Settle():
                self._add_settlements(command.entries)
            case Claim() if command.queue is not None:
                self._add_claim(_name(command.queue), command)
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
            case ConfigureQueue() | DeleteQueue():
                self.queues.add(_name(command.queue))
            case ConfigureGroup() | DeleteGroup() | SeekGroup():
                self.whole_queues.add(_name(command.queue))
            case AdvanceGroup():
                # While the queue is locked nobody makes the group, nor deletes it.
                self.queues.add(_name(command.queue))
                self.groups.setdefault((_name(command.queue), _name(command.group)), set())
                self.lanes |= {limits.count(lane, "lane", most=1 << 62) for lane in command.lanes}
            case PruneQueue():
                self.lanes |= {limits.count(lane, "lane", most=1 << 62) for lane in command.lanes}
            case Redrive():
                self.dead |= {_name(uuid) for uuid in command.ids}

    def _add_push(self, push: Push) -> None:
        queue = _name(push.queue)
        if isinstance(push.messages, PlainBatch):
            wanted = {(push.messages.partition, push.messages.priority)}
        else:
            wanted = {(message.partition, message.priority) for message in push.messages}
        self.pushed |= {
            (queue, _name(part), limits.count(prio, "priority", least=0, most=limits.MAX_PRIORITY))
            for part, prio in wanted
        }

    def _add_claim(self, queue: str, command: Claim) -> None:
        self.groups.setdefault((queue, _name(command.group)), set()).add(command.exclusivity)
        self.claimed |= {(queue, _name(part), 0) for part in command.partitions or ()}

    def _add_settlements(self, entries: list[Settlement]) -> None:
        for entry in entries:
            match entry.selector:
                case ByDelivery(delivery_id=text):
                    key = ids.parse_delivery_id(text)
                    if key is not None:
                        self.lanes.add(key.lane)
                        self.pieces.add(key.lease)
                case ByRange(lease_id=text, lane=lane):
                    self.lanes.add(limits.count(lane, "lane", most=1 << 62))
                    self.pieces |= _lease(text)
                case ByLease(lease_id=text):
                    self.whole_leases |= self._add_lease(text)
                case ByKey() as claim:
                    self._add_key(claim)
                case ByTransaction(partition_id=uuid, lease_id=text):
                    self.parts.add(_name(uuid))
                    self._add_lease(text)

    def _add_key(self, claim: ByKey) -> None:
        self.keys.add((_name(claim.queue), _name(claim.group), _name(claim.key)))

    def _add_lease(self, text: object) -> set[int]:
        found = _lease(text)
        self.leases |= found
        return found


def _lease(text: object) -> set[int]:
    key = ids.parse_lease_id(text)
    return {key[0]} if key is not None else set()


def _name(value: object) -> str:
    return limits.name(value)
