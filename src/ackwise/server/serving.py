"""Running it: sockets, signals, readiness, and a shutdown that loses nobody's message."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Literal

import msgspec
import uvicorn
from starlette.applications import Starlette

from ackwise.broker import AsyncBroker
from ackwise.core import limits
from ackwise.core.amps.frames import LARGEST
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.graph.budget import DEFAULT_LIMITS, StatementLimits
from ackwise.dialects import pushpop
from ackwise.dialects.amps.face import MAX_BACKLOG
from ackwise.dialects.handover import DEFAULT_MEMORY, AnswerMemory
from ackwise.dialects.hosts import is_loopback
from ackwise.dialects.http import Receive, Route, Scope, Send
from ackwise.dialects.mew.serving import MewFace
from ackwise.dialects.peers import Peers
from ackwise.dialects.pushpop.sinks import Sinks
from ackwise.server import gates
from ackwise.server.amps import AmpsListener
from ackwise.server.app import DEFAULT_MAX_BODY, Application
from ackwise.server.faces import all_routes
from ackwise.server.gates import Gate
from ackwise.server.pages import make_pages
from ackwise.server.protocol import GuardedProtocol, GuardedSocket
from ackwise.store.port import Store

QueenDefaults = Literal["seed", "upstream"]
Start = Literal["all", "new"]
SOCKET_MESSAGE = 4 << 10
"""Bytes that a WebSocket message of a client may have."""
OnReady = Callable[[str, int], None]
"""Is told the host and the port; the server knows the others."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What `ackwise serve` can be told."""

    host: str = "127.0.0.1"
    port: int = 6632
    pushpop_port: int | None = None
    pushpop_default_priority: int = 0
    pushpop_sink_hosts: tuple[str, ...] = ()
    amps_port: int | None = None
    """Where AMPS clients are served; None: nowhere."""
    amps_queues: tuple[str, ...] = ()
    """Topics that are queues though their names do not begin with `queue://`."""
    amps_max_backlog: int = MAX_BACKLOG
    amps_max_frame: int = LARGEST
    queen_defaults: QueenDefaults = "seed"
    default_subscription: Start = "all"
    insecure: bool = False
    max_body: int = DEFAULT_MAX_BODY
    max_connections: int = 10_000
    answer_bytes: int = limits.DEFAULT_CLAIM_BYTES
    """Bytes of payload at which an answer to a claim stops. Also bounds what AMPS subscribers get at once."""
    answer_memory: int = DEFAULT_MEMORY
    """The most bytes of answers that the server builds or that wait for slow readers."""
    grace: float = 10.0
    statement: StatementLimits = DEFAULT_LIMITS
    """What one statement of the graph may use."""
    keep_alive: float = 75.0
    """Seconds an idle connection is kept: longer than clients keep theirs, so that they are the ones who close."""
    cors: tuple[str, ...] = ()
    """Origins whose pages may use the API; `*` is every origin."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names beside IP literals and loopback names that requests may name."""
    peer_share: float = 0.5
    """The share of the connections that one peer address may hold."""

    def check(self) -> Settings:
        ports = (("--port", self.port), ("--pushpop-port", self.pushpop_port), ("--amps-port", self.amps_port))
        for name, port in ports:
            if port is not None and not 0 <= port <= 65535:
                raise BadInput(f"{name} must be between 0 and 65535, not {port}")
        limits.count(self.pushpop_default_priority, "--pushpop-default-priority", least=0, most=limits.MAX_PRIORITY)
        if not 0 < self.peer_share <= 1:
            raise BadInput(f"--peer-share must be above 0 and at most 1, not {self.peer_share}")
        gates.check_origins(self.cors, insecure=self.insecure)
        gates.check_host_names(self.allowed_hosts, insecure=self.insecure)
        self.statement.check("--statement")
        if not self.insecure and not is_loopback(self.host):
            raise BadInput(
                f"{self.host} can be reached from other machines and there is no authentication; "
                "say --insecure if that is meant, or listen on 127.0.0.1"
            )
        return self


