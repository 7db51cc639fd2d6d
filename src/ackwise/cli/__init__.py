"""The command line: `ackwise <noun> <verb>`."""

import sys

from ackwise.core.errors import MissingExtra
from ackwise.core.extras import needed


def main() -> None:
    """Run a command. Without the extra `cli`, say in one line how to install it."""
    try:
        with needed("cli", "the command line"):
            from ackwise.cli.app import main as run
    except MissingExtra as problem:
        sys.exit(f"ackwise: {problem.message}")
    run()


__all__ = ["main"]
