"""Spark over Ackwise beside Spark over Parquet, and beside a hand-written job."""
