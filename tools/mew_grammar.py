"""Write docs/reference/mew-grammar.md from the grammar that the parser runs. Usage: tools/mew_grammar.py [--check]"""

import re
import sys
from pathlib import Path

from ackwise.graph.language.parser import grammar

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "mew-grammar.md"

HEAD = """# The grammar of MEW

For users of MEW who look up the exact syntax. [The reference](mew.md) says what the statements do.

`tools/mew_grammar.py` generates this page from `mew.lark`, the grammar that the parser uses. How to read the rules:

- `"x"i` is a keyword, in upper or lower case.
- `?`, `*`, `+` and `|` have the same meaning as in regular expressions.
- Names in capitals are words. The last chapter defines them.

A keyword is reserved only where the grammar expects it. So attributes may be called `group`, `order`, `type` or
`tick`."""
TAIL = "Next: [names that stay](names.md)."


def page() -> str:
    """The whole document, a chapter for each `///` of the grammar."""
    parts = [HEAD]
    for chapter in re.split(r"^/// ", grammar(), flags=re.MULTILINE)[1:]:
        title, _, rules = chapter.partition("\n")
        parts.append(f"## {title.strip()}\n\n```text\n{_plain(rules)}\n```")
    return "\n\n".join([*parts, TAIL]) + "\n"


def _plain(rules: str) -> str:
    """Rules without the marks that only shape the syntax tree."""
    lines = [line for line in rules.splitlines() if not line.startswith(("//", "%", "not_for_ack"))]
    lines = [line.replace("(no_retry not_for_ack?)?", "no_retry?").replace(" not_for_ack?", "") for line in lines]
    text = re.sub(r"\s*-> \w+(?=\s*(\||$))", "", "\n".join(lines), flags=re.MULTILINE)
    return re.sub(r"^\?(?=\w+:)", "", re.sub(r"(?<=[A-Z])\.\d(?=:)", "", text), flags=re.MULTILINE).strip()


def main() -> int:
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
