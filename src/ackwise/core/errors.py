"""The error tree. Each class has a stable `code`.

The docstring of a class is the default text of its error: users read it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self


class AckwiseError(Exception):
    """Ackwise could not run the call."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str | None = None, **details: Any) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())
        self.details = details

    @property
    def message(self) -> str:
        return str(self.args[0])

    def detached(self) -> Self:
        """The error as a value of its own: without the frames that raised it, which may refer to the error."""
        self.__traceback__ = self.__context__ = None
        return self

    def again(self) -> Self:
        """A copy for another caller, because raising an error adds a traceback and notes to it."""
        twin = type(self)(self.message)
        twin.details = dict(self.details)
        twin.__cause__ = self.__cause__
        return twin


class BadInput(AckwiseError, ValueError):
    """The call is not well formed; correct it and send it again. Nothing was changed."""

    code = "bad_input"


class UndecodablePayload(AckwiseError, ValueError):
    """The payload cannot be decoded; read its bytes instead."""

    code = "undecodable"


class PayloadTooLarge(BadInput):
    """The payload is larger than the queue allows; send a smaller payload."""

    code = "payload_too_large"


class MissingExtra(AckwiseError, ImportError):
    """A package that this feature needs is not installed; install the extra of the feature."""

    code = "missing_extra"


class NotFound(AckwiseError, LookupError):
    """The queue, group, message or other object does not exist; check its name."""

    code = "not_found"


class UnknownQueue(NotFound):
    """There is no queue of that name; push to it or create it first."""

    code = "unknown_queue"


class UnknownGroup(NotFound):
    """The queue has no consumer group of that name; claim with it or create it first."""

    code = "unknown_group"


class UnknownPartition(NotFound):
    """The queue has no partition of that name; the first push creates it."""

    code = "unknown_partition"


class UnknownDeadLetter(NotFound):
    """There is no dead letter with this id; list the dead letters to see their ids."""

    code = "unknown_dead_letter"


class UnknownLease(NotFound):
    """There is no lease with this id; list the leases to see their ids."""

    code = "unknown_lease"


class MessageNotFound(NotFound):
    """not_found: that message was never delivered to this group."""

    code = "message_not_found"


class Conflict(AckwiseError):
    """The call contradicts the stored state; read the state again before you retry."""

    code = "conflict"


class ClaimConflict(Conflict):
    """That claim key was used before with another queue, group or filter; choose a new key."""

    code = "claim_conflict"


class QueueExists(Conflict):
    """A queue of that name exists already; configure it instead."""

    code = "queue_exists"


class GroupExists(Conflict):
    """The queue has a group of that name already; change that group instead."""

    code = "group_exists"


class PreconditionFailed(Conflict):
    """The object has another version than the call names; read the object again before you retry."""

    code = "precondition_failed"


class RedriveRefused(Conflict):
    """The dead letter cannot go back to its old place; replay it as a new message instead."""

    code = "redrive_refused"


class LeaseLost(Conflict):
    """invalid_lease: the lease is no longer held; another consumer may have the message."""

    code = "lease_lost"


class NotSettleable(Conflict):
    """not_settleable: the message was acked when it was delivered; there is nothing left to settle."""

    code = "not_settleable"


class RolledBack(Conflict):
    """The transaction was rolled back as a whole; nothing was changed."""

    code = "rolled_back"


class DataLost(Conflict):
    """Messages were pruned before this reader read them."""

    code = "data_lost"


class Overloaded(AckwiseError):
    """The broker is overloaded and refuses the call; try again in a second."""

    code = "overloaded"


class AnswersFull(Overloaded):
    """Answers to slow readers fill the server's memory; nothing was delivered, try again in a second."""

    code = "answers_full"


class Draining(AckwiseError):
    """The broker is shutting down and takes no new work; try again later or on another server."""

    code = "draining"


class StoreError(AckwiseError):
    """The store failed."""

    code = "store_error"


class BadStoreURL(BadInput, StoreError):
    """The store URL is not understood; use sqlite:///path/to/file.db or postgresql://host/database."""

    code = "bad_store_url"


class StoreUnavailable(StoreError):
    """The store cannot be reached now; nothing was changed, try again."""

    code = "store_unavailable"


class CircuitOpen(StoreUnavailable):
    """The circuit breaker is open after repeated failures; nothing was sent, try again later."""

    code = "circuit_open"


class StoreLocked(StoreUnavailable):
    """Another process holds the database for writing; try again, or raise busy_timeout in the store URL."""

    code = "store_locked"


class StoreFull(StoreError):
    """The disk or database is full; nothing was changed. Free some space and try again."""

    code = "store_full"


class StoreReadOnly(StoreError):
    """The store cannot be written; check the file's and its folder's permissions."""

    code = "store_read_only"


class StoreCorrupt(StoreError):
    """The file is not a database or is damaged; restore it from a backup."""

    code = "store_corrupt"


class SchemaTooNew(StoreError):
    """The database was made by a newer Ackwise; upgrade this installation to open it."""

    code = "schema_too_new"


class UnsafeStore(StoreError):
    """The server does not promise durable commits (fsync=off); turn it on or ask for durability=normal."""

    code = "unsafe_store"


class OutcomeUnknown(StoreError):
    """The commit failed in the middle: it may or may not have happened. Repeat the call with its transaction id."""

    code = "outcome_unknown"
