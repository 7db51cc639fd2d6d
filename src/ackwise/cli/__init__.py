"""The command line: `ackwise <noun> <verb>`."""

from ackwise.cli.app import main

__all__ = ["main"]
