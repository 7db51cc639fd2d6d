"""Validates a command once, when it enters the broker. The engine trusts what it gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from ackwise.core import validation
from ackwise.core.admin_checks import ADMIN_CHECKS
from ackwise.core.commands import (
    AddTrace,
    Break,
    ByDelivery,
    ByKey,
    ByLease,
    ByRange,
    ByTransaction,
    Claim,
    Command,
    Extend,
    Push,
    Settle,
    Settlement,
    Spool,
    Transaction,
)
from ackwise.core.errors import AckwiseError, BadInput, PayloadTooLarge
from ackwise.core.events import EventStream, RequestsRefused
from ackwise.core.lane_range import LaneRange
from ackwise.core.messages import NewMessage, PlainBatch
from ackwise.core.policy import QueuePolicy, checked
from ackwise.core.settlement import Outcome

A = TypeVar("A")

LAST_SEQ = 1 << 40
"""Largest position that a range may name."""
MOST_NAMED_RANGES = 1000
MOST_TRACE_NAMES = 20
LONGEST_TRACE_DATA = 64 << 10


class CheckedCommands(Generic[A]):
    """Commands of one caller after validation: `valid` ones may run in a turn, the others have `refusals`."""

    __slots__ = ("refusals", "valid")

    def __init__(self, commands: Sequence[Command[A]], events: EventStream) -> None:
        self.valid: list[Command[A]] = []
        self.refusals: dict[int, AckwiseError] = {}
        """Errors of the invalid commands by their place in the call."""
        for index, command in enumerate(commands):
            try:
                self.valid.append(check(command))
            except AckwiseError as refusal:
                self.refusals[index] = refusal
        if self.refusals and events.listening:
            for code, count in Counter(refusal.code for refusal in self.refusals.values()).items():
                events.emit(RequestsRefused(code, count))

    def answers(self, results: list[A | AckwiseError]) -> list[A | AckwiseError]:
        """The results of the valid commands, with the refusals at their places."""
        if not self.refusals:
            return results
        left = iter(results)
        count = len(results) + len(self.refusals)
        return [self.refusals[index] if index in self.refusals else next(left) for index in range(count)]


def check(command: Command[A]) -> Command[A]:
    """Raise `BadInput` for an invalid command. Returns the command as the engine takes it."""
    known = _CHECKS.get(type(command))
    return command if known is None else known(command) or command


def _check_name(value: object, what: str) -> None:
    """Check the name of a queue, partition or group. Clients repeat few names, so a cache has the valid ones."""
    if isinstance(value, str):
        _valid_name(value, what)
    else:
        validation.name(value, what)


_valid_name = lru_cache(maxsize=4096)(validation.name)


def check_push(command: Push) -> Push:
    """Raise `BadInput` for an invalid push. Returns it with its messages as columns, if that is possible."""
    batch = _columns(command)
    if batch is None or batch is command.messages:
        return command
    return msgspec.structs.replace(command, messages=batch)


def _columns(command: Push) -> PlainBatch | None:
    _check_name(command.queue, "queue")
    messages = command.messages
    if type(messages) not in (list, PlainBatch):
        raise BadInput(f"messages must be a list or a PlainBatch, not {type(messages).__name__}")
    pushed = messages.payloads if isinstance(messages, PlainBatch) else messages
    if len(pushed) > validation.MAX_PUSH_ITEMS:
        raise BadInput(f"a push takes at most {validation.MAX_PUSH_ITEMS} messages")
    if command.create is not None:
        checked(command.create)
    if isinstance(messages, PlainBatch) and len(messages.transaction_ids or pushed) != len(pushed):
        raise BadInput("a batch has as many transaction ids as payloads, or none")
    if not pushed:
        return None
    batch = messages if isinstance(messages, PlainBatch) else PlainBatch.of(messages)
    if batch is not None and _is_plain(batch):
        _check_name(batch.partition, "partition")
        _check_name(batch.content_type, "content_type")
        if type(batch.priority) is not int or not 0 <= batch.priority <= validation.MAX_PRIORITY:
            validation.count(batch.priority, "priority", least=0, most=validation.MAX_PRIORITY)
        return batch
    for message in messages.messages() if isinstance(messages, PlainBatch) else messages:
        _check_message(message)
    return batch


def check_sizes(messages: list[NewMessage] | PlainBatch, policy: QueuePolicy) -> int:
    """Refuse a payload above the queue's limit. Returns the bytes of the largest payload."""
    payloads = messages.payloads if isinstance(messages, PlainBatch) else [m.payload for m in messages]
    largest = max(map(len, payloads), default=0)
    if largest > policy.max_payload_bytes:
        raise PayloadTooLarge(f"a payload of {largest} bytes is over the queue's limit of {policy.max_payload_bytes}")
    return largest


