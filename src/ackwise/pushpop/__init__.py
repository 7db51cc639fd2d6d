"""PushPop in Python: `PushPop` for threads, `PushPopActor` for asyncio, on a store in this process or over HTTP."""

from ackwise.pushpop.actor import PushPopActor
from ackwise.pushpop.backends import QueueLocked
from ackwise.pushpop.thread_actor import PushPop

__all__ = ["PushPop", "PushPopActor", "QueueLocked"]
