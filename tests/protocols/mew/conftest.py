"""Fixtures of MEW: a fresh graph on each store, on a clock that the test moves."""

from tests.mew.fixtures import clock, graph_url, lite, patient_writer, prompt, session

__all__ = ["clock", "graph_url", "lite", "patient_writer", "prompt", "session"]
