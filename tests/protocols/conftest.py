"""Fixtures of every protocol: a store of each database."""

from tests.server.conftest import any_store

__all__ = ["any_store"]
