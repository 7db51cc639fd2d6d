"""What must have become of the records, whatever happened to those who worked on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from ackwise.connect import open_store
from ackwise.core.ids import LaneId
from ackwise.core.lane_range import LaneRange
from ackwise.core.queries import ListDead, ListGroups, ListLanes, ListLeases
from ackwise.core.rows import DeadLetter, DeadPage, GroupStats, LeaseRow
from ackwise.spark.connections import StoreConnection, open_connection
from ackwise.spark.pipelines import Totals
from tests.faults.spark.orders import GROUP, OUTPUT, QUEUE, RETRY_LIMIT, kind_of, partition_of

_SHOWN = 5
_ALL = 1_000_000
_EXPECTED = {
    "raises": ("retry_limit", "ValueError"),
    "rejects": ("rejected", ""),
    "exits": ("retry_limit", "WorkerDied"),
    "later": ("retry_limit", ""),
}


class Invoice(msgspec.Struct):
    order: int
    cents: int


class Standing(msgspec.Struct, frozen=True):
    """Where the group stands, and how many outputs there are."""

    acked: int
    dead: int
    lag: int
    leases: int
    outputs: int

    @classmethod
    def of(cls, here: StoreConnection) -> Standing:
        group = progress(here)
        outputs = sum(lane.head - lane.start for lane in here.transport.ask(ListLanes(queue=OUTPUT)))
        return cls(group.acked, group.dead, group.lag, group.leases, outputs)


def progress(here: StoreConnection) -> GroupStats:
    """How far the group is, asked for again and again."""
    found: list[GroupStats] = here.transport.ask(ListGroups(queue=QUEUE, group=GROUP))
    return found[0]


def leases(here: StoreConnection, most: int = _ALL) -> list[LeaseRow]:
    """Claims of the group, the newest first."""
    found: list[LeaseRow] = here.transport.ask(ListLeases(queue=QUEUE, group=GROUP, live_only=False, limit=most))
    return found


def check(store_url: str, count: int, files: Path | None) -> list[str]:
    """What is wrong with the store, and with the files that were written beside it."""
    here = open_connection(store_url, duties=False)
    try:
        checker = _Checker(here, count)
        checker.check()
        if files is not None:
            checker.check_files(files)
    finally:
        here.close()
    store = open_store(store_url)
    try:
        return checker.problems + [f"audit: {p}" for p in store.audit()]
    finally:
        store.close()


class _Checker:
    def __init__(self, here: StoreConnection, count: int) -> None:
        self._here = here
        self._poison = {order: kind for order in range(count) if (kind := kind_of(order)) != "good"}
        self._good = set(range(count)) - self._poison.keys()
        self.problems: list[str] = []

    def check(self) -> None:
        self._group()
        self._dead_letters()
        self._outputs()
        ends = Counter(lease.end_kind for lease in leases(self._here))
        if ends.keys() - {"settled", "superseded", "released"}:
            self.problems.append(f"claims did not end by settlement: {dict(ends)}")

    def _expect(self, what: str, wrong: Iterable[object]) -> None:
        found = sorted(wrong, key=str)
        if found:
            self.problems.append(f"{len(found)} {what}: {found[:_SHOWN]}")

    def _group(self) -> None:
        standing = Standing.of(self._here)
        wanted = Standing(len(self._good), len(self._poison), 0, 0, len(self._good))
        if standing != wanted:
            self.problems.append(f"the group stands at {standing}, not at {wanted}")

    def _dead_letters(self) -> None:
        page: DeadPage = self._here.transport.ask(ListDead(queue=QUEUE, group=GROUP, limit=_ALL))
        letters = {_order(letter): letter for letter in page.letters}
        self._expect("good records are dead", [_told(one) for order, one in letters.items() if order in self._good])
        self._expect("records died twice", _twice(_order(letter) for letter in page.letters))
        self._expect("bad records are not dead", self._poison.keys() - letters.keys())
        self._expect(
            "died in another way",
            [_told(one) for order, one in letters.items() if order in self._poison and not self._as_expected(one)],
        )

    def _as_expected(self, letter: DeadLetter) -> bool:
        reason, error_type = _EXPECTED[self._poison[_order(letter)]]
        failures = RETRY_LIMIT if reason == "retry_limit" else 0
        return (letter.reason, letter.error_type, letter.failures) == (reason, error_type, failures)

    def _outputs(self) -> None:
        found: list[int] = []
        decode = msgspec.json.Decoder(Invoice).decode
        for lane in self._here.transport.ask(ListLanes(queue=OUTPUT)):
            for page in self._here.shelf.pages([LaneRange(LaneId(lane.lane), lane.start, lane.head)], ["payload"]):
                for text in page.columns["payload"].to_pylist():
                    invoice = decode(text)
                    found.append(invoice.order)
                    if invoice.cents != 2 * invoice.order or lane.partition != partition_of(invoice.order):
                        self.problems.append(f"a wrong output: {text} in {lane.partition}")
        self._each_once("outputs", found)

    def _each_once(self, what: str, found: list[int]) -> None:
        self._expect(f"{what} are there twice", _twice(found))
        self._expect(f"{what} are missing", self._good - set(found))
        self._expect(f"{what} of bad records", set(found) - self._good)

    def check_files(self, folder: Path) -> None:
        table = pq.read_table(folder, columns=["order", "cents"])
        found: list[int] = table["order"].to_pylist()
        if table["cents"].to_pylist() != [2 * order for order in found]:
            self.problems.append("wrong rows in the files")
        self._each_once("rows of files", found)


def _order(letter: DeadLetter) -> int:
    return int(letter.transaction_id.removeprefix("order-"))


def _told(letter: DeadLetter) -> str:
    return f"{letter.transaction_id}: {letter.reason} {letter.error_type} {letter.failures} {letter.error}"


def _twice(found: Iterable[int]) -> list[int]:
    return [one for one, times in Counter(found).items() if times > 1]


def check_totals(totals: Totals, before: Standing, after: Standing) -> list[str]:
    """What a driver counted against what the store counted meanwhile.

    The store may have counted more: for tasks that failed, and for what an earlier driver had under way.
    """
    problems = []
    for what in ("acked", "dead", "outputs"):
        said, happened = getattr(totals, what), getattr(after, what) - getattr(before, what)
        if said > happened:
            problems.append(f"the driver says {said} {what}, and the store {happened}")
    verdicts = totals.acked + totals.retried + totals.dead + totals.stale + totals.already
    if totals.rows != verdicts:
        problems.append(f"{totals.rows} rows got {verdicts} verdicts: {totals}")
    return problems
