"""Server process: sockets, signals, readiness, and a shutdown that loses no message."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ackwise.broker import AsyncBroker
from ackwise.core import extras
from ackwise.dashboard.settings import ShownSetting
from ackwise.protocols import pushpop
from ackwise.protocols.answer_memory import AnswerMemory
from ackwise.protocols.http_request import Call, Receive, Scope, Send
from ackwise.protocols.http_response import Answer, Handler, Route
from ackwise.protocols.mew.route_docs import docs as mew_docs
from ackwise.protocols.native import native_routes
from ackwise.protocols.peers import Peers
from ackwise.protocols.problem_documents import unrouted_answer
from ackwise.protocols.pushpop import pushpop_routes
from ackwise.protocols.queen import MaintenanceWatch, queen_routes
from ackwise.server import gates
from ackwise.server.amps_listener import AmpsListener
from ackwise.server.app import Application
from ackwise.server.docs_pages import docs_routes
from ackwise.server.gates import Gate
from ackwise.server.home import home_routes
from ackwise.server.openapi import openapi_route
from ackwise.server.ports import BACKLOG, BoundPorts, bind_ports
from ackwise.server.settings import Settings
from ackwise.store.port import Store

with extras.needed("server", "the server"):
    import uvicorn
    from starlette.applications import Starlette

    from ackwise.dashboard.app import Dashboard
    from ackwise.protocols.pushpop.sinks import Sinks, supervisor
    from ackwise.server.dashboard_pages import Pages
    from ackwise.server.health import DOCS as HEALTH_DOCS
    from ackwise.server.health import make_pages
    from ackwise.server.hooks import Webhooks
    from ackwise.server.http_protocol import GuardedProtocol, GuardedSocket
    from ackwise.server.observer import Load, Observer

if TYPE_CHECKING:
    from ackwise.protocols.mew.http import MewServer
    from ackwise.protocols.mew.page_sessions import PageSessions

MEW_PACKAGE = "lark"
"""Package that MEW needs. Without this package the server has no MEW."""
SOCKET_MESSAGE = 4 << 10
"""Maximum size of a WebSocket message from a client, in bytes."""
OnReady = Callable[[str, int], None]
"""Called with host and port when the server accepts requests."""


class ServerRuntime:
    """Broker, sinks and MEW sessions of a running server, from startup to shutdown."""

    def __init__(
        self, store: Store, settings: Settings, memory: AnswerMemory, shown: Sequence[ShownSetting] = ()
    ) -> None:
        self._store, self._settings, self._memory = store, settings, memory
        self._broker: AsyncBroker | None = None
        self._sinks: Sinks | None = None
        self._webhooks: Webhooks | None = None
        self._mew: MewServer | None = None
        self._page_sessions: PageSessions | None = None
        self._maintenance: MaintenanceWatch | None = None
        self.observer = Observer(store, settings)
        self.dashboard = Dashboard(
            self.broker,
            read_only=settings.read_only_dashboard,
            home="/",
            statements=self._statements,
            label=settings.dashboard_label,
            settings=shown or [ShownSetting(name, str(value), "program") for name, value in settings.fields()],
        )
        self.has_mew = extras.is_installed(MEW_PACKAGE)
        if self.has_mew:
            # Imported here, so that a server without MEW does not load the graph.
            from ackwise.graph.engine.extension import GRAPH

            store.extensions.add(GRAPH)

    def mew(self) -> MewServer:
        """MEW's sessions at this server."""
        if self._mew is None:
            from ackwise.protocols.mew.http import MewServer

            self._mew = MewServer(
                self.broker(),
                limits=self._settings.statement,
                answers=self._memory,
            )
        return self._mew

    def _statements(self) -> PageSessions | None:
        """MEW's sessions of dashboard pages. None without MEW."""
        if self._page_sessions is None and self.has_mew:
            from ackwise.protocols.mew.page_sessions import PageSessions

            self._page_sessions = PageSessions(self.mew())
        return self._page_sessions

    def pages(self) -> Pages:
        """What the server answers on paths without a route."""
        return Pages(self.dashboard, make_pages(self.broker, self.lifespan))

    async def mew_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.mew().socket(scope, receive, send)

    def broker(self) -> AsyncBroker:
        assert self._broker is not None, "the server has not started"
        return self._broker

    def routes(self) -> list[Route]:
        assert self._sinks is not None, "the server has not started"
        mew = self.mew() if self.has_mew else None
        return all_routes(
            self.broker(),
            self._settings,
            self._sinks,
            mew,
            maintenance=self._maintenance,
            on_hook=self._look_for_hooks,
            own=self.observer.routes(self.broker()),
            overview=self.pages().overview,
        )

    def _look_for_hooks(self) -> None:
        if self._webhooks is not None:
            self._webhooks.look()

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with self.observer.running(), self._running():
            yield

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        self._broker = await AsyncBroker.start(self._store)
        self._sinks = Sinks(self._broker, self._settings.pushpop_sink_hosts)
        self._webhooks = Webhooks(self._broker, self._settings.pushpop_sink_hosts)
        try:
            await self._broker.first_beat()
            await self._sinks.start()
            self._maintenance = self.observer.maintenance = MaintenanceWatch(self._broker)
            self._maintenance.start()
            await self._webhooks.start()
            yield
        finally:
            await self._webhooks.stop()
            await self._sinks.stop()
            if self._mew is not None:
                await self._mew.close()
            await self._broker.close()


