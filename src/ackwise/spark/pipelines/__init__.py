"""A pipeline: records of a queue through a function or a DataFrame, every one acked, retried or dead-lettered."""

from ackwise.spark.pipelines.building import Consuming, Pipeline, pipeline
from ackwise.spark.pipelines.expecting import expect
from ackwise.spark.pipelines.records import Record
from ackwise.spark.pipelines.running import Running, Totals

__all__ = ["Consuming", "Pipeline", "Record", "Running", "Totals", "expect", "pipeline"]
