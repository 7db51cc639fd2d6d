"""What one client says, in its order, and what it is answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from ackwise.core import limits
from ackwise.core.amps.frames import BadFrame, Frame, packed
from ackwise.core.amps.headers import FAILURE, SUCCESS, Header, text
from ackwise.core.commands import Break, ByRange, giving_back
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.messages import QUEUE_MODE
from ackwise.dialects.amps import acking
from ackwise.dialects.amps.beating import Heart
from ackwise.dialects.amps.publishing import Publishing
from ackwise.dialects.amps.subscription import Listener, Subscription

if TYPE_CHECKING:
    from ackwise.dialects.amps.connection import Connection
    from ackwise.dialects.amps.face import AmpsFace

log = logging.getLogger("ackwise.amps")

MOST_WAITING = 2000
"""Frames that were read and not yet looked at, or looked at and not yet answered, before reading stops."""
MOST_BYTES = 8 << 20
"""What frames may weigh that were read and are not answered, before reading stops."""
FRAME_WEIGHT = 512
"""What a frame weighs beside its bytes."""
MOST_SUBSCRIPTIONS = 1000
LONGEST_ID = 255
_WORLD = ("group_begin", "group_end")


class Session:
    """Frames come in by `take` and are handled one after the other; what they cause may take its time beside them."""

    def __init__(self, face: AmpsFace, connection: Connection) -> None:
        self.face, self.connection = face, connection
        self.owner = face.owner()
        self.subscriptions: dict[str, Subscription | Listener] = {}
        self.ending = False
        """Nothing more is taken from this client."""
        self._clean = False
        self._known = False
        self._heart = Heart(connection)
        self._publishing = Publishing(self)
        self._frames: list[tuple[Frame | BadFrame, int]] = []
        self._weight = 0
        self._arrived = asyncio.Event()
        self._gone = asyncio.Event()
        self._work: set[asyncio.Task[None]] = set()
        self._settling: set[asyncio.Task[None]] = set()
        """Of that work, acks: nothing is given back before they are done."""
        self._commands: dict[str, Callable[[Header], Awaitable[None]]] = {
            "subscribe": self._subscribe,
            "sow_and_subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "flush": self._flush,
            "heartbeat": self._heartbeat,
            "disconnect": self._disconnect,
            "logoff": self._disconnect,
            "logon": self._logon,
        }
        face.sessions.add(self)
        self._task = asyncio.get_running_loop().create_task(self._run())

    # what comes in

    def take(self, frame: Frame | BadFrame, size: int = 0) -> None:
        weight = size + FRAME_WEIGHT
        self._frames.append((frame, weight))
        self._weight += weight
        self._arrived.set()
        self._mind_the_load()

    def hung_up(self) -> None:
        """The connection is closed; what came before is still done."""
        self._gone.set()
        self._arrived.set()

    def look(self) -> None:
        """Its client reads again, or does not."""
        for one in self.subscriptions.values():
            if isinstance(one, Subscription) and one.share is not None:
                one.share.look()

    def relieve(self, weight: int) -> None:
        """So much of what it sent is done with."""
        self._weight -= weight
        self._mind_the_load()

    def _mind_the_load(self) -> None:
        if len(self._frames) + len(self._work) > MOST_WAITING or self._weight > MOST_BYTES:
            self.connection.hold("load")
        else:
            self.connection.release("load")

    def beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do it while the next frames are looked at; work begins in the order in which it was given."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        self._mind_the_load()
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("an AMPS command failed", exc_info=problem)

    async def _run(self) -> None:
        try:
            while not self.ending and (self._frames or not self._gone.is_set()):
                await self._arrived.wait()
                self._arrived.clear()
                frames, self._frames = self._frames, []
                self._mind_the_load()
                await self._handle_all(frames)
        except Exception:
            log.exception("an AMPS connection failed")
        finally:
            await self._end()

    async def _handle_all(self, frames: list[tuple[Frame | BadFrame, int]]) -> None:
        """Publishes and acks that came together go into one turn each."""
        acks: list[tuple[Header, int]] = []
        for frame, weight in frames:
            if not isinstance(frame, BadFrame) and self._known:
                header, body = frame
                if header.command == "p":
                    self._publishing.add(header, body, weight)
                    continue
                if header.command in acking.COMMANDS:
                    acks.append((header, weight))
                    continue
            self._send(acks)
            acks = []
            await self._handle(frame)
            self.relieve(weight)
            if self.ending:
                return
        self._send(acks)

    def _send(self, acks: Sequence[tuple[Header, int]]) -> None:
        self._publishing.send()
        if acks:
            self._settle(self._ack([header for header, _ in acks], sum(weight for _, weight in acks)))

    async def _ack(self, acks: Sequence[Header], weight: int) -> None:
        try:
            await acking.settle_all(self, acks)
        finally:
            self.relieve(weight)

    def _settle(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.beside(work)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _handle(self, frame: Frame | BadFrame) -> None:
        if isinstance(frame, BadFrame):
            await self._part(Header(), frame)
            return
        header = frame[0]
        if not self._known and header.command != "logon":
            await self._part(header, BadInput("the first command must be logon"))
            return
        handler = self._commands.get(header.command)
        try:
            if handler is None:
                raise BadInput(f"there is no command {header.command[:40]!r}")
            await handler(header)
        except AckwiseError as problem:
            self.refuse(header, problem)

    async def _part(self, header: Header, problem: AckwiseError) -> None:
        """Finish what came before, say why, and hang up."""
        await self._settle_down()
        self.refuse(header, problem, in_any_case=True)
        self._hang_up()

    # what goes out

    def answer(self, header: Header, **more: Any) -> None:
        """Success, once for each kind of answer that was asked for."""
        if header.cid is None:
            return
        for kind in header.asked:
            self.send(Header(c="ack", cid=header.cid, a=kind, status=SUCCESS, **more))

    def refuse(self, header: Header, problem: AckwiseError, *, in_any_case: bool = False) -> None:
        """Failure; a command that asks for nothing in particular is told `processed`, one without a name nothing."""
        if header.cid is None and not in_any_case:
            return
        for kind in header.asked or ["processed"]:
            self.send(Header(c="ack", cid=header.cid, a=kind, status=FAILURE, reason=problem.message))

    def send(self, header: Header) -> None:
        self.connection.write(packed(header))

    # commands

    async def _logon(self, header: Header) -> None:
        if self._known:
            raise BadInput("this client is logged on already")
        name = text(header.client_name)
        if name:
            limits.name(name, "client_name")
        try:
            self.face.admit(name, text(header.user_id), text(header.pw))
        except AckwiseError as problem:
            await self._part(header, problem)
            return
        self._known = True
        self.connection.unwatch("logon")
        self.answer(header)

    async def _subscribe(self, header: Header) -> None:
        sub_id = limits.name(header.subscription or text(header.cid), "sub_id")
        if sub_id in self.subscriptions and "replace" not in header.options:
            raise BadInput(f"there is a subscription {sub_id!r} already")
        if len(self.subscriptions) >= MOST_SUBSCRIPTIONS:
            raise BadInput(f"a client has at most {MOST_SUBSCRIPTIONS} subscriptions")
        made = await self._subscription(header, sub_id)
        if sub_id in self.subscriptions:
            await self._settled()
            await self.subscriptions.pop(sub_id).end()
        if self._gone.is_set():
            return
        self.subscriptions[sub_id] = made
        granted = f"max_backlog={made.backlog}" if isinstance(made, Subscription) else None
        told = [
            Header(c="ack", cid=header.cid, a=kind, sub_id=sub_id, status=SUCCESS, o=granted) for kind in header.asked
        ]
        if header.command == "sow_and_subscribe":
            # Nothing here has a state of the world: it is empty, and said to be, before the command is completed.
            world = [Header(c=word, cid=header.cid, t=made.topic, sids=sub_id, sub_id=sub_id) for word in _WORLD]
            at = len(told) - (told[-1:] != [] and told[-1].a == "completed")
            told[at:at] = world
        for one in told if header.cid is not None else []:
            self.send(one)
        made.begin()

    async def _subscription(self, header: Header, sub_id: str) -> Subscription | Listener:
        topic, options = limits.name(header.subject, "topic"), header.options
        backlog = _backlog(options)
        queue = self.face.queue_of(topic)
        if queue is None:
            return Listener(self, topic, sub_id)
        limits.name(queue, "queue")
        group = limits.name(options.get("group") or QUEUE_MODE, "group")
        cap, strict = await self.face.terms(queue)
        return Subscription(self, topic, sub_id, queue, group, backlog=min(backlog, cap), strict=strict)

    async def _unsubscribe(self, header: Header) -> None:
        sub_id = header.subscription or text(header.cid)
        if sub_id != "all" and sub_id not in self.subscriptions:
            raise BadInput(f"there is no subscription {sub_id[:LONGEST_ID]!r}")
        await self._settled()
        for name in list(self.subscriptions) if sub_id == "all" else [sub_id]:
            await self.subscriptions.pop(name).end()
        self.answer(header, sub_id=sub_id)

    async def _flush(self, header: Header) -> None:
        """Answered when everything before it is committed."""
        await self._settle_down()
        self.answer(header)

    async def _heartbeat(self, header: Header) -> None:
        if self._heart.told(header.options):
            self.answer(header)
            self._heart.start()

    async def _disconnect(self, header: Header) -> None:
        self._clean = True
        await self._settled()
        await self._leave()
        await self._settle_down()
        self.answer(header)
        self._hang_up()

    # leases

    def expire(self, lease: int, places: list[ByRange]) -> None:
        """Messages of a lease whose time was over before they could be delivered."""
        self._settle(acking.expire(self, lease, places))

    async def give_back(self, leases: list[str]) -> None:
        if leases:
            await self.face.broker.send(giving_back(leases))

    # the end

    def _hang_up(self) -> None:
        self.ending = True
        self.connection.close()

    async def dismiss(self) -> None:
        """The server ends: nothing that this client holds costs anything."""
        self._clean = True
        self._hang_up()
        self.hung_up()
        await asyncio.wait([self._task])

    async def _settled(self) -> None:
        """Until acks that were begun are done."""
        while self._settling:
            await asyncio.wait(list(self._settling))

    async def _settle_down(self) -> None:
        """Until what was begun is done, or nobody is there any more to be told."""
        gone = asyncio.ensure_future(self._gone.wait())
        while self._work and not gone.done():
            done = asyncio.ensure_future(asyncio.wait(list(self._work)))
            await asyncio.wait([done, gone], return_when=asyncio.FIRST_COMPLETED)
            done.cancel()
        gone.cancel()

    async def _end(self) -> None:
        """What it still holds goes back at once: unspent if it said good-bye, else with a failure."""
        self.ending = True
        self._heart.stop()
        try:
            await self._settled()
            await self._leave()
        except AckwiseError as problem:
            log.warning("what an AMPS client held comes back when its leases run out: %s", problem)
        finally:
            # Its publishes may still wait for room in the store: what it held does not wait for them.
            while self._work:
                await asyncio.wait(list(self._work))
            self.face.sessions.discard(self)
            self.connection.close()

    async def _leave(self) -> None:
        leases: list[str] = []
        for one in self.subscriptions.values():
            if isinstance(one, Subscription):
                leases += await one.leave()
            else:
                await one.end()
        self.subscriptions.clear()
        if self._clean:
            await self.give_back(leases)
        elif leases:
            await self.face.broker.send(Break(lease_ids=leases))


def _backlog(options: dict[str, str]) -> int:
    asked = options.get("max_backlog", "1")
    if not asked.isdecimal() or len(asked) > 10 or int(asked) < 1:
        raise BadInput(f"max_backlog must be a whole number from 1, not {asked[:40]!r}")
    return int(asked)
