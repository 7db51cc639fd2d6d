"""The cluster that the example starts, for tests that need one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

__all__ = ["Cluster"]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cluster"


def _example() -> Any:
    spec = importlib.util.spec_from_file_location("ackwise_example_cluster", EXAMPLE / "cluster.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from examples.cluster.cluster import Cluster
else:
    Cluster = _example().Cluster
