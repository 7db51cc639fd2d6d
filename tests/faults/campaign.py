"""Starts brokers, kills them with operations in flight, and checks what they leave behind."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ackwise.connect import open_store
from ackwise.store.database_store import DatabaseStore
from tests.faults.actors import SECOND
from tests.faults.checking import Book, check, prepare
from tests.faults.ledger import Life
from tests.faults.worker import Job, ShiftedClock

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
HOUR = 3600 * SECOND


@dataclass
class Tally:
    """What a campaign did; `violations` are the promises that did not hold."""

    kills: int = 0
    idle: int = 0
    in_flight: int = 0
    pushed: int = 0
    acked: int = 0
    dead: int = 0
    failed: int = 0
    violations: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.kills += other.kills
        self.idle += other.idle
        self.in_flight += other.in_flight
        self.pushed += other.pushed
        self.acked += other.acked
        self.dead += other.dead
        self.failed += other.failed
        self.violations += other.violations

    def kill(self, life: Life) -> None:
        """Count a fault that hits now, with what is in flight."""
        self.kills += 1
        self.in_flight += life.in_flight
        self.idle += life.in_flight == 0

    def life(self, life: Life) -> None:
        self.pushed += len(life.pushed)
        self.acked += sum(map(len, life.acked.values()))
        self.dead += sum(map(len, life.dead.values()))
        self.failed += life.failed.total()


class Worker:
    """A child process and what it said so far. A thread of its own listens, so that a full pipe never holds it up."""

    def __init__(self) -> None:
        self.life = Life()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.worker"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._heard = threading.Condition()
        self._ended = False
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        while data := os.read(self._stdout.fileno(), 1 << 16):
            with self._heard:
                self.life.hear(data)
                self._heard.notify_all()
        with self._heard:
            self._ended = True
            self._heard.notify_all()

    def start(self, job: Job) -> None:
        self._stdin.write(msgspec.json.encode(job) + b"\n")
        self._stdin.close()

    def live(self, seconds: float) -> None:
        """Let it work for so long, or until it ends by itself."""
        with self._heard:
            self._heard.wait_for(lambda: self._ended, seconds)

    def wait_for(self, answers: int, why: str) -> None:
        """Let it work until it gave so many more answers; it is a problem when that takes too long or it ends."""
        with self._heard:
            enough = self.life.answered + answers
            self._heard.wait_for(lambda: self._ended or self.life.answered >= enough, PATIENCE)
            if self.life.answered < enough:
                self.life.problems.append(f"gave up waiting: {why} (failures: {dict(self.life.failed)})")

    def kill(self) -> None:
        """SIGKILL, then what was still in the pipe."""
        self._process.kill()
        self._listener.join()

    def bury(self) -> None:
        self.life.end()
        self._process.wait()
        self._stdout.close()
        if not self._stdin.closed:
            self._stdin.close()


class Campaign:
    """Lives of brokers on one database after another."""

    def __init__(self, seed: int, fresh_url: Callable[[], str], *, every: int = 25) -> None:
        self.dice = random.Random(seed)
        self.tally = Tally()
        self._fresh_url, self._every = fresh_url, every
        self._waiting = Worker()
        self._url = ""
        self._lives = 0

    def run(self, lives: int, live: Callable[[Campaign], list[Life]]) -> None:
        """Each life is what `live` makes of it; the store is checked after each."""
        for _ in range(lives):
            if self._lives % self._every == 0:
                self._begin()
            self._lives += 1
            self._shift += HOUR
            ended = live(self)
            for life in ended:
                self.tally.life(life)
            self._check(ended)

    def _begin(self) -> None:
        self._url, self._book, self._shift = self._fresh_url(), Book(), 0
        store = self._open()
        try:
            prepare(store)
        finally:
            store.close()

    def _open(self) -> DatabaseStore:
        return open_store(self._url, clock=ShiftedClock(self._shift))

    def _check(self, lives: list[Life]) -> None:
        """Half an hour later: leases have run out, delays are over."""
        self._shift += HOUR // 2
        store = self._open()
        try:
            problems = check(store, lives, self._book, self.dice)
        finally:
            store.close()
        self.tally.violations += [f"life {self._lives}: {p}" for p in problems]

    def worker(self, style: str) -> Worker:
        """A broker under load. The one after it is started already: that takes a while."""
        worker, self._waiting = self._waiting, Worker()
        seed = self.dice.getrandbits(32)
        worker.start(Job(self._url, f"{self._lives}-{seed:08x}-", seed, style, self._shift))
        worker.wait_for(3, "the broker does not answer")
        return worker

    def close(self) -> None:
        self._waiting.kill()
        self._waiting.bury()

    # lives that end with kill -9

    def alone(self) -> list[Life]:
        """One broker, by threads or by coroutines, killed at a moment or after a number of answers."""
        worker = self.worker(self.dice.choice(("threads", "threads", "async")))
        self.let_live(worker)
        return [self.murder(worker)]

    def together(self) -> list[Life]:
        """Two brokers on one store; the second goes on when the first is killed."""
        first, second = self.worker("threads"), self.worker("async")
        self.let_live(first)
        lives = [self.murder(first)]
        second.wait_for(20, "the other broker does not go on")
        self.let_live(second)
        return [*lives, self.murder(second)]

    def let_live(self, worker: Worker) -> None:
        if self.dice.random() < 0.5:
            worker.live(self.dice.uniform(0.0, 0.3))
        else:
            worker.wait_for(self.dice.randrange(300), "the broker stopped answering")

    def murder(self, worker: Worker) -> Life:
        worker.kill()
        self.tally.kill(worker.life)
        worker.bury()
        return worker.life

    def stop(self, worker: Worker) -> Life:
        """End a life whose fault was another one."""
        worker.kill()
        worker.bury()
        return worker.life
