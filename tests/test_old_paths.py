"""Import paths of earlier versions still work, with a warning that names the new path."""

from __future__ import annotations

import importlib
import sys

import pytest

from ackwise.old_paths import MOVED

NAMES = {
    "ackwise.client.rows": "DeadLetter",
    "ackwise.fluent.partial": "Partial",
    "ackwise.pushpop.threads": "PushPop",
    "ackwise.subscriber.depends": "Depends",
    "ackwise.subscriber.outcomes": "Nak",
    "ackwise.columns.pages": "stream",
    "ackwise.columns.texts": "uuids",
}


@pytest.mark.parametrize("old", MOVED)
def test_old_import_path_warns_and_has_the_same_names(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in [path for path in sys.modules if path in MOVED]:
        monkeypatch.delitem(sys.modules, loaded)
    parent = old.rpartition(".")[0]
    if parent in MOVED:
        with pytest.warns(DeprecationWarning, match="is now"):
            importlib.import_module(parent)
    with pytest.warns(DeprecationWarning, match=f"^{old} is now {MOVED[old]}; change the import$") as warned:
        moved = importlib.import_module(old)
    assert len(warned) == 1
    if name := NAMES.get(old):
        assert getattr(moved, name) is getattr(importlib.import_module(MOVED[old]), name)


def test_path_that_never_existed_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("ackwise.client.made_up")
