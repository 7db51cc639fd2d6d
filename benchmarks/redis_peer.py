"""Redis Streams with an fsync per write, through redis-py, where a redis-server is installed."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis


@contextmanager
def redis_server(folder: Path) -> Iterator[Any | None]:
    """A client of a private server with `appendfsync always`; None where there is no redis-server."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    socket = folder / "redis.sock"
    command = [program, "--port", "0", "--unixsocket", str(socket), "--dir", str(folder), "--save", ""]
    server = subprocess.Popen(
        [*command, "--appendonly", "yes", "--appendfsync", "always"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        client = redis.Redis(unix_socket_path=str(socket))
        for _ in range(200):
            try:
                client.ping()
                break
            except redis.ConnectionError:
                time.sleep(0.02)
        yield client
    finally:
        server.terminate()
        server.wait()


def push(client: Any, stream: str, payload: bytes, batch: int, batches: int) -> int:
    for _ in range(batches):
        pipe = client.pipeline(transaction=True)
        for _ in range(batch):
            pipe.xadd(stream, {"p": payload})
        pipe.execute()
    return batch * batches


def read_and_ack(client: Any, stream: str, batch: int, batches: int) -> int:
    """Read the next entries of a group and acknowledge them."""
    done = 0
    for _ in range(batches):
        found = client.xreadgroup("g", "c", {stream: ">"}, count=batch)
        if not found:
            break
        ids = [entry[0] for entry in found[0][1]]
        client.xack(stream, "g", *ids)
        done += len(ids)
    return done
