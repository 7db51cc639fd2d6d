"""Jobs over what a store holds. Each is a function that returns a DataFrame, and a verb of the command line."""

from ackwise.spark.jobs.archiving import archive
from ackwise.spark.jobs.dead_letters import dead_letter_report
from ackwise.spark.jobs.lagging import lag
from ackwise.spark.jobs.measuring import metrics
from ackwise.spark.jobs.redriving import redrive
from ackwise.spark.jobs.replaying import replay

__all__ = ["archive", "dead_letter_report", "lag", "metrics", "redrive", "replay"]
