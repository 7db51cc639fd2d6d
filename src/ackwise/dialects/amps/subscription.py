"""Subscriptions: to a queue, which hands out deliveries under leases, and to a plain topic, which only tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ackwise.broker.handing import Run, runs
from ackwise.core.amps import bookmarks
from ackwise.core.amps.frames import pack
from ackwise.core.amps.headers import quoted
from ackwise.core.answers import Handed
from ackwise.core.commands import ByRange
from ackwise.core.messages import Extras
from ackwise.dialects.amps.handouts import Handout, Handouts
from ackwise.dialects.amps.shares import Share

if TYPE_CHECKING:
    from ackwise.dialects.amps.session import Session

EXPIRES_AT = "ackwise-amps-expires-at"
"""The header that keeps a published message's expiration, in microseconds since 1970; a name nobody else uses."""
_LONGEST_INSTANT = 18
_extras = msgspec.json.Decoder(Extras).decode


class Listener:
    """Hears what is published to a plain topic."""

    def __init__(self, session: Session, topic: str, sub_id: str) -> None:
        self.session, self.topic, self.sub_id = session, topic, sub_id
        self._header = b'{"c":"p",%b}' % named(topic, sub_id)

    def begin(self) -> None:
        self.session.face.topics.join(self)

    def tell(self, body: bytes) -> None:
        self.session.connection.tell(pack(self._header, body))

    async def end(self) -> None:
        self.session.face.topics.leave(self)


class Subscription:
    """Takes deliveries of a queue, never more at once than its backlog."""

    def __init__(
        self, session: Session, topic: str, sub_id: str, queue: str, group: str, *, backlog: int, strict: bool
    ) -> None:
        self.session, self.topic, self.sub_id, self.queue, self.group = session, topic, sub_id, queue, group
        self.backlog, self.strict = backlog, strict
        self.share: Share | None = None
        """From when it begins."""
        self.held = 0
        self.leases: dict[int, Handout] = {}
        self.ended = False
        self._front = b'{"c":"p",%b,"bm":"' % named(topic, sub_id)

    @property
    def owner(self) -> str:
        return self.session.owner

    @property
    def room(self) -> int:
        """How many deliveries it may be handed now: none while its client does not read what it has."""
        if self.ended or not self.session.connection.writable:
            return 0
        return max(0, self.backlog - self.held)

    @property
    def handouts(self) -> Handouts:
        return self.session.face.handouts

    def deliver(self, handed: Handed) -> int | None:
        """Send what was claimed for it; how many bytes. None when its client is no longer there."""
        if self.ended or self.session.connection.closing:
            return None
        claimed = handed.claimed
        front = self._front + bookmarks.front(claimed.lease_no, claimed.tag).encode()
        back = b'|","lp":"%b"}' % bookmarks.stamp(claimed.deadline).encode()
        frames: list[bytes] = []
        expired: list[ByRange] = []
        for run in runs(handed):
            _, _, bodies, packed = run.segment.cells(run.lo, run.hi)
            late = self._late(run, packed) if packed is not None else frozenset()
            first = bookmarks.place(run.grant.lane, run.lo)
            for number, body in enumerate(bodies):
                if number in late:
                    expired.append(ByRange(claimed.lease_id, run.grant.lane, run.lo + number, run.lo + number + 1))
                else:
                    frames.append(pack(b"%b%d%b" % (front, first + number, back), body))
        data = b"".join(frames)
        self.handouts.add(claimed.lease_no, Handout(self, claimed.lease_id, claimed.count, claimed.deadline))
        self.session.connection.write(data)
        if expired:
            self.session.expire(claimed.lease_no, expired)
        return len(data)

    def _late(self, run: Run, packed: list[bytes]) -> frozenset[int]:
        """Messages that were published to be of use only until now."""
        now = self.session.face.broker.now()
        limits = [_extras(one).headers.get(EXPIRES_AT, "") if one else "" for one in packed]
        return frozenset(at for at, limit in enumerate(limits) if _instant(limit, now) <= now)

    def begin(self) -> None:
        self.share = self.session.face.share(self.queue, self.group)
        self.share.join(self)

    def freed(self, count: int) -> None:
        self.held -= count
        if self.share is not None:
            self.share.look()

    def lost(self, count: int) -> None:
        """What it held for too long goes to somebody else, if there is somebody."""
        if self.share is not None:
            self.share.come_last(self)
        self.freed(count)

    async def step_back(self) -> None:
        """It is about to give a message back, which the others are to be asked for first."""
        if self.share is not None:
            await self.share.step_back(self)

    async def leave(self) -> list[str]:
        """Take nothing more; the leases it leaves behind."""
        self.ended = True
        if self.share is not None:
            await self.share.leave(self)
        return self.handouts.take(self)

    async def end(self) -> None:
        await self.session.give_back(await self.leave())


def _instant(limit: str, now: int) -> int:
    """An expiration; what is none does not expire."""
    return int(limit) if limit.isdecimal() and len(limit) <= _LONGEST_INSTANT else now + 1


def named(topic: str, sub_id: str) -> bytes:
    name = quoted(sub_id)
    return b'"t":%b,"sids":%b,"sub_id":%b' % (quoted(topic), name, name)
