"""Optional parts of the package: what they import, and which extra installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from ackwise.core.errors import MissingExtra

EXTRAS: dict[str, tuple[str, ...]] = {
    "arrow": ("numpy", "pyarrow"),
    "cli": ("rich", "typer"),
    "client": ("aiohttp", "httpx2"),
    "mew": ("lark", "re2"),
    "nats": ("nats",),
    "otel": ("opentelemetry",),
    "postgres": ("psycopg",),
    "server": ("aiohttp", "re2", "starlette", "uvicorn"),
    "spark": ("jinja2", "numpy", "pandas", "pyarrow", "pyspark"),
}
"""Packages that each extra installs, by the names under which they are imported."""


def is_installed(package: str) -> bool:
    return find_spec(package) is not None


def missing(extra: str, part: str, package: str) -> MissingExtra:
    """The error of a part that found no `package`."""
    return MissingExtra(f"{part} needs {package}; install it with: pip install 'ackwise[{extra}]'")


@contextmanager
def needed(extra: str, part: str) -> Iterator[None]:
    """Run imports that need an extra. If one of its packages is missing, name the extra in one line."""
    try:
        yield
    except ModuleNotFoundError as problem:
        package = (problem.name or "").partition(".")[0]
        if package not in EXTRAS[extra]:
            raise
        raise missing(extra, part, package) from None
