"""Write the lock files: requirements.lock has what the product needs, requirements-dev.lock the rest.

Usage: tools/make_lock.py, after a change of pyproject.toml. Needs pip-compile (pip install pip-tools). Versions that
still fit stay as they are.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT, DEVELOPMENT = ROOT / "requirements.lock", ROOT / "requirements-dev.lock"
HEADER = "# {what}, for Python 3.11 and newer. Written by tools/make_lock.py.\n"
FLAGS = (
    *("--strip-extras", "--allow-unsafe", "--generate-hashes", "--no-header", "--quiet"),
    *("--no-emit-index-url", "--no-emit-find-links", "--no-emit-trusted-host"),
)
KEPT = ("async-timeout",)
"""Packages that only some versions of Python need, and not the one that runs this tool: redis before Python 3.11.3."""
_BLOCK = re.compile(r"^([a-z0-9][a-z0-9._-]*)==.*\n(?:[ \t].*\n)*", re.MULTILINE)


def blocks(text: str) -> dict[str, str]:
    """The lines of each package: version, hashes, and who needs it."""
    return {match[1]: match[0] for match in _BLOCK.finditer(text)}


def resolve(known: str, *extras: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder, "lock")
        lock.write_text(known)
        subprocess.run(["pip-compile", *FLAGS, *extras, "-o", str(lock), "pyproject.toml"], cwd=ROOT, check=True)  # noqa: S607 - as the user's PATH says
        return blocks(lock.read_text())


def write(file: Path, what: str, packages: dict[str, str]) -> None:
    file.write_text(HEADER.format(what=what) + "\n" + "".join(packages[name] for name in sorted(packages)))


def main() -> int:
    if shutil.which("pip-compile") is None:
        print("make_lock: no pip-compile on the PATH; install it with: pip install pip-tools", file=sys.stderr)
        return 1
    known = "".join(file.read_text() for file in (PRODUCT, DEVELOPMENT) if file.exists())
    before = blocks(known)
    product = resolve(known, "--extra", "all", "--extra", "build")
    everything = resolve(known, "--all-extras") | {name: before[name] for name in KEPT if name in before}
    write(PRODUCT, "Every package of the product and its extras", product)
    rest = {name: lines for name, lines in everything.items() if name not in product}
    write(DEVELOPMENT, "What tests, docs and checks need besides requirements.lock", rest)
    print(f"{len(product)} packages for the product, {len(rest)} more for development")
    return 0


if __name__ == "__main__":
    sys.exit(main())
