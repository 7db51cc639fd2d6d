"""Store URLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackwise.core.errors import BadStoreURL
from ackwise.store.sqlite import SQLiteStore
from ackwise.wire.store_url import parse, without_password


@pytest.mark.parametrize(
    "url",
    [
        "", "queue.db", "/tmp/queue.db", "sqlite:/queue.db", "sqlite:queue.db", "sqlite://queue.db", "sqlite://",
        "sqlite:///", "sqlite:////", "sqllite:///queue.db", "SQLite3:///queue.db", "mysql://host/db", "redis://host",
        "sqlite:///q.db?durability=none", "sqlite:///q.db?durabilty=full", "sqlite:///q.db?busy_timeout=soon",
        "sqlite:///q.db?busy_timeout=-1", "sqlite:///q.db?busy_timeout=nan", "sqlite:///q.db?shards=0",
        "postgresql://host/db?shards=many", "postgres//host/db", "http://[bad", "sqlite:///a\0b.db",
    ],
)  # fmt: skip
def test_url_with_a_typo_is_refused_with_what_to_write(url: str) -> None:
    with pytest.raises(BadStoreURL) as refusal:
        parse(url)
    assert refusal.value.code == "bad_store_url"
    assert len(refusal.value.message) > 20


def test_url_that_is_not_text_is_refused() -> None:
    with pytest.raises(BadStoreURL):
        parse(None)  # type: ignore[arg-type]


def test_url_with_three_slashes_is_relative_with_four_absolute() -> None:
    assert parse("sqlite:///dir/q.db").target == "dir/q.db"
    assert parse("sqlite:////dir/q.db").target == "/dir/q.db"
    assert parse("sqlite:///with%20space.db").target == "with space.db"


def test_url_options_are_parsed() -> None:
    found = parse("sqlite:///q.db?durability=normal&busy_timeout=2.5")
    assert (found.durability, found.busy_timeout) == ("normal", 2.5)
    plain = parse("sqlite:///q.db")
    assert (plain.durability, plain.busy_timeout) == ("full", 10.0)


def test_url_of_postgresql_keeps_its_own_options() -> None:
    found = parse("postgres://me:pw@host:5433/db?sslmode=require&shards=2&durability=normal")
    assert found.target == "postgresql://me:pw@host:5433/db?sslmode=require"
    assert (found.scheme, found.shards, found.durability) == ("postgresql", 2, "normal")


def test_url_with_relative_path_uses_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    SQLiteStore("sqlite:///here.db?durability=normal").close()
    assert (tmp_path / "here.db").exists()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:p@ss@h/db", "postgresql://u:***@h/db"),
        ("host=x password='a b\\'c' user=y", "host=x password=*** user=y"),
        ("PGPASSWORD=abc", "PGPASSWORD=***"),
        ("authorization: Bearer abc.def", "authorization: Bearer ***"),
        ("http://h/x?token=abc&y=1", "http://h/x?token=***&y=1"),
        ("see http://a:b@c/d and e@f.g", "see http://a:***@c/d and e@f.g"),
        ("nats://secret@h:4222", "nats://***@h:4222"),
    ],
)
def test_secrets_in_texts_are_masked(text: str, shown: str) -> None:
    assert without_password(text) == shown
