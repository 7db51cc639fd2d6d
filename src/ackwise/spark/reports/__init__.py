"""HTML reports: tables, and charts of the same numbers. A page loads nothing from elsewhere."""

from ackwise.core.extras import needed

with needed("spark", "a report"):
    from ackwise.spark.reports.pages import write_dead_letter_report, write_lag_report, write_metrics_report

__all__ = ["write_dead_letter_report", "write_lag_report", "write_metrics_report"]
