"""Hooks: named places behind the dead letters of a queue that have been reported."""

from __future__ import annotations

import msgspec

from ackwise.core import queries as q
from ackwise.core import validation
from ackwise.core.answers import Counted
from ackwise.core.commands import RemoveHook, SetHook, SettleHook, TakeHook
from ackwise.core.hooks import LONGEST_ERROR, after_failure
from ackwise.core.rows import HookLetter, HookRow, HookSettled, HookTaken, Page
from ackwise.engine import catalog
from ackwise.engine.ports import Row, Session
from ackwise.engine.reads.dead_letters import letter_from
from ackwise.engine.reads.registry import Snapshot, answers
from ackwise.engine.turn import Turn

LETTER_BYTES = 4 << 20
"""The letters that one owner takes at once are smaller than this in sum, except for a single larger letter."""


class _Hook(msgspec.Struct):
    """A row of the table `hook`, with the name of its queue."""

    queue_name: str
    queue: int
    name: str
    url: str | None
    payload: int
    mark: int
    letter: int
    owner: str | None
    until: int
    failing_from: int | None
    failures: int
    next_at: int
    paused: int
    error: str
    created_at: int

    @property
    def key(self) -> dict[str, int | str]:
        return {"queue": self.queue, "name": self.name}


def set_hook(turn: Turn, command: SetHook) -> HookRow:
    queue = catalog.queue(turn.session, command.queue)
    mark, letter = turn.session.rows("hook_start", {"now": turn.now})[0]
    place = {"queue": queue.id, "name": command.name, "mark": mark, "letter": letter, "created_at": turn.wall}
    turn.session.run("hook_put", {**place, "url": command.url, "payload": int(command.include_payload)})
    hook = _find(turn.session, queue.id, command.name)
    assert hook is not None
    return _shown(turn.session, hook, turn.now, turn.shift)


def remove(turn: Turn, command: RemoveHook) -> Counted:
    queue = catalog.queue(turn.session, command.queue)
    return Counted(turn.session.run("hook_remove", {"queue": queue.id, "name": command.name}))


def take(turn: Turn, command: TakeHook) -> HookTaken:
    session, queue = turn.session, catalog.queue(turn.session, command.queue)
    hook = _find(session, queue.id, command.name)
    if hook is None:
        return HookTaken(None, [])
    _rebase(session, hook)
    row = _shown(session, hook, turn.now, turn.shift)
    if hook.paused or row.retry_in or not row.pending:
        if hook.owner == command.owner:
            session.run("hook_free", {**hook.key, "owner": command.owner})
        return HookTaken(row, [])
    times = {"owner": command.owner, "until": turn.now + command.lease, "now": turn.now}
    if not session.run("hook_take", {**hook.key, **times}):
        row.retry_in = max(0, hook.until - turn.now)
        return HookTaken(row, [])
    letters = []
    room = LETTER_BYTES
    for number, mark, size in _behind(session, hook, command.limit):
        if room <= 0:
            break
        room -= size
        letter = session.row("dead_get", {"id": number})
        if letter is not None:
            letters.append(HookLetter(letter_from(letter), mark, number))
    return HookTaken(row, letters)


def settle(turn: Turn, command: SettleHook) -> HookSettled:
    """Move the hook, or note its failure. An owner whose lease is over changes nothing."""
    session, queue = turn.session, catalog.queue(turn.session, command.queue)
    hook = _find(session, queue.id, command.name)
    if hook is None:
        return HookSettled(False)
    held = {**hook.key, "owner": command.owner, "now": turn.now}
    if command.error is None:
        place = {"mark": command.mark, "letter": command.letter, "until": turn.now + command.lease}
        return HookSettled(session.run("hook_done", {**held, **place}) > 0)
    failure = after_failure(turn.now, hook.failing_from, hook.failures)
    error = validation.text(command.error, "error", LONGEST_ERROR)
    changed = session.run("hook_failed", {**held, **failure._asdict(), "paused": int(failure.paused), "error": error})
    return HookSettled(changed > 0, failure.failures, failure.next_at - turn.now, failure.paused)


@answers(q.ListHooks)
def list_hooks(snapshot: Snapshot, query: q.ListHooks) -> Page[HookRow]:
    session = snapshot.session
    if query.queue is not None:
        rows = session.rows("hooks_of_queue", {"queue": catalog.queue(session, query.queue).id, "limit": query.limit})
    else:
        queue, name = query.after or (0, "")
        rows = session.rows("hooks_page", {"queue": queue, "name": name, "limit": query.limit})
    page = Page(_shown(session, _Hook(*row), snapshot.now, snapshot.shift) for row in rows)
    if len(page) >= query.limit > 0:
        page.next = (page[-1].queue_no, page[-1].name)
    return page


def _find(session: Session, queue: int, name: str) -> _Hook | None:
    row = session.row("hook_get", {"queue": queue, "name": name})
    return None if row is None else _Hook(*row)


def _behind(session: Session, hook: _Hook, limit: int) -> list[Row]:
    """(id, mark, bytes) of the letters behind the place of a hook."""
    horizon = session.rows("hook_horizon")[0][0]
    where = {**hook.key, "mark": hook.mark, "letter": hook.letter}
    return session.rows("hook_letters", {**where, "horizon": horizon, "limit": limit})


def _rebase(session: Session, hook: _Hook) -> None:
    """Continue by the numbers of the letters if the database was restored on a server with fewer transactions."""
    horizon = session.rows("hook_horizon")[0][0]
    if hook.mark >= horizon:
        hook.mark = 0
        session.run("hook_rebase", {"queue": hook.queue, "horizon": horizon})
        session.run("hook_reset", {**hook.key, "mark": 0, "letter": hook.letter})


def _shown(session: Session, hook: _Hook, now: int, shift: int) -> HookRow:
    return HookRow(
        queue=hook.queue_name,
        name=hook.name,
        url=hook.url,
        include_payload=bool(hook.payload),
        paused=bool(hook.paused),
        error=hook.error,
        failures=hook.failures,
        failing_since=None if hook.failing_from is None else hook.failing_from - shift,
        retry_in=max(0, hook.next_at - now),
        pending=bool(_behind(session, hook, 1)),
        created_at=hook.created_at,
        queue_no=hook.queue,
    )