def _is_plain(batch: PlainBatch) -> bool:
    """Whether all payloads are bytes and all ids short printable ASCII, so that no message needs its own check."""
    txids = batch.transaction_ids
    if set(map(type, batch.payloads)) != {bytes}:
        return False
    if txids is None:
        return True
    try:
        joined = "".join(txids)
    except TypeError:
        return False
    return (
        len(txids) == len(batch.payloads) and joined.isascii() and joined.isprintable() and max(map(len, txids)) <= 128
    )


def _check_message(message: NewMessage) -> None:
    validation.name(message.partition, "partition")
    if type(message.payload) is not bytes:
        raise BadInput(f"payload must be bytes, not {type(message.payload).__name__}")
    if message.transaction_id is not None:
        validation.transaction_id(message.transaction_id)
    validation.count(message.priority, "priority", least=0, most=validation.MAX_PRIORITY)
    validation.count(message.delay, "delay", least=0, most=round(validation.MAX_DELAY_SECONDS * validation.MICROS))
    validation.name(message.content_type, "content_type")
    size = 0
    for key, value in (message.headers or {}).items():
        validation.storable(key, "a header's name")
        validation.storable(value, "a header's value")
        size += len(key) + len(value)
    if size > validation.MAX_HEADERS_BYTES:
        raise BadInput(f"headers are larger than {validation.MAX_HEADERS_BYTES} bytes")


def check_claim(command: Claim) -> None:
    """Raise `BadInput` for an invalid claim."""
    if command.queue is not None:
        _check_name(command.queue, "queue")
    elif command.namespace is None and command.task is None:
        raise BadInput("a claim names a queue, or a namespace and/or a task")
    _check_name(command.group, "group")
    _check_claim_options(command)
    for partition in command.partitions or ():
        _check_name(partition, "partition")
    for priority in command.priorities or ():
        validation.count(priority, "priority", least=0, most=validation.MAX_PRIORITY)
    for what, count, most in (
        ("max", command.most, validation.MAX_BATCH),
        ("max_bytes", 1 if command.most_bytes is None else command.most_bytes, validation.MAX_CLAIM_BYTES),
        ("max_partitions", 1 if command.most_partitions is None else command.most_partitions, validation.MAX_BATCH),
    ):
        if type(count) is not int or not 1 <= count <= most:
            validation.count(count, what, most=most)
    if command.create is not None:
        checked(command.create)


def _check_claim_options(command: Claim) -> None:
    """Check the fields that few claims set."""
    for what, text in (("owner", command.owner), ("claim key", command.key)):
        if text is not None:
            validation.name(text, what)
    for what, text in (("namespace", command.namespace), ("task", command.task)):
        if text is not None:
            validation.tag(text, what)
    if command.exclusivity is not None:
        validation.one_of(command.exclusivity, "exclusivity", ("partition", "queue", "none"))
    if command.order is not None:
        validation.one_of(command.order, "order", ("strict", "relaxed"))
    if command.start not in ("all", "new"):
        validation.start(command.start)
    if command.lease is not None:
        validation.lease_of(command.lease)
    if command.pushed_by is not None:
        validation.instant(command.pushed_by, "pushed_by")
    if command.key is not None and command.auto_ack:
        raise BadInput("a claim with a key cannot auto-ack: a repeated call would find no messages")
    if command.only is not None:
        _check_only(command, command.only)


def _check_only(command: Claim, only: tuple[LaneRange, ...]) -> None:
    """Check the messages that a claim names."""
    if command.queue is None or command.key is not None or command.auto_ack:
        raise BadInput("a claim of named messages names their queue and has no key and no auto-ack")
    if command.partitions is not None or command.priorities is not None:
        raise BadInput("a claim of named messages selects no partitions and no priorities")
    if len(only) > MOST_NAMED_RANGES:
        raise BadInput(f"a claim names at most {MOST_NAMED_RANGES} ranges of messages")
    for lane, lo, hi in only:
        validation.count(lane, "lane", least=0, most=LAST_SEQ)
        validation.count(lo, "lo", least=0, most=LAST_SEQ)
        validation.count(hi, "hi", least=lo + 1, most=LAST_SEQ)


