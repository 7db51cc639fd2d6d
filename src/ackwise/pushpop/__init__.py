"""PushPop in Python: `PushPop` for threads, `PushPopActor` for asyncio, each on a store of its own or over HTTP."""

from ackwise.pushpop.actor import PushPopActor
from ackwise.pushpop.locked import QueueLocked
from ackwise.pushpop.threads import PushPop

__all__ = ["PushPop", "PushPopActor", "QueueLocked"]
