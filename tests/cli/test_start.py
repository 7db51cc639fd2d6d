"""Start of the program: what it imports, and how it speaks about wrong usage."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest
import typer

import ackwise as package
from ackwise.cli.app import Program, app
from tests.cli.conftest import Ackwise
from tests.patience import PATIENCE

HEAVY = ("pyspark", "pyarrow", "starlette", "psycopg", "httpx", "httpx2", "aiohttp", "uvicorn", "apsw", "rich", "numpy")


def loaded(*words: str) -> str:
    """The heavy packages that a command imports, in a process of its own."""
    code = (
        f"import sys; sys.argv = ['ackwise', *{list(words)!r}]; from ackwise.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print('LOADED', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("words", [("--help",), ("queue", "--help"), ("message", "push", "-h"), ("--version",)])
def test_help_imports_no_heavy_package(words: tuple[str, ...]) -> None:
    assert loaded(*words) == "LOADED []"


def test_import_of_the_package_loads_nothing_else() -> None:
    code = (
        "import sys, ackwise; print([name for name in sys.modules if name.startswith(('ackwise.', 'apsw', 'msgspec'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "['ackwise.old_paths']\n", done.stderr


def test_connect_stays_a_function_after_its_module_import() -> None:
    code = (
        "import ackwise.connect, ackwise.broker; from ackwise import connect; "
        "print(callable(ackwise.connect), connect is ackwise.connect)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "True True\n", done.stderr


def test_package_has_its_names_and_version() -> None:
    assert package.__version__ == version("ackwise")
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = package.nonsense


def test_help_lines_are_those_of_the_commands() -> None:
    """The help of the program has its own copy of each line, so that it needs no import."""
    group = typer.main.get_command(app)
    assert isinstance(group, Program)
    for name, command in group.commands.items():
        first = " ".join((command.help or "").split()).split(". ")[0].rstrip(".")
        assert Program.HOMES[name].help == f"{first}.", name


def test_h_is_help_everywhere(ackwise: Ackwise) -> None:
    group = typer.main.get_command(app)
    for noun, command in getattr(group, "commands").items():  # noqa: B009
        said = ackwise(noun, "-h")
        assert (said.code, said.out.startswith(f"Usage: ackwise {noun}")) == (0, True), said
        for verb in getattr(command, "commands", {}):
            assert ackwise(noun, verb, "-h").out.startswith(f"Usage: ackwise {noun} {verb}")


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("queue", "nonsense"),
        ("queue", "list", "--nonsense"),
        ("queue", "show"),
        ("top", "--minutes", "x"),
    ],
)
def test_wrong_usage_is_one_line_and_exits_2(ackwise: Ackwise, words: tuple[str, ...]) -> None:
    said = ackwise(*words)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.startswith("ackwise: ")
    assert "--help" in said.err


def test_module_runs_as_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ackwise", "--version"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stdout) == (0, f"ackwise {version('ackwise')}\n")
