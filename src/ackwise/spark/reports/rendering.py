"""Templates become files that stand by themselves."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ackwise.core.errors import BadInput
from ackwise.spark.cache import make_private
from ackwise.spark.reports.cells import Kind, cell, moment

_CLASSES: dict[Kind, str] = {"number": "n", "share": "n", "duration": "n", "moment": "t", "error": "e"}


@functools.cache
def _templates() -> Environment:
    """Everything is escaped: what stands in a dead letter came from anywhere."""
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"moment": moment, "cell": cell, "cell_class": lambda kind: _CLASSES.get(kind, "")}
    return found


def write(path: Path, template: str, context: Mapping[str, Any]) -> None:
    text = _templates().get_template(template).render(context)
    try:
        make_private(path.parent)
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise BadInput(f"the report cannot be written to {path}: {problem.strerror or problem}") from None
