"""Concurrency primitives with one interface for asyncio and for threads: locks, signals, workers, lease guards."""
