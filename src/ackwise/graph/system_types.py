"""Built-in types: watches, events, dead letters."""

from __future__ import annotations

from ackwise.graph import ast as s

WATCH, EVENT, DEAD_LETTER, SESSION, TICK = 1, 2, 3, 4, 5
HAS_WATCH, WATCH_EVENT, WATCH_DEAD_LETTER, DEAD_LETTER_ITEM, DECLARES = 20, 21, 22, 23, 24
UNWATCHABLE = frozenset({EVENT, TICK, WATCH_EVENT})
"""Types that every commit or delivery changes. A watch on them would cause events without end."""


def _node(name: str, **attributes: str) -> s.NodeDecl:
    declared = tuple(
        s.AttributeDecl(key, s.TypeRef((kind.removesuffix("?"),), kind.endswith("?")))
        for key, kind in attributes.items()
    )
    return s.NodeDecl(name, (), declared, ("sealed",))


def _edge(name: str, attributes: tuple[s.AttributeDecl, ...] = (), **slots: str) -> s.EdgeDecl:
    return s.EdgeDecl(name, tuple((slot, s.TypeRef((kind,))) for slot, kind in slots.items()), (), attributes)


SYSTEM: tuple[tuple[int, s.Declaration], ...] = (
    (
        WATCH,
        _node(
            "_Watch",
            pattern="String",
            mode="String",
            group="String?",
            status="String",
            ordering="String",
            delivery="String",
            visibility="String",
            buffer_size="Int",
            on_full="String",
            ack_timeout="Duration",
            max_redeliveries="Int",
            dead_letter="String?",
            created_at="Timestamp",
            events_delivered="Int",
            events_pending="Int",
            last_event_at="Timestamp?",
            doc="String?",
        ),
    ),
    (EVENT, _node("_WatchEvent", event_type="String", tick="Int", delivery_id="String?", created_at="Timestamp")),
    (
        DEAD_LETTER,
        _node(
            "_DeadLetter",
            original_match="String",
            failure_reason="String",
            delivery_attempts="Int",
            created_at="Timestamp",
        ),
    ),
    (SESSION, _node("_Session", created_at="Timestamp")),
    (TICK, _node("_TickState", global_tick="Int", last_tick_at="Timestamp?")),
    (HAS_WATCH, _edge("_session_has_watch", session="_Session", watch="_Watch")),
    (
        WATCH_EVENT,
        _edge(
            "_watch_event",
            (s.AttributeDecl("position", s.TypeRef(("Int",))),),
            watch="_Watch",
            event="_WatchEvent",
        ),
    ),
    (WATCH_DEAD_LETTER, _edge("_watch_dead_letter", watch="_Watch", letter="_DeadLetter")),
    (DEAD_LETTER_ITEM, _edge("_dead_letter_item", destination="any", item="any")),
    (DECLARES, _edge("_ontology_declares_watch", ontology="any", watch="_Watch")),
)
