"""Jobs over the data of a store. Each job is a function that returns a DataFrame, and a command of `ackwise`."""

from ackwise.core.extras import needed

with needed("spark", "a Spark job"):
    from ackwise.spark.jobs.archive_job import archive
    from ackwise.spark.jobs.dead_letter_report import dead_letter_report
    from ackwise.spark.jobs.lag_job import lag
    from ackwise.spark.jobs.metrics_job import metrics
    from ackwise.spark.jobs.redrive_job import redrive
    from ackwise.spark.jobs.replay_job import replay

__all__ = ["archive", "dead_letter_report", "lag", "metrics", "redrive", "replay"]
