"""Generate the `sync` twin of each `aio` package. With --check it only reports outdated files."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = tuple(ROOT / "src" / "ackwise" / room for room in ("client", "amps", "protocols/mew", "mew", "fluent"))
SOURCE, TARGET = "aio", "sync"
HEADER = "# Generated from ../aio/{name} by tools/async_to_sync.py: do not edit, change the source and run it again.\n"

RULES: tuple[tuple[str, str], ...] = (
    (r"\bAsyncGenerator\[(.+), None\]", r"Generator[\1, None, None]"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync(?=[A-Z])", ""),
    (r"Callable\[(.*), Coroutine\[Any, Any, (.+)\]\]", r"Callable[\1, \2]"),
    (r"\b__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b(client|amps|mew|fluent)\.aio\b", r"\1.sync"),
    (r"\bconnect_async\b", "connect"),
    (r"\bopen_async_adapter\b", "open_adapter"),
    (r"\b(concurrency|sockets)\.aio\b", r"\1.threads"),
    (r"\bfrom asyncio import sleep\b", "from time import sleep"),
    (
        r"Sessions driven on asyncio\. This is the source; `ackwise\.protocols\.mew\.sync` is generated from it\.",
        "Sessions driven in threads, generated from `ackwise.protocols.mew.aio`.",
    ),
    (
        r"Sessions for asyncio\. This is the source; `ackwise\.mew\.sync` is generated from it\.",
        "Sessions for threads, generated from `ackwise.mew.aio`.",
    ),
    (r"Any number of tasks of one event loop may share it", "Any number of threads may share it"),
    (
        r"client for asyncio\. This is the source; `ackwise\.(\w+)\.sync` is generated from it\.",
        r"client for threads, generated from `ackwise.\1.aio`.",
    ),
)


def translated(target: Path, text: str) -> str:
    """Synchronous twin of one source file, formatted."""
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    ruff = Path(sys.executable).with_name("ruff")
    path = str(target)
    for step in (["check", "--fix-only", "--select", "I,UP", "--quiet"], ["format", "--quiet"]):
        command = [str(ruff), *step, "--stdin-filename", path, "-"]
        text = subprocess.run(command, input=text, text=True, capture_output=True, check=True, cwd=ROOT).stdout
    return HEADER.format(name=target.name) + text


def stale() -> dict[Path, str]:
    """Outdated files with their expected text. A file without a source has an empty text."""
    found: dict[Path, str] = {}
    for room in ROOMS:
        source, target = room / SOURCE, room / TARGET
        wanted = {target / one.name: translated(target / one.name, one.read_text()) for one in source.glob("*.py")}
        wanted |= {path: "" for path in target.glob("*.py") if path not in wanted}
        found |= {path: text for path, text in sorted(wanted.items()) if not path.exists() or path.read_text() != text}
    return found


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
