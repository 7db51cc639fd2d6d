"""The place of a hook on PostgreSQL: no letter appears behind it, also after a restore on another server."""

from __future__ import annotations

from ackwise.core.commands import ByLease, Claim, SetHook, Settle, SettleHook, Settlement, TakeHook
from ackwise.core.rows import HookLetter
from ackwise.core.settlement import Outcome
from ackwise.store.postgres import PostgresStore
from tests.postgres.conftest import Raw
from tests.postgres.support import push, text, until


def kill(store: PostgresStore, name: str) -> None:
    push(store, text("x", transaction_id=name))
    (claimed,) = store.transact([Claim(queue="q")])
    entry = Settlement(selector=ByLease(claimed.lease_id), outcome=Outcome.REJECT, error="no")
    store.transact([Settle(entries=[entry])])


def take(store: PostgresStore) -> list[HookLetter]:
    (taken,) = store.transact([TakeHook(queue="q", name="webhook", owner="me")])
    return list(taken.letters)


def until_taken(store: PostgresStore, *names: str) -> list[HookLetter]:
    """Take until these letters are behind the hook: older transactions of other databases delay them too."""
    letters: list[HookLetter] = []

    def complete() -> bool:
        letters[:] = take(store)
        return [place.letter.transaction_id for place in letters] == list(names)

    until(complete)
    return letters


def test_letter_waits_for_older_transactions(store: PostgresStore, raw: Raw) -> None:
    """A running transaction may still write a letter with a lower mark."""
    push(store, text("first"))
    store.transact([Claim(queue="q")])
    store.transact([SetHook(queue="q")])
    with raw() as slow:
        slow.execute("SELECT pg_current_xact_id()")
        kill(store, "a")
        assert take(store) == []
    until_taken(store, "a")


def test_hook_ignores_older_letters_beside_transactions(store: PostgresStore, raw: Raw) -> None:
    """A transaction that runs since before the letter keeps its mark above the horizon."""
    with raw() as slow:
        slow.execute("SELECT pg_current_xact_id()")
        kill(store, "older")
        store.transact([SetHook(queue="q")])
        kill(store, "newer")
    until_taken(store, "newer")


def test_restored_database_continues_by_letter(store: PostgresStore, raw: Raw) -> None:
    """The other server has counted fewer transactions than the marks say."""
    push(store, text("first"))
    store.transact([Claim(queue="q")])
    store.transact([SetHook(queue="q")])
    for name in ("a", "b", "c"):
        kill(store, name)
    first = until_taken(store, "a", "b", "c")[0]
    done = SettleHook(queue="q", name="webhook", owner="me", mark=first.mark, letter=first.number)
    store.transact([done])
    with raw() as other:
        other.execute("UPDATE dead SET mark = mark + 1000000000")
        other.execute("UPDATE hook SET mark = mark + 1000000000")
    until_taken(store, "b", "c")
    kill(store, "d")
    until_taken(store, "b", "c", "d")
