"""Pages for people: a table and, next to it, a chart of the same numbers. Nothing on them is fetched from elsewhere."""

from ackwise.spark.reports.pages import write_dead_letter_report, write_lag_report, write_metrics_report

__all__ = ["write_dead_letter_report", "write_lag_report", "write_metrics_report"]
