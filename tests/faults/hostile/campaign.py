"""Campaign: two servers on one store, honest clients, attackers and faults. Ends with an account of all messages."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import ackwise
from ackwise.connect import open_store
from ackwise.core.errors import AckwiseError
from ackwise.store.port import Store
from tests.faults.campaign import Tally
from tests.faults.hostile.account import GROUP, LEASE, QUEUE, RESILIENCE, Account, Workers, consume_once
from tests.faults.hostile.attackers import THIEF, Attackers, request, reset
from tests.faults.hostile.sabotage import Sabotage
from tests.faults.hostile.store_account import places_of_claims, stolen_by
from tests.faults.postgres import own_server
from tests.server.process import clean_env, command

GRACE = 3.0
CALM = 0.8
"""Seconds of load between two faults."""
DRAIN = 90.0
"""Seconds without progress after which the drain has failed."""
DISK_FAULTS = {"fsync": "fsync errors", "full": "full disk"}
"""Names of the faults by the file that switches them on."""
NODES = "node T { n: String }" + "".join(f' SPAWN t{n}: T {{ n = "{n}" }}' for n in range(120))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """`ackwise serve` on a port of its own, which it keeps when it is started again."""

    def __init__(self, store: str, env: dict[str, str], log: Path) -> None:
        self._arguments = ["--store", store, "--grace", str(GRACE), "--log-level", "error"]
        self._env, self._log = env, log
        self.address = ("127.0.0.1", free_port())
        self.url = f"http://127.0.0.1:{self.address[1]}"
        self.start()

    def start(self) -> None:
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                command(*self._arguments, "--port", str(self.address[1])),
                env=clean_env(self._env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        end = time.monotonic() + 60
        while not self.alive():
            assert time.monotonic() < end, f"the server does not start: {self._log.read_text()[-2000:]}"
            if self.process.poll() is not None:
                # The database may still recover.
                time.sleep(0.2)
                self.start()
                return
            time.sleep(0.05)

    def alive(self) -> bool:
        try:
            with urlopen(f"{self.url}/livez", timeout=5) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.start()

    def pause(self, seconds: float) -> None:
        self.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self) -> str | None:
        """End the server with SIGTERM. Returns the problem, or None."""
        self.process.terminate()
        try:
            code = self.process.wait(GRACE + 5 + 2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return f"SIGTERM did not end the server within {GRACE + 5:.0f} s"
        return None if code == 0 else f"the server ended with {code}: {self._log.read_text()[-2000:]}"


class Hostile:
    """One store under attack."""

    def __init__(self, store: str, folder: Path, seed: int, database_fault: Callable[[], None] | None) -> None:
        self._store, self._dice = store, random.Random(seed)
        self._sabotage = Sabotage(folder / "sabotage")
        env = self._sabotage.env if database_fault is None else {}
        self._servers = [Server(store, env, folder / f"server-{n}.log") for n in range(2)]
        self._database_fault = database_fault
        self.account, self.tally = Account(), Tally()
        self.done: Counter[str] = Counter()
        """Injected faults by name."""
        self.notes: list[str] = []

    def run(self, faults: int) -> Tally:
        urls = [server.url for server in self._servers]
        try:
            self._prepare(urls)
            self._abandoned_answers(urls)
            workers = Workers(urls, self.account, self._dice.getrandbits(30))
            attackers = Attackers([server.address for server in self._servers], self._dice.getrandbits(30))
            try:
                kinds = self._kinds()
                for name in schedule(list(kinds), faults, self._dice):
                    self.done[name] += 1
                    self._fault(kinds[name])
            finally:
                attackers.stop()
                workers.stop()
            self.notes.append(f"faults: {', '.join(f'{name} {count}' for name, count in sorted(self.done.items()))}")
            self.notes.append(f"{attackers.attacks} attacks, {len(self.account.lost_claims)} claims without an answer")
            self._check_disk_faults()
            drained = self._drain(urls)
        finally:
            problems = [problem for server in self._servers if (problem := server.stop())]
        self.account.violations += problems
        self._settle_accounts(drained)
        return self.tally

    def _prepare(self, urls: list[str]) -> None:
        with ackwise.connect(urls[0]) as queue:
            policy = ackwise.QueuePolicy(retry_limit=10_000, delivery_limit=20_000)
            for name in (QUEUE, "large"):
                queue.create_queue(name, policy)
            queue.create_group(QUEUE, GROUP)
            queue.create_group("large", GROUP)
            queue.push_many("large", [b"x" * (1 << 20)] * 24)
        body = json.dumps({"text": NODES}).encode()
        with urlopen(f"{urls[0]}/mew", body, timeout=60) as answer:  # noqa: S310
            assert answer.status == 200

    def _abandoned_answers(self, urls: list[str]) -> None:
        """Large answers that no client reads go back unspent."""
        for _ in range(10):
            for server in self._servers:
                with socket.create_connection(server.address, 10) as thief:
                    thief.sendall(request("GET", f"/api/v1/pop/queue/large?batch=100&consumerGroup={GROUP}"))
                    thief.recv(1)
                    reset(thief)
        end = time.monotonic() + 30
        failures: list[int] = []
        with ackwise.connect(urls[0]) as queue:
            while len(failures) < 24 and time.monotonic() < end:
                for delivery in queue.claim("large", group=GROUP, max=8, wait=0.2):
                    failures.append(delivery.failures)
                    delivery.ack()
        if failures != [0] * 24:
            self.account.violations.append(f"abandoned answers cost failures, or messages: {failures}")

    def _kinds(self) -> dict[str, Callable[[], None]]:
        """The faults of this store by name."""
        kinds: dict[str, Callable[[], None]] = {"kill of a server": self._kill, "SIGSTOP past the lease": self._pause}
        if self._database_fault is not None:
            kinds["restart of the database"] = self._database_fault
        elif self._sabotage.available:
            kinds |= {name: partial(self._disk, what) for what, name in DISK_FAULTS.items()}
        return kinds

    def _check_disk_faults(self) -> None:
        """Say which disk faults ran. A fault that made no call fail proves nothing."""
        if self._database_fault is not None:
            self.notes.append("disk faults run on SQLite only: here another process writes the files")
        elif not self._sabotage.available:
            self.notes.append(
                f"!!! DISK FAULTS NOT RUN ({', '.join(DISK_FAULTS.values())}): no C compiler, cc or gcc !!!"
            )
        else:
            for what, name in DISK_FAULTS.items():
                if not self._sabotage.hit(what):
                    self.account.violations.append(f"{name}: no call of a server failed, so the fault proves nothing")

    def _fault(self, inject: Callable[[], None]) -> None:
        """Inject a fault while clients work. The clients must continue afterwards."""
        self._await_answers(20, "before a fault")
        in_flight = self.account.in_flight
        self.tally.kills += 1
        self.tally.in_flight += in_flight
        self.tally.idle += in_flight == 0
        inject()
        for server in self._servers:
            if not server.alive():
                self.account.violations.append("/livez does not answer after a fault")
        self._await_answers(20, "after a fault")
        time.sleep(CALM)

    def _kill(self) -> None:
        self._dice.choice(self._servers).kill()

    def _pause(self) -> None:
        self._dice.choice(self._servers).pause(LEASE + 1.5)

    def _disk(self, what: str) -> None:
        with self._sabotage.failing(what):
            time.sleep(1.5)

    def _await_answers(self, count: int, when: str) -> None:
        """Wait until the honest clients get answers again."""
        wanted = self.account.answered + count
        end = time.monotonic() + 60
        while self.account.answered < wanted:
            if time.monotonic() > end:
                self.account.violations.append(f"honest clients are not answered {when}")
                break
            time.sleep(0.01)

    def _drain(self, urls: list[str]) -> int:
        """Consume until the group has no lag, or the lag stays the same for `DRAIN` seconds. Returns the lag."""
        end, lag = time.monotonic() + DRAIN, sys.maxsize
        with ackwise.connect(urls, resilience=RESILIENCE) as queue:
            while lag and time.monotonic() < end:
                consume_once(queue, self.account, self._dice, acks=True)
                with contextlib.suppress(AckwiseError):
                    (group,) = [row for row in queue.groups(QUEUE) if row.group == GROUP]
                    if group.lag < lag:
                        end, lag = time.monotonic() + DRAIN, group.lag
        return lag

    def _settle_accounts(self, left: int) -> None:
        account = self.account
        if left:
            account.violations.append(f"{left} messages are left, and no consumer gets them for {DRAIN:.0f} s")
        lost = account.pushed - account.acked.keys() - account.uncertain
        account.violations += [f"{name} is lost" for name in sorted(lost)[:20]]
        store = open_store(self._store)
        try:
            self._check_failures(store)
            account.violations += [f"audit: {problem}" for problem in store.audit()]
        finally:
            store.close()
        self.tally.pushed, self.tally.acked = len(account.pushed), len(account.acked)
        self.tally.violations = account.violations

    def _check_failures(self, store: Store) -> None:
        """No failure is charged for an undelivered message, neither to honest clients nor to thieves."""
        account = self.account
        lost = places_of_claims(store, QUEUE, GROUP, account.lost_claims)
        explained = account.explain_failures(lost)
        self.notes.append(f"{lost.total()} messages in lost claims explain {explained} failures")
        stolen = stolen_by(store, QUEUE, THIEF)
        self.notes.append(
            f"thieves: {stolen.messages} messages delivered {stolen.deliveries} times, {stolen.failures} failures"
        )
        if stolen.failures:
            account.violations.append(f"{stolen.failures} failures were charged for messages that no thief received")
        if not stolen.messages:
            account.violations.append("the thieves got no message, so their groups prove nothing")


def schedule(kinds: list[str], count: int, dice: random.Random) -> list[str]:
    """Names of the faults to inject: every kind once in random order, then again, until there are `count`.

    Every kind occurs, also if `count` is smaller.
    """
    names: list[str] = []
    while not names or len(names) < count:
        names += dice.sample(kinds, len(kinds))
    return names[: max(count, len(kinds))]


def on_sqlite(seed: int, faults: int, folder: Path) -> tuple[Tally, list[str]]:
    hostile = Hostile(f"sqlite:///{folder}/hostile.db", folder, seed, None)
    return hostile.run(faults), hostile.notes


def on_postgres(seed: int, faults: int, folder: Path) -> tuple[Tally, list[str]]:
    with _database(seed) as (url, fall_over):
        hostile = Hostile(url, folder, seed, fall_over)
        return hostile.run(faults), hostile.notes


@contextlib.contextmanager
def _database(seed: int) -> Iterator[tuple[str, Callable[[], None]]]:
    with own_server(f"hostile-{seed}-{time.time_ns()}") as server:
        yield server.url(), lambda: server.control("-m", "immediate", "restart")
