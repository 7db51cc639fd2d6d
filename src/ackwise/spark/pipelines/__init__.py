"""Pipelines: run a function or a DataFrame over the records of a queue, and ack, retry or dead-letter each record."""

from ackwise.spark.pipelines.builder import NewPipeline, Pipeline, pipeline
from ackwise.spark.pipelines.query import RunningPipeline, Totals
from ackwise.spark.pipelines.record_handler import Record
from ackwise.spark.pipelines.transform_task import expect

__all__ = ["NewPipeline", "Pipeline", "Record", "RunningPipeline", "Totals", "expect", "pipeline"]
