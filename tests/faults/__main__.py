"""Kill brokers under load, take the power away, cut connections; then hold the stores to what was answered.
Attack servers while their disks, databases and processes fail; then account for every message.
Kill the drivers and workers of a Spark pipeline; then account for every record.

Usage: python -m tests.faults --seed 1 --kills 250 [--sqlite 200 --postgres 50] [--power 600] [--cuts 60]
                              [--hostile 12] [--spark 5 --messages 100000] [--only broker|hostile|spark]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.faults.campaign import ROOT, Campaign, Tally
from tests.faults.cutting import cut_connections
from tests.faults.hostile import campaign as hostile
from tests.faults.ledger import Life
from tests.faults.losing import Recording
from tests.faults.postgres import PostgresFaults, own_server

_POINTS = 40
_console = Console(stderr=True)


def run(campaign: Campaign, kills: int, live: Callable[[Campaign], list[Life]], name: str) -> Tally:
    """Lives until there were enough kills."""
    try:
        with _console.status(name) as status:
            while campaign.tally.kills < kills and len(campaign.tally.violations) < 20:
                campaign.run(1, live)
                status.update(f"{name}: {campaign.tally.kills} of {kills} kills")
    finally:
        campaign.close()
    return campaign.tally


def sqlite_kills(seed: int, kills: int) -> Tally:
    with tempfile.TemporaryDirectory(prefix="ackwise-faults-") as folder:
        return run(Campaign(seed, sqlite_urls(Path(folder))), kills, sqlite_life, "SQLite")


def sqlite_urls(folder: Path) -> Callable[[], str]:
    numbers = iter(range(1_000_000))
    return lambda: f"sqlite:///{folder}/queues-{next(numbers)}.db"


def sqlite_life(campaign: Campaign) -> list[Life]:
    return campaign.together() if campaign.dice.random() < 0.15 else campaign.alone()


def postgres_kills(seed: int, kills: int) -> Tally:
    with own_server(f"faults-{seed}-{time.time_ns()}") as server:
        faults = PostgresFaults(server)
        return run(Campaign(seed, faults.fresh_url), kills, faults.live, "PostgreSQL")


def power_losses(seed: int, count: int) -> tuple[int, list[str]]:
    """How many moments were looked at, and what was wrong."""
    dice, problems = random.Random(seed), []
    with tempfile.TemporaryDirectory(prefix="ackwise-faults-") as folder, _console.status("lost power"):
        for number in range(0, count, _POINTS):
            durability = "normal" if number // _POINTS % 4 == 3 else "full"
            recording = Recording(Path(folder), dice.getrandbits(32), durability=durability, steps=400)
            found = recording.damage(_POINTS)[0] if durability == "normal" else recording.problems(_POINTS)
            problems += [f"power, {durability}: {p}" for p in found]
    return count, problems


def connection_cuts(seed: int, count: int) -> tuple[int, list[str]]:
    with own_server(f"cuts-{seed}-{time.time_ns()}") as server, _console.status("cut connections"):
        return count, cut_connections(server.url(), server.pgdata, seed, count)


def hostile_clients(seed: int, faults: int) -> tuple[dict[str, Tally], str]:
    """Two servers on each store, under attack while things fail."""
    tallies, remarks = {}, []
    for name, live in (("hostile, SQLite", hostile.on_sqlite), ("hostile, PostgreSQL", hostile.on_postgres)):
        with tempfile.TemporaryDirectory(prefix="ackwise-faults-") as folder, _console.status(name):
            tallies[name], notes = live(seed, faults, Path(folder))
        remarks += [f"{name}: {note}" for note in notes]
    return tallies, "\n".join(remarks)


def pipeline_kills(seed: int, kills: int, messages: int) -> dict[str, Tally]:
    # Imported on demand: a run that kills brokers does not load Spark.
    from tests.faults.spark.everywhere import kill_everywhere

    with tempfile.TemporaryDirectory(prefix="ackwise-faults-") as folder, _console.status("Spark") as status:
        return kill_everywhere(seed, messages, kills, Path(folder), lambda what: status.update(f"Spark, {what}"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=250, help="of brokers, a fifth of them on PostgreSQL")
    parser.add_argument("--sqlite", type=int, help="kills on SQLite")
    parser.add_argument("--postgres", type=int, help="kills on PostgreSQL")
    parser.add_argument("--power", type=int, default=600, help="moments at which the power goes")
    parser.add_argument("--cuts", type=int, default=60, help="connections cut in the middle")
    parser.add_argument("--spark", type=int, help="drivers killed per store; a fiftieth of the kills, at least 3")
    parser.add_argument("--messages", type=int, default=100_000, help="records of each pipeline")
    parser.add_argument("--hostile", type=int, default=12, help="faults of servers under attack, on each store")
    parser.add_argument("--only", choices=("broker", "hostile", "spark"), help="run only this part")
    options = parser.parse_args()
    started = time.monotonic()
    brokers = broker_kills(options) if options.only in (None, "broker") else {}
    pipelines: dict[str, Tally] = {}
    remark = ""
    if options.only in (None, "hostile"):
        attacked, remark = hostile_clients(options.seed, options.hostile)
        brokers |= attacked
    if options.only in (None, "spark"):
        kills = max(3, options.kills // 50) if options.spark is None else options.spark
        pipelines = pipeline_kills(options.seed, kills, options.messages)
    other = Tally()
    if options.only in (None, "broker"):
        moments, problems = power_losses(options.seed, options.power)
        cuts, more = connection_cuts(options.seed, options.cuts)
        other.violations = problems + more
        remark += f"\npower lost at {moments} moments, {cuts} connections cut: {len(other.violations)} violations"
    return report(brokers, pipelines, other, remark, time.monotonic() - started)


def broker_kills(options: argparse.Namespace) -> dict[str, Tally]:
    postgres = options.kills // 5 if options.postgres is None else options.postgres
    sqlite = options.kills - options.kills // 5 if options.sqlite is None else options.sqlite
    return {"SQLite": sqlite_kills(options.seed, sqlite), "PostgreSQL": postgres_kills(options.seed, postgres)}


def report(brokers: dict[str, Tally], pipelines: dict[str, Tally], other: Tally, remark: str, seconds: float) -> int:
    """Prints a table, and writes a file with the figures of brokers and pipelines together."""
    table = Table(title=f"faults in {seconds:.0f} s")
    for column in ("store", "kills", "idle", "in flight", "pushed", "acked", "dead", "failed calls", "violations"):
        table.add_column(column, justify="left" if column == "store" else "right")
    for name, tally in {**brokers, **pipelines}.items():
        row = (tally.kills, tally.idle, tally.in_flight, tally.pushed, tally.acked, tally.dead, tally.failed)
        table.add_row(name, *map(str, row), str(len(tally.violations)))
    spark = _sum(pipelines.values())
    total = _sum((*brokers.values(), spark, other))
    console = Console()
    console.print(table)
    if remark:
        console.print(remark.strip(), markup=False)
    for violation in total.violations[:50]:
        console.print(f"VIOLATION {violation}", markup=False)
    if total.idle:
        console.print(f"{total.idle} kills hit somebody who was idle: they prove nothing")
    result: dict[str, object] = dict(_figures(total))
    if pipelines:
        result["spark"] = _figures(spark)
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    (build / "faults.json").write_text(json.dumps(result, indent=2) + "\n")
    return 1 if total.violations or total.idle else 0


def _sum(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total.add(tally)
    return total


def _figures(tally: Tally) -> dict[str, int]:
    return {
        "kills": tally.kills,
        "in_flight_at_kill": tally.in_flight,
        "pushed": tally.pushed,
        "acked": tally.acked,
        "dead": tally.dead,
        "violations": len(tally.violations),
    }


if __name__ == "__main__":
    sys.exit(main())
