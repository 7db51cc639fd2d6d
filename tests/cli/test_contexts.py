"""Named URLs: their file, and which URL a command uses."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ackwise import connect
from ackwise.cli import contexts
from tests.cli.conftest import Ackwise


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ackwise: Ackwise) -> dict[str, str]:
    """Stores by name, each with a queue of its name. No URL in the environment."""
    monkeypatch.delenv("ACKWISE_URL")
    monkeypatch.chdir(tmp_path)
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("flag", "env", "toml", "current", "other")}
    for name, url in urls.items():
        with connect(url) as connection:
            connection.create_queue(name)
    return urls


def used(ackwise: Ackwise, *before: str, after: tuple[str, ...] = ()) -> str:
    """The name of the store that a command used."""
    (row,) = ackwise(*before, "queue", "list", "--json", *after).json
    return str(row["name"])


def test_context_file_is_private_and_hides_passwords(ackwise: Ackwise) -> None:
    assert ackwise("context", "add", "prod", "postgresql://me:secret@db/q").code == 0
    assert stat.S_IMODE(contexts.path().stat().st_mode) == 0o600
    said = ackwise("context", "list")
    assert ("secret" in said.out, "me:***@db" in said.out) == (False, True)
    assert ackwise("context", "list", "--json").json == [
        {"name": "prod", "current": True, "url": "postgresql://me:***@db/q"}
    ]
    assert ackwise("context", "remove", "prod").code == 0
    assert ackwise("context", "list", "--json").json == []


def test_context_of_a_file_with_open_mode_becomes_private(ackwise: Ackwise) -> None:
    ackwise("context", "add", "a", "http://a:1")
    contexts.path().chmod(0o644)
    ackwise("context", "add", "b", "http://b:1")
    assert stat.S_IMODE(contexts.path().stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("context", "add", "x", "nonsense://x"), 2),
        (("context", "add", "x\n", "http://a:1"), 2),
        (("context", "use", "nowhere"), 1),
        (("--context", "nowhere", "queue", "list"), 1),
    ],
)
def test_context_that_cannot_be_is_refused(ackwise: Ackwise, words: tuple[str, ...], code: int) -> None:
    said = ackwise(*words)
    assert (said.code, said.out, said.err.count("\n")) == (code, "", 1)
    assert not contexts.path().exists()


def test_url_is_chosen_by_precedence(ackwise: Ackwise, stores: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("current", "other", "env"):
        ackwise("context", "add", name, stores[name])
    assert used(ackwise) == "current"
    ackwise("context", "use", "other")
    assert used(ackwise) == "other"
    Path("ackwise.toml").write_text(f'url = "{stores["toml"]}"\n')
    assert used(ackwise) == "toml"
    monkeypatch.setenv("ACKWISE_CONTEXT", "current")
    assert used(ackwise) == "current"
    monkeypatch.setenv("ACKWISE_URL", stores["env"])
    assert used(ackwise) == "env"
    assert used(ackwise, "--context", "other") == "other"
    assert used(ackwise, "--context", "other", after=("--url", stores["flag"])) == "flag"


def test_completion_uses_the_current_context(
    ackwise: Ackwise, stores: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ackwise("context", "add", "other", stores["other"])
    monkeypatch.setenv("_ACKWISE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "ackwise queue show o")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert ackwise().out.split() == ["other"]
