"""Session of one AMPS client: handles its commands in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from ackwise.core import validation
from ackwise.core.commands import Break, ByRange, release_command
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.filter_parser import parse_filter
from ackwise.core.messages import QUEUE_MODE
from ackwise.observability.debug_log import debug_records
from ackwise.protocols.amps import ack, publish
from ackwise.protocols.amps.heartbeat import Heartbeat
from ackwise.protocols.amps.publish import AmpsPublisher
from ackwise.protocols.amps.subscription import QueueSubscription, TopicListener
from ackwise.wire.amps import FAILURE, SUCCESS, TRACED, BadFrame, Frame, Header, packed, text

if TYPE_CHECKING:
    from ackwise.protocols.amps.connection import AmpsConnection
    from ackwise.protocols.amps.server_state import AmpsService

log = logging.getLogger("ackwise.amps")

MOST_WAITING = 2000
"""Unanswered frames of a client at which the session pauses reading."""
MOST_BYTES = 8 << 20
"""Bytes of unanswered frames at which the session pauses reading."""
FRAME_WEIGHT = 512
"""Bytes that a frame counts in addition to its own."""
MOST_SUBSCRIPTIONS = 1000
LONGEST_ID = 255
_WORLD = ("group_begin", "group_end")
WITHOUT_WORLD = ("sow", "delta_subscribe", "sow_and_delta_subscribe")
"""Commands that need a state of the world."""


class AmpsSession:
    """Handles frames from `receive` one after the other. Pushes and acks run as tasks meanwhile."""

    def __init__(self, service: AmpsService, connection: AmpsConnection) -> None:
        self.service, self.connection = service, connection
        self.owner = service.owner()
        self.subscriptions: dict[str, QueueSubscription | TopicListener] = {}
        self.ending = False
        """Whether the session accepts no more frames."""
        self._clean = False
        self._logged_on = False
        self._heartbeat_timer = Heartbeat(connection)
        self._publisher = AmpsPublisher(self)
        self._frames: list[tuple[Frame | BadFrame, int]] = []
        self._weight = 0
        self._arrived = asyncio.Event()
        self._closed = asyncio.Event()
        self._work: set[asyncio.Task[None]] = set()
        self._settling: set[asyncio.Task[None]] = set()
        """Running acks. The session releases no message before they are done."""
        self._commands: dict[str, Callable[[Header], Awaitable[None]]] = {
            "subscribe": self._subscribe,
            "sow_and_subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "flush": self._flush,
            "heartbeat": self._heartbeat,
            "disconnect": self._disconnect,
            "logoff": self._disconnect,
            "logon": self._logon,
            **dict.fromkeys(WITHOUT_WORLD, self._refuse_world),
        }
        service.sessions.add(self)
        self._task = asyncio.get_running_loop().create_task(self._run())

    # frames

    def receive(self, frame: Frame | BadFrame, size: int = 0) -> None:
        weight = size + FRAME_WEIGHT
        self._frames.append((frame, weight))
        self._weight += weight
        self._arrived.set()
        self._limit_load()

    def connection_closed(self) -> None:
        """Ends the session after the frames that have arrived."""
        self._closed.set()
        self._arrived.set()

    def wake(self) -> None:
        """Tells the dispatchers that the client has stopped or resumed reading."""
        for subscription in self.subscriptions.values():
            if isinstance(subscription, QueueSubscription) and subscription.dispatcher is not None:
                subscription.dispatcher.wake()

    def subtract_load(self, weight: int) -> None:
        """Subtracts answered frames from the load."""
        self._weight -= weight
        self._limit_load()

    def _limit_load(self) -> None:
        if len(self._frames) + len(self._work) > MOST_WAITING or self._weight > MOST_BYTES:
            self.connection.pause_reading("load")
        else:
            self.connection.resume_reading("load")

    def start_work(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs work as a task while the session handles further frames. Tasks begin in the order of these calls."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        self._limit_load()
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("an AMPS command failed", exc_info=problem)

    async def _run(self) -> None:
        try:
            while not self.ending and (self._frames or not self._closed.is_set()):
                await self._arrived.wait()
                self._arrived.clear()
                frames, self._frames = self._frames, []
                self._limit_load()
                await self._handle_all(frames)
        except Exception:
            log.exception("an AMPS connection failed")
        finally:
            await self._end()

    async def _handle_all(self, frames: list[tuple[Frame | BadFrame, int]]) -> None:
        """Handles frames in order. Publishes that arrived together share a turn, and so do acks."""
        acks: list[tuple[Header, int]] = []
        for frame, weight in frames:
            if not isinstance(frame, BadFrame) and self._logged_on:
                header, body = frame
                if header.command in publish.COMMANDS:
                    await self._publisher.add(header, body, weight)
                    continue
                if header.command in ack.COMMANDS:
                    acks.append((header, weight))
                    continue
            self._send(acks)
            acks = []
            await self._handle(frame)
            self.subtract_load(weight)
            if self.ending:
                return
        self._send(acks)

    def _send(self, acks: Sequence[tuple[Header, int]]) -> None:
        self._publisher.send()
        if acks:
            self._settle(self._ack([header for header, _ in acks], sum(weight for _, weight in acks)))

    async def _ack(self, acks: Sequence[Header], weight: int) -> None:
        try:
            await ack.settle_all(self, acks)
        finally:
            self.subtract_load(weight)

    def _settle(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.start_work(work)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _handle(self, frame: Frame | BadFrame) -> None:
        if isinstance(frame, BadFrame):
            await self._reject(Header(), frame)
            return
        header = frame[0]
        if not self._logged_on and header.command != "logon":
            await self._reject(header, BadInput("the first command must be logon"))
            return
        handler = self._commands.get(header.command)
        try:
            if handler is None:
                raise BadInput(f"there is no command {header.command[:40]!r}")
            await handler(header)
        except AckwiseError as problem:
            self.refuse(header, problem)

    async def _reject(self, header: Header, problem: AckwiseError) -> None:
        """Finishes earlier commands, answers with the error and closes the connection."""
        await self._wait_for_work()
        self.refuse(header, problem, in_any_case=True)
        self._close()

    # answers

    def answer(self, header: Header, **more: Any) -> None:
        """Answers success, once for each kind of ack that the command requests."""
        if header.cid is None:
            return
        for kind in header.acknowledgements:
            self.send(Header(c="ack", cid=header.cid, a=kind, status=SUCCESS, **more))

    def refuse(self, header: Header, problem: AckwiseError, *, in_any_case: bool = False) -> None:
        """Answers failure, as `processed` by default. A command without an id gets no answer."""
        if header.cid is None and not in_any_case:
            return
        for kind in header.acknowledgements or ["processed"]:
            self.send(Header(c="ack", cid=header.cid, a=kind, status=FAILURE, reason=problem.message))

    def send(self, header: Header) -> None:
        self.connection.write(packed(header))

    # commands

    async def _logon(self, header: Header) -> None:
        if self._logged_on:
            raise BadInput("this client is logged on already")
        name = text(header.client_name)
        if name:
            validation.name(name, "client_name")
        try:
            self.service.admit(name, text(header.user_id), text(header.pw))
        except AckwiseError as problem:
            await self._reject(header, problem)
            return
        self._logged_on = True
        self.connection.stop_timer("logon")
        debug_records.write(log, "logged on", peer=self.connection.address, client=name)
        self.answer(header)

    async def _subscribe(self, header: Header) -> None:
        sub_id = validation.name(header.subscription or text(header.cid), "sub_id")
        if sub_id in self.subscriptions and "replace" not in header.options:
            raise BadInput(f"there is a subscription {sub_id!r} already")
        if len(self.subscriptions) >= MOST_SUBSCRIPTIONS:
            raise BadInput(f"a client has at most {MOST_SUBSCRIPTIONS} subscriptions")
        subscription = await self._subscription(header, sub_id)
        if self._closed.is_set():
            return
        if subscription.content_filter is not None:
            self.service.filters.add(self.connection.address, subscription.content_filter.text)
        if sub_id in self.subscriptions:
            await self._wait_for_acks()
            await self._remove(sub_id).end()
        self.subscriptions[sub_id] = subscription
        if self._closed.is_set():
            self._remove(sub_id)
            return
        if header.cid is not None:
            self._answer_subscribe(header, sub_id, subscription)
        debug_records.write(
            log,
            "subscribed",
            peer=self.connection.address,
            topic=subscription.topic,
            filtered=subscription.content_filter is not None,
        )
        subscription.begin()

    def _remove(self, sub_id: str) -> QueueSubscription | TopicListener:
        subscription = self.subscriptions.pop(sub_id)
        if subscription.content_filter is not None:
            self.service.filters.remove(self.connection.address, subscription.content_filter.text)
        return subscription

    def _answer_subscribe(self, header: Header, sub_id: str, subscription: QueueSubscription | TopicListener) -> None:
        granted = f"max_backlog={subscription.backlog}" if isinstance(subscription, QueueSubscription) else None
        answers = [
            Header(c="ack", cid=header.cid, a=kind, sub_id=sub_id, status=SUCCESS, o=granted)
            for kind in header.acknowledgements
        ]
        if header.command == "sow_and_subscribe":
            # Queues and topics have no state of the world, so the server sends an empty one before `completed`.
            topic = subscription.topic
            world = [Header(c=word, cid=header.cid, t=topic, sids=sub_id, sub_id=sub_id) for word in _WORLD]
            at = len(answers) - (answers[-1:] != [] and answers[-1].a == "completed")
            answers[at:at] = world
        for reply in answers:
            self.send(reply)

    async def _subscription(self, header: Header, sub_id: str) -> QueueSubscription | TopicListener:
        """The subscription that a command describes. Checks the command before it creates anything."""
        topic, options = validation.name(header.subject, "topic"), header.options
        backlog = _backlog(options, self.service.default_backlog)
        filter_text = header.content_filter
        content_filter = parse_filter(filter_text) if filter_text else None
        queue = self.service.queue_of(topic)
        if queue is None:
            if header.bookmarks:
                raise BadInput(f"{header.command}: a plain topic keeps no messages, so a bookmark cannot replay any")
            return TopicListener(self, topic, sub_id, content_filter, traced=TRACED in options)
        validation.name(queue, "queue")
        group = validation.name(options.get("group") or QUEUE_MODE, "group")
        about = await self.service.queue_options(topic, queue)
        if content_filter is not None and about.in_order:
            raise BadInput(
                f"queue {queue!r} delivers in strict order, and a filter would skip messages; "
                "subscribe without a filter, or set order=relaxed"
            )
        return QueueSubscription(
            self,
            topic,
            sub_id,
            queue,
            group,
            backlog=min(backlog, about.max_backlog),
            strict=about.only_holder_acks,
            content_filter=content_filter,
            traced=TRACED in options,
        )

    async def _refuse_world(self, header: Header) -> None:
        raise BadInput(
            f"{header.command} is not supported: queues and topics have no state of the world; use subscribe"
        )

    async def _unsubscribe(self, header: Header) -> None:
        sub_id = header.subscription or text(header.cid)
        if sub_id != "all" and sub_id not in self.subscriptions:
            raise BadInput(f"there is no subscription {sub_id[:LONGEST_ID]!r}")
        await self._wait_for_acks()
        for name in list(self.subscriptions) if sub_id == "all" else [sub_id]:
            await self._remove(name).end()
        self.answer(header, sub_id=sub_id)

    async def _flush(self, header: Header) -> None:
        """Answers when all earlier commands are committed."""
        await self._wait_for_work()
        self.answer(header)

    async def _heartbeat(self, header: Header) -> None:
        if self._heartbeat_timer.configure(header.options):
            self.answer(header)
            self._heartbeat_timer.start()

    async def _disconnect(self, header: Header) -> None:
        self._clean = True
        await self._wait_for_acks()
        await self._end_subscriptions()
        await self._wait_for_work()
        self.answer(header)
        self._close()

    # leases

    def expire(self, lease: int, places: list[ByRange]) -> None:
        """Makes dead letters of messages that expired before delivery."""
        self._settle(ack.expire(self, lease, places))

    async def give_back(self, leases: list[str]) -> None:
        if leases:
            await self.service.broker.send(release_command(leases))

    # the end

    def _close(self) -> None:
        self.ending = True
        self.connection.close()

    async def close(self) -> None:
        """Ends the session when the server stops. Releases the client's messages. A release costs no failure."""
        self._clean = True
        self._close()
        self.connection_closed()
        await asyncio.wait([self._task])

    async def _wait_for_acks(self) -> None:
        """Waits until running acks are done."""
        while self._settling:
            await asyncio.wait(list(self._settling))

    async def _wait_for_work(self) -> None:
        """Waits until all running work is done or the connection is closed."""
        closed = asyncio.ensure_future(self._closed.wait())
        while self._work and not closed.done():
            done = asyncio.ensure_future(asyncio.wait(list(self._work)))
            await asyncio.wait([done, closed], return_when=asyncio.FIRST_COMPLETED)
            done.cancel()
        closed.cancel()

    async def _end(self) -> None:
        """Ends the session and returns what the client holds: released after a logoff, else as a failure."""
        self.ending = True
        self._heartbeat_timer.stop()
        try:
            await self._wait_for_acks()
            await self._end_subscriptions()
        except AckwiseError as problem:
            log.warning("messages of an AMPS client return when their leases expire: %s", problem)
        finally:
            # Publishes may still wait for an overloaded broker. Returning the leases does not wait for them.
            while self._work:
                await asyncio.wait(list(self._work))
            self.service.sessions.discard(self)
            self.connection.close()

    async def _end_subscriptions(self) -> None:
        leases: list[str] = []
        for subscription in [self._remove(sub_id) for sub_id in list(self.subscriptions)]:
            if isinstance(subscription, QueueSubscription):
                leases += await subscription.leave()
            else:
                await subscription.end()
        if self._clean:
            await self.give_back(leases)
        elif leases:
            await self.service.broker.send(Break(lease_ids=leases))


def _backlog(options: dict[str, str], default: int) -> int:
    backlog = options.get("max_backlog", str(default))
    if not backlog.isdecimal() or len(backlog) > 10 or int(backlog) < 1:
        raise BadInput(f"max_backlog must be a whole number from 1, not {backlog[:40]!r}")
    return int(backlog)
