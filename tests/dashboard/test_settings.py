"""Page Settings: values in force with their origins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ackwise.cli.shown_settings import shown_settings
from tests.dashboard.site import Shown, Site
from tests.server.running import Running


def row(shown: Shown, name: str) -> str:
    """The words of a setting's row, up to the next setting."""
    _, _, rest = shown.source.partition(f"<code>{name}</code></th>")
    return rest.partition("</tr>")[0]


def serve(tmp_path: Path, *flags: str, **environment: str) -> Shown:
    """The page Settings of `ackwise serve`."""
    command = [sys.executable, "-m", "ackwise", "serve", "--port", "0", *flags]
    given = {name: text for name, text in os.environ.items() if not name.startswith("ACKWISE_")} | environment
    with subprocess.Popen(
        command, cwd=tmp_path, env=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            ready = process.stdout.readline().decode().split()
            site = Site(ready[1])
            shown = site.get("/settings")
            site.close()
        finally:
            process.terminate()
    assert process.returncode == 0
    return shown


@pytest.mark.slow
def test_origin_of_each_setting_is_shown(tmp_path: Path) -> None:
    (tmp_path / "ackwise.toml").write_text("[serve]\nmax_body = '2MiB'\ngrace = 9\n")
    url = f"sqlite:///{tmp_path}/queue.db?durability=normal"
    shown = serve(tmp_path, "--store", url, "--peer-share", "0.4", ACKWISE_GRACE="3")
    assert "0.4" in row(shown, "peer_share")
    assert "--peer-share" in row(shown, "peer_share")
    assert "3.0" in row(shown, "grace")
    assert "ACKWISE_GRACE" in row(shown, "grace")
    assert "2MiB" in row(shown, "max_body")
    assert "ackwise.toml" in row(shown, "max_body")
    assert "default" in row(shown, "answer_bytes")
    assert "normal" in row(shown, "durability")
    for name in ("host", "port", "store", "read_only_dashboard"):
        assert row(shown, name), name


def test_password_in_a_setting_is_masked() -> None:
    seen = []
    app = typer.Typer()

    @app.command()
    def serve(context: typer.Context, store: str = "", sink: list[str] | None = None) -> None:
        seen.extend(shown_settings(context))

    done = CliRunner().invoke(app, ["--store", "postgresql://me:secret@host/db", "--sink", "http://a:b@c"])
    assert done.exit_code == 0, done.output
    assert [setting.value for setting in seen] == ["postgresql://me:***@host/db", "http://a:***@c"]
    assert {setting.origin for setting in seen} == {"flag"}


def test_server_in_a_program_shows_its_settings(site: Site, server: Running) -> None:
    shown = site.get("/settings")
    assert "67108864" in row(shown, "max_body")
    assert "program" in row(shown, "statement_rows")
    assert f"Schema {server.server.runtime.broker().store.traits.schema}" in shown.text
