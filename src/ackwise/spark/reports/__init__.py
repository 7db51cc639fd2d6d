"""HTML reports: tables, and charts of the same numbers. A page loads nothing from elsewhere.

The import of this package loads neither Spark nor the templates, so that commands can use its columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ackwise.core.extras import needed

if TYPE_CHECKING:
    from ackwise.spark.reports.pages import write_dead_letter_report, write_lag_report, write_metrics_report

__all__ = ["write_dead_letter_report", "write_lag_report", "write_metrics_report"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needed("spark", "a report"):
        from ackwise.spark.reports import pages

    return getattr(pages, name)
