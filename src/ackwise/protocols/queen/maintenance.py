"""`/api/v1/system/…`: switches push and pop maintenance on and off."""

from __future__ import annotations

from typing import Any

from ackwise.broker import AsyncBroker
from ackwise.core.commands import SetMaintenance
from ackwise.core.errors import BadInput
from ackwise.core.rows import MaintenanceState
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, answer
from ackwise.protocols.queen.vocabulary import QueenContext, read_object

_PUSH = {
    True: "Maintenance mode is on: pushed messages wait in the spool",
    False: "Maintenance mode is off: the server replays the spool",
}
_POP = {True: "Pop maintenance mode is on: pops answer empty", False: "Pop maintenance mode is off"}


def routes(_: AsyncBroker, context: QueenContext) -> list[Route]:
    switches = MaintenanceRoutes(context)
    return [
        Route("GET", "/api/v1/system/maintenance", switches.show),
        Route("POST", "/api/v1/system/maintenance", switches.set_push),
        Route("GET", "/api/v1/system/maintenance/pop", switches.show_pop),
        Route("POST", "/api/v1/system/maintenance/pop", switches.set_pop),
        Route("GET", "/api/v1/system/shared-state", switches.shared),
        Route("GET", "/api/v1/status/buffers", switches.buffers),
    ]


class MaintenanceRoutes:
    """Handlers of the maintenance routes."""

    def __init__(self, context: QueenContext) -> None:
        self._watch = context.maintenance

    async def show(self, _: Call) -> Answer:
        state = await self._watch.refresh(counted=True)
        files = {
            "count": state.failed,
            "totalBytes": state.failed_bytes,
            "totalMB": round(state.failed_bytes / (1 << 20), 3),
            "failoverCount": 0,
            "qos0Count": 0,
        }
        stats = {"pendingCount": state.messages, "failedCount": state.failed, "dbHealthy": True, "failedFiles": files}
        return answer({**_push_fields(state), "popMaintenanceMode": state.pop, "bufferStats": stats})

    async def set_push(self, call: Call) -> Answer:
        state = await self._watch.set(SetMaintenance(push=await _enabled(call)))
        return answer({**_push_fields(state), "message": _PUSH[state.push]})

    async def show_pop(self, _: Call) -> Answer:
        return _pop_answer(await self._watch.refresh())

    async def set_pop(self, call: Call) -> Answer:
        return _pop_answer(await self._watch.set(SetMaintenance(pop=await _enabled(call))))

    async def shared(self, _: Call) -> Answer:
        """Answers that Queen's shared state is off: the servers of one store share the store."""
        state = await self._watch.refresh()
        reason = "the servers of one store share the store"
        modes = {"maintenance_mode": state.push, "pop_maintenance_mode": state.pop}
        return answer({"enabled": False, "reason": reason, **modes})

    async def buffers(self, _: Call) -> Answer:
        state = await self._watch.refresh(counted=True)
        return answer({"pending": state.messages, "failed": state.failed, "dbHealthy": True, "worker": None})


async def _enabled(call: Call) -> bool:
    enabled = (await read_object(call)).get("enabled")
    if not isinstance(enabled, bool):
        raise BadInput("enabled (boolean) is required")
    return enabled


def _push_fields(state: MaintenanceState) -> dict[str, Any]:
    return {"maintenanceMode": state.push, "bufferedMessages": state.messages, "bufferHealthy": True}


def _pop_answer(state: MaintenanceState) -> Answer:
    return answer({"popMaintenanceMode": state.pop, "message": _POP[state.pop]})
