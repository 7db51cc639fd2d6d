"""MEW in Python: sessions that change a graph, watch it, and consume and acknowledge its nodes.

Usage::

    with Session("sqlite:///graph.db") as session:
        session.run('node Job { payload: String }')
        session.run('SPAWN j: Job { payload = $payload }', payload="hello")
        for event in session.watch('WATCH j: Job [mode: consume] RETURN j', wait=0):
            if event.type == "consumed":
                session.ack(event)
"""

from ackwise.graph.errors import GraphError as MewError
from ackwise.mew.aio.session import AsyncSession
from ackwise.mew.sync.session import Session
from ackwise.protocols.mew.output_records import EventRecord, Note, Result

__all__ = ["AsyncSession", "Event", "EventRecord", "MewError", "Note", "Result", "Session"]

Event = EventRecord
"""Name of `EventRecord` in earlier versions."""
