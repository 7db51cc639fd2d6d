"""Graph of the demo: parcels at depots, a consumer group of couriers, and a watch on heavy parcels."""

from __future__ import annotations

import asyncio
from typing import Any

from ackwise.broker import AsyncBroker
from ackwise.demo.shop import CITIES, Dice
from ackwise.protocols.mew.aio.driver import AsyncDriver
from ackwise.protocols.mew.output_records import EventRecord, Line, Note, error_from
from ackwise.protocols.mew.session import MewSession

TYPES = """
node Depot { city: String [required], doc: String? }
node Courier { name: String [required, unique], bike: Bool = true }
node Parcel { code: String [required, unique], grams: Int [>= 1], fragile: Bool = false }
edge at(parcel: Parcel, depot: Depot)
edge works_at(courier: Courier, depot: Depot)
"""
COURIERS = ("Ada", "Bruno", "Chloe", "Dmitri", "Esi", "Farid")
DELIVERIES = (
    'deliveries = WATCH p: Parcel, d: Depot, at(p, d) [mode: consume, group: "couriers", max_redeliveries: 2] '
    "RETURN p.code AS parcel, d.city AS city"
)
HEAVY = "heavy = WATCH p: Parcel WHERE p.grams > 18000 RETURN p.code AS parcel, p.grams AS grams"
NEW_EVERY = 2.5
LOST = 0.04
"""Share of parcels for which every attempt fails."""
MOST_PARCELS = 60
"""Maximum number of waiting parcels. The demo then adds no more."""


class Depot:
    """Sessions of the demo's graph. The jobs run until they are cancelled."""

    def __init__(self, broker: AsyncBroker, dice: Dice) -> None:
        self._dice = dice
        self._office = _Session(broker, "demo_office")
        self._couriers = [_Session(broker, f"demo_courier_{number}") for number in (1, 2)]
        self._monitor = _Session(broker, "demo_monitor")
        self._number = 0
        self._ready = asyncio.Event()
        self._lost: set[str] = set()

    async def open(self) -> None:
        """Declare the types, and create depots, couriers and watches."""
        await self._office.run(TYPES)
        for number, city in enumerate(CITIES[:5]):
            await self._office.run(f'SPAWN depot_{number}: Depot {{ city = "{city}" }}')
        for number, name in enumerate(COURIERS):
            await self._office.run(
                f'SPAWN courier_{number}: Courier {{ name = "{name}" }} '
                f"LINK works_at(courier_{number}, depot_{number % 5})"
            )
        for courier in self._couriers:
            await courier.run(DELIVERIES)
        await self._monitor.run(HEAVY)
        self._ready.set()
        await asyncio.Event().wait()

    async def collect(self) -> None:
        """Bring a new parcel to a depot."""
        await self._ready.wait()
        await asyncio.sleep(self._dice.expovariate(1 / NEW_EVERY))
        waiting = await self._office.run("MATCH p: Parcel RETURN COUNT(p) AS n")
        if waiting[0][0] < MOST_PARCELS:
            self._number += 1
            values = {"code": f"P-{self._number:05}", "grams": self._dice.randrange(100, 20_000)}
            depot = self._dice.randrange(5)
            await self._office.run(
                f"SPAWN p: Parcel {{ code = $code, grams = $grams }} LINK at(p, depot_{depot})", values
            )

    async def deliver(self, number: int) -> None:
        """Take the next parcel, and deliver it or report the failure."""
        await self._ready.wait()
        courier = self._couriers[number]
        for event in await courier.events(1):
            if event.delivery_id is None:
                continue
            await asyncio.sleep(self._dice.uniform(1, 6))
            parcel = str((event.match or {}).get("parcel"))
            if event.attempt == 1 and self._dice.random() < LOST:
                self._lost.add(parcel)
            failed = parcel in self._lost or self._dice.random() < 0.05
            await courier.run(f"{'NACK' if failed else 'ACK'} $delivery", {"delivery": event.delivery_id})
        await asyncio.sleep(0.5)

    async def look(self) -> None:
        """Fetch the events of the watch on heavy parcels."""
        await self._ready.wait()
        await asyncio.sleep(30)
        await self._monitor.events(100)


class _Session:
    """One session of MEW on the server's broker."""

    def __init__(self, broker: AsyncBroker, name: str) -> None:
        self._driver = AsyncDriver(broker)
        self._session = MewSession(name)

    async def run(self, text: str, params: dict[str, Any] | None = None) -> list[list[Any]]:
        """Run a text, and return the rows of its statements. Raises its first error."""
        lines: list[Line] = []
        await self._driver.drive(self._session.run(text, params), lines.append)
        for line in lines:
            if isinstance(line, Note) and line.kind == "error":
                raise error_from(line)
        return [row for line in lines for row in getattr(getattr(line, "done", None), "rows", ())]

    async def events(self, most: int) -> list[EventRecord]:
        lines: list[Line] = []
        await self._driver.drive(self._session.fetch(most), lines.append)
        return [line for line in lines if isinstance(line, EventRecord)]