def check_settle(command: Settle) -> None:
    for entry in command.entries:
        _check_settlement(entry)


def _check_settlement(entry: Settlement) -> None:
    if type(entry.selector) is ByDelivery and _plain_ack(entry):
        return  # the common case
    if not isinstance(entry.outcome, Outcome):
        raise BadInput(f"outcome must be one of ack, retry, reject, release, not {entry.outcome!r}")
    if entry.delay is not None:
        validation.count(entry.delay, "delay", least=0, most=round(validation.MAX_DELAY_SECONDS * validation.MICROS))
    if entry.undecodable and entry.outcome is not Outcome.REJECT:
        raise BadInput("only a reject says that a message is undecodable")
    for what, text in (("error", entry.error), ("error_type", entry.error_type), ("trace", entry.trace)):
        if text is not None and not isinstance(text, str):
            raise BadInput(f"{what} must be a string, not {type(text).__name__}")
    match entry.selector:
        case ByRange():
            _check_range(entry.selector)
        case ByTransaction(partition_id=part, transaction_id=txid, group=group):
            validation.name(part, "partition_id")
            validation.transaction_id(txid)
            if group is not None:
                validation.name(group, "group")
        case ByKey():
            _check_key(entry.selector)
        case ByDelivery() | ByLease():
            pass
        case other:
            raise BadInput(f"{type(other).__name__} is no selector")


def _plain_ack(entry: Settlement) -> bool:
    has_error = entry.error is not None or entry.error_type is not None or entry.trace is not None
    return entry.outcome is Outcome.ACK and not (has_error or entry.delay is not None or entry.undecodable)


def _check_range(selector: ByRange) -> None:
    lo, hi = selector.lo, selector.hi
    if type(lo) is not int or type(hi) is not int or not 0 <= lo < hi <= LAST_SEQ:
        validation.count(lo, "lo", least=0, most=LAST_SEQ)
        validation.count(hi, "hi", least=lo + 1, most=LAST_SEQ)


def _check_key(claim: ByKey) -> None:
    for what, text in (("queue", claim.queue), ("claim key", claim.key), ("group", claim.group)):
        validation.name(text, what)


def check_extend(command: Extend) -> None:
    if (command.lease is None) == (command.add is None):
        raise BadInput("extend takes either a lease time or a time to add")
    validation.lease_of(command.add if command.lease is None else command.lease)
    if command.claim is not None:
        _check_key(command.claim)


def check_transaction(command: Transaction) -> Transaction:
    for entry in command.settlements:
        _check_settlement(entry)
    return msgspec.structs.replace(command, pushes=[check_push(push) for push in command.pushes])


def check_break(command: Break) -> None:
    if not isinstance(command.lease_ids, list):
        raise BadInput("lease_ids must be a list")


def check_trace(command: AddTrace) -> None:
    for what, text in (("partition_id", command.partition_id), ("group", command.group), ("event", command.event)):
        validation.name(text, what)
    validation.transaction_id(command.transaction_id)
    if len(command.names) > MOST_TRACE_NAMES:
        raise BadInput(f"a trace has at most {MOST_TRACE_NAMES} names, not {len(command.names)}")
    for name in command.names:
        validation.name(name, "trace name")
    if len(command.data.encode()) > LONGEST_TRACE_DATA:
        raise BadInput(f"the data of a trace has at most {LONGEST_TRACE_DATA} bytes; shorten it")
    validation.storable(command.data, "data")


def check_spool(command: Spool) -> Spool:
    return msgspec.structs.replace(command, pushes=[check_push(push) for push in command.pushes])


_CHECKS: dict[type[Command], Callable[[Any], Any]] = {
    Push: check_push,
    Claim: check_claim,
    Settle: check_settle,
    Extend: check_extend,
    Transaction: check_transaction,
    Break: check_break,
    AddTrace: check_trace,
    Spool: check_spool,
    **ADMIN_CHECKS,
}
"""A check returns None, or the form of the command that the engine takes. Commands that brokers make themselves and
commands of the graph have no check."""
