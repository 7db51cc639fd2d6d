"""Everything a caller can ask to have written, as values. A store plans and applies them in one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ackwise.core.messages import QUEUE_MODE, NewMessage, PlainBatch
from ackwise.core.policy import Exclusivity, GroupPolicy, Order, QueuePolicy
from ackwise.core.settlement import Outcome
from ackwise.core.tags import spelled


class Command(msgspec.Struct, kw_only=True, tag=spelled, forbid_unknown_fields=True):
    """Base of all commands. Over the wire each says its name as `type`."""


class Push(Command):
    """Append messages; `create` is the policy for a queue that does not exist yet, None refuses it."""

    queue: str
    messages: list[NewMessage] | PlainBatch
    create: QueuePolicy | None = QueuePolicy()


class Claim(Command):
    """Take up to `most` messages under one lease (none with `auto_ack`)."""

    queue: str | None = None
    namespace: str | None = None
    task: str | None = None
    group: str = QUEUE_MODE
    partitions: tuple[str, ...] | None = None
    priorities: tuple[int, ...] | None = None
    most: int = 1
    most_bytes: int | None = None
    """The bytes of payload at which the claim stops, 16 MiB if None. The claim takes at least one message."""
    together: int = 0
    """Claims of one turn with the same number, unless it is 0, share `most_bytes`."""
    most_partitions: int | None = None
    lease: int | None = None
    exclusivity: Exclusivity | None = None
    order: Order | None = None
    owner: str | None = None
    key: str | None = None
    takes_over: bool = True
    """Whether it gets what is held under its key. One that waits for messages does not: whoever asked again since,
    under the same key, may have it."""
    auto_ack: bool = False
    bulk: bool = False
    yields: bool = False
    """A message that fails gives back, unspent, what the lease still holds of its partition."""
    pushed_by: int | None = None
    """Messages stored after this instant are left alone, unless they were handed out before."""
    start: Literal["all", "new"] | int = "all"
    create: QueuePolicy | None = None


def each(claim: Claim, count: int) -> list[Claim]:
    """The same claim so many times. Those of one with a key have keys of their own: `key/0`, `key/1` ..."""
    if claim.key is None:
        return [claim] * count
    return [msgspec.structs.replace(claim, key=f"{claim.key}/{number}") for number in range(count)]


def sharing_bytes(claims: Iterable[Claim], number: int) -> list[Claim]:
    """Claims of one turn that together stop at `most_bytes`. `number` tells them from the turn's other claims."""
    return [msgspec.structs.replace(claim, together=number) for claim in claims]


class ByDelivery(msgspec.Struct, frozen=True, tag="delivery"):
    """One attempt of one message."""

    delivery_id: str


class ByTransaction(msgspec.Struct, frozen=True, tag="transaction"):
    """A message by its partition's uuid and its transaction id. Without a lease: whoever holds it now."""

    partition_id: str
    transaction_id: str
    group: str | None = None
    lease_id: str | None = None
    unheld: bool = False
    """Without a lease also a message that nobody holds now is settled, if it was handed out before."""
    fenced: bool = False
    """With a lease: what it failed or gave back before, and has not ended, is `stale`, as if it were another's."""


class ByRange(msgspec.Struct, frozen=True, tag="range"):
    """Messages [lo, hi) of one lane of a lease. `whole` refuses it unless the lease holds every one of them."""

    lease_id: str
    lane: int
    lo: int
    hi: int
    whole: bool = False


class ByLease(msgspec.Struct, frozen=True, tag="lease"):
    """Everything a lease still holds."""

    lease_id: str


class ByKey(msgspec.Struct, frozen=True, tag="key"):
    """Everything that the claim of this key still holds."""

    queue: str
    key: str
    group: str = QUEUE_MODE


Selector = ByDelivery | ByTransaction | ByRange | ByLease | ByKey


class Settlement(msgspec.Struct, kw_only=True):
    """One entry of a settle call."""

    selector: Selector
    outcome: Outcome
    delay: int | None = None
    error: str | None = None
    error_type: str | None = None
    trace: str | None = None
    """Where it failed: the innermost lines of a traceback. The history keeps it of the newest failure."""
    undecodable: bool = False
    """With `reject`: nobody could read the message."""


