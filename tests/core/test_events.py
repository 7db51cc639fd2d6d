"""The event stream: who hears what, and what a listener may do wrong."""

from __future__ import annotations

import pytest

from ackwise.core.events import Event, EventStream, MessagesPruned, MessagesPushed


def test_stream_without_listener_accepts_events() -> None:
    stream = EventStream()
    assert not stream.listening
    stream.emit(MessagesPushed("q", 1))


def test_listener_hears_all_kinds_or_the_kinds_it_names() -> None:
    stream = EventStream()
    everything: list[Event] = []
    pruned: list[MessagesPruned] = []
    stream.subscribe(everything.append)
    stream.subscribe(pruned.append, MessagesPruned)
    stream.emit(MessagesPushed("q", 1))
    stream.emit(MessagesPruned("q", 2))
    assert everything == [MessagesPushed("q", 1), MessagesPruned("q", 2)]
    assert pruned == [MessagesPruned("q", 2)]


def test_unsubscribe_ends_one_subscription() -> None:
    stream = EventStream()
    heard: list[Event] = []
    first = stream.subscribe(heard.append)
    second = stream.subscribe(heard.append)
    first()
    first()
    stream.emit(MessagesPushed("q", 1))
    assert len(heard) == 1
    second()
    assert not stream.listening


def test_failing_listener_disturbs_neither_emitter_nor_others() -> None:
    stream = EventStream()
    heard: list[Event] = []

    def fail(_: Event) -> None:
        raise ValueError("no")

    stream.subscribe(fail)
    stream.subscribe(heard.append)
    with pytest.warns(RuntimeWarning, match=r"listener .*fail.* failed: ValueError\('no'\)"):
        stream.emit(MessagesPushed("q", 1))
    assert heard == [MessagesPushed("q", 1)]


@pytest.mark.filterwarnings("error")
def test_failing_listener_raises_nothing_if_warnings_raise() -> None:
    stream = EventStream()
    heard: list[Event] = []

    def fail(_: Event) -> None:
        raise ValueError("no")

    stream.subscribe(fail)
    stream.subscribe(heard.append)
    stream.emit(MessagesPushed("q", 1))
    assert heard == [MessagesPushed("q", 1)]


def test_listener_may_unsubscribe_while_it_is_called() -> None:
    stream = EventStream()
    heard: list[Event] = []

    def once(event: Event) -> None:
        heard.append(event)
        end()

    end = stream.subscribe(once)
    stream.emit(MessagesPushed("q", 1))
    stream.emit(MessagesPushed("q", 2))
    assert heard == [MessagesPushed("q", 1)]
