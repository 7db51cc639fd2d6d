"""A small extension: words in a table of its own."""

from __future__ import annotations

from ackwise.core.commands import Command
from ackwise.core.errors import BadInput
from ackwise.engine.extensions import Extension, Phase, handled
from ackwise.engine.ports import Session
from ackwise.engine.turn import Turn


class AddWord(Command[int], tag="add_word"):
    """Add a word. The answer is its number in this turn."""

    word: str


class ListWords(Command[list[str]], tag="list_words"):
    """List all words, after the claims of the turn."""


class TurnWords:
    """Words that this turn has added."""

    def __init__(self) -> None:
        self.count = 0


def add(turn: Turn, command: AddWord) -> int:
    if command.word == "refused":
        raise BadInput("this word is refused")
    turn.session.run("sample_add", {"word": command.word})
    state = turn.state(TurnWords)
    state.count += 1
    return state.count


def words(turn: Turn, _: ListWords) -> list[str]:
    return [row[0] for row in turn.session.rows("sample_words")]


def clear(turn: Turn, _: int) -> int:
    return turn.session.run("sample_clear")


def audit(session: Session) -> list[str]:
    return ["a word is empty" for _ in session.rows("sample_empty")]


def needs_instance(_: Session, instance: str) -> bool:
    return instance == "needed"


def sample(version: int) -> Extension:
    """The extension as a release with this schema has it."""
    return Extension(
        name="sample",
        tables="tests.engine.sample_tables",
        schema_version=version,
        lock="sample_lock",
        commands=dict((handled(AddWord, Phase.SETTLE, add), handled(ListWords, Phase.AFTER_CLAIMS, words))),
        duties={"clear_words": clear},
        audit=audit,
        needs_instance=needs_instance,
    )