class Settle(Command):
    """Settle deliveries, all or nothing when `atomic`, else each for itself. With `strict` an ack of what ended before,
    and not with an ack, is a reason for nothing, too."""

    entries: list[Settlement]
    atomic: bool = False
    strict: bool = False


def giving_back(lease_ids: Iterable[str]) -> Settle:
    """Everything these leases still hold goes back unspent."""
    return Settle(entries=[Settlement(selector=ByLease(one), outcome=Outcome.RELEASE) for one in lease_ids])


class Break(Command):
    """The holder of these leases is lost: they end now, with a failure for each message, as if they had run out."""

    lease_ids: list[str]


class Extend(Command):
    """Move a lease's deadline to now + `lease`, or by `add` from where it is. Never revives an expired lease.

    With `keep_later` a deadline that is later already stays. A claim made under a key may be named by it instead.
    """

    lease_id: str = ""
    claim: ByKey | None = None
    lease: int | None = None
    add: int | None = None
    keep_later: bool = False


class Transaction(Command):
    """Settlements and pushes that happen together or not at all."""

    settlements: list[Settlement] = []
    pushes: list[Push] = []
    required_leases: tuple[str, ...] = ()
    on_duplicate: Literal["ok", "fail"] = "ok"
    on_already: Literal["ok", "acks", "fail"] = "ok"
    """What a settlement that was done before means: part of a repeated call (for acks only, or for any), or a reason to
    do nothing of it. An ack of what ended otherwise is part of no repeated call, except where only acks count."""
    repeatable: bool = False
    """Found done before as a whole, every settlement and every push, it is done: it is the same call again."""


class ConfigureQueue(Command):
    """Create or change a queue. `policy` is laid over what is stored, or over `create` for a new queue and with
    `replace`; a `partition` is made as well."""

    queue: str
    policy: dict[str, Any] = {}
    create: QueuePolicy = QueuePolicy()
    partition: str | None = None
    namespace: str | None = None
    task: str | None = None
    replace: bool = False
    must_be_new: bool = False


class DeleteQueue(Command):
    queue: str


class PauseQueue(Command):
    """Stop (or resume) handing out messages; pushes go on."""

    queue: str
    paused: bool = True


class ConfigureGroup(Command):
    """Create a group at a start (`all`, `new` or an instant), or change its policy.

    `restart` notes the start of a group that exists as well: it moves no cursor, and is where a reset would put it.
    """

    queue: str
    group: str
    start: Literal["all", "new"] | int = "all"
    policy: GroupPolicy | None = None
    restart: bool = False


class SeekGroup(Command):
    """Move a group: to the `start`, the `end`, an instant, or (one partition) a seq. Begins a new epoch."""

    queue: str
    group: str
    to: Literal["start", "end"] | int
    partition: str | None = None
    by: Literal["time", "seq"] = "time"


class AdvanceGroup(Command):
    """Count as acked, per lane, everything below a seq that the group was never handed: it was read without claiming.

    A cursor never moves back, and what the group holds stays held. A group that does not exist starts at `all`.
    """

    queue: str
    group: str
    lanes: dict[int, int]


class PruneQueue(Command):
    """Remove, per lane, what lies below a seq and every group has finished: somebody keeps it elsewhere.

    It goes by whole segments and a bounded number of them; asked again it goes on. The answer counts messages.
    """

    queue: str
    lanes: dict[int, int]


class DeleteGroup(Command):
    queue: str
    group: str


class Redrive(Command):
    """Put dead letters back for their own group at their old place."""

    ids: list[str]


class Replay(Command):
    """Push a copy of each dead letter, to `queue`/`partition` or where it came from, and remove the record."""

    ids: list[str]
    queue: str | None = None
    partition: str | None = None


class PurgeDead(Command):
    """Forget dead letters: the named ones, or all that match."""

    ids: list[str] | None = None
    queue: str | None = None
    group: str | None = None


class Sweep(Command):
    """What time alone makes due. Each call does a bounded amount and says whether there is more."""

    duties: tuple[str, ...] = ("expire", "promote", "max_wait", "retain", "forget", "purge")
    limit: int = 1000


class Beat(Command):
    """A broker says it is alive. Leases of connections to brokers that are not are broken."""

    instance: str
