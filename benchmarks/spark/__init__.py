"""Spark over our queues beside Spark over Parquet, and beside the job that people write by hand."""
