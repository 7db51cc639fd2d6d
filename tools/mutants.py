"""Break the code on purpose and see the tests notice: `python tools/mutants.py [name ...]`.

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
CONTRACT = ("tests/contract", "tests/core")
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
    Mutant("retry limit off by one", "core/settlement.py", "return failures >= last", "return failures > last"),
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
        "core/claiming.py",
        "            if strict:\n                return plan\n            continue\n        if span.probation",
        "            continue\n        if span.probation",
    ),
    Mutant("probation forgotten", "core/claiming.py", "if span.probation and not bulk:", "if False:"),
    Mutant("exclusivity ignored", "core/claiming.py", "return exclusive_owner == owner", "return True"),
    Mutant("foreign tag accepted", "store/turn/settle.py", "lease.tag != key.tag or", "False or"),
    Mutant("no fencing", "store/turn/ending.py", " if span.lease == holder]", "]"),
    Mutant("half a range is called whole", "store/turn/ending.py", "if target.whole and", "if False and"),
    Mutant("nothing is yielded", "store/turn/settle.py", "if lease.yields and", "if False and"),
    Mutant("what nobody holds cannot be settled", "store/turn/settle.py", "if selector.unheld and", "if False and"),
    Mutant("no window", "store/turn/places.py", "if opens_at > now:", "if False:"),
    Mutant(
        "late settlement taken", "store/turn/ending.py", "if not lease.live(turn.now) or not spans:", "if not spans:"
    ),
    Mutant(
        "lost retry row",
        "store/turn/ending.py",
        "return [piece, *rest]",
        "return rest",
    ),
    Mutant("atomic settle not undone", "store/turn/settle.py", "    turn.undo()\n", "    turn.keep()\n"),
    Mutant("transaction not undone", "store/turn/transaction.py", "        turn.undo()\n", "        turn.keep()\n"),
    Mutant(
        "extend revives",
        "store/turn/transaction.py",
        "    if not lease.live(turn.now):\n        settled",
        "    if lease.ended_at is not None:\n        settled",
    ),
    Mutant(
        "cursor moved too far",
        "store/turn/claim.py",
        "cursor.next = take.hi",
        "cursor.next = min(take.hi + 1, cursor.head)",
    ),
    Mutant(
        "claim key's fingerprint ignored",
        "store/turn/claim.py",
        "if lease.fingerprint != self._fingerprint():",
        "if False:",
    ),
    Mutant(
        "auto-ack holds on",
        "store/turn/claim.py",
        "            cursor.acked += size\n",
        "            cursor.skipped += size\n",
    ),
    Mutant(
        "a claim takes more than its bytes",
        "store/turn/weight.py",
        "if self.taken + size > self._most:",
        "if False:",
    ),
    Mutant(
        "a lane forgets its largest message",
        "store/turn/push.py",
        '"largest": largest(waiting)',
        '"largest": 1',
    ),
    Mutant(
        "an answer that is lost keeps its claims",
        "dialects/handover.py",
        "if self._broker is not None and claims:",
        "if False:",
        ("tests/server/test_answer_bounds.py",),
    ),
    Mutant(
        "an answer is claimed for without memory",
        "dialects/handover.py",
        "        if self.full:\n            raise",
        "        if False:\n            raise",
        ("tests/server/test_answer_bounds.py",),
    ),
    Mutant("dedupe skipped", "store/turn/push.py", "!= size or self._turn.dedupe.find(hashed):", "!= size:"),
    Mutant(
        "dedupe forgets at restart",
        "store/sqlite/dedupe.py",
        '        self._session.run("dedupe_fresh_insert", row)\n',
        "        del row\n",
        ("tests/sqlite", "tests/contract"),
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
        "store/turn/sweep.py",
        '        turn.session.run("scheduled_delete", {"no": no})\n',
        "",
    ),
    Mutant("redrive does not count back", "store/turn/dead.py", "cursor.dead -= 1", "cursor.skipped += 0"),
    Mutant("seek keeps spans", "store/turn/places.py", '        turn.session.run("spans_delete_cursor", where)\n', ""),
    Mutant(
        "retention eats held messages",
        "store/turn/sweep.py",
        "    free = row[0] if row and row[0] is not None else lane.head\n",
        "    free = lane.head\n",
    ),
    Mutant(
        "deleted queue keeps its leases",
        "store/turn/catalog.py",
        '            turn.end_lease(lease, "void")\n',
        "            pass\n",
    ),
    Mutant(
        "answer before commit",
        "store/sqlite/store.py",
        'self._connection.execute("COMMIT").fetchall()',
        'self._connection.execute("ROLLBACK").fetchall()',
        ("tests/contract", "tests/sqlite"),
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
        "broker/waiting.py",
        "if self.version(slot.queue) != seen:",
        "if False:",
        ("tests/broker",),
    ),
    Mutant(
        "drain spends a failure",
        "core/commands.py",
        "outcome=Outcome.RELEASE) for one in lease_ids",
        "outcome=Outcome.RETRY) for one in lease_ids",
        ("tests/broker",),
    ),
    Mutant(
        "a lost connection costs nothing",
        "dialects/amps/session.py",
        "        if self._clean:",
        "        if leases:",
        ("tests/server/amps/test_queues.py",),
    ),
    Mutant(
        "the backlog is not counted",
        "dialects/amps/subscription.py",
        "max(0, self.backlog - self.held)",
        "self.backlog",
        ("tests/server/amps/test_queues.py",),
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
        "client/sync/batcher.py",
        "max(buffer.not_before, buffer.since + self.timeout)",
        "max(buffer.not_before, list(buffer.items.values())[-1] + self.timeout)",
        ("tests/amps/test_table.py",),
    ),
    Mutant(
        "a committed batch is left held",
        "spark/source/lease.py",
        "        if number == self._finished:\n",
        "        if True:\n",
        ("tests/spark/source/test_lease.py",),
    ),
    Mutant(
        "a forgotten claim takes other records",
        "spark/source/lease.py",
        "if not any(one.key == self._key(number) for one in self._leases(live_only=False)):",
        "if False:",
        ("tests/spark/source/test_lease.py",),
    ),
    Mutant(
        "a task that is run again reads everything",
        "spark/source/lease.py",
        "if context is not None and context.attemptNumber():",
        "if False:",
        ("tests/spark/queries/test_streams.py",),
    ),
    Mutant(
        "two queries under one name",
        "spark/source/lease.py",
        "lease.owner != self._owner and lease.deadline > now",
        "False",
        ("tests/spark/source/test_lease.py",),
    ),
    Mutant(
        "what came too late is called acked",
        "spark/settling.py",
        "        acked = answer.count if answer.verdict is Verdict.ACKED else 0\n",
        "        acked = size\n",
        ("tests/spark/test_settling.py", "tests/spark/sink"),
    ),
    Mutant(
        "half a range carries all outputs",
        "spark/settling.py",
        "Settlement(selector=one.selector(whole=True)",
        "Settlement(selector=one.selector(whole=False)",
        ("tests/spark/test_settling.py",),
    ),
    Mutant(
        "the neighbour of a killer is charged",
        "spark/pipelines/isolation.py",
        "                at = left[death.culprit]\n",
        "                at = left[max(0, death.culprit - 1)]\n",
        ("tests/spark/pipelines/test_isolation.py",),
    ),
    Mutant(
        "what was told before a death is done again",
        "spark/pipelines/isolation.py",
        "            answers |= zip(left, found, strict=False)\n",
        "            answers |= zip(left, found, strict=False) if death is None else ()\n",
        ("tests/spark/pipelines/test_isolation.py",),
    ),
    Mutant(
        "reading stops where a connection was closed for a fork",
        "spark/source/stretches.py",
        "    while stretch:\n",
        "    for _ in range(1):\n",
        ("tests/spark/source/test_stretches.py",),
    ),
    Mutant(
        "acks that overlap are settled in the order of the lane",
        "store/turn/settle.py",
        "        if pair[1].lo < behind:\n            return group\n",
        "",
        ("tests/contract/test_settle.py",),
    ),
    Mutant(
        "outputs have new names at each try",
        "spark/pipelines/bundling.py",
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
        "foreign origins get in",
        "server/gates.py",
        "if origin is not None and not _same_origin(origin, host):",
        "if False:",
        ("tests/server/test_gates.py",),
    ),
    Mutant(
        "any page is a page to link to",
        "server/routing.py",
        "return isinstance(found, tuple) and found[0] in self._pages",
        "return isinstance(found, tuple)",
        ("tests/server/test_gates.py",),
    ),
    Mutant(
        "one peer takes every connection",
        "dialects/peers.py",
        "return self._open[address] <= self.most",
        "return True",
        ("tests/server/test_limits.py",),
    ),
    Mutant(
        "dropped messages look acked",
        "store/turn/dead.py",
        '    if ranges:\n        turn.session.many("dropped_insert"',
        '    if False:\n        turn.session.many("dropped_insert"',
        ("tests/server/queen/test_exact_answers.py",),
    ),
    Mutant(
        "a duplicate replay removes the record",
        "store/turn/dead.py",
        'if receipts[0].status != "duplicate":',
        "if True:",
        ("tests/server/queen/test_exact_answers.py",),
    ),
)


def judge(mutant: Mutant) -> tuple[Mutant, str, float]:
    """Run the tests on a copy with the fault planted: killed, survived, or broken (it cannot be planted)."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        sources = Path(name) / "src"
        shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
        file = sources / "ackwise" / mutant.file
        text = file.read_text("utf-8")
        if text.count(mutant.old) < 1:
            return mutant, "broken", 0.0
        file.write_text(text.replace(mutant.old, mutant.new), "utf-8")
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
    failed = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for mutant, outcome, took in pool.map(judge, chosen):
            failed += outcome != "killed"
            print(f"{outcome:8}  {took:5.1f} s  {mutant.name}  ({mutant.file})", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} mutants killed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
