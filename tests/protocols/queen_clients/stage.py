"""What a scenario gets, and the list of them. The clients' environments have only the standard library beside."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple

VERSIONS = ("0.15.0", "2.6.0")
MODES = ("seed", "upstream")
PATIENCE = 60_000
"""Milliseconds that a poll waits for a message that has to come."""

IDLE = 5000
"""Milliseconds without a message after which a consumer ends by itself; longer than a poll takes on a busy machine."""

Message = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """An official client at a server, and a queue name that no other scenario uses."""

    queen: Any
    new_client: Callable[..., Any]
    version: str
    mode: str
    name: str

    @property
    def seed(self) -> bool:
        return self.mode == "seed"

    def queue(self, name: str = "") -> Any:
        """The client's builder for this scenario's queue, or for one named after it."""
        return self.queen.queue(self.name + name)

    async def create(self, name: str = "", **options: Any) -> Any:
        return await self.queue(name).config(options).create()

    async def push(self, *payloads: Any, to: str = "", partition: str = "Default") -> list[Any]:
        items = [{"data": payload} for payload in payloads]
        results: list[Any] = await self.queue(to).partition(partition).push(items)
        assert [result["status"] for result in results] == ["queued"] * len(payloads), results
        return results

    async def pop(self, most: int = 10, *, of: str = "", group: str | None = None) -> list[Message]:
        """What is there now."""
        return await self._popped(of, most, group, wait=False)

    async def await_pop(self, most: int = 10, *, of: str = "", group: str | None = None) -> list[Message]:
        """What is there, or the first that comes."""
        return await self._popped(of, most, group, wait=True)

    async def _popped(self, of: str, most: int, group: str | None, *, wait: bool) -> list[Message]:
        builder = self.queue(of).batch(most).partitions(1).wait(wait).timeout_millis(PATIENCE)
        found: list[Message] = await (builder.group(group) if group else builder).pop()
        return found

    async def only(self, *, of: str = "", group: str | None = None) -> Message:
        """The one message that is there now."""
        (message,) = await self.pop(of=of, group=group)
        return message

    async def end_lease_soon(self, message: Message) -> None:
        """Shortens the message's lease with the native API: Queen's own call only makes leases longer."""
        await self.queen._http_client.post("/v1/extend", {"lease_id": message["leaseId"], "lease_seconds": 0.01})

    async def dead(self, group: str | None = None) -> list[Message]:
        answer = await self.queue().dlq(group).get()
        assert answer["total"] == len(answer["messages"]), answer
        found: list[Message] = answer["messages"]
        return found


Play = Callable[[Stage], Coroutine[Any, Any, None]]


class Scenario(NamedTuple):
    play: Play
    versions: tuple[str, ...]
    alone: bool = False
    """Whether it changes the whole server, so that no other scenario may run beside it."""

    @property
    def name(self) -> str:
        return self.play.__name__


SCENARIOS: list[Scenario] = []


def scenario(*, versions: tuple[str, ...] = VERSIONS, alone: bool = False) -> Callable[[Play], Play]:
    """Put a function on the list; some clients cannot do everything."""

    def enlist(play: Play) -> Play:
        SCENARIOS.append(Scenario(play, versions, alone))
        return play

    return enlist


def bodies(messages: list[Message]) -> list[Any]:
    return [message["data"] for message in messages]


async def refusal(call: Awaitable[Any]) -> str:
    """Why a call failed."""
    try:
        await call
    except Exception as problem:
        return str(problem)
    raise AssertionError("it was done")


async def eventually(look: Callable[[], Awaitable[Any]]) -> Any:
    """What `look` finds once it finds something; the scenario's deadline ends a vain search."""
    while not (found := await look()):
        await asyncio.sleep(0.05)
    return found
