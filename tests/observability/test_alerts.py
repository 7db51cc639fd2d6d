"""Alert rules: promtool accepts them, and every metric that they name exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import httpx2
import pytest

from tests.observability.scrapes import scrape
from tools import promtool

RULES = Path(__file__).resolve().parents[2] / "deploy" / "alerts.yaml"
_NAME = re.compile(r"\b((?:ackwise|queen)_[a-z0-9_]+)")
_SUFFIXES = ("_bucket", "_count", "_sum")


def test_rules_are_accepted_by_promtool() -> None:
    tool = promtool.find()
    if tool is None:
        pytest.skip(promtool.NOT_RUN)
    done = subprocess.run([tool, "check", "rules", str(RULES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_metrics_of_rules_exist_in_a_scrape(http: httpx2.Client) -> None:
    named = set(_NAME.findall(RULES.read_text()))
    assert "ackwise_messages" in named
    known = scrape(http).names
    unknown = {name for name in named if name not in known and _base(name) not in known}
    assert unknown == set()


def test_rules_have_the_limit_of_100_dead_letters() -> None:
    assert 'ackwise_messages{state="dead"}) > 100' in RULES.read_text()


def _base(name: str) -> str:
    return next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)