class Server(uvicorn.Server):
    """uvicorn server that answers waiting polls before it closes connections, and exits with code 0 on a signal."""

    def __init__(
        self,
        config: uvicorn.Config,
        runtime: ServerRuntime,
        settings: Settings,
        memory: AnswerMemory,
        on_ready: OnReady,
        *,
        ports: BoundPorts | None = None,
    ) -> None:
        super().__init__(config)
        self.runtime, self._settings, self._on_ready = runtime, settings, on_ready
        self.memory, self._ports = memory, ports
        self.on_stop: Callable[[], None] = lambda: None
        """Callback for the first signal."""
        self.pushpop_port: int | None = None
        self.amps: AmpsListener | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        ports = self._ports = self._ports or bind_ports(self._settings)
        ports.listen()
        await super().startup(ports.web)
        if not self.started:
            ports.close()
            return
        if ports.amps is not None:
            self.amps = await AmpsListener.start(self.runtime.broker(), self._settings, self.memory, ports.amps)
        if len(self.servers) > 1:
            self.pushpop_port = self.servers[1].sockets[0].getsockname()[1]
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        self.runtime.observer.load = self._load
        self.runtime.observer.started(self._addresses(host, port))
        self._on_ready(host, port)

    def _addresses(self, host: str, port: int) -> dict[str, str]:
        """Addresses that the server listens on, by protocol."""
        shown = f"[{host}]" if ":" in host else host
        addresses = {"http": f"{shown}:{port}"}
        if self.pushpop_port is not None:
            addresses["pushpop"] = f"{shown}:{self.pushpop_port}"
        if self.amps is not None:
            addresses["amps"] = f"{shown}:{self.amps.port}"
        return addresses

    def _load(self) -> Load:
        connections = {"http": len(self.server_state.connections)}
        if self.amps is not None:
            connections["amps"] = self.amps.connections
        return Load(connections, len(self.server_state.tasks))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        async with self.runtime.observer.drain(self.runtime.broker()):
            await self._shut_down(sockets)

    async def _shut_down(self, sockets: list[socket.socket] | None) -> None:
        self.runtime.broker().stop_claims()
        self.runtime.dashboard.live.stop()
        if self.amps is not None:
            began = time.monotonic()
            await self.amps.stop(self._settings.grace, lambda: self.force_exit)
            # uvicorn gets the rest of the grace, in whole seconds.
            left = self._settings.grace - (time.monotonic() - began)
            self.config.timeout_graceful_shutdown = max(1, math.ceil(left))
        await super().shutdown(sockets)
        if self.force_exit:
            # uvicorn skips this after a second signal. The store must be closed in any case.
            await self.lifespan.shutdown()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The first signal drains the server. The second stops it at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(RuntimeError, ValueError):  # outside the main thread the caller stops the server
                loop.add_signal_handler(number, self._signalled)
        yield

    def _signalled(self) -> None:
        self.force_exit = self.should_exit
        if not self.should_exit:
            self.on_stop()
        self.should_exit = True


