"""Hypothesis: the same examples on every run; `ACKWISE_HYPOTHESIS=deep` looks for new ones, and for longer."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("ackwise", derandomize=True, database=None, deadline=None)
settings.register_profile("deep", max_examples=5000, database=None, deadline=None)
settings.load_profile("deep" if os.environ.get("ACKWISE_HYPOTHESIS") == "deep" else "ackwise")
