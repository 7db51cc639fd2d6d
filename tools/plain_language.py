"""Checks what a program can check of plain language: banned words, module, test and local names, commit subjects.

Usage: tools/plain_language.py [--write-baseline | --commit-msg FILE]

Without an option: checks the repository. `tools/plain_baseline.txt` lists the findings that a file may still have, as
"path count"; a file without an entry may have none. --write-baseline lowers the counts to the present ones. It never
raises a count; delete the baseline first to begin anew. --commit-msg checks the message of a commit in FILE.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BASELINE = "tools/plain_baseline.txt"
TEST_NAME_LENGTH = 60
TEST_NAME_PREFIXES = ("test_a_", "test_an_", "test_the_", "test_what_")
"""Beginnings of test names that do not name a subject."""
SUBJECT_LENGTH = 72
FOLDERS = ("benchmarks", "docs", "examples", "src", "tests", "tools")
QUOTES = ("tools/plain_language.py", "tests/tools/test_plain_language.py")
"""They name the banned words."""
TRIPLE_QUOTES = ('"""', 'r"""')
"""Of a test only docstrings are prose: its other strings are data."""
ING_MODULES = ("testing", "tracing")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

PRONOUNS = (
    "whoever", "whomever", "nobody", "somebody", "anybody", "everybody", "no one", "someone", "anyone", "everyone",
)  # fmt: skip
PHRASES = ("who waits", "what is asked", "of which")
# A phrase may continue in the next line of a comment.
BANNED = re.compile(
    r"\b(?:{})\b".format("|".join(words.replace(" ", r"[\s#]+") for words in PRONOUNS + PHRASES)), re.IGNORECASE
)
VAGUE_LOCALS = frozenset({"found", "here", "told", "one", "mine", "some"})
"""Names of locals and parameters that do not name their content."""
VAGUE = re.compile(r"\b(?:{})\b".format("|".join(sorted(VAGUE_LOCALS))))
TEST = re.compile(r"^[ \t]*(?:async )?def (test_\w+)\(", re.MULTILINE)
INLINE_CODE = re.compile(r"(?<!`)`[^`\n]+`(?!`)")

TYPES = ("build", "chore", "ci", "docs", "feat", "fix", "perf", "refactor", "revert", "style", "test")
SUBJECT = re.compile(rf"(?:{'|'.join(TYPES)})(?:\([a-z0-9_./, -]+\))?!?: \S.*")
# Git writes these subjects itself.
MADE_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")


class Finding(NamedTuple):
    path: str
    line: int
    text: str


def findings(root: Path) -> Iterator[Finding]:
    """Every finding in the repository, the baseline's as well."""
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            path = file.relative_to(root).as_posix()
            if folder == "src" and is_ing_module(file):
                yield Finding(path, 1, f"module {file.stem!r} ends in -ing: name it with a noun")
            if path not in QUOTES and file.suffix in PROSE and file.is_file():
                yield from findings_in(path, file.read_text())
    for file in sorted(root.glob("*.md")):
        yield from findings_in(file.name, file.read_text())


def findings_in(path: str, text: str) -> Iterator[Finding]:
    if path.startswith("tests/") and path.endswith(".py"):
        yield from banned_words(path, prose_of_python(text, quotes=TRIPLE_QUOTES))
        yield from bad_test_names(path, text)
    else:
        yield from banned_words(path, PROSE[Path(path).suffix](text))
    if path.startswith("src/") and path.endswith(".py"):
        yield from vague_locals(path, text)


def is_ing_module(file: Path) -> bool:
    is_module = file.suffix == ".py" or (file / "__init__.py").exists()
    return is_module and file.stem.endswith("ing") and file.stem not in ING_MODULES


def banned_words(path: str, prose: str) -> Iterator[Finding]:
    for match in BANNED.finditer(prose):
        words = " ".join(match.group().replace("#", " ").split())
        yield Finding(path, prose.count("\n", 0, match.start()) + 1, f"{words!r}: name the component, or say 'you'")


def prose_of_python(source: str, quotes: tuple[str, ...] = ("",)) -> str:
    """The comments and the strings that begin with `quotes`, each in its place; spaces instead of the code."""
    if not BANNED.search(source):  # spares the tokenizer most files
        return ""
    lines = [" " * len(line) for line in source.splitlines()]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_string = tokenize.tok_name[token.type].endswith(("STRING", "STRING_MIDDLE"))
        if token.type != tokenize.COMMENT and not (is_string and token.string.startswith(quotes)):
            continue
        row, column = token.start
        for offset, text in enumerate(token.string.splitlines()):
            start = column if offset == 0 else 0
            line = lines[row - 1 + offset]
            lines[row - 1 + offset] = line[:start] + text + line[start + len(text) :]
    return "\n".join(lines)


