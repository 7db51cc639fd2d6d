"""Checks the cognitive complexity of functions with complexipy: at most 15, and more only for those listed.

Usage: tools/complexity.py [--write-baseline]

`tools/complexity_baseline.txt` lists the functions above the limit as "path function complexity". A function that is
not listed, or is more complex than listed, fails. --write-baseline removes entries and lowers numbers. It adds nothing;
delete the baseline first to begin anew.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import complexipy

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tools", "benchmarks", "tests")
BASELINE = "tools/complexity_baseline.txt"
LIMIT = 15

Functions = dict[tuple[str, str], int]


def too_complex(root: Path) -> Functions:
    """The functions above the limit, by path and name."""
    found: Functions = {}
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            if file.parent.name == "sync" and (file.parent.parent / "aio").exists():
                continue  # generated from aio
            path = file.relative_to(root).as_posix()
            for function in complexipy.file_complexity(str(file), no_ignore=True, with_plans=False).functions:
                if function.complexity > LIMIT:
                    key = (path, function.name)
                    found[key] = max(function.complexity, found.get(key, 0))
    return found


def read_baseline(root: Path) -> Functions:
    file = root / BASELINE
    lines = file.read_text().splitlines() if file.exists() else []
    entries = (line.split() for line in lines if line and not line.startswith("#"))
    return {(path, name): int(complexity) for path, name, complexity in entries}


def write_baseline(root: Path) -> int:
    found = too_complex(root)
    if (root / BASELINE).exists():
        old = read_baseline(root)
        found = {key: min(complexity, old[key]) for key, complexity in found.items() if key in old}
    head = f"# Functions with a cognitive complexity above {LIMIT}. Entries may only leave, and numbers only fall.\n"
    entries = (f"{path} {name} {complexity}\n" for (path, name), complexity in sorted(found.items()))
    (root / BASELINE).write_text(head + "".join(entries))
    return check(root)


def check(root: Path) -> int:
    """Prints each function that is more complex than the limit and the baseline allow."""
    allowed = read_baseline(root)
    over = {key: complexity for key, complexity in too_complex(root).items() if complexity > allowed.get(key, LIMIT)}
    for (path, name), complexity in over.items():
        most = allowed.get((path, name), LIMIT)
        print(f"{path}: {name} has a cognitive complexity of {complexity}, and {most} is allowed: split it")
    return 1 if over else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check the cognitive complexity of functions.")
    parser.add_argument("--write-baseline", action="store_true", help="remove entries that are no longer needed")
    chosen = parser.parse_args(arguments)
    return write_baseline(ROOT) if chosen.write_baseline else check(ROOT)


if __name__ == "__main__":
    sys.exit(main())
