"""The graph as an extension of a store: its commands, its sweep duty, its invariants and its tables."""

from __future__ import annotations

import ackwise.graph.engine.overview  # noqa: F401  registers the queries about the whole graph
import ackwise.graph.engine.queries  # noqa: F401  registers the graph's queries
from ackwise.engine.extensions import Extension, Phase, handled
from ackwise.engine.ports import Session
from ackwise.graph.commands import (
    EndGraphSession,
    FetchGraph,
    OpenGraphSession,
    ReleaseGraph,
    RestartClocks,
    RunGraph,
)
from ackwise.graph.engine import session_commands, step_runs

_INVARIANTS = {
    "mew_audit_held": "entity {} is held by a lease that has ended",
    "mew_audit_leases": "lease {} of a delivery holds nothing",
    "mew_audit_items": "pool {} would hand out entity {}, which is held",
    "mew_audit_counts": "watch {} counts {} deliveries but holds {}",
    "mew_audit_orphans": "entity {} is gone but has values or edges",
}


def _audit(session: Session) -> list[str]:
    """Check that no entity has two live deliveries, that each delivery has a lease, and that the counts are right."""
    return [text.format(*row) for name, text in _INVARIANTS.items() for row in session.rows(name)]


def _has_sessions(session: Session, instance: str) -> bool:
    """Whether sessions of a broker may still return."""
    return session.row("mew_session_of_instance", {"instance": instance}) is not None


GRAPH = Extension(
    name="mew",
    tables="ackwise.graph.engine.tables",
    schema_version=2,
    lock="mew_lock",
    commands=dict(
        (
            handled(RunGraph, Phase.SETTLE, step_runs.run),
            handled(OpenGraphSession, Phase.SETTLE, session_commands.open_session),
            handled(EndGraphSession, Phase.SETTLE, session_commands.end_session),
            handled(ReleaseGraph, Phase.SETTLE, session_commands.release),
            handled(RestartClocks, Phase.SETTLE, session_commands.restart_clocks),
            handled(FetchGraph, Phase.AFTER_CLAIMS, session_commands.fetch),
        )
    ),
    duties={"graph": session_commands.sweep},
    audit=_audit,
    needs_instance=_has_sessions,
)
