"""An AMPS client by hand over one socket: it says exactly what it is told to, and reads frame by frame."""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tests.patience import PATIENCE


@dataclass(frozen=True)
class Frame:
    header: dict[str, Any]
    body: bytes
    raw: bytes

    def __getitem__(self, key: str) -> Any:
        return self.header[key]

    @property
    def outcome(self) -> tuple[str, str]:
        """Of an ack: its kind, and how it went."""
        assert self.header["c"] == "ack", self.header
        return self.header["a"], self.header["status"]


class Peer:
    """One connection. `logon=False` leaves the first word to the test."""

    def __init__(self, address: tuple[str, int], *, logon: bool = True, name: str = "probe", source: str = "") -> None:
        self.socket = socket.create_connection(address, PATIENCE, (source, 0) if source else None)
        self._file = self.socket.makefile("rb")
        if logon:
            about = {"client_name": name, "version": "0.8.18", "mt": "json"}
            self.say({"c": "logon", "cid": "0", "a": "processed", **about})
            assert self.read().header == {"c": "ack", "cid": "0", "a": "processed", "status": "success"}

    def say(self, header: dict[str, Any] | str, body: bytes = b"") -> None:
        text = header if isinstance(header, str) else json.dumps(header, separators=(",", ":"), ensure_ascii=False)
        self.send(frame(text.encode() + body))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> Frame:
        found = self.read_or_end()
        assert found is not None, "the server hung up"
        return found

    def read_or_end(self) -> Frame | None:
        """The next frame; None when the server has closed the connection."""
        try:
            prefix = self._file.read(4)
            if len(prefix) < 4:
                return None
            raw = self._file.read(int.from_bytes(prefix, "big"))
        except ConnectionResetError:
            return None
        text = raw.decode("latin-1")
        _, end = json.JSONDecoder().raw_decode(text)
        return Frame(json.loads(raw[:end]), raw[end:], raw)

    def ended(self) -> bool:
        """Whether the server closes without another word; waits for it."""
        return self.read_or_end() is None

    # whole conversations

    def ask(self, header: dict[str, Any], body: bytes = b"", answers: int = 1) -> list[Frame]:
        """Say it and read so many answers to it, with nothing else in between."""
        self.say(header, body)
        return [self.read() for _ in range(answers)]

    def publish(self, topic: str, *bodies: bytes) -> None:
        """Until they are stored."""
        for body in bodies:
            self.say({"c": "p", "cid": "p", "t": topic}, body)
        self.flush()

    def flush(self) -> None:
        (done,) = self.ask({"c": "flush", "cid": "f", "a": "completed"})
        assert done.outcome == ("completed", "success")

    def subscribe(self, topic: str, backlog: int | None = 10, sub_id: str = "1", **more: Any) -> Frame:
        options = {} if backlog is None else {"opts": f"max_backlog={backlog}"}
        command = {"c": "subscribe", "cid": sub_id, "t": topic, "a": "processed", "sub_id": sub_id}
        (done,) = self.ask({**command, **options, **more})
        assert done.outcome == ("processed", "success"), done.header
        return done

    def deliveries(self, count: int) -> list[Frame]:
        found = [self.read() for _ in range(count)]
        assert all(one["c"] == "p" for one in found), [one.header for one in found]
        return found

    def ack(self, topic: str, *bookmarks: str, **more: Any) -> int:
        """How many it settled."""
        (done,) = self.ask({"c": "ack", "cid": "a", "a": "processed", "t": topic, "bm": ",".join(bookmarks), **more})
        assert done.outcome == ("processed", "success"), done.header
        return int(done["records_deleted"])

    def nothing_comes(self) -> bool:
        """Whether the next thing the server says is the answer to this question."""
        (done,) = self.ask({"c": "flush", "cid": "quiet", "a": "processed"})
        return done.header.get("cid") == "quiet"

    # ends

    def goodbye(self) -> None:
        (done,) = self.ask({"c": "disconnect", "cid": "bye", "a": "processed"})
        assert done.outcome == ("processed", "success")
        self.close()

    def die(self) -> None:
        """As if its process were killed: the connection is reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def frame(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "big") + raw


def share(peer: Peer) -> list[str]:
    """What it was handed so far."""
    peer.say({"c": "flush", "cid": "so far", "a": "processed"})
    found: list[str] = []
    while (one := peer.read())["c"] == "p":
        found.append(one.body.decode())
    return found
