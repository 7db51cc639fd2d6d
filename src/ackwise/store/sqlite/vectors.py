"""numpy, which Ackwise does not need, where it is there."""

from __future__ import annotations

import sys
from typing import Any

WORTH_LOADING = 100_000
WORTH_USING = 50


def numpy_for(numbers: int) -> Any:
    """numpy, if it is installed and pays for so many numbers: few are worth it only where it is loaded already."""
    if numbers < WORTH_USING or (numbers < WORTH_LOADING and "numpy" not in sys.modules):
        return None
    try:
        import numpy as np
    except ImportError:
        return None
    return np
