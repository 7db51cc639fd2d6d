"""Write `ackwise.client.sync` from `ackwise.client.aio`, and MEW's; with --check only say whether it is up to date."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "ackwise" / "client" / "aio"
TARGET = SOURCE.with_name("sync")
MEW = ROOT / "src" / "ackwise" / "mew" / "aio"
HEADER = "# Generated from ../aio/{name} by tools/async_to_sync.py: do not edit, change the source and run it again.\n"

RULES: tuple[tuple[str, str], ...] = (
    (r"\bAsyncGenerator\[(.+), None\]", r"Generator[\1, None, None]"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\b(client|mew)\.aio\b", r"\1.sync"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (
        r"Sessions for asyncio\. This is the source; `ackwise\.mew\.sync` is generated from it\.",
        "Sessions for threads, generated from `ackwise.mew.aio`.",
    ),
    (r"any number of tasks of one event loop may share it", "any number of threads may share it"),
    (
        r"The client for asyncio\. This is the source; `ackwise\.client\.sync` is generated from it\.",
        "The client for threads, generated from `ackwise.client.aio`.",
    ),
)


def translated(name: str, text: str, target: Path) -> str:
    """The synchronous twin of one source file, formatted."""
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text, flags=re.IGNORECASE if pattern.startswith("any number") else 0)
    ruff = Path(sys.executable).with_name("ruff")
    path = str(target / name)
    for step in (["check", "--fix-only", "--select", "I,UP", "--quiet"], ["format", "--quiet"]):
        command = [str(ruff), *step, "--stdin-filename", path, "-"]
        text = subprocess.run(command, input=text, text=True, capture_output=True, check=True, cwd=ROOT).stdout
    return HEADER.format(name=name) + text


def stale() -> dict[Path, str]:
    """What is not as it should be, with what it should be; a file without a source should be empty."""
    wanted: dict[Path, str] = {}
    for source, target in ((SOURCE, TARGET), (MEW, MEW.with_name("sync"))):
        wanted |= {target / p.name: translated(p.name, p.read_text(), target) for p in sorted(source.glob("*.py"))}
        wanted |= {path: "" for path in target.glob("*.py") if path not in wanted}
    return {path: text for path, text in wanted.items() if not path.exists() or path.read_text() != text}


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the synchronous client from the asynchronous one.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail when something is stale")
    check = parser.parse_args().check
    found = stale()
    for path, text in found.items():
        print(f"{'stale' if check else 'written'}: {path.relative_to(ROOT)}")
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text) if text else path.unlink()
    return int(check and bool(found))


if __name__ == "__main__":
    sys.exit(main())
