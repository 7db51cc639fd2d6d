"""Hypothesis: the same examples on every run, as for the tests of core."""

import tests.core.conftest  # noqa: F401
