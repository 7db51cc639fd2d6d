"""Benchmarks of `ackwise bench`."""