def without_inline_code(text: str) -> str:
    """The page with spaces instead of `code`: a page may quote a word that it must not use."""
    return INLINE_CODE.sub(lambda match: " " * len(match.group()), text)


def bad_test_names(path: str, source: str) -> Iterator[Finding]:
    for match in TEST.finditer(source):
        line, name = source.count("\n", 0, match.start()) + 1, match[1]
        if len(name) > TEST_NAME_LENGTH:
            yield Finding(path, line, f"{name} has {len(name)} characters; shorten it to {TEST_NAME_LENGTH}")
        if name.startswith(TEST_NAME_PREFIXES):
            yield Finding(path, line, f"{name}: begin with the subject, test_<subject>_<condition>_<result>")
        if BANNED.search(name.replace("_", " ")):
            yield Finding(path, line, f"{name}: name the component")


def vague_locals(path: str, source: str) -> Iterator[Finding]:
    """Locals and parameters in `VAGUE_LOCALS`. Fields of a class keep their names: they may be sent or stored."""
    if not VAGUE.search(source):  # spares the parser most files
        return
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, FUNCTIONS)]
    bound = {(line, name) for function in functions for line, name in bound_names(function) if name in VAGUE_LOCALS}
    for line, name in sorted(bound):
        yield Finding(path, line, f"local name {name!r}: name its content, such as 'message' or 'rows'")


def bound_names(function: ast.AST) -> Iterator[tuple[int, str]]:
    """Each name that a function assigns or takes as a parameter, with its line."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


PROSE: dict[str, Callable[[str], str]] = {
    ".py": prose_of_python, ".md": without_inline_code, ".sql": str, ".lark": str, ".j2": str,
}  # fmt: skip
"""By the end of a file's name: what of its text is prose."""


def counted(found: list[Finding]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for finding in found:
        counts[finding.path] = counts.get(finding.path, 0) + 1
    return counts


def read_baseline(root: Path) -> dict[str, int]:
    file = root / BASELINE
    lines = file.read_text().splitlines() if file.exists() else []
    entries = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {path: int(count) for path, count in entries}


def write_baseline(root: Path) -> int:
    counts = counted(list(findings(root)))
    if (root / BASELINE).exists():
        old = read_baseline(root)
        counts = {path: min(count, old[path]) for path, count in counts.items() if path in old}
    head = "# Findings of tools/plain_language.py that a file may still have. A count may only fall.\n"
    (root / BASELINE).write_text(head + "".join(f"{path} {count}\n" for path, count in sorted(counts.items())))
    return check(root)


def check(root: Path) -> int:
    """Prints the findings of each file that has more of them than the baseline allows."""
    found = list(findings(root))
    counts, allowed = counted(found), read_baseline(root)
    over = {path for path, count in counts.items() if count > allowed.get(path, 0)}
    for finding in found:
        if finding.path in over:
            print(f"{finding.path}:{finding.line}: {finding.text}")
    for path in sorted(over):
        print(f"{path}: {counts[path]} findings, {allowed.get(path, 0)} allowed by {BASELINE}")
    return 1 if over else 0


def complaints(message: str) -> Iterator[str]:
    """What is wrong with a commit message."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    while lines and not lines[0].strip():
        lines.pop(0)
    if not lines:
        yield "the message is empty"
        return
    subject = lines[0]
    if subject.startswith(MADE_BY_GIT):
        return
    if not SUBJECT.fullmatch(subject):
        yield f"the subject is no Conventional Commit, '<type>(<scope>): <what changes>'; types: {', '.join(TYPES)}"
    if len(subject) >= SUBJECT_LENGTH:
        yield f"the subject has {len(subject)} characters; shorten it to less than {SUBJECT_LENGTH}"
    if subject.endswith("."):
        yield "the subject ends with a full stop"
    if len(lines) > 1 and lines[1].strip():
        yield "the second line is not empty"


def check_commit_message(file: Path) -> int:
    wrong = list(complaints(file.read_text()))
    for complaint in wrong:
        print(f"commit message: {complaint}", file=sys.stderr)
    return 1 if wrong else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check that names and prose are plain.")
    options = parser.add_mutually_exclusive_group()
    options.add_argument("--write-baseline", action="store_true", help="lower the allowed counts to the present ones")
    options.add_argument("--commit-msg", type=Path, metavar="FILE", help="check the commit message in FILE instead")
    chosen = parser.parse_args(arguments)
    if chosen.commit_msg is not None:
        return check_commit_message(chosen.commit_msg)
    return write_baseline(ROOT) if chosen.write_baseline else check(ROOT)


if __name__ == "__main__":
    sys.exit(main())
