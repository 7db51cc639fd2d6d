"""What this server says of itself."""

from __future__ import annotations

from importlib.metadata import version

VERSION = version("ackwise")
