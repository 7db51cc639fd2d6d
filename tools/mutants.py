"""Plant faults in the code and check that the tests fail: `python tools/mutants.py [name ...]`.

Each mutant is one planted fault. It is applied to a copy of the sources, the tests that should notice are run against
the copy, and a mutant that survives is a hole in the tests: the run then fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONTRACT = ("tests/engine", "tests/core")
AT_ONCE = 2


@dataclass(frozen=True)
class Mutant:
    """`old` becomes `new` in one file; `tests` must then fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = CONTRACT


MUTANTS = (
    Mutant(
        "a form of the dashboard needs no token",
        "dashboard/guard.py",
        "if not cookie or not hmac.compare_digest(",
        "if not cookie and not hmac.compare_digest(",
        ("tests/dashboard/test_guard.py",),
    ),
    Mutant(
        "a read-only dashboard allows changes",
        "dashboard/guard.py",
        "return right == READ or not self.read_only",
        "return True",
        ("tests/dashboard/test_guard.py",),
    ),
    Mutant(
        "a mounted dashboard takes forms of any origin",
        "dashboard/guard.py",
        "        if not _own_origin(request):\n",
        "        if False:\n",
        ("tests/dashboard/test_mounted.py",),
    ),
    Mutant(
        "each open page of the dashboard reads for itself",
        "dashboard/snapshots.py",
        "        if not self.task.done():\n            return True\n",
        "        if not self.task.done():\n            return False\n",
        ("tests/dashboard/test_snapshots.py",),
    ),
    Mutant(
        "a changed queue is not told to its page",
        "dashboard/live.py",
        "        if self._wants_queue and queue:\n",
        "        if not self._wants_queue and queue:\n",
        ("tests/dashboard/test_live.py",),
    ),
    Mutant(
        "pop acks before it flushes",
        "cli/message.py",
        "            out.flush()\n        except BaseException:\n",
        "            batch.ack()\n            out.flush()\n        except BaseException:\n",
        ("tests/cli/test_messages.py",),
    ),
    Mutant(
        "a purge also takes later messages",
        "engine/queue_purge.py",
        "        if newest is None or newest[2] <= until:\n",
        "        if newest is None or until:\n",
        ("tests/engine/test_purge.py",),
    ),
    Mutant(
        "a purged message counts as acked",
        "engine/queue_purge.py",
        "            cursor.skipped += below - cursor.next\n",
        "            cursor.acked += below - cursor.next\n",
        ("tests/engine/test_purge.py",),
    ),
    Mutant(
        "a purge lets a late settlement be repeated",
        "engine/queue_purge.py",
        "merge_ranges(lease.lost + lost[no], engine_cursors.MOST_LOST_RANGES)",
        "lease.lost",
        ("tests/engine/test_purge.py",),
    ),
    Mutant(
        "the preview of a seek forgets held messages",
        "engine/reads/previews.py",
        "        again += max(0, cursor.next - target) - held_after\n",
        "        again += max(0, cursor.next - target)\n",
        ("tests/engine/test_seek_preview.py",),
    ),
    Mutant(
        "a search shows a page's last message twice",
        "engine/reads/browse_newest.py",
        "            return below[2]\n",
        "            return below[2] + 1\n",
        ("tests/engine/test_browse_newest.py",),
    ),
    Mutant(
        "letters of deleted queues are counted",
        "store/tables/dead.sql",
        "SELECT count(*) FROM dead AS d\nWHERE d.queue IN (SELECT id FROM queue WHERE deleted_at IS NULL)\n",
        "SELECT count(*) FROM dead AS d\nWHERE d.queue IN (SELECT id FROM queue)\n",
        ("tests/engine/test_dead_kinds.py",),
    ),
    Mutant(
        "a consumer of an expired lease is live",
        "store/tables/leases.sql",
        "FROM lease WHERE ended_at IS NULL AND deadline > :now\n    UNION ALL",
        "FROM lease WHERE ended_at IS NULL\n    UNION ALL",
        ("tests/engine/test_consumers.py",),
    ),
    Mutant(
        "a change without a terminal needs no --yes",
        "cli/arguments.py",
        "    if yes:\n        return\n",
        "    if yes or not sys.stdin.isatty():\n        return\n",
        ("tests/cli/test_nouns.py",),
    ),
    Mutant(
        "any version of an object is right",
        "core/versions.py",
        "version not in (ANY, current)",
        "version not in (ANY, current, version)",
        ("tests/protocols/native/test_resources.py",),
    ),
    Mutant(
        "a group that was sought has its old version",
        "engine/catalog.py",
        "(row[0], row[1]), int(row[2]))",
        "(row[0], row[1]), 0)",
        ("tests/protocols/native/test_resources.py",),
    ),
    Mutant(
        "a change of a missing queue creates it",
        "protocols/native/resource_answers.py",
        'if text in ("", ANY):\n        return ANY',
        'if text in ("", ANY):\n        return msgspec.UNSET',
        ("tests/protocols/native/test_resources.py",),
    ),
    Mutant(
        "a failing hook never pauses",
        "core/hooks.py",
        "now - began >= GIVES_UP_AFTER",
        "now - began > 9 * GIVES_UP_AFTER",
        ("tests/server/test_hooks.py",),
    ),
    Mutant(
        "views show the anchored clock",
        "store/sqlite/views.py",
        "coalesce((SELECT a.shift FROM anchor AS a), 0)",
        "0",
        ("tests/store/test_views.py",),
    ),
    Mutant(
        "the log names every request",
        "observability/event_log.py",
        "if self._requests > REQUESTS_A_SECOND:",
        "if self._requests > 1000 * REQUESTS_A_SECOND:",
        ("tests/observability/test_event_log.py",),
    ),
    Mutant(
        "a control character reaches the log",
        "observability/log_records.py",
        "return _masked(escaped(record.getMessage()))",
        "return _masked(record.getMessage())",
        ("tests/observability/test_log_setup.py",),
    ),
    Mutant(
        "every queue has a label",
        "observability/labels.py",
        "if len(self._shown) < self._most:",
        "if True:",
        ("tests/observability",),
    ),
    Mutant(
        "a leased message counts as claimable",
        "store/tables/counts.sql",
        "AND c.ready_at <= :now GROUP BY c.grp;",
        "AND c.held >= 0 GROUP BY c.grp;",
        ("tests/observability/test_metrics.py",),
    ),
    Mutant(
        "deadlines follow the wall clock",
        "engine/grant.py",
        "deadline=self.turn.now + lease_for",
        "deadline=self.turn.wall + lease_for",
        ("tests/engine/test_clock_steps.py",),
    ),
    Mutant(
        "delayed pushes follow the wall clock",
        "engine/push.py",
        '"due_at": self._turn.now + message.delay',
        '"due_at": self._turn.wall + message.delay',
        ("tests/engine/test_clock_steps.py",),
    ),
    Mutant(
        "messages are dated by the anchored clock",
        "engine/push.py",
        '"created_at": turn.wall, "body"',
        '"created_at": turn.now, "body"',
        ("tests/engine/test_clock_steps.py",),
    ),
    Mutant(
        "leases are shown by the anchored clock",
        "engine/reads/registry.py",
        "return instant - self.shift",
        "return instant",
        ("tests/engine/test_clock_steps.py",),
    ),
    Mutant(
        "queue delay forgets the shift",
        "engine/cursors.py",
        "row[1] + delay + timed.shift",
        "row[1] + delay",
        ("tests/engine/test_clock_steps.py",),
    ),
    Mutant(
        "each process anchors anew",
        "store/clock_anchor.py",
        "if row.boot == reading.boot:",
        "if False:",
        ("tests/store", "tests/sqlite/test_boots.py"),
    ),
    Mutant(
        "clock goes back at boot",
        "store/clock_anchor.py",
        "downtime = max(0, reading.wall",
        "downtime = min(reading.wall - row.seen, reading.wall",
        ("tests/store", "tests/sqlite/test_boots.py"),
    ),
    Mutant(
        "leases count the downtime",
        "store/sqlite/connection.py",
        "        if downtime:\n",
        "        if False:\n",
        ("tests/store", "tests/sqlite/test_boots.py"),
    ),
    Mutant(
        "interrupted readings count as a step",
        "store/clock_anchor.py",
        "abs(measured - self._shift) > STEP",
        "measured != self._shift",
        ("tests/store", "tests/sqlite/test_boots.py"),
    ),
    Mutant(
        "slow answer hides a step",
        "store/clock_anchor.py",
        "low, high = max(self._lowest, measured.lowest), min(self._highest, measured.highest)",
        "low, high = measured.lowest, measured.highest",
        ("tests/store", "tests/sqlite/test_boots.py"),
    ),
    Mutant(
        "answers of servers mix two clocks",
        "client/sync/http_repeats.py",
        "return instant + self._shift",
        "return instant",
        ("tests/client/test_delivery.py",),
    ),
    Mutant(
        "a row from the wire has any value as an instant",
        "core/structs.py",
        'Instant = TypeVar("Instant", bound=int)',
        'Instant = TypeVar("Instant")',
        ("tests/client/test_admin.py",),
    ),
    Mutant(
        "page of large messages comes from the cache whole",
        "engine/segment.py",
        "in ranges if room is None else ():",
        "in ranges:",
        ("tests/arrow/test_pages.py",),
    ),
    Mutant(
        "interrupted follower keeps its grant",
        "broker/thread_broker.py",
        "if submission.queued and not waits and",
        "if False and",
        ("tests/broker/test_interrupts.py",),
    ),
    Mutant(
        "claim that never parked waits for a turn",
        "broker/long_polls.py",
        "return not poll.entered",
        "return False",
        ("tests/broker/test_interrupts.py",),
    ),
    Mutant(
        "late answer shortens a kept lease",
        "client/sync/lease.py",
        "max(self.deadline, deadline) if chosen == self.chosen",
        "deadline if chosen == self.chosen",
        ("tests/client/test_lease_deadline.py",),
    ),
    Mutant(
        "late answer replaces the deadline of extend",
        "client/sync/lease.py",
        "if chosen == self.chosen else self.deadline",
        "if True else self.deadline",
        ("tests/client/test_lease_deadline.py",),
    ),
    Mutant("command is not validated", "core/command_checks.py", "known(command) or command", "command"),
    Mutant(
        "dead broker of an open session is deleted",
        "engine/expiry.py",
        " and not turn.extensions.need_instance(turn.session, instance)",
        "",
        ("tests/engine/test_extensions.py",),
    ),
    Mutant(
        "newer tables of an extension are opened",
        "engine/extensions.py",
        "if version > self.schema_version:",
        "if False:",
        ("tests/engine/test_extensions.py",),
    ),
    Mutant(
        "turns of an extension overlap",
        "engine/extensions.py",
        "if any(map(extension.owns, commands))",
        "if False",
        ("tests/engine/test_extensions.py",),
    ),
    Mutant(
        "complement of a class is the class",
        "core/regular_expressions.py",
        'return f"[^{_CLASSES',
        'return f"[{_CLASSES',
        ("tests/core/test_regular_expressions.py",),
    ),
    Mutant("query is not validated", "engine/reads/registry.py", "    query.check()\n", ""),
    Mutant(
        "ledger without counts in memory",
        "engine/reads/queues.py",
        "(q.ReadLedger, reads_ledger=True)",
        "(q.ReadLedger)",
    ),
    Mutant(
        "retry limit off by one",
        "core/settlement.py",
        "last is not None and failures >= last",
        "last is not None and failures > last",
    ),
    Mutant(
        "delivery limit off by one", "core/settlement.py", "attempt.deliveries >= limit", "attempt.deliveries > limit"
    ),
    Mutant("expiry blames company", "core/settlement.py", "limit_reached and attempt.alone and", "limit_reached and"),
    Mutant(
        "release spends a failure",
        "core/settlement.py",
        "return Fate(state, attempt.failures, now, attempt.probation",
        "return Fate(state, attempt.failures + 1, now, attempt.probation",
    ),
    Mutant("lease lives at its deadline", "core/spans.py", "and self.deadline > now", "and self.deadline >= now"),
    Mutant(
        "delayed head does not close a strict lane",
        "core/lane_selection.py",
        "    plan.delay(span.due_at)\n    return strict\n",
        "    plan.delay(span.due_at)\n    return False\n",
    ),
    Mutant("probation forgotten", "core/lane_selection.py", "elif span.probation and not bulk:", "elif False:"),
    Mutant("exclusivity ignored", "core/lane_selection.py", "return exclusive_owner == owner", "return True"),
    Mutant("foreign tag accepted", "core/refusals.py", "or lease.tag != key.tag", "or False"),
    Mutant("no fencing", "engine/span_settlement.py", " if span.lease == holder]", "]"),
    Mutant("half a range is called whole", "core/refusals.py", "if leased.whole and", "if False and"),
    Mutant("nothing is yielded", "engine/settle.py", "if leased.lease.yields and", "if False and"),
    Mutant("an unheld message cannot be settled", "core/refusals.py", "if selector.unheld and", "if False and"),
    Mutant(
        "a lost message is called settled",
        "core/refusals.py",
        "    return Verdict.STALE if lost else Verdict.ALREADY",
        "    return Verdict.ALREADY",
    ),
    Mutant("a lease ends unnoticed", "core/refusals.py", "answers[number].verdict in SETTLING", "False"),
    Mutant(
        "redrive after a seek back",
        "engine/dead_letters.py",
        "if not allows(state, LifecycleEvent.REDRIVE):",
        "if False:",
    ),
    Mutant("no window", "engine/cursors.py", "if opens_at > wall:", "if False:"),
    Mutant(
        "late settlement taken",
        "core/refusals.py",
        "return None if leased.late or lease.live(now) else Verdict.STALE",
        "return None",
    ),
    Mutant(
        "lost retry row",
        "engine/span_settlement.py",
        "return [piece, *rest]",
        "return rest",
    ),
    Mutant("atomic settle not undone", "engine/settle.py", "    turn.undo()\n", "    turn.keep()\n"),
    Mutant("transaction not undone", "engine/transaction.py", "        turn.undo()\n", "        turn.keep()\n"),
    Mutant(
        "extend revives",
        "core/refusals.py",
        "    if lease.live(now):\n        return None\n",
        "    if lease.ended_at is None:\n        return None\n",
    ),
    Mutant(
        "cursor moved too far",
        "engine/grant.py",
        "cursor.next = take.hi",
        "cursor.next = min(take.hi + 1, cursor.head)",
    ),
    Mutant(
        "claim key's fingerprint ignored",
        "engine/claim.py",
        "if lease.fingerprint != fingerprint(self.command, self.queue, self.group):",
        "if False:",
    ),
    Mutant(
        "auto-ack holds on",
        "engine/grant.py",
        "            cursor.ack(self.state, size, take.hi - 1, self.turn.wall)\n",
        "            cursor.skipped += size\n",
    ),
    Mutant(
        "a claim takes more than its bytes",
        "engine/grant.py",
        "if self.taken + size > self._most:",
        "if False:",
    ),
    Mutant(
        "a lane forgets its largest message",
        "engine/push.py",
        '"largest": largest(waiting)',
        '"largest": 1',
    ),
    Mutant(
        "an answer that is lost keeps its claims",
        "protocols/answer_memory.py",
        "if self._broker is not None and claims:",
        "if False:",
        ("tests/server/test_answer_bounds.py",),
    ),
    Mutant(
        "an answer is claimed for without memory",
        "protocols/answer_memory.py",
        "        if self.full:\n            raise",
        "        if False:\n            raise",
        ("tests/protocols/test_answer_memory.py",),
    ),
    Mutant("dedupe skipped", "engine/push.py", "!= size or self._turn.dedupe.find(hashed):", "!= size:"),
    Mutant(
        "dedupe forgets at restart",
        "store/sqlite/dedupe.py",
        '        self._session.run("dedupe_fresh_insert", row)\n',
        "        del row\n",
        ("tests/sqlite", "tests/engine"),
    ),
    Mutant(
        "sealed keys lost",
        "store/sqlite/dedupe.py",
        "            if older := search_shelf(self._session, shelf, h):\n",
        "            if older := []:\n",
        ("tests/sqlite",),
    ),
    Mutant(
        "scheduled message promoted twice",
        "engine/sweep.py",
        '        turn.session.run("scheduled_delete", {"no": no})\n',
        "",
    ),
    Mutant("redrive does not count back", "engine/dead_letters.py", "cursor.dead -= 1", "cursor.skipped += 0"),
    Mutant("seek keeps spans", "engine/cursors.py", '        turn.session.run("spans_delete_cursor", where)\n', ""),
    Mutant(
        "retention eats held messages",
        "engine/retention.py",
        "    free = row[0] if row and row[0] is not None else lane.head\n",
        "    free = lane.head\n",
    ),
    Mutant(
        "deleted queue keeps its leases",
        "engine/catalog.py",
        '            turn.end_lease(lease, "void")\n',
        "            pass\n",
    ),
    Mutant(
        "answer before commit",
        "store/sqlite/writer.py",
        'self.connection.execute("COMMIT").fetchall()',
        'self.connection.execute("ROLLBACK").fetchall()',
        ("tests/engine", "tests/sqlite"),
    ),
    Mutant(
        "woken counts of a fallback are not added",
        "store/turn_runner.py",
        "woken[queue] = woken.get(queue, 0) + count",
        "woken[queue] = count",
        ("tests/engine/test_fallback.py",),
    ),
    Mutant(
        "a rollback is remembered",
        "store/sqlite/writer.py",
        "        self._session.clear_cache()\n        self._memory.forget()\n        if self.connection.in",
        "        self._session.clear_cache()\n        if self.connection.in",
        ("tests/sqlite/test_writer_memory.py",),
    ),
    Mutant(
        "a deadline that moves closer is forgotten",
        "engine/transaction.py",
        "    turn.memory.note_lease(lease.grp, lease.deadline)\n",
        "",
        ("tests/sqlite/test_writer_memory.py",),
    ),
    Mutant(
        "events of undone settlements are heard",
        "engine/turn.py",
        "        del self.buried[self._saved_buried :]\n",
        "",
        ("tests/engine/test_turn_events.py",),
    ),
    Mutant(
        "no fsync",
        "store/sqlite/connection.py",
        '"2" if url.durability == "full" else "1"',
        '"1"',
        ("tests/faults/test_power.py",),
    ),
    Mutant(
        "a woken waiter is lost",
        "broker/long_polls.py",
        "if self._read_version(poll.queue) != seen:",
        "if False:",
        ("tests/broker",),
    ),
    Mutant(
        "a commit forgets a claim that may park",
        "broker/long_polls.py",
        "self.watched.add(queue if len(self.watched) < MOST_WATCHED else EVERY_QUEUE)",
        "pass",
        ("tests/broker",),
    ),
    Mutant(
        "a cancelled rider keeps its grant",
        "broker/claim_flow.py",
        "yield Background(self.release_cancelled(poll))",
        "pass",
        ("tests/broker/test_claim_flow.py",),
    ),
    Mutant(
        "an unfinished claim is answered",
        "broker/claim_flow.py",
        "while (rest := next_command(claim, claimed)) is not None:",
        "while (rest := None) is not None:",
        ("tests/broker/test_claim_flow.py",),
    ),
    Mutant(
        "an unfinished rider parks",
        "broker/long_polls.py",
        "        if answer.more is not None:\n            return False\n",
        "",
        ("tests/broker/test_claim_flow.py",),
    ),
    Mutant(
        "an unfinished rider exhausts its queues",
        "broker/long_polls.py",
        "if not answer.grants and answer.more is None:",
        "if not answer.grants:",
        ("tests/broker/test_claim_flow.py",),
    ),
    Mutant(
        "one turn joins all queues",
        "engine/tagged_queues.py",
        "budget.joins -= len(queues)",
        "pass",
        ("tests/engine/test_tags.py",),
    ),
    Mutant(
        "spent joins count as complete",
        "engine/tagged_queues.py",
        "return [], bool(rows)",
        "return [], False",
        ("tests/engine/test_tags.py",),
    ),
    Mutant(
        "one turn visits all queues",
        "engine/tagged_queues.py",
        "self._budget.visits -= 1",
        "pass",
        ("tests/engine/test_tags.py",),
    ),
    Mutant(
        "a claim from new starts at its last turn",
        "engine/catalog.py",
        "elif created_at < turn.wall:",
        "elif False:",
        ("tests/engine/test_tags.py",),
    ),
    Mutant(
        "a continued claim takes over",
        "core/commands.py",
        "progress=answer.more, takes_over=False)",
        "progress=answer.more)",
        ("tests/engine/test_tags.py",),
    ),
    Mutant(
        "joined queues are never visited",
        "engine/tagged_queues.py",
        'return self._visit_by_name("") if after else self._empty',
        "return self._empty",
        ("tests/engine/test_tags.py",),
    ),
    Mutant(
        "a purge removes later letters",
        "engine/dead_letters.py",
        '"until": behind.until,',
        '"until": turn.now,',
        ("tests/engine/test_dead_letters.py",),
    ),
    Mutant(
        "a purge reads all letters at once",
        "engine/dead_letters.py",
        '"limit": MOST_PURGED}',
        '"limit": 1 << 40}',
        ("tests/engine/test_dead_letters.py",),
    ),
    Mutant(
        "a group changes all queues at once",
        "protocols/queen/groups.py",
        "len(chunk) == QUEUES_AT_ONCE or ",
        "",
        ("tests/protocols/queen/test_groups.py",),
    ),
    Mutant(
        "a group changes all partitions at once",
        "protocols/queen/groups.py",
        " or partitions > PARTITIONS_AT_ONCE",
        "",
        ("tests/protocols/queen/test_groups.py",),
    ),
    Mutant(
        "a claim granted during a drain is delivered",
        "broker/claim_flow.py",
        "if claimed.lease_no and self._state.draining:",
        "if False:",
        ("tests/broker/test_claim_flow.py",),
    ),
    Mutant(
        "drain spends a failure",
        "core/commands.py",
        "outcome=Outcome.RELEASE) for lease_id in lease_ids",
        "outcome=Outcome.RETRY) for lease_id in lease_ids",
        ("tests/broker",),
    ),
    Mutant(
        "a lost connection costs nothing",
        "protocols/amps/session.py",
        "        if self._clean:",
        "        if leases:",
        ("tests/protocols/amps/test_queues.py",),
    ),
    Mutant(
        "the backlog is not counted",
        "protocols/amps/subscription.py",
        "max(0, self.backlog - self.held)",
        "self.backlog",
        ("tests/protocols/amps/test_queues.py",),
    ),
    Mutant(
        "a filter takes messages of unknown truth",
        "core/filters.py",
        "self._condition(document) is True",
        "self._condition(document) is not False",
        ("tests/protocols/amps/test_filters.py",),
    ),
    Mutant(
        "a filter has no budget of visits",
        "core/filters.py",
        "if self.visits > self._most:",
        "if self.visits < 0:",
        ("tests/protocols/amps/test_filters.py",),
    ),
    Mutant(
        "an ack makes idle filters look",
        "engine/cursors.py",
        "offers=returned or earlier",
        "offers=True",
        ("tests/protocols/amps/test_filtered_queues.py",),
    ),
    Mutant(
        "a filtered claim names nothing",
        "protocols/amps/dispatcher.py",
        "most_bytes=most_bytes, owner=member.owner, only=only",
        "most_bytes=most_bytes, owner=member.owner",
        ("tests/protocols/amps/test_filtered_queues.py",),
    ),
    Mutant(
        "returned messages are not shown to filters",
        "engine/reads/available.py",
        "        page.ranges += returned\n",
        "",
        ("tests/engine/test_named_claim.py",),
    ),
    Mutant(
        "bypassed messages are lost",
        "engine/named_claim.py",
        "    turn.add_span(Span(cursor.lane, cursor.grp, cursor.next, seq))\n",
        "",
        ("tests/engine/test_named_claim.py",),
    ),
    Mutant(
        "a sequence number asks for no persisted",
        "protocols/amps/publish.py",
        'return asked if header.s is None or "persisted" in asked else [*asked, "persisted"]',
        "return asked",
        ("tests/protocols/amps/test_wire.py",),
    ),
    Mutant(
        "read is acked",
        "amps/sync/subscription.py",
        "        previous, self.current = self.current, None\n",
        "        previous = None\n        if self._messages:\n            self._client.handled(self._messages[0])\n",
        ("tests/amps/test_table.py",),
    ),
    Mutant(
        "every message sets the timer back",
        "client/sync/ack_batcher.py",
        "max(buffer.not_before, buffer.since + self.timeout)",
        "max(buffer.not_before, list(buffer.items.values())[-1] + self.timeout)",
        ("tests/client/test_batcher.py",),
    ),
    Mutant(
        "a lease is extended late",
        "client/kept_lease.py",
        "lease.duration * (1 - fraction)",
        "lease.duration * (1 - fraction) / 4",
        ("tests/client/test_lease_keeper.py",),
    ),
    Mutant(
        "a settled lease is reported lost",
        "client/sync/lease_keeper.py",
        "        if lease.is_ending:\n",
        "        if False:\n",
        ("tests/client/test_lease_keeper.py",),
    ),
    Mutant(
        "a keeper shortens a lease",
        "client/sync/lease.py",
        "lease=self.duration, keep_later=True)",
        "lease=self.duration)",
        ("tests/spark/source/test_renewing.py",),
    ),
    Mutant(
        "a committed batch is left held",
        "spark/source/lease_claims.py",
        "        if number == self._finished:\n",
        "        if True:\n",
        ("tests/spark/source/test_lease.py",),
    ),
    Mutant(
        "a forgotten claim takes other records",
        "spark/source/lease_claims.py",
        "if not any(lease.key == self._key(number) for lease in self._leases(live_only=False)):",
        "if False:",
        ("tests/spark/source/test_lease.py",),
    ),
    Mutant(
        "a task that is run again reads everything",
        "spark/source/lease_reader.py",
        "if context is not None and context.attemptNumber():",
        "if False:",
        ("tests/spark/queries/test_streams.py",),
    ),
    Mutant(
        "two queries under one name",
        "spark/source/lease_claims.py",
        "lease.owner != self._owner and lease.deadline > now",
        "False",
        ("tests/spark/source/test_lease.py",),
    ),
    Mutant(
        "what came too late is called acked",
        "spark/bulk_settlement.py",
        "        acked = answer.count if answer.verdict is Verdict.ACKED else 0\n",
        "        acked = size\n",
        ("tests/spark/test_settling.py", "tests/spark/sink"),
    ),
    Mutant(
        "half a range carries all outputs",
        "spark/bulk_settlement.py",
        "Settlement(selector=acked.selector(whole=True)",
        "Settlement(selector=acked.selector(whole=False)",
        ("tests/spark/test_settling.py",),
    ),
    Mutant(
        "the neighbour of a killer is charged",
        "spark/pipelines/subprocess_runner.py",
        "                at = left[death.culprit]\n",
        "                at = left[max(0, death.culprit - 1)]\n",
        ("tests/spark/pipelines/test_isolation.py",),
    ),
    Mutant(
        "what was told before a death is done again",
        "spark/pipelines/subprocess_runner.py",
        "            answers |= zip(left, received, strict=False)\n",
        "            answers |= zip(left, received, strict=False) if death is None else ()\n",
        ("tests/spark/pipelines/test_isolation.py",),
    ),
    Mutant(
        "reading stops where a connection was closed for a fork",
        "spark/source/lane_ranges.py",
        "    while lane_range:\n",
        "    for _ in range(1):\n",
        ("tests/spark/source/test_stretches.py",),
    ),
    Mutant(
        "acks that overlap are settled in the order of the lane",
        "engine/ack_runs.py",
        "return runs if overlap else",
        "return runs if False else",
        ("tests/engine/test_settle.py",),
    ),
    Mutant(
        "two leases of a lane are settled as one",
        "engine/ack_runs.py",
        "elif group[0][1].lease.no == leased.lease.no:",
        "elif True:",
        ("tests/properties/test_ack_runs.py",),
    ),
    Mutant(
        "outputs have new names at each try",
        "spark/pipelines/transform_task.py",
        'return delivery_id.partition(".")[2]',
        "return delivery_id",
        ("tests/spark/pipelines/test_transform.py",),
    ),
    Mutant(
        "pages of other sites get in",
        "server/gates.py",
        "if site is not None and site not in _SAME_SITE:",
        "if False:",
        ("tests/server/test_gates.py",),
    ),
    Mutant(
        "targets of other hosts get in",
        "server/gates.py",
        "if TARGET in scope and not _names_host(scope[TARGET], host):",
        "if False:",
        ("tests/server/test_gates.py",),
    ),
    Mutant(
        "a caller with a long statement gets the next turn, too",
        "broker/fair_turns.py",
        "min(self._waiting, key=self._working.__getitem__)",
        "next(iter(self._waiting))",
        ("tests/broker/test_fair_turns.py",),
    ),
    Mutant(
        "a refused statement keeps its rows",
        "broker/metered_reads.py",
        "        free_values(problem)\n        if",
        "        if",
        ("tests/protocols/mew/test_refused_memory.py",),
    ),
    Mutant(
        "a native route keeps the connection after a 408",
        "protocols/http_response.py",
        ", close=problem.code in CLOSING_CODES)",
        ")",
        ("tests/server/test_limits.py",),
    ),
    Mutant(
        "one caller takes every waiting place",
        "broker/room.py",
        "if self._taken[caller] >= self._each:",
        "if False:",
        ("tests/protocols/mew/test_parsers.py",),
    ),
    Mutant(
        "lost answer of MEW keeps its deliveries",
        "protocols/mew/undelivered_events.py",
        "        self._undelivered.release_soon()\n",
        "",
        ("tests/protocols/mew/test_undelivered.py::test_answer_that_cannot_be_built_costs_no_failure",),
    ),
    Mutant(
        "socket takes events while the memory is full",
        "protocols/mew/event_socket.py",
        "if not self._memory.is_full_for(self._peer):",
        "if True:",
        ("tests/protocols/mew/test_undelivered.py::test_socket_takes_no_event_while_the_memory_is_full",),
    ),
    Mutant(
        "member of a group takes the turn of another",
        "graph/engine/member_turns.py",
        "if (member.served, member.no) < (row.served, row.no) and",
        "if False and",
        ("tests/graph/test_turns.py",),
    ),
    Mutant(
        "item is kept for ever",
        "graph/engine/member_turns.py",
        "if item.until > self._graph.turn.now and self._is_active(item.member):",
        "if self._is_active(item.member):",
        ("tests/graph/test_turns.py::test_member_that_does_not_come_delays_an_item_once",),
    ),
    Mutant(
        "ack timeout runs while the answer waits",
        "protocols/mew/undelivered_events.py",
        "            self._broker.start_task(self._send_restart(aging))\n",
        "            pass\n",
        ("tests/protocols/mew/test_undelivered.py::test_ack_timeout_starts_when_the_client_has_the_event",),
    ),
    Mutant(
        "error undoes the statements before it",
        "graph/engine/step_runs.py",
        "steps=command.steps[:done], cut=False",
        "steps=command.steps[:0], cut=False",
        ("tests/protocols/mew/test_groups.py::test_statements_before_an_error_keep_their_effect",),
    ),
    Mutant(
        "minimum is final although the text goes on",
        "graph/engine/step_runs.py",
        "        if command.cut:\n",
        "        if False:\n",
        ("tests/protocols/mew/test_groups.py::test_long_text_commits_in_parts_where_minimums_are_met",),
    ),
    Mutant(
        "watch with a live delivery is removed",
        "graph/engine/tables/statements.sql",
        "AND NOT EXISTS (SELECT 1 FROM mew_delivery AS d WHERE d.watch = w.no AND d.lease IS NOT NULL)",
        "",
        ("tests/graph/test_retention.py::test_watch_with_a_live_delivery_stays",),
    ),
    Mutant(
        "fetch takes an event beyond its bytes",
        "graph/engine/event_fetch.py",
        "size + length <= self._most_bytes",
        "size <= self._most_bytes",
        ("tests/protocols/mew/test_undelivered.py::test_fetch_of_bounded_bytes_says_what_is_next",),
    ),
    Mutant(
        "chain ends after two operands",
        "graph/expressions.py",
        "zip(expr.operators, expr.operands[1:], strict=True)",
        "zip(expr.operators[:1], expr.operands[1:2], strict=True)",
        ("tests/graph/test_bounds.py",),
    ),
    Mutant(
        "loop ends at a failed block",
        "client/sync/delivery.py",
        'self._on_error == "continue" and isinstance(problem, Exception)',
        "False",
        ("tests/client/test_defaults.py",),
    ),
    Mutant(
        "loop swallows interrupts",
        "client/sync/delivery.py",
        'self._on_error == "continue" and isinstance(problem, Exception)',
        'self._on_error == "continue"',
        ("tests/client/test_defaults.py",),
    ),
    Mutant(
        "queue of a plain push retries at once",
        "wire/push.py",
        "create: QueuePolicy | None = NEW_QUEUE_POLICY",
        "create: QueuePolicy | None = QueuePolicy()",
        ("tests/client/test_defaults.py",),
    ),
    Mutant(
        "first block that ends stops the extensions",
        "client/sync/working_leases.py",
        "if users > 0:",
        "if False:",
        ("tests/client/test_defaults.py",),
    ),
    Mutant(
        "forgotten await goes unnoticed",
        "subscriber/unawaited.py",
        "    if names:\n",
        "    if False:\n",
        ("tests/subscriber/test_mistakes.py",),
    ),
    Mutant(
        "foreign origins get in",
        "server/gates.py",
        "if origin is not None and not _same_origin(origin, host):",
        "if False:",
        ("tests/server/test_gates.py",),
    ),
    Mutant(
        "any page is a page to link to",
        "server/route_table.py",
        "return isinstance(match, tuple) and match[0] in self._pages",
        "return isinstance(match, tuple)",
        ("tests/server/test_gates.py",),
    ),
    Mutant(
        "one peer takes every connection",
        "protocols/peers.py",
        "return self._open[address] <= self.most",
        "return True",
        ("tests/server/test_limits.py",),
    ),
    Mutant(
        "dropped messages look acked",
        "engine/dead_letters.py",
        '    if ranges:\n        turn.session.many("dropped_insert"',
        '    if False:\n        turn.session.many("dropped_insert"',
        ("tests/protocols/queen/test_exact_answers.py",),
    ),
    Mutant(
        "a duplicate replay removes the record",
        "engine/dead_letters.py",
        'if receipts[0].status != "duplicate":',
        "if True:",
        ("tests/protocols/queen/test_exact_answers.py",),
    ),
    Mutant(
        "refused pushes leave the spool",
        "engine/spool.py",
        'turn.session.run("spool_fail", {"no": no, "error": refusal.message[:_LONGEST_REASON]})',
        'turn.session.run("spool_delete", {"no": no})',
        ("tests/protocols/queen/test_maintenance.py",),
    ),
    Mutant(
        "pushes overtake the spool",
        "engine/spool.py",
        "if not (switches(turn.session).push or is_waiting(turn.session)):",
        "if True:",
        ("tests/protocols/queen/test_maintenance.py",),
    ),
    Mutant(
        "traces outlive their messages",
        "engine/retention.py",
        'turn.session.run("trace_prune", {"lane": lane.id, "below": start})',
        "pass",
        ("tests/protocols/queen/test_traces.py",),
    ),
    Mutant(
        "a bucket without a sample is zero",
        "protocols/queen/time_series.py",
        "        return NO_SAMPLE\n",
        "        counts = {}\n",
        ("tests/protocols/queen/test_status.py",),
    ),
)


