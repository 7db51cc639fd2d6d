"""Overview and the snapshot of the catalogue."""

from __future__ import annotations

import asyncio
import re

import ackwise
from ackwise.broker import AsyncBroker
from ackwise.clock import ManualClock
from ackwise.connect import open_store
from ackwise.core.commands import ByLease, Claim, ConfigureQueue, PauseQueue, Push, Settle, Settlement
from ackwise.core.messages import NewMessage
from ackwise.core.settlement import Outcome
from ackwise.dashboard import catalogue as catalogue_module
from ackwise.dashboard.catalogue import Catalogue, CatalogueReader, read_rates
from ackwise.dashboard.series import SPANS, read_series
from tests.dashboard.site import Site

START = 1_900_000_000_000_000
SECOND = 1_000_000


def tiles(source: str) -> dict[str, str]:
    """The values of the tiles by label, without tags."""
    found = re.findall(
        r'tile-label">([^<]*)</span><span class="tile-value">(.*?)</span><span class="tile-note"', source
    )
    return {label: re.sub(r"<[^>]+>", "", value) for label, value in found}


async def whole(reader: CatalogueReader, broker: AsyncBroker) -> Catalogue:
    while not (read := await reader.read(broker)).complete:
        await asyncio.sleep(0.005)
    return read


def pushed(count: int) -> list[NewMessage]:
    return [NewMessage(payload=b"1") for _ in range(count)]


def test_empty_store_shows_what_to_do_next(site: Site) -> None:
    text = site.get("/").text
    assert "This store has no queues yet" in text
    assert "ackwise message push orders" in text


def test_tiles_are_a_full_grid_of_links(site: Site, queue: ackwise.Connection) -> None:
    queue.push("orders", 1)
    source = site.get("/").source
    grids = re.findall(r'<div class="tiles">(.*?)</div>', source, re.DOTALL)
    assert [grid.count('<a href="') for grid in grids] == [8, 4]
    assert [grid.count('class="tile ') for grid in grids] == [8, 4]


def test_tiles_show_the_totals_of_the_store(site: Site, queue: ackwise.Connection) -> None:
    queue.push_many("orders", range(20))
    queue.push_many("mail", range(3))
    batch = queue.claim("orders", max=5)
    queue.claim("orders", max=2)
    batch.reject("no")
    queue.pause_queue("mail")
    shown = tiles(site.get("/").source)
    while shown["Queues"] == "…":
        shown = tiles(site.get("/").source)
    assert shown["Available"] == "16"
    assert (shown["In flight"], shown["Dead"], shown["Lag"], shown["Queues"]) == ("2", "5", "18", "2")


def test_catalogue_has_totals_and_queues_that_are_behind(any_store: str) -> None:
    clock = ManualClock(START)

    async def run() -> None:
        broker = await AsyncBroker.start(open_store(any_store, clock=clock), background=False)
        try:
            for number in range(15):
                await broker.send(Push(queue=f"q{number:02}", messages=pushed(number)))
                clock.advance(1)
            await broker.send(ConfigureQueue(queue="empty"))
            await broker.send(PauseQueue(queue="q03"))
            await broker.claim(Claim(queue="q14", group="g", most=4))
            read = await whole(CatalogueReader(), broker)
            assert (read.queues, read.paused) == (16, 1)
            assert (read.ready, read.leased, read.lag) == (sum(range(15)) - 4, 4, sum(range(15)))
            assert [top.depth.queue for top in read.most_behind[:3]] == ["q14", "q13", "q12"]
            assert len(read.most_behind) == len(read.oldest) == catalogue_module.MOST_TOP
            assert read.oldest_queue == read.oldest[0].depth.queue == "q01"
            assert read.size
        finally:
            await broker.close()

    asyncio.run(run())


def test_catalogue_of_many_pages_is_read_once_for_all_callers(store_url: str) -> None:
    async def run() -> None:
        broker = await AsyncBroker.start(open_store(store_url), background=False)
        asked = []
        plain = broker.ask

        async def counted(query: object) -> object:
            asked.append(type(query).__name__)
            return await plain(query)  # type: ignore[arg-type]

        broker.ask = counted  # type: ignore[assignment]
        try:
            for number in range(250):
                await broker.send(ConfigureQueue(queue=f"q{number:03}"))
            reader = CatalogueReader()
            await asyncio.gather(*(reader.read(broker) for _ in range(20)))
            assert (await whole(reader, broker)).queues == 250
            assert asked.count("ListStats") == 3
        finally:
            await broker.close()

    asyncio.run(run())


def test_rates_cover_the_last_sixty_seconds(any_store: str) -> None:
    clock = ManualClock(START - START % (60 * SECOND))

    async def run() -> None:
        broker = await AsyncBroker.start(open_store(any_store, clock=clock), background=False)
        try:
            await broker.send(Push(queue="orders", messages=pushed(60)))
            clock.advance(90)
            await broker.send(Push(queue="orders", messages=pushed(30)))
            claimed = await broker.claim(Claim(queue="orders", most=12))
            lease = ByLease(claimed.claimed.lease_id)
            await broker.send(Settle(entries=[Settlement(selector=lease, outcome=Outcome.ACK)]))
            rates = await read_rates(broker)
            # Half of the earlier minute, and all of the running one.
            assert rates.totals["pushed"] == 30 / 60 + 30 / 60
            assert rates.queues is not None
            assert rates.queues["orders"]["acked"] == 12 / 60
            clock.advance(120)
            assert (await read_rates(broker)).totals == {}
        finally:
            await broker.close()

    asyncio.run(run())


def test_series_counts_by_column_and_outcome(any_store: str) -> None:
    clock = ManualClock(START - START % (7200 * SECOND))

    async def run() -> None:
        broker = await AsyncBroker.start(open_store(any_store, clock=clock), background=False)
        try:
            await broker.send(Push(queue="orders", messages=pushed(5)))
            clock.advance(600)
            await broker.send(Push(queue="orders", messages=pushed(7)))
            await broker.send(Push(queue="mail", messages=pushed(1)))
            hour = await read_series(broker, SPANS["hour"], "orders")
            assert len(hour.starts) == 60
            assert (hour.counts["pushed"][-1], hour.counts["pushed"][-11], hour.total("pushed")) == (7, 5, 12)
            assert (await read_series(broker, SPANS["hour"])).total("pushed") == 13
            assert (await read_series(broker, SPANS["week"], "orders")).counts["pushed"][-1] == 12
            assert (await read_series(broker, SPANS["day"], "nowhere")).is_empty
        finally:
            await broker.close()

    asyncio.run(run())


def test_chart_follows_the_chosen_time(site: Site, queue: ackwise.Connection) -> None:
    queue.push("orders", 1)
    for span, columns in (("hour", 60), ("day", 72), ("week", 84), ("nonsense", 60)):
        source = site.get(f"/?span={span}").source
        assert f"{columns} columns over time" in source
        assert source.count('class="tip"') == columns
        assert len(source) < 60_000


def test_health_names_the_duties_and_the_store(site: Site) -> None:
    text = site.get("/").text
    assert "healthy" in text
    assert "SQLite" in text
    assert "End expired leases ok" in text


def test_overview_shows_what_a_form_changed_at_once(site: Site, queue: ackwise.Connection) -> None:
    queue.push("orders", 1)
    while tiles(site.get("/").source)["Queues"] == "…":
        pass
    site.post("/queues/orders/delete", {"typed": "orders"})
    assert tiles(site.get("/").source)["Queues"] == "0"
