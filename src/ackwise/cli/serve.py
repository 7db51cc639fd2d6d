"""`ackwise serve`."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import sys
import threading
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ackwise.cli.arguments import DEFAULT_URL
from ackwise.cli.logs import DEFAULT_LEVEL, LogFormatOption, LogLevel
from ackwise.cli.shown_settings import shown_settings
from ackwise.connect import open_store
from ackwise.core.errors import BadInput
from ackwise.core.events import EventStream, StoreMigrated
from ackwise.core.extras import needed
from ackwise.engine.statement_limits import DEFAULT_LIMITS, StatementLimits
from ackwise.observability.event_log import log_migration
from ackwise.observability.log_setup import set_up_logs
from ackwise.protocols.amps.server_state import DEFAULT_BACKLOG, MAX_BACKLOG
from ackwise.server.settings import QueenDefaults, Settings, Start
from ackwise.wire.store_url import Durability, parse

if TYPE_CHECKING:
    from ackwise.demo.live_demo import LiveDemo
    from ackwise.server.server import Server
    from ackwise.store.database_store import DatabaseStore

STOP_SECONDS = 4.5
"""Seconds that a shutdown may take beyond its grace."""
_SIZE = re.compile(r"\s*(\d+)\s*(B|KiB|MiB|GiB|kB|MB|GB|)\s*", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def size(text: str) -> int:
    """Parse a number of bytes: `64MiB`, `1GB`, `1000`."""
    parsed = _SIZE.fullmatch(text)
    if parsed is None or not int(parsed[1]):
        raise BadInput(f"{text!r} is not a size; write it like 64MiB")
    return int(parsed[1]) * _UNITS[parsed[2].lower()]


def serve(
    context: typer.Context,
    store: Annotated[
        str, typer.Option(envvar=["ACKWISE_STORE", "ACKWISE_URL"], help="URL of the store.")
    ] = DEFAULT_URL,
    host: Annotated[str, typer.Option(envvar="ACKWISE_HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="ACKWISE_PORT", help="Port; 0 takes any free port.")] = 6632,
    pushpop_port: Annotated[
        int | None, typer.Option(envvar="ACKWISE_PUSHPOP_PORT", help="Extra port for PushPop clients.")
    ] = None,
    pushpop_default_priority: Annotated[
        int,
        typer.Option(envvar="ACKWISE_PUSHPOP_DEFAULT_PRIORITY", min=0, help="Priority of items without one."),
    ] = 0,
    pushpop_sink_host: Annotated[
        list[str] | None,
        typer.Option(
            envvar="ACKWISE_PUSHPOP_SINK_HOST", help="Host, or host:port, that sinks may post to; repeatable."
        ),
    ] = None,
    amps_port: Annotated[
        int | None, typer.Option(envvar="ACKWISE_AMPS_PORT", help="Port for AMPS clients; 0 takes any free port.")
    ] = None,
    amps_queue: Annotated[
        list[str] | None,
        typer.Option(envvar="ACKWISE_AMPS_QUEUE", help="Topic that is a queue without queue://; repeatable."),
    ] = None,
    amps_max_backlog: Annotated[
        int,
        typer.Option(envvar="ACKWISE_AMPS_MAX_BACKLOG", min=1, help="Maximum messages per AMPS subscription."),
    ] = MAX_BACKLOG,
    amps_default_backlog: Annotated[
        int,
        typer.Option(
            envvar="ACKWISE_AMPS_DEFAULT_BACKLOG",
            min=1,
            help="Messages per AMPS subscription that names no max_backlog.",
        ),
    ] = DEFAULT_BACKLOG,
    amps_max_frame: Annotated[
        str, typer.Option(envvar="ACKWISE_AMPS_MAX_FRAME", help="Largest AMPS frame that the server accepts.")
    ] = "16MiB",
    queen_defaults: Annotated[
        QueenDefaults,
        typer.Option(envvar="ACKWISE_QUEEN_DEFAULTS", help="Defaults of queues that Queen clients create."),
    ] = "seed",
    default_subscription: Annotated[
        Start, typer.Option(envvar="ACKWISE_DEFAULT_SUBSCRIPTION", help="Where a new group starts.")
    ] = "all",
    durability: Annotated[
        Durability | None,
        typer.Option(envvar="ACKWISE_DURABILITY", help="full: an answer survives a power loss.", show_default="full"),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", envvar="ACKWISE_INSECURE", help="Listen on a public address without auth.")
    ] = False,
    max_body: Annotated[
        str, typer.Option(envvar="ACKWISE_MAX_BODY", help="Largest request body that the server accepts.")
    ] = "64MiB",
    max_connections: Annotated[
        int,
        typer.Option(
            envvar="ACKWISE_MAX_CONNECTIONS",
            min=1,
            help="Maximum connections; more get a 503.",
        ),
    ] = 10_000,
    answer_bytes: Annotated[
        str, typer.Option(envvar="ACKWISE_ANSWER_BYTES", help="Maximum payload bytes in the answer to a claim.")
    ] = "16MiB",
    answer_memory: Annotated[
        str,
        typer.Option(envvar="ACKWISE_ANSWER_MEMORY", help="Memory for unsent answers; above it: 503."),
    ] = "256MiB",
    grace: Annotated[
        float, typer.Option(envvar="ACKWISE_GRACE", min=0, help="Seconds that a shutdown waits for requests.")
    ] = 10.0,
    statement_seconds: Annotated[
        float, typer.Option(envvar="ACKWISE_STATEMENT_SECONDS", help="Seconds that one MEW statement may read.")
    ] = DEFAULT_LIMITS.seconds,
    statement_rows: Annotated[
        int, typer.Option(envvar="ACKWISE_STATEMENT_ROWS", help="Rows that one MEW statement may read.")
    ] = DEFAULT_LIMITS.rows,
    statement_bytes: Annotated[
        str, typer.Option(envvar="ACKWISE_STATEMENT_BYTES", help="Bytes that one MEW statement may read.")
    ] = "256MiB",
    statement_changes: Annotated[
        int, typer.Option(envvar="ACKWISE_STATEMENT_CHANGES", help="Entities that one MEW statement may change.")
    ] = DEFAULT_LIMITS.changes,
    cors: Annotated[
        list[str] | None,
        typer.Option(envvar="ACKWISE_CORS", help="Origin whose web pages may use the API; repeatable."),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            envvar="ACKWISE_ALLOWED_HOST",
            help="Host name that requests may use, or *.example.org; repeatable. IP addresses are always allowed.",
        ),
    ] = None,
    peer_share: Annotated[
        float,
        typer.Option(envvar="ACKWISE_PEER_SHARE", help="Share of the connections that one address may hold."),
    ] = 0.5,
    read_only_dashboard: Annotated[
        bool,
        typer.Option(
            "--read-only-dashboard",
            envvar="ACKWISE_READ_ONLY_DASHBOARD",
            help="Show no buttons in the dashboard and refuse its changes.",
        ),
    ] = False,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo",
            envvar="ACKWISE_DEMO",
            help="Serve moving example data from a scratch store, which is removed at exit.",
        ),
    ] = False,
    log_level: LogLevel = DEFAULT_LEVEL,
    log_format: LogFormatOption = "text",
) -> None:
    """Serve the store over HTTP. On SIGTERM or Ctrl-C the server drains and exits."""
    source = context.get_parameter_source("store")
    if demo and source is not None and source.name == "COMMANDLINE":
        raise BadInput("--demo has its own scratch store; leave out --store, or leave out --demo to serve your store")
    with needed("server", "ackwise serve"):
        from ackwise.server.ports import bind_ports
        from ackwise.server.server import make_server
    set_up_logs(log_level, log_format)
    # The server logs its own errors.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    settings = Settings(
        host=host,
        port=port,
        pushpop_port=pushpop_port,
        pushpop_default_priority=pushpop_default_priority,
        pushpop_sink_hosts=tuple(host.lower() for host in pushpop_sink_host or ()),
        amps_port=amps_port,
        amps_queues=tuple(amps_queue or ()),
        amps_max_backlog=amps_max_backlog,
        amps_default_backlog=amps_default_backlog,
        amps_max_frame=size(amps_max_frame),
        queen_defaults=queen_defaults,
        default_subscription=default_subscription,
        insecure=insecure,
        max_body=size(max_body),
        max_connections=max_connections,
        answer_bytes=size(answer_bytes),
        answer_memory=size(answer_memory),
        grace=grace,
        statement=StatementLimits(
            seconds=statement_seconds,
            rows=statement_rows,
            bytes=size(statement_bytes),
            changes=statement_changes,
        ),
        cors=tuple(cors or ()),
        allowed_hosts=tuple(allowed_host or ()),
        peer_share=peer_share,
        read_only_dashboard=read_only_dashboard,
        dashboard_label="demo" if demo else "",
    ).check()
    with ExitStack() as stack:
        ports = bind_ports(settings)
        stack.callback(ports.close)
        live = _live_demo(stack) if demo else None
        store = store if live is None else live.url
        opened = _open_logged(store, durability)
        stack.callback(opened.close)
        shown = shown_settings(context, store=store, durability=durability or parse(store).durability)
        server = make_server(opened, settings, lambda host, port: _ready(host, port, server, live), ports, shown=shown)
        server.on_stop = partial(_stopping, grace + STOP_SECONDS, live)
        _calm_collector()
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(server.serve())
    if not server.started:
        raise typer.Exit(1)


def _live_demo(stack: ExitStack) -> LiveDemo:
    """The demo, with its history in its scratch store. The end of `stack` removes the store."""
    from ackwise.demo.live_demo import LiveDemo

    print("writing a week of example data into a scratch store", file=sys.stderr, flush=True)
    return stack.enter_context(LiveDemo())


def _stopping(seconds: float, live: LiveDemo | None) -> None:
    """Runs at the first signal."""
    if live is not None:
        live.stop()
    _end_after(seconds)


def _open_logged(store: str, durability: Durability | None) -> DatabaseStore:
    """Open the store and log its migration."""
    events = EventStream()
    stop = events.subscribe(log_migration, StoreMigrated)
    opened = open_store(store, durability=durability, events=events)
    stop()
    return opened


def _end_after(seconds: float) -> None:
    """End the process when a shutdown hangs. No answered request is lost: the server commits before it answers."""

    def end() -> None:
        logging.getLogger("ackwise").warning("the shutdown took longer than %g seconds and was cut short", seconds)
        logging.shutdown()
        os._exit(1)

    watchdog = threading.Timer(seconds, end)
    watchdog.daemon = True
    watchdog.start()


def _calm_collector() -> None:
    """Exclude loaded modules from garbage collection, which would delay requests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _ready(host: str, port: int, server: Server, live: LiveDemo | None) -> None:
    shown = f"[{host}]" if ":" in host else host
    print(f"ready http://{shown}:{port}", flush=True)
    if live is not None:
        live.start(server.runtime.broker())
        print(f"dashboard http://{shown}:{port}/ (example data, removed at exit)", flush=True)
    if server.pushpop_port is not None:
        print(f"pushpop http://{shown}:{server.pushpop_port}", flush=True)
    if server.amps is not None:
        print(f"amps tcp://{shown}:{server.amps.port}/amps/json", flush=True)