def _gate(settings: Settings) -> Gate:
    """Gate of the settings. The host that the server listens on needs no `--allowed-host`."""
    names = gates.check_host_names(settings.allowed_hosts, insecure=settings.insecure)
    own = settings.host.lower().strip("*.")
    return Gate(origins=gates.check_origins(settings.cors, insecure=settings.insecure), host_names=(*names, own))


def make_server(
    store: Store,
    settings: Settings,
    on_ready: OnReady,
    ports: BoundPorts | None = None,
    *,
    shown: Sequence[ShownSetting] = (),
) -> Server:
    """Creates a server. `await server.serve()` runs it until a signal or `should_exit`.

    Without `ports` the server binds its ports when it starts. `shown` are the settings with their origins, for the
    dashboard.
    """
    settings.check()
    memory = AnswerMemory(settings.answer_bytes, settings.answer_memory, settings.peer_share)
    runtime = ServerRuntime(store, settings, memory, shown)
    peers = Peers(settings.max_connections, settings.peer_share)
    pages = runtime.pages()
    app = Application(
        runtime.routes,
        pages,
        max_body=settings.max_body,
        gate=_gate(settings),
        any_options=settings.queen_defaults == "upstream",
        error_writers={pushpop.PATHS: pushpop.error_answer, "v1": unrouted_answer},
        sockets={"/mew/events": runtime.mew_socket} if runtime.has_mew else {},
        memory=memory,
        peer_share=settings.peer_share,
        events=store.events,
        is_page=pages.is_page,
    )
    config = uvicorn.Config(
        app,
        host=settings.host.strip("[]"),
        port=settings.port,
        http=type("Protocol", (GuardedProtocol,), {"peers": peers}),
        loop="uvloop",
        ws=type("Socket", (GuardedSocket,), {"peers": peers}),
        # The server ignores messages of WebSocket clients, so they may be small and uncompressed.
        ws_max_size=SOCKET_MESSAGE,
        ws_per_message_deflate=False,
        lifespan="on",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=round(settings.keep_alive),
        timeout_graceful_shutdown=math.ceil(settings.grace),
    )
    return Server(config, runtime, settings, memory, on_ready, ports=ports)


def all_routes(
    broker: AsyncBroker,
    settings: Settings,
    sinks: Sinks,
    mew: MewServer | None = None,
    *,
    maintenance: MaintenanceWatch | None = None,
    on_hook: Callable[[], None] = lambda: None,
    own: Sequence[Route] = (),
    overview: Handler | None = None,
) -> list[Route]:
    upstream = settings.queen_defaults == "upstream"
    routes = [
        *own,
        *home_routes(overview),
        *queen_routes(broker, upstream=upstream, start=settings.default_subscription, maintenance=maintenance),
        *pushpop_routes(broker, default_priority=settings.pushpop_default_priority),
        *supervisor.routes(sinks),
        *native_routes(broker, settings.pushpop_sink_hosts, on_hook),
        *(mew.routes() if mew is not None else [Route("POST", "/mew", _refuse_mew, doc=mew_docs(dict)["POST /mew"])]),
        *docs_routes(),
    ]
    return [*routes, openapi_route(routes, HEALTH_DOCS)]


async def _refuse_mew(_: Call) -> Answer:
    raise extras.missing("mew", "POST /mew", MEW_PACKAGE)