def planted(mutant: Mutant) -> str | None:
    """The mutant's file with the fault in it, or None if the mutant does not apply."""
    file = ROOT / "src" / "ackwise" / mutant.file
    text = file.read_text("utf-8") if file.is_file() else ""
    changed = text.replace(mutant.old, mutant.new)
    return changed if changed != text else None


def judge(mutant: Mutant) -> tuple[Mutant, str, float]:
    """Run the tests on a copy with the fault planted: killed, survived, or broken (it cannot be planted)."""
    started = time.monotonic()
    changed = planted(mutant)
    if changed is None:
        return mutant, "broken", 0.0
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        sources = Path(name) / "src"
        shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
        (sources / "ackwise" / mutant.file).write_text(changed, "utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
        environment = {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}
        selection = ["-k", "not postgres"] if mutant.tests != ("tests/faults/test_power.py",) else []
        run = subprocess.run(
            [*command, *selection, *mutant.tests],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    outcome = {0: "survived", 1: "killed"}.get(run.returncode, "broken")
    return mutant, outcome, time.monotonic() - started


def main() -> int:
    wanted = sys.argv[1:]
    chosen = [m for m in MUTANTS if not wanted or any(word in m.name for word in wanted)]
    if not chosen:
        print(f"no mutant has a name with {' or '.join(map(repr, wanted))}", file=sys.stderr)
        return 2
    failed = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for mutant, outcome, took in pool.map(judge, chosen):
            failed += outcome != "killed"
            print(f"{outcome:8}  {took:5.1f} s  {mutant.name}  ({mutant.file})", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} mutants killed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
