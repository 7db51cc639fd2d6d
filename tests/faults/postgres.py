"""Faults of a PostgreSQL store: the broker dies, the server cuts its connections, the server itself falls over."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from tests.faults.campaign import Campaign
from tests.faults.ledger import Life
from tests.pg import OwnServer

ENOUGH = 60
_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE backend_type = 'client backend' AND application_name = 'ackwise' AND datname = %s"
)


class PostgresFaults:
    """What can happen to brokers on one server."""

    def __init__(self, server: OwnServer) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._database = ""

    def fresh_url(self) -> str:
        """An empty database; the one before it is thrown away."""
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            if self._database:
                connection.execute(f"DROP DATABASE {self._database} WITH (FORCE)".encode())
            self._database = f"faults_{next(self._numbers)}"
            connection.execute(f"CREATE DATABASE {self._database}".encode())
        return self._server.url(self._database) + "&shards=2"

    def live(self, campaign: Campaign) -> list[Life]:
        """One of the faults, the rare and slow ones rarely."""
        roll = campaign.dice.random()
        if roll < 0.5:
            return campaign.alone()
        if roll < 0.6:
            return campaign.together()
        if roll < 0.88:
            return self.backends_killed(campaign)
        return self.server_killed(campaign)

    def backends_killed(self, campaign: Campaign) -> list[Life]:
        """The server ends every connection of the broker in the middle of its work; it goes on by itself."""

        def end_them() -> None:
            with psycopg.connect(self._server.url(), autocommit=True, application_name="fault") as connection:
                connection.execute(_OTHERS, (self._database,))

        return self._survives(campaign, end_them)

    def server_killed(self, campaign: Campaign) -> list[Life]:
        """The server falls over without a word, recovers and comes back; the broker goes on by itself."""
        return self._survives(campaign, lambda: self._server.control("-m", "immediate", "restart"))

    def _survives(self, campaign: Campaign, fault: Callable[[], None]) -> list[Life]:
        worker = campaign.worker(campaign.dice.choice(("threads", "async")))
        campaign.let_live(worker)
        campaign.tally.kill(worker.life)
        fault()
        # Many more answers, so that it is not only what was under way.
        worker.wait_for(ENOUGH, "the broker does not go on after the fault")
        return [campaign.stop(worker)]


@contextmanager
def own_server(name: str) -> Iterator[OwnServer]:
    server = OwnServer(name)
    try:
        server.start()
        yield server
    finally:
        server.cleanup()
