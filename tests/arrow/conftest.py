"""Messages in a store, on each of the stores, and what the columns made of them must say."""

from tests.engine.conftest import clock, harness, store

__all__ = ["clock", "harness", "store"]
