"""The curl commands of docs/reference/http-api.md, typed into a shell beside a server."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import httpx2
import pytest

from tests.patience import PATIENCE
from tests.server.running import Running

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "http-api.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = "http://localhost:6632"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_commands_of_the_page_succeed(tmp_path: Path) -> None:
    lines = [line[2:] for block in BLOCK.findall(PAGE.read_text()) for line in block.splitlines() if line[:2] == "$ "]
    assert len(lines) > 5
    with Running(f"sqlite:///{tmp_path}/page.db") as server:
        script = "\n".join(["set -e", *lines]).replace(SHOWN, server.url).replace("curl -s", "curl -s --fail-with-body")
        ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert '"retry_limit":5' in ended.stdout
        assert httpx2.get(f"{server.url}/v1/queues").json()["queues"] == []
