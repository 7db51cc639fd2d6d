"""Flags, variables and settings of the log, on a real process."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2

from tests.observability.calls import push
from tests.server.process import ServerProcess


def test_settings_file_sets_format_and_levels(tmp_path: Path, store: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[serve]\nlog_level = "warning,ackwise.server=info"\nlog_format = "json"\n')
    with ServerProcess(store, env={"ACKWISE_CONFIG": str(file)}) as server:
        with httpx2.Client(base_url=server.url) as http:
            push(http, "orders\n2026-01-01 FATAL fake", 2)
        server.stop()
        entries = [json.loads(line) for line in server.log().splitlines()]
    assert {entry["logger"] for entry in entries} == {"ackwise.server"}
    (request,) = [entry for entry in entries if entry["message"] == "request"]
    assert (request["queue"], request["messages"]) == ("orders\\n2026-01-01 FATAL fake", 2)
    assert entries[0]["message"] == "server started"


def test_variable_sets_level_and_text_is_default(store: str) -> None:
    with ServerProcess(store, env={"ACKWISE_LOG_LEVEL": "ackwise.store=error"}) as server:
        server.stop()
        lines = server.log().splitlines()
    assert not [line for line in lines if "ackwise.store" in line]
    assert [line for line in lines if "INFO ackwise.server: server started version=" in line]
    assert "INFO ackwise.server: server stopped" in lines[-1]
