"""Tables: what they leave out, what they fold, and that they cut nothing."""

from __future__ import annotations

import pytest

from ackwise.cli import output
from ackwise.cli.output import Progress, counted, table
from ackwise.spark.reports.columns import Column

ID = "01a00000-0000-7000-8000-000000000001"
COLUMNS = (
    Column("id", "id", "id"),
    Column("name", "name"),
    Column("count", "count", "number"),
    Column("note", "note"),
)
ROWS = [{"id": ID, "name": "orders", "count": 1234, "note": "a long note of several words"}]


def lines(room: int, *optional: str) -> list[str]:
    return table(ROWS, COLUMNS, room, optional).splitlines()


@pytest.mark.parametrize("room", [20, 40, 60, 80, 120])
def test_table_fits_and_keeps_every_character_of_an_id(room: int) -> None:
    text = lines(room, "note", "count", "name")
    assert max(map(len, text)) <= room
    assert ID in "".join(line[:36].strip() for line in text[1:]) or ID in "".join(text).replace(" ", "")


def test_table_drops_optional_columns_in_their_order() -> None:
    assert lines(120, "note") == [
        f"{'id':36}  name    count  note",
        f"{ID}  orders  1,234  a long note of several words",
    ]
    assert lines(60, "note", "count")[0].split() == ["id", "name", "count"]
    assert "note" in lines(60, "note", "count")[-1]


def test_table_folds_text_before_it_drops_columns() -> None:
    text = lines(70, "note")
    assert [line[53:] for line in text] == ["note", "a long note of", "several words"]


def test_cells_escape_control_characters() -> None:
    text = table([{"name": "a\x1b[2Jb\nc"}], [Column("name", "name")], 80)
    assert text == "name\na\\x1b[2Jb\\nc"


def test_wide_characters_take_two_columns() -> None:
    text = table([{"name": "日本", "count": 1}], [Column("name", "name"), Column("count", "n", "number")], 80)
    assert text.splitlines() == ["name  n", "日本  1"]


def test_counted_noun_agrees_with_its_number() -> None:
    assert (counted(1, "lease"), counted(2, "delivery", "deliveries")) == ("1 lease", "2 deliveries")


def test_progress_without_a_terminal_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("pushed")
    progress(1)
    progress.end()
    assert capsys.readouterr().err == ""


def test_width_follows_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "77")
    assert output.width() == 77
    monkeypatch.setenv("COLUMNS", "wide")
    assert output.width() > 1000
