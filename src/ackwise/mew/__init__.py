"""MEW in Python: sessions over a graph whose nodes are watched, consumed and acknowledged.

Usage::

    with Session("sqlite:///graph.db") as session:
        session.run('node Job { payload: String }')
        session.run('SPAWN j: Job { payload = $payload }', payload="hello")
        for event in session.watch('WATCH j: Job [mode: consume] RETURN j', wait=0):
            session.ack(event)
"""

from ackwise.core.graph.faults import GraphError as MewError
from ackwise.dialects.mew.lines import Event, Note, Result
from ackwise.mew.aio.session import AsyncSession
from ackwise.mew.sync.session import Session

__all__ = ["AsyncSession", "Event", "MewError", "Note", "Result", "Session"]
