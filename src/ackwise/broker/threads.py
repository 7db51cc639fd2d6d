"""The broker for threads. Whoever finds nobody leading leads a turn for all who wait; the others sleep until then."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from ackwise.broker import duties
from ackwise.broker.bells import Bells
from ackwise.broker.handing import answer, hand_over, release, split, waiting
from ackwise.broker.pending import Pending, Slot, deal, interrupted, is_empty, shard_of
from ackwise.broker.statements import LONGER, Statements, look, short_meter
from ackwise.broker.waiting import Seen, Waiters, Waiting
from ackwise.core.answers import Claimed, Handed, Settled, nothing
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import Claim, Command, Settle, each, giving_back, sharing_bytes
from ackwise.core.errors import AckwiseError, Draining, StoreError
from ackwise.core.graph.commands import AskGraph, FindGraph
from ackwise.core.queries import ListLeases, Query
from ackwise.store.clock import ManualClock
from ackwise.store.meter import Meter
from ackwise.store.port import Prepared, Store

T = TypeVar("T")


class Lane:
    """The turns of one shard."""

    def __init__(self, broker: Broker, shard: int) -> None:
        self._broker, self._shard = broker, shard
        self._lock = threading.Lock()
        self._pending = Pending()
        self._leading = False

    def submit(self, commands: Sequence[Command]) -> Slot:
        gate = threading.Lock()
        gate.acquire()
        slot = Slot(commands, gate.release)
        with self._lock:
            self._pending.add(slot)
            slot.lead = not self._leading
            self._leading = True
        if not slot.lead:
            try:
                gate.acquire()
            except BaseException:
                self._desert(slot)
                raise
        if slot.lead:
            self._lead(slot)
        return slot

    def _desert(self, slot: Slot) -> None:
        """The caller was interrupted while it waited: nobody may wait for it to lead."""
        with self._lock:
            self._pending.remove(slot)
            leads = slot.lead
        if leads:
            self._hand_on()

    def _lead(self, own: Slot) -> None:
        """Run turns until the own slot is answered, then hand the lead to the next in line."""
        try:
            while not own.done:
                with self._lock:
                    taken = self._pending.take()
                self._turn(taken, own)
        finally:
            self._hand_on()

    def _hand_on(self) -> None:
        with self._lock:
            heir = self._pending.first() if len(self._pending) else None
            self._leading = heir is not None
            if heir is not None:
                heir.lead = True
        if heir is not None:
            heir.wake()

    def _turn(self, taken: list[Slot], own: Slot) -> None:
        waiters, store = self._broker.waiters, self._broker.store
        riders: list[Waiting] = []
        prepared: Prepared | None = None
        try:
            waiters.ride((c for slot in taken for c in slot.commands), riders)
            slots = [*taken, *riders]
            commands = [c for slot in slots for c in slot.commands]
            started = time.perf_counter()
            prepared = store.prepare(commands, self._shard)
            self._pending.learn(len(commands), started)
            prepared.commit()
            deal(slots, prepared.results)
            self._broker.bells.ring(prepared.woken)
            for slot in (*waiters.served(prepared.woken, riders), *taken):
                if slot is not own:
                    slot.finish()
        except BaseException as problem:
            for slot in (*taken, *(rider for rider in riders if not rider.parked)):
                if slot.results is None:
                    slot.error = problem if isinstance(problem, Exception) or slot is own else interrupted()
                if slot is not own:
                    slot.finish()
            if prepared is not None:
                prepared.abandon()
            if not isinstance(problem, Exception):
                raise


class Broker:
    """Everything a caller in this process needs of a store, from any thread."""

    def __init__(self, store: Store, *, background: bool = True) -> None:
        self.store = store
        self.waiters = Waiters()
        self.bells = Bells()
        self._statements = Statements()
        self._lanes = [Lane(self, shard) for shard in range(store.shards)]
        self._draining = threading.Event()
        self._closed = threading.Event()
        self._close_lock = threading.Lock()
        self._claims = 0
        self._calls = itertools.count(1)
        self._quiet = threading.Condition()
        clock = getattr(store, "clock", None)
        if isinstance(clock, ManualClock):
            clock.on_move(self.look_again)
        if hasattr(store, "on_change"):
            store.on_change = self.look_again
        self._threads: list[threading.Thread] = []
        if background:
            for name, target in (("duties", self._run_duties), ("watch", self._run_watch)):
                thread = threading.Thread(target=target, name=f"ackwise-{name}", daemon=True)
                thread.start()
                self._threads.append(thread)

    def send(self, command: Command) -> Any:
        """The answer to one command; a refusal is raised."""
        return self._submit([command]).answers()[0]

    def send_all(self, commands: Sequence[Command]) -> list[Any]:
        """Several commands of one caller in one turn; refusals are among the answers."""
        slot = self._submit(commands)
        if slot.error is not None:
            raise slot.error
        assert slot.results is not None
        return slot.results

    def _submit(self, commands: Sequence[Command]) -> Slot:
        if self._closed.is_set():
            raise Draining("the broker is closed")
        return self._lanes[shard_of(commands, len(self._lanes))].submit(commands)

    def claim(self, command: Claim, wait: float = 0.0) -> Handed:
        """Claim, waiting up to `wait` seconds for something to be there."""
        return self.settle_and_claim(None, command, wait)[1]

    def settle_and_claim(self, settle: Settle | None, claim: Claim, wait: float = 0.0) -> tuple[list[Settled], Handed]:
        """Settle one batch and claim the next in the same turn. A settlement that was done is always answered."""
        give_up = time.monotonic() + wait
        with self._under_way():
            if settle is None:
                return [], self._claim(claim, give_up)
            if self._draining.is_set():
                return self.send(settle), nothing(claim, EmptyReason.DRAINING)
            seen = self.waiters.version(claim.queue)
            settled, claims = self._split(self._submit([settle, claim]), settle)
            try:
                return settled, self._claim(claim, give_up, (seen, claims[0]))
            except StoreError:
                return settled, nothing(claim, EmptyReason.UNAVAILABLE)

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        """Closing waits for claims under way: what they are granted has to be handed over or given back."""
        with self._quiet:
            self._claims += 1
        try:
            yield
        finally:
            with self._quiet:
                self._claims -= 1
                self._quiet.notify_all()

    def _claim(self, claim: Claim, give_up: float, tried: tuple[Seen, Claimed] | None = None) -> Handed:
        """Try, park and try again; `tried` is a first try that was made already."""
        called: Waiting | None = None
        while True:
            if tried is None:
                seen = self.waiters.version(claim.queue)
                if self._draining.is_set():
                    return nothing(claim, EmptyReason.DRAINING)
                tried = seen, self._submit([claim]).answers()[0]
                if called is not None:
                    self._wake(self.waiters.pass_on(called, tried[1]))
            (seen, claimed), tried = tried, None
            if not claimed.grants and time.monotonic() < give_up and claimed.empty is not EmptyReason.ENDED:
                claim = waiting(claim)
                called = self._park(claim, seen, claimed, give_up)
                if called is None or not called.results:
                    continue
                claimed = called.answers()[0]
                if is_empty(called.results):
                    # A turn tried for it, and found that it has to look again earlier.
                    tried = called.seen, claimed
                    continue
            elif called is not None and claimed.until is not None:
                self._wake(self.waiters.relay(called))
            return self._hand_over(claim, claimed)

    def claim_ahead(self, settle: Settle | None, claim: Claim, count: int) -> tuple[list[Settled], list[Handed]]:
        """Settle what is finished and claim up to `count` batches, a lease each, in one turn. Never waits.

        The batches share the claim's `most_bytes`.
        """
        with self._under_way():
            if self._draining.is_set():
                return self.send(settle) if settle is not None else [], []
            asked = each(sharing_bytes([claim], next(self._calls))[0], count)
            commands: list[Command] = [*asked] if settle is None else [settle, *asked]
            settled, claims = self._split(self._submit(commands), settle)
            handed: list[Handed] = []
            for number, one in enumerate(claims):
                try:
                    handed.append(self._hand_over(claim, one))
                except StoreError:
                    self._give_back(claims[number + 1 :])
                    break
            return settled, [one for one in handed if one.claimed.grants]

    def _split(self, slot: Slot, settle: Settle | None) -> tuple[list[Settled], list[Claimed]]:
        settled, claims, refusal = split(slot, settle)
        if refusal is not None:
            self._give_back(claims)
            raise refusal
        return settled, claims

    def _hand_over(self, claim: Claim, claimed: Claimed) -> Handed:
        """What cannot be handed over goes back: it could not be read, or the broker began to drain meanwhile."""
        if claimed.lease_no and self._draining.is_set():
            self._give_back([claimed])
            return nothing(claim, EmptyReason.DRAINING)
        try:
            return hand_over(self.store, claimed)
        except BaseException:
            self._give_back([claimed])
            raise

    def _give_back(self, claims: Sequence[Claimed]) -> None:
        command = release(claims)
        if command is None:
            return
        try:
            # Even when the broker is closed to everybody else.
            self._lanes[shard_of([command], len(self._lanes))].submit([command]).answers()
        except AckwiseError as problem:
            duties.complain("giving back a claim", problem)

    def _park(self, claim: Claim, seen: Seen, empty: Claimed, give_up: float) -> Waiting | None:
        """Sleep until a turn has tried for the claim, or it is time to try again. None: it is so already."""
        gate = threading.Lock()
        gate.acquire()
        slot = Waiting(claim, gate.release, empty.until)
        if not self.waiters.park(slot, seen):
            return None
        timeout = give_up - time.monotonic()
        if empty.until is not None:
            timeout = min(timeout, max(0.001, (empty.until - self.store.now()) / 1e6))
        if not gate.acquire(timeout=max(0.0, timeout)) and not self.waiters.leave(slot):
            gate.acquire()
        if slot.error is not None:
            raise slot.error
        return slot

    def look_again(self) -> None:
        """Every parked claim tries again."""
        self._wake(self.waiters.everybody())
        self.bells.ring_all()

    def _waited_for(self) -> bool:
        return bool(len(self.waiters) or len(self.bells))

    def send_scouts(self) -> None:
        """Some parked claims try again, in case a wake-up was missed."""
        self._wake(self.waiters.scouts(time.monotonic()))

    def _wake(self, slots: Sequence[Waiting]) -> None:
        for slot in slots:
            slot.finish()

    def ask(self, query: Query) -> Any:
        if not isinstance(query, AskGraph | FindGraph):
            return answer(self.store, query)
        if isinstance(query, AskGraph):
            short = short_meter(query)
            with self._statements.metered(short):
                found = look(self.store, query, short, long=False)
            if found is not LONGER:
                return found
        meter = Meter(query.limits)
        with self._statements.long(meter):
            return look(self.store, query, meter, long=True)

    def in_thread(self, work: Callable[..., T], *args: Any) -> T:
        """Runs `work` at once: the caller is a thread of its own. `AsyncBroker` has the same method for event loops."""
        return work(*args)

    def now(self) -> int:
        return self.store.now()

    # duties

    def _run_duties(self) -> None:
        rota = duties.Rota(time.monotonic(), getattr(self.store, "instance", "broker"))
        while not self._closed.wait(rota.wait(time.monotonic())):
            for command in rota.due(time.monotonic()):
                started, more = time.monotonic(), False
                try:
                    for _ in range(duties.in_a_row(command)):
                        more = getattr(self.send(command), "more", False)
                        if not more:
                            break
                except Exception as problem:
                    if not self._closed.is_set():
                        duties.complain(type(command).__name__.lower(), problem)
                rota.swept(command, time.monotonic() - started, time.monotonic(), more=more)
            try:
                self.store.maintain()
            except AckwiseError as problem:
                duties.complain("maintenance", problem)

    def _run_watch(self) -> None:
        """Ask the database, cheaply, whether another process committed; only while somebody waits."""
        while not self._closed.wait(duties.WATCH_EVERY if self._waited_for() else 5 * duties.WATCH_EVERY):
            try:
                if self._waited_for():
                    if self.store.changed():
                        self.look_again()
                    self.send_scouts()
            except Exception as problem:
                if not self._closed.is_set():
                    duties.complain("watching for changes", problem)

    # the end

    def stop_claims(self) -> None:
        """Hand out nothing more; polls that wait are answered now. Settlements and pushes go on."""
        self._draining.set()
        self.look_again()

    def drain(self, grace: float = 0.0) -> int:
        """Stop claiming, let holders finish for `grace` seconds, release the rest without spending a failure."""
        self.stop_claims()
        end = time.monotonic() + grace
        while self._held() and time.monotonic() < end:
            self._closed.wait(0.02)
        released = 0
        for lease_id in self._held():
            released += self.send(giving_back([lease_id]))[0].count
        return released

    def _held(self) -> list[str]:
        instance = getattr(self.store, "instance", None)
        return [row.lease_id for row in self.store.list_leases(ListLeases(instance=instance, limit=100_000))]

    def close(self) -> None:
        """Finish what is under way and close the store. Leases keep their deadlines unless `drain` released them."""
        with self._close_lock:
            if self._closed.is_set():
                return
            self._draining.set()
            self._closed.set()
        self.look_again()
        self._statements.close()
        with self._quiet:
            self._quiet.wait_for(lambda: not self._claims, duties.CLOSE_PATIENCE)
        for thread in self._threads:
            thread.join(timeout=30)
        self.store.close()
