"""Settings of `ackwise serve`."""

from __future__ import annotations

from typing import Literal

import msgspec

from ackwise.core import validation
from ackwise.core.errors import BadInput
from ackwise.core.validation import is_loopback
from ackwise.engine.statement_limits import DEFAULT_LIMITS, StatementLimits
from ackwise.protocols.amps.server_state import DEFAULT_BACKLOG, MAX_BACKLOG
from ackwise.protocols.answer_memory import DEFAULT_MEMORY
from ackwise.server import gates
from ackwise.server.app import DEFAULT_MAX_BODY
from ackwise.wire.amps import LARGEST

QueenDefaults = Literal["seed", "upstream"]
Start = Literal["all", "new"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `ackwise serve`."""

    host: str = "127.0.0.1"
    port: int = 6632
    pushpop_port: int | None = None
    pushpop_default_priority: int = 0
    pushpop_sink_hosts: tuple[str, ...] = ()
    amps_port: int | None = None
    """Port for AMPS clients. None: the server does not speak AMPS."""
    amps_queues: tuple[str, ...] = ()
    """Topics that are queues, in addition to those that begin with `queue://`."""
    amps_max_backlog: int = MAX_BACKLOG
    amps_default_backlog: int = DEFAULT_BACKLOG
    """Backlog of an AMPS subscription that names no backlog. `amps_max_backlog` is the maximum."""
    amps_max_frame: int = LARGEST
    queen_defaults: QueenDefaults = "seed"
    default_subscription: Start = "all"
    insecure: bool = False
    max_body: int = DEFAULT_MAX_BODY
    max_connections: int = 10_000
    answer_bytes: int = validation.DEFAULT_CLAIM_BYTES
    """Payload bytes at which an answer to a claim stops. Also bounds one delivery to AMPS subscribers."""
    answer_memory: int = DEFAULT_MEMORY
    """Maximum number of bytes of answers that the server builds, and of answers that slow clients have not read."""
    grace: float = 10.0
    statement: StatementLimits = DEFAULT_LIMITS
    """Limits of one MEW statement."""
    keep_alive: float = 75.0
    """Seconds until the server closes an idle connection. Clients should close theirs earlier."""
    cors: tuple[str, ...] = ()
    """Origins whose pages may use the API. `*` is every origin."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names that requests may use, in addition to IP literals and loopback names."""
    peer_share: float = 0.5
    """The share of the connections that one peer address may hold."""
    read_only_dashboard: bool = False
    """Whether the dashboard shows no buttons and refuses changes."""
    dashboard_label: str = ""
    """A word in the header of each page, such as `demo`."""

    def fields(self) -> list[tuple[str, object]]:
        """Names and values. The limits of a statement are fields, too."""
        plain = msgspec.structs.asdict(self)
        limits = msgspec.structs.asdict(plain.pop("statement"))
        return [*plain.items(), *((f"statement_{name}", value) for name, value in limits.items())]

    def check(self) -> Settings:
        ports = (("--port", self.port), ("--pushpop-port", self.pushpop_port), ("--amps-port", self.amps_port))
        for name, port in ports:
            if port is not None and not 0 <= port <= 65535:
                raise BadInput(f"{name} must be between 0 and 65535, not {port}")
        validation.count(
            self.pushpop_default_priority, "--pushpop-default-priority", least=0, most=validation.MAX_PRIORITY
        )
        validation.count(self.amps_default_backlog, "--amps-default-backlog", most=validation.MAX_BATCH)
        if not 0 < self.peer_share <= 1:
            raise BadInput(f"--peer-share must be above 0 and at most 1, not {self.peer_share}")
        gates.check_origins(self.cors, insecure=self.insecure)
        gates.check_host_names(self.allowed_hosts, insecure=self.insecure)
        self.statement.check("--statement")
        if not self.insecure and not is_loopback(self.host):
            raise BadInput(
                f"other machines can reach {self.host} and the server has no authentication; "
                "add --insecure if you want that, or listen on 127.0.0.1"
            )
        return self
