"""Redis Streams over a plain connection in RESP, as low-level as the connection to Ackwise."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urlsplit

from ackwise.bench.http_client import Line
from benchmarks.load.peer import PAYLOAD

_ENTRY = re.compile(rb"\*2\r\n\$\d+\r\n(\d+-\d+)\r\n\*2\r\n\$1\r\np\r\n")


class Resp(Line):
    """Connection with one request at a time. The caller passes the number of lines of the answer."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = 0

    def ask(self, request: bytes, lines: int) -> asyncio.Future[bytes]:
        """Send a request and wait for all lines of the answer. A list of entries contains its own length."""
        self._lines, self._got = lines, b""
        return self._ask(request)

    def data_received(self, data: bytes) -> None:
        self._got = self._got + data if self._got else data
        if self._answer is None or self._answer.done() or not self._got.endswith(b"\r\n"):
            return
        if self._got[:1] == b"-":
            self._answer.set_exception(RuntimeError(self._got.decode(errors="replace")))
        elif self._got.count(b"\r\n") >= (self._lines or _entry_lines(self._got)):
            self._answer.set_result(self._got)


def _entry_lines(got: bytes) -> int:
    """Number of lines of an XREADGROUP answer: five, and eight per entry."""
    if got == b"*-1\r\n":
        return 1
    head = got.split(b"\r\n", 5)
    return 5 + 8 * int(head[4][1:]) if len(head) > 5 else 1 << 60


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


class Streams:
    """One connection to Redis: a stream with one group. Every connection is a consumer of the group."""

    def __init__(self, resp: Resp, name: bytes) -> None:
        self._resp, self._name = resp, name

    @classmethod
    async def open(cls, address: str) -> Streams:
        parts = urlsplit(address)
        loop = asyncio.get_running_loop()
        resp = (await loop.create_connection(Resp, parts.hostname or "", parts.port or 6379))[1]
        return cls(resp, b"%d" % id(resp))

    async def make(self, queue: str) -> None:
        try:
            await self._resp.ask(command(b"XGROUP", b"CREATE", queue.encode(), b"g", b"0", b"MKSTREAM"), 1)
        except RuntimeError as problem:
            if "BUSYGROUP" not in str(problem):
                raise

    def prepare(self, queue: str, partition: int, batch: int) -> tuple[bytes, int]:
        """A pipeline: all XADDs in one round trip."""
        return command(b"XADD", queue.encode(), b"*", b"p", PAYLOAD) * batch, batch

    async def push(self, prepared: tuple[bytes, int]) -> None:
        request, count = prepared
        got = await self._resp.ask(request, 2 * count)
        if got.count(b"\r\n$") != count - 1:
            raise RuntimeError(f"XADD answered {got[:200]!r}")

    async def pop_and_ack(self, queue: str, most: int) -> int:
        key = queue.encode()
        read = command(b"XREADGROUP", b"GROUP", b"g", self._name, b"COUNT", b"%d" % most, b"STREAMS", key, b">")
        entries = _ENTRY.findall(await self._resp.ask(read, 0))
        if entries:
            got = await self._resp.ask(command(b"XACK", key, b"g", *entries), 1)
            if got != b":%d\r\n" % len(entries):
                raise RuntimeError(f"XACK answered {got[:200]!r}")
        return len(entries)

    async def close(self) -> None:
        self._resp.close()