class Served:
    """The broker and the sinks on it, from the lifespan's begin to its end."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._broker: AsyncBroker | None = None
        self._sinks: Sinks | None = None
        self._mew: MewFace | None = None

    def mew(self) -> MewFace:
        """MEW's sessions at this server."""
        if self._mew is None:
            self._mew = MewFace(self.broker(), limits=self._settings.statement)
        return self._mew

    async def mew_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.mew().socket(scope, receive, send)

    def broker(self) -> AsyncBroker:
        assert self._broker is not None, "the server has not started"
        return self._broker

    def routes(self) -> list[Route]:
        assert self._sinks is not None, "the server has not started"
        return all_routes(self.broker(), self._settings, self._sinks, self.mew())

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self._broker = await AsyncBroker.start(self._store)
        self._sinks = Sinks(self._broker, self._settings.pushpop_sink_hosts)
        try:
            await self._broker.first_beat()
            await self._sinks.start()
            yield
        finally:
            await self._sinks.stop()
            if self._mew is not None:
                await self._mew.close()
            await self._broker.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound, or an error that says to what it could not be."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, number)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
        except BaseException:
            sock.close()
            raise
    except OSError as problem:
        raise AckwiseError(f"cannot listen on {host} port {port}: {problem.strerror or problem}") from None
    return sock


class Server(uvicorn.Server):
    """uvicorn, but polls that wait are answered before connections close, and a signal ends in exit code 0."""

    def __init__(
        self, config: uvicorn.Config, served: Served, settings: Settings, memory: AnswerMemory, on_ready: OnReady
    ) -> None:
        super().__init__(config)
        self._served, self._settings, self._on_ready = served, settings, on_ready
        self.memory = memory
        self.on_stop: Callable[[], None] = lambda: None
        """Called at the first signal."""
        self.pushpop_port: int | None = None
        self.amps: AmpsListener | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await super().serve(sockets or self._listen())

    def _listen(self) -> list[socket.socket]:
        ports = (self._settings.port, self._settings.pushpop_port)
        return [listen(self.config.host, port) for port in ports if port is not None]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        port = self._settings.amps_port
        amps = None if port is None else listen(self.config.host, port)
        await super().startup(sockets or self._listen())
        if not self.started:
            return
        if amps is not None:
            self.amps = await AmpsListener.start(self._served.broker(), self._settings, self.memory, amps)
        if len(self.servers) > 1:
            self.pushpop_port = self.servers[1].sockets[0].getsockname()[1]
        self._on_ready(*self.servers[0].sockets[0].getsockname()[:2])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._served.broker().stop_claims()
        if self.amps is not None:
            began = time.monotonic()
            await self.amps.stop(self._settings.grace, lambda: self.force_exit)
            # The rest of the grace. uvicorn counts whole seconds.
            left = self._settings.grace - (time.monotonic() - began)
            self.config.timeout_graceful_shutdown = max(1, math.ceil(left))
        await super().shutdown(sockets)
        if self.force_exit:
            # Whoever still waits is left alone, but the store is closed in order.
            await self.lifespan.shutdown()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The first signal drains, the second does not wait for anybody."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread: somebody else stops us
                loop.add_signal_handler(number, self._signalled)
        yield

    def _signalled(self) -> None:
        self.force_exit = self.should_exit
        if not self.should_exit:
            self.on_stop()
        self.should_exit = True


def _gate(settings: Settings) -> Gate:
    """The name that the server listens on needs no `--allowed-host`: the operator chose it."""
    names = gates.check_host_names(settings.allowed_hosts, insecure=settings.insecure)
    own = settings.host.lower().strip("*.")
    return Gate(origins=gates.check_origins(settings.cors, insecure=settings.insecure), host_names=(*names, own))


def make_server(store: Store, settings: Settings, on_ready: OnReady) -> Server:
    """A server that is not yet running; `await server.serve()` runs it until it is told to exit."""
    settings.check()
    served = Served(store, settings)
    peers = Peers(settings.max_connections, settings.peer_share)
    memory = AnswerMemory(settings.answer_bytes, settings.answer_memory, settings.peer_share)
    app = Application(
        served.routes,
        make_pages(served.broker, served.lifespan),
        max_body=settings.max_body,
        gate=_gate(settings),
        any_options=settings.queen_defaults == "upstream",
        refusals={pushpop.PATHS: pushpop.refused},
        sockets={"/mew/events": served.mew_socket},
        memory=memory,
    )
    config = uvicorn.Config(
        app,
        host=settings.host.strip("[]"),
        port=settings.port,
        http=type("Protocol", (GuardedProtocol,), {"peers": peers}),
        loop="uvloop",
        ws=type("Socket", (GuardedSocket,), {"peers": peers}),
        # Sessions only listen: a message from a client is never read, so it need not be large or compressed.
        ws_max_size=SOCKET_MESSAGE,
        ws_per_message_deflate=False,
        lifespan="on",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=4096,
        timeout_keep_alive=round(settings.keep_alive),
        timeout_graceful_shutdown=math.ceil(settings.grace),
    )
    return Server(config, served, settings, memory, on_ready)
