"""Turns with commands of an extension exclude each other. Other turns do not wait for them."""

from __future__ import annotations

import pytest

from ackwise.core.commands import Command, Sweep
from ackwise.core.errors import StoreLocked
from tests.engine.sample_extension import AddWord, ListWords, sample
from tests.postgres.conftest import Opener
from tests.postgres.support import push, text


@pytest.mark.parametrize("command", [AddWord(word="b"), ListWords(), Sweep(duties=("clear_words",))])
def test_turns_of_an_extension_exclude_each_other(opened: Opener, command: Command) -> None:
    first, second = opened(), opened("busy_timeout=0.1")
    for store in (first, second):
        store.extensions.add(sample(1))
    prepared = first.prepare([AddWord(word="a")])
    try:
        with pytest.raises(StoreLocked):
            second.transact([command])
        push(second, text("x"))
        second.transact([Sweep()])
    finally:
        prepared.commit()
    second.transact([command])
